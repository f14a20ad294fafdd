//! Requests of programs to models, and their answers, in the formats that clients of OpenAI and Anthropic speak.
//!
//! Start at [`answer`]; [`refused`] writes an error as the client's own library expects it. What always holds: whose the
//! request is was settled before its body is read; the body goes to the system as it came; a client that hangs up drops the
//! exchange; at the daemon's end, or where its key is taken back, an answer under way is ended in its own format, early
//! enough that what it used is settled.
//! Deliberately absent: what is in the bodies, which is the business of whoever serves them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use serde_json::{Value, json};

use aos_abi::api::TokenCount;
use aos_abi::inference::Format;
use aos_abi::{Code, Pid};

use crate::dispatch::{Shared, declared_length, json_response, read_body};
use crate::error::ApiError;
use crate::key::Key;
use crate::room::Taken;
use crate::system::{Answer, Relayed, Said, System};

/// What is passed on piece by piece.
const STREAM: &str = "text/event-stream";
/// The configured name of the model that served.
const MODEL: HeaderName = HeaderName::from_static("x-aos-model");
/// The clients of OpenAI and Anthropic, which come of one generator, go by it before they go by the status.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// How long the system may take to say whose a key is.
const OWNER_WITHIN: Duration = Duration::from_secs(30);
/// How long it may take to count a request.
const COUNTED_WITHIN: Duration = Duration::from_secs(30);

/// Whose key it is.
pub(crate) async fn owner<S: System>(shared: &Shared<S>, key: &Key) -> Result<Pid, ApiError> {
    let sha256 = key.sha256();
    shared.within(OWNER_WITHIN, shared.system.program(&sha256)).await?.ok_or_else(Key::unknown)
}

/// Answers a program's request.
pub(crate) async fn answer<S: System>(
    shared: &Arc<Shared<S>>,
    pid: Pid,
    format: Format,
    request: Parts,
    body: Body,
) -> Result<Response, ApiError> {
    let options = &shared.options;
    let betas = betas(&request.headers)?;
    let mut room = take_room(shared, pid, &request.headers)?;
    let body = read_body(&request.headers, body, options.program_bytes_max, options.body_within).await?;
    room.shrink(body.len());
    let mut ending: Ending = Box::pin(ending(Arc::clone(shared)));
    let told = async {
        let Relayed { status, content_type, model, body } =
            shared.system.relay(pid, Said { format, body, betas }).await?;
        let head = head(status, content_type, &model);
        if content_type == STREAM { Ok((head, Ok(body))) } else { Ok((head, Err(whole(body).await?))) }
    };
    let told = tokio::select! {
        biased;
        told = told => told,
        () = ending.as_mut() => Err(the_end()),
    };
    Ok(match told? {
        (head, Err(whole)) => head.map(|()| Body::from(whole)),
        (head, Ok(pieces)) => {
            let passing = Passing { pieces, ending, format, between: true, over: false, _room: room };
            let pieces = futures_util::stream::unfold(passing, |mut passing| async move {
                passing.next().await.map(|piece| (piece, passing))
            });
            head.map(|()| Body::from_stream(pieces))
        }
    })
}

/// What a request has in `anthropic-beta`, in however many headers.
fn betas(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut betas = Vec::new();
    for value in headers.get_all("anthropic-beta") {
        betas.push(value.to_str().map_err(|_| ApiError::usage("`anthropic-beta` holds what is no text"))?);
    }
    Ok((!betas.is_empty()).then(|| betas.join(",")))
}

/// Says how many tokens a request has, for a program that is about to make it.
pub(crate) async fn count<S: System>(
    shared: &Arc<Shared<S>>,
    pid: Pid,
    request: Parts,
    body: Body,
) -> Result<Response, ApiError> {
    let options = &shared.options;
    let mut room = take_room(shared, pid, &request.headers)?;
    let body = read_body(&request.headers, body, options.program_bytes_max, options.body_within).await?;
    room.shrink(body.len());
    let input_tokens = shared.within(COUNTED_WITHIN, shared.system.count_tokens(body)).await?;
    json_response(200, &TokenCount { input_tokens })
}

/// Room for the body, as large as it says it is, or as large as it may be. It is given back when the answer has ended.
fn take_room<S: System>(shared: &Shared<S>, pid: Pid, headers: &HeaderMap) -> Result<Taken, ApiError> {
    let most = shared.options.program_bytes_max;
    let bytes = declared_length(headers).map_or(most, |length| usize::try_from(length).unwrap_or(usize::MAX));
    if bytes > most {
        return Err(ApiError::too_large(most));
    }
    shared.programs.take(pid, bytes)
}

fn head(status: u16, content_type: &'static str, model: &str) -> axum::http::Response<()> {
    let mut head = axum::http::Response::new(());
    *head.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    head.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    // Only a name that no header can hold is left out.
    if let Ok(model) = HeaderValue::from_bytes(model.as_bytes()) {
        head.headers_mut().insert(MODEL, model);
    }
    head
}

