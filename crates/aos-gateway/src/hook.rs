//! Webhooks: requests from outside for an agent, checked before it hears of them.
//!
//! Start at [`answer`]. The order is: does anybody own the path, is there a signature where one must be, or
//! else no page behind its reader's back, is there room, is
//! the body small enough, is the signature right and new; only then is the request journaled. What always holds: what an agent answers is shown
//! by a browser as a page of nobody's (`Content-Security-Policy: sandbox`), never as one of ours, since it shares
//! our origin; credentials of the caller are not journaled.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use aos_abi::{Timestamp, limits};

use crate::dispatch::{LATE, Shared, json_response, read_body};
use crate::door::{Door, check_page};
use crate::error::ApiError;
use crate::signature::{WINDOW_S, claimed, taken, verify};
use crate::system::{System, WebhookAnswer, WebhookCall, WebhookDelivery, WebhookRoute};

/// How long the system may take beyond the time that the agent has.
const JOURNAL_WITHIN: Duration = Duration::from_secs(30);

/// Headers that concern one connection (RFC 9110, 7.6.1): not for the agent, not for the journal.
const NOT_PASSED: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What names of headers that hold credentials have in them: `X-Api-Key`, in which this gateway takes keys too,
/// `X-Gitlab-Token`, `X-Telegram-Bot-Api-Secret-Token`, `X-Auth-Token`, `Ocp-Apim-Subscription-Key`; and what a proxy in
/// front adds of who is signed in, `Cf-Access-Jwt-Assertion`, `X-Goog-Iap-Jwt-Assertion`, `X-Amzn-Oidc-Data`. Signatures
/// are none: they hold for one request, and are remembered by the journal.
const CREDENTIALS: &[&str] = &[
    "access-key",
    "api-key",
    "apikey",
    "authoris",
    "authoriz",
    "cookie",
    "credential",
    "functions-key",
    "jwt",
    "oidc",
    "passw",
    "secret",
    "session",
    "subscription-key",
    "token",
];

/// What has `auth` in it and is no credential: who wrote something, and what a mail server found out (RFC 8601). Every
/// other name with `auth` counts as one, since there are too many to list: `X-Auth`, `X-OAuth-Key`, `X-Authentication`.
const NOT_AUTH: &[&str] = &["authentication-results", "author"];

fn holds_credentials(name: &str) -> bool {
    let name = name.replace('_', "-");
    let other = NOT_AUTH.iter().fold(name.clone(), |name, part| name.replace(part, ""));
    other.contains("auth") || CREDENTIALS.iter().any(|part| name.contains(part))
}

/// Headers that an agent may set, beside those that begin with `x-`.
const ANSWERABLE: &[&str] = &[
    "cache-control",
    "content-disposition",
    "content-language",
    "content-type",
    "etag",
    "expires",
    "last-modified",
    "location",
    "retry-after",
    "vary",
];

/// And how those of these begin that a proxy in front takes for an order: to serve something of its own, or to go elsewhere
/// (nginx `X-Accel-*`; lighttpd, Apache and Caddy `X-Sendfile`; Perlbal `X-Reproxy-*`; LiteSpeed).
const ORDERS: &[&str] = &[
    "x-accel-",
    "x-forwarded-",
    "x-lighttpd-",
    "x-litespeed-",
    "x-lsws-",
    "x-original-",
    "x-reproxy-",
    "x-rewrite-",
    "x-send-file",
    "x-sendfile",
];

fn may_answer(name: &str) -> bool {
    let orders = ORDERS.iter().any(|begin| name.starts_with(begin));
    ANSWERABLE.contains(&name) || (name.starts_with("x-") && !orders)
}