/// A body in one piece.
async fn whole(mut pieces: BoxStream<'static, Answer<Bytes>>) -> Answer<Bytes> {
    let first = pieces.next().await.transpose()?.unwrap_or_default();
    let Some(second) = pieces.next().await.transpose()? else { return Ok(first) };
    let mut whole = BytesMut::from(first);
    whole.extend_from_slice(&second);
    while let Some(piece) = pieces.next().await.transpose()? {
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

/// Resolves when an answer must end because the daemon does: half the drain time after the shutdown began, so that the
/// other half is left for settling what was used.
async fn ending<S: System>(shared: Arc<Shared<S>>) {
    shared.shutdown.cancelled().await;
    tokio::time::sleep(shared.options.drain_within / 2).await;
}

type Ending = Pin<Box<dyn Future<Output = ()> + Send>>;

fn the_end() -> ApiError {
    ApiError::unavailable("the daemon is ending").hint("ask again when it is up")
}

/// A stream on its way to a program.
struct Passing {
    pieces: BoxStream<'static, Answer<Bytes>>,
    ending: Ending,
    format: Format,
    /// What was passed on ends where an event does.
    between: bool,
    /// Nothing more comes.
    over: bool,
    _room: Taken,
}

impl Passing {
    async fn next(&mut self) -> Option<Result<Bytes, ApiError>> {
        if self.over {
            return None;
        }
        let ended = tokio::select! {
            biased;
            piece = self.pieces.next() => match piece? {
                Ok(piece) => {
                    self.between = piece.ends_with(b"\n\n") || piece.ends_with(b"\n\r\n");
                    return Some(Ok(piece));
                }
                Err(error) => error,
            },
            () = self.ending.as_mut() => the_end(),
        };
        self.over = true;
        // Behind half an event nothing can be said, so the transfer is broken off and is not taken for whole.
        Some(if self.between { Ok(last_event(self.format, &ended)) } else { Err(ended) })
    }
}

/// An error as the clients of a format expect it, so that they raise their own and show what it says.
pub(crate) fn refused(format: Format, error: ApiError) -> Response {
    let json = in_format(format, &error).to_string();
    // The clients ask again after a 409 and any 5xx by themselves, which does not help against these two, nor against what
    // only a person can mend at a model, and each time is paid where the program did not read what it had.
    let no_sooner = error.status == 503 && error.retry_after_ms.is_none();
    let mended = error.code == Code::Io.as_str() && error.status != 503;
    let in_vain = matches!(error.status, 409 | 507) || mended || no_sooner;
    let mut response = error.into_response();
    *response.body_mut() = Body::from(json);
    if in_vain {
        response.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    response
}

fn in_format(format: Format, error: &ApiError) -> Value {
    let message = match &error.hint {
        None => error.message.clone(),
        Some(hint) => format!("{} ({hint})", error.message),
    };
    match format {
        Format::Chat | Format::Responses | Format::Embeddings => json!({
            "error": {"message": message, "type": openai_type(error.status), "param": null, "code": error.code},
        }),
        Format::Messages => {
            json!({"type": "error", "error": {"type": anthropic_type(error.status), "message": message}})
        }
    }
}

/// The words of OpenAI's interface.
fn openai_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "insufficient_quota",
        429 => "rate_limit_exceeded",
        408 | 500.. => "server_error",
        _ => "invalid_request_error",
    }
}

/// The words of Anthropic's interface, by its table of errors.
fn anthropic_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

/// The event that tells a client that nothing more comes, and why.
fn last_event(format: Format, error: &ApiError) -> Bytes {
    let mut event = in_format(format, error);
    let named = match format {
        Format::Chat | Format::Embeddings => "",
        Format::Responses => {
            event["type"] = "error".into();
            for of in ["code", "message", "param"] {
                event[of] = event["error"][of].clone();
            }
            "event: error\n"
        }
        Format::Messages => "event: error\n",
    };
    Bytes::from(format!("{named}data: {event}\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_in_each_format_what_it_is() {
        let error = ApiError::new(402, "EDQUOT", "0.50 dollars are spent").hint("`aos budget 7 --usd 1`");
        let message = "0.50 dollars are spent (`aos budget 7 --usd 1`)";
        let openai = json!({"message": message, "type": "insufficient_quota", "param": null, "code": "EDQUOT"});
        assert_eq!(in_format(Format::Chat, &error), json!({"error": openai}));
        assert_eq!(in_format(Format::Responses, &error), json!({"error": openai}));
        let anthropic = json!({"type": "error", "error": {"type": "billing_error", "message": message}});
        assert_eq!(in_format(Format::Messages, &error), anthropic);
    }

    #[test]
    fn every_status_has_a_type_that_the_clients_know() {
        let statuses = [400, 401, 402, 403, 404, 405, 408, 409, 413, 429, 500, 503, 504, 507];
        let table = statuses.map(|status| format!("{status} {} {}", openai_type(status), anthropic_type(status)));
        assert_eq!(
            table.join("\n"),
            "400 invalid_request_error invalid_request_error\n\
             401 authentication_error authentication_error\n\
             402 insufficient_quota billing_error\n\
             403 invalid_request_error permission_error\n\
             404 invalid_request_error not_found_error\n\
             405 invalid_request_error invalid_request_error\n\
             408 server_error timeout_error\n\
             409 invalid_request_error invalid_request_error\n\
             413 invalid_request_error request_too_large\n\
             429 rate_limit_exceeded rate_limit_error\n\
             500 server_error api_error\n\
             503 server_error overloaded_error\n\
             504 server_error timeout_error\n\
             507 server_error api_error"
        );
    }

    #[test]
    fn what_trying_again_cannot_mend_says_so() {
        let retry = |(status, code)| {
            let response = refused(Format::Chat, ApiError::new(status, code, "x").retry_after_ms(2500));
            assert_eq!(response.headers()[header::RETRY_AFTER], "3");
            response.headers().get(SHOULD_RETRY).is_none_or(|should| should != "false")
        };
        let errors = [(409, "x"), (429, "EAGAIN"), (500, "internal"), (500, "EIO"), (503, "x"), (507, "ENOSPC")];
        assert_eq!(errors.map(retry), [false, true, true, false, true, false]);
        assert_eq!([(502, "EIO"), (503, "EIO")].map(retry), [false, true], "a model's server");
    }
}