/// Answers a request below `/hooks/`.
pub(crate) async fn answer<S: System>(
    shared: &Arc<Shared<S>>,
    path: String,
    request: Parts,
    body: Body,
) -> Result<Response, ApiError> {
    let Some(route) = shared.within(JOURNAL_WITHIN, shared.system.webhook_route(&path)).await? else {
        return Err(nobodys(&path));
    };
    match route.secret {
        Some(_) => claimed(&request.headers)?,
        None => check_page(&shared.options, Door::of(&request), &request)?,
    }
    let _seat = shared.seats.take(&path)?;
    if route.secret.is_none() {
        shared.rates.take(&path)?;
    }
    let body = read_body(&request.headers, body, limits::WEBHOOK_BODY_BYTES_MAX, shared.options.body_within).await?;
    let now = (shared.options.clock)();
    let proof = match &route.secret {
        None => None,
        Some(secret) => Some(verify(secret, &path, &request.headers, &body, now)?),
    };
    let call = WebhookCall {
        pid: route.pid,
        method: request.method.as_str().to_owned(),
        path: path.clone(),
        query: request.uri.query().map(str::to_owned),
        headers: passed(&request.headers),
        body,
        reply_within: reply_within(&route),
        at: now,
    };
    if let Some(proof) = proof {
        shared.recalled.get_or_try_init(|| recall(shared, now)).await?;
        shared.seen.lock().unwrap_or_else(PoisonError::into_inner).take(proof, now)?;
    }
    let delivered = shared.within(call.reply_within + JOURNAL_WITHIN, shared.system.webhook(call)).await;
    // Whatever did not answer in time may still journal the request: taken again, it would wake the agent twice.
    if let (Err(error), Some(proof)) = (&delivered, proof)
        && error.status != LATE
    {
        shared.seen.lock().unwrap_or_else(PoisonError::into_inner).give_back(proof);
    }
    match delivered {
        // To a sender a full queue is the server's trouble, and senders repeat a 503. Whose it is and how full is not for
        // strangers.
        Err(ApiError { status: 429, retry_after_ms, .. }) => {
            Err(ApiError { retry_after_ms, ..ApiError::unavailable("the agent takes no more requests for now") })
        }
        // It ended while the request came.
        Err(error) if error.status == 404 => Err(nobodys(&path)),
        Err(error) => Err(error),
        Ok(WebhookDelivery { request_id, answer: None }) => {
            json_response(202, &serde_json::json!({ "request_id": request_id }))
        }
        Ok(WebhookDelivery { request_id, answer: Some(answer) }) => written(answer, &request_id),
    }
}

fn nobodys(path: &str) -> ApiError {
    ApiError::not_found(format!("no agent owns the webhook `{}`", crate::call::shown(path)))
        .hint("an agent takes a path with SYS_REGISTER_WEBHOOK and gives it up when it ends")
}

/// Remembers the signed requests that the last daemon took: they are as little taken again as this one's.
async fn recall<S: System>(shared: &Shared<S>, now: Timestamp) -> Result<(), ApiError> {
    // One may have been signed as far ahead of our clock as another behind it.
    let since = Timestamp(now.0.saturating_sub_unsigned(2 * WINDOW_S * 1000));
    let before = shared.within(JOURNAL_WITHIN, shared.system.webhooks_since(since)).await?;
    let mut seen = shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
    before.iter().filter_map(taken).try_for_each(|proof| match seen.take(proof, now) {
        Err(error) if error.status == 409 => Ok(()),
        taken => taken,
    })
}

fn reply_within(route: &WebhookRoute) -> Duration {
    Duration::from_secs(route.reply_within_s.min(limits::WEBHOOK_REPLY_S_MAX))
}

/// Headers as an agent gets them: names in lower case, several of one name joined as RFC 9110, 5.3 allows.
fn passed(headers: &HeaderMap) -> BTreeMap<String, String> {
    let mut passed = BTreeMap::<String, String>::new();
    for (name, value) in headers {
        if NOT_PASSED.contains(&name.as_str()) || holds_credentials(name.as_str()) {
            continue;
        }
        let value = String::from_utf8_lossy(value.as_bytes());
        passed
            .entry(name.as_str().to_owned())
            .and_modify(|before| {
                before.push_str(", ");
                before.push_str(&value);
            })
            .or_insert_with(|| value.into_owned());
    }
    passed
}

fn written(answer: WebhookAnswer, request_id: &str) -> Result<Response, ApiError> {
    let bad = |what: String| {
        ApiError::new(502, "bad_answer", format!("the agent's answer to {request_id} {what}"))
            .hint("it is for the agent to mend; the request was delivered")
    };
    let status = StatusCode::from_u16(answer.status)
        .ok()
        .filter(|status| (200..600).contains(&status.as_u16()))
        .ok_or_else(|| bad(format!("has the status {}, which is not from 200 to 599", answer.status)))?;
    let empty = matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED);
    let mut response = if empty { ().into_response() } else { answer.body.into_response() };
    *response.status_mut() = status;
    for (name, value) in &answer.headers {
        let name = name.to_ascii_lowercase();
        if !may_answer(&name) {
            continue;
        }
        let (Ok(header), Ok(value)) = (HeaderName::try_from(&name), HeaderValue::try_from(value)) else {
            return Err(bad(format!("has a header `{}` that HTTP does not allow", crate::call::shown(&name))));
        };
        response.headers_mut().insert(header, value);
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_and_connection_headers_stay_outside() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("authorization", "Bearer x"), ("cookie", "a"), ("x-event", "a"), ("connection", "close")]
        {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.append("x-event", HeaderValue::from_static("b"));
        for name in [
            "proxy-authorization",
            "x-api-key",
            "x_api_key",
            "x-gitlab-token",
            "x-telegram-bot-api-secret-token",
            "x-auth-token",
            "x-amz-security-token",
            "ocp-apim-subscription-key",
            "x-auth",
            "x-basic-auth",
            "x_auth_key",
            "x-authentication",
            "x-authorisation",
            "x-author-authorization",
            "cf-access-jwt-assertion",
            "x-goog-iap-jwt-assertion",
            "x-amzn-oidc-data",
            "x-session-id",
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("aos_sk_x"));
        }
        let others = [
            "x-aos-signature",
            "x-aos-timestamp",
            "x-hub-signature-256",
            "x-github-event",
            "idempotency-key",
            "x-author",
            "x-authored-by",
            "authentication-results",
            "arc-authentication-results",
        ];
        for name in others {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("1"));
        }
        let mut kept = BTreeMap::from(others.map(|name| (name.to_owned(), "1".to_owned())));
        kept.insert("x-event".to_owned(), "a, b".to_owned());
        assert_eq!(passed(&headers), kept);
    }

    #[test]
    fn an_agents_answer_is_a_page_of_nobody() {
        let headers = [
            ("Content-Type", "text/html"),
            ("Set-Cookie", "a=b"),
            ("Content-Security-Policy", "default-src *"),
            ("Access-Control-Allow-Origin", "*"),
            ("Transfer-Encoding", "chunked"),
            ("X-Mine", "1"),
            ("X-Accel-Redirect", "/private/x"),
            ("X-Sendfile", "/etc/passwd"),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let answer = WebhookAnswer { status: 201, headers, body: "<script>".to_owned() };
        let response = written(answer, "r1").unwrap();
        let mut shown: Vec<String> =
            response.headers().iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        shown.sort();
        assert_eq!(shown, ["content-security-policy=sandbox", "content-type=text/html", "x-mine=1"]);
    }

    #[test]
    fn an_answer_that_is_no_http_is_a_502() {
        let answer = |status, name: &str, value: &str| {
            let headers = [(name.to_owned(), value.to_owned())].into();
            written(WebhookAnswer { status, headers, body: String::new() }, "r1")
                .map_err(|error| error.status)
                .map(|_| ())
        };
        assert_eq!(answer(200, "x-a", "b"), Ok(()));
        assert_eq!(answer(101, "x-a", "b"), Err(502));
        assert_eq!(answer(7, "x-a", "b"), Err(502));
        assert_eq!(answer(200, "x-a b", "c"), Err(502));
        assert_eq!(answer(200, "x-a", "b\r\nset-cookie: c"), Err(502));
    }
}
