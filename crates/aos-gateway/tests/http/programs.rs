//! Programs and their keys: who is let in, what errors look like to them, and how answers come and end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aos_abi::inference::Format;
use aos_abi::{CallError, Code};
use aos_gateway::{ApiError, Relayed};
use axum::body::Body;
use axum::http::HeaderMap;
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::client::{Door, Got, PATIENCE};
use crate::fake::{KEY, TAKEN_BACK};
use crate::server::{Server, TOKEN};

const PATHS: [(&str, Format); 3] =
    [("/v1/chat/completions", Format::Chat), ("/v1/responses", Format::Responses), ("/v1/messages", Format::Messages)];

async fn ask(door: &Door, path: &str, body: impl Into<Body>) -> Got {
    door.send_with("POST", path, &[("x-api-key", KEY)], body).await
}

/// A request whose answer is read piece by piece.
async fn open(server: &Server, path: &str) -> (HeaderMap, Incoming) {
    let (status, headers, body) = server.tcp().open("POST", path, &[("x-api-key", KEY)], "{}").await;
    assert_eq!(status, 200);
    (headers, body)
}

async fn piece(body: &mut Incoming) -> Option<Bytes> {
    let frame = tokio::time::timeout(PATIENCE, body.frame()).await.expect("nothing comes");
    frame.map(|frame| frame.unwrap().into_data().unwrap())
}

async fn until(what: impl Fn() -> bool) {
    let waited = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waited).await.expect("it does not come true");
}

/// The error as a client of the format reads it: its type and its message.
fn error(format: Format, got: &Got) -> (String, String) {
    assert_eq!(got.header("content-type"), "application/json", "{got:?}");
    let json = got.json();
    match format {
        Format::Messages => assert_eq!(json["type"], "error", "{json}"),
        Format::Chat | Format::Responses | Format::Embeddings => {
            assert_eq!(json["error"]["param"], Value::Null, "{json}");
            assert!(json["error"]["code"].is_string(), "{json}");
        }
    }
    let text = |of: &str| json["error"][of].as_str().unwrap_or_else(|| panic!("no {of} in {json}")).to_owned();
    (text("type"), text("message"))
}

#[tokio::test]
async fn only_one_right_key_opens_the_routes_of_programs() {
    let server = Server::start().await;
    let other = KEY.replace('0', "1");
    let bearer = |key: &str| format!("Bearer {key}");
    let (right, wrong, token) = (bearer(KEY), bearer(&other), bearer(TOKEN));
    for door in [server.tcp(), server.unix()] {
        for (path, format) in PATHS {
            for (headers, message) in [
                (&[][..], "this route needs a program's key"),
                (&[("authorization", wrong.as_str())], "this key was never given out, or was taken back"),
                (&[("x-api-key", other.as_str())], "this key was never given out, or was taken back"),
                (&[("x-api-key", "sk-ant-1")], "this is no key of a program"),
                (&[("authorization", KEY)], "the header Authorization holds no bearer key"),
                (&[("authorization", token.as_str())], "the daemon's token is not for programs"),
                (&[("x-api-key", TOKEN)], "the daemon's token is not for programs"),
                (&[("authorization", token.as_str()), ("x-api-key", KEY)], "the daemon's token is not for programs"),
                (&[("authorization", right.as_str()), ("x-api-key", &other)], "the request shows two different keys"),
                (&[("authorization", wrong.as_str()), ("x-api-key", KEY)], "the request shows two different keys"),
            ] {
                let got = door.send_with("POST", path, headers, "{}").await;
                assert_eq!(
                    (got.status, got.header("www-authenticate")),
                    (401, "Bearer"),
                    "{path} {headers:?}: {got:?}"
                );
                let (kind, said) = error(format, &got);
                assert_eq!(kind, "authentication_error");
                assert!(said.starts_with(message) && said.contains("aos models key NAME"), "{said}");
                assert_eq!(got.header("x-aos-model"), "");
            }
        }
    }
    assert!(server.fake.relayed.lock().unwrap().is_empty(), "no model heard of any of it");
    for (path, _) in PATHS {
        for headers in [
            &[("authorization", right.as_str())][..],
            &[("x-api-key", KEY)],
            &[("x-api-key", KEY), ("authorization", &right)],
        ] {
            let got = server.tcp().send_with("POST", path, headers, "{}").await;
            assert_eq!((got.status, got.header("x-aos-model")), (200, "small"), "{got:?}");
        }
    }
}

#[tokio::test]
async fn a_key_opens_nothing_else_but_the_models() {
    let server = Server::start().await;
    let bearer = format!("Bearer {KEY}");
    for headers in [[("authorization", bearer.as_str())], [("x-api-key", KEY)]] {
        for door in [server.tcp(), server.unix()] {
            let got = door.send_with("GET", "/v1/models", &headers, "").await;
            assert_eq!((&got.json()["object"], &got.json()["data"][0]["id"]), (&"list".into(), &"cheap".into()));
        }
        let got = server.tcp().send_with("GET", "/v1/models/cheap", &headers, "").await;
        assert_eq!((got.status, &got.json()["id"]), (200, &"cheap".into()));
        // It is there, and not for programs.
        let got = server.tcp().send_with("GET", "/v1/models/small", &headers, "").await;
        assert_eq!((got.status, got.error().starts_with("model_not_found: there is no model `small`")), (404, true));
        for path in ["/v1/status", "/metrics", "/v1/processes", "/v1/events"] {
            assert_eq!(server.tcp().send_with("GET", path, &headers, "").await.status, 401, "{path}");
        }
        let got = server.tcp().send_with("POST", "/mcp", &headers, "{}").await;
        assert_eq!((got.status, got.error().as_str()), (404, "not_found: the MCP server is not in this version"));
    }
    for door in [server.tcp(), server.unix()] {
        assert_eq!(door.get("/v1/models").await.json()["data"][0]["id"], "small", "as ever, with the token");
        let got = door.send_with("GET", "/v1/models", &[("x-api-key", &KEY.replace('0', "1"))], "").await;
        assert_eq!((got.status, got.error().starts_with("unauthorized: this key was never")), (401, true));
    }
}

#[tokio::test]
async fn a_rebound_name_is_refused_before_the_key_is_looked_at() {
    let server = Server::start().await;
    for (path, format) in PATHS {
        let headers = [("host", "evil.example:7717"), ("x-api-key", KEY)];
        let got = server.tcp().send_with("POST", path, &headers, "{}").await;
        assert_eq!(got.status, 403, "{got:?}");
        assert!(error(format, &got).1.starts_with("this listener is not `evil.example`"));
        assert_eq!(server.unix().send_with("POST", path, &headers, "{}").await.status, 200, "no page gets there");
    }
    let headers = [("origin", "https://evil.example"), ("x-api-key", KEY)];
    let got = server.tcp().send_with("POST", PATHS[0].0, &headers, "{}").await;
    assert!(!got.headers.keys().any(|name| name.as_str().starts_with("access-control-")), "{got:?}");
}

#[tokio::test]
async fn a_request_is_counted_for_a_key_and_no_model_hears_of_it() {
    let server = Server::start().await;
    let path = "/v1/messages/count_tokens";
    let got = server.tcp().send_with("POST", path, &[("x-api-key", KEY)], "{\"a\": 1}").await;
    assert_eq!((got.status, got.json()), (200, serde_json::json!({"input_tokens": 8})));
    let got = server.tcp().send_with("POST", path, &[], "{}").await;
    assert_eq!((got.status, &got.json()["error"]["type"]), (401, &"authentication_error".into()));
    assert!(server.fake.relayed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_betas_of_a_request_go_on_with_it() {
    let server = Server::start().await;
    let of = |headers: &'static [(&'static str, &'static str)]| {
        let (door, fake) = (server.tcp(), Arc::clone(&server.fake));
        async move {
            let got = door.send_with("POST", "/v1/messages?beta=true", headers, "{}").await;
            assert_eq!(got.status, 200, "{got:?}");
            fake.betas.lock().unwrap().clone()
        }
    };
    assert_eq!(of(&[("x-api-key", KEY)]).await, None);
    let two = of(&[("x-api-key", KEY), ("anthropic-beta", "a-1,b-2"), ("anthropic-beta", "c-3")]).await;
    assert_eq!(two.as_deref(), Some("a-1,b-2,c-3"));
}

#[tokio::test]
async fn the_body_goes_on_as_it_came_and_the_answer_comes_whole() {
    let server = Server::start().await;
    for (path, format) in PATHS {
        // Neither JSON nor text.
        let got = ask(&server.tcp(), path, &b"\xff{\"model\": 1"[..]).await;
        assert_eq!((got.status, &got.body[..]), (200, &br#"{"an":"answer"}"#[..]));
        assert_eq!((got.header("content-length"), got.header("cache-control")), ("15", "no-store"));
        let asked = server.fake.relayed.lock().unwrap().pop().unwrap();
        assert_eq!((asked.0, &asked.1[..]), (format, &b"\xff{\"model\": 1"[..]));
    }
    let refusal = r#"{"error":{"message":"no such tool"}}"#;
    let body = futures_util::stream::iter([Ok(Bytes::from(refusal))]).boxed();
    let relayed = Relayed { status: 422, content_type: "application/json", model: "big".into(), body };
    server.fake.answer_next(Ok(relayed));
    let got = ask(&server.tcp(), PATHS[0].0, "{}").await;
    assert_eq!((got.status, got.header("x-aos-model"), &got.body[..]), (422, "big", refusal.as_bytes()));
}

#[tokio::test]
async fn errors_have_the_clients_own_form() {
    let server = Server::start().await;
    let call = |code, message: &str| ApiError::from(CallError::new(code, message).hint("the way out"));
    let again = CallError { retry_after_ms: Some(2500), ..CallError::new(Code::Again, "40 requests a minute") };
    for (of, status, openai, anthropic) in [
        (call(Code::DQuot, "spent"), 402, "insufficient_quota", "billing_error"),
        (call(Code::Inval, "no model"), 400, "invalid_request_error", "invalid_request_error"),
        (call(Code::Perm, "not this model"), 403, "invalid_request_error", "permission_error"),
        (ApiError::from(again), 429, "rate_limit_exceeded", "rate_limit_error"),
        (ApiError::unavailable("none answers"), 503, "server_error", "overloaded_error"),
    ] {
        for (path, format) in PATHS {
            server.fake.answer_next(Err(of.clone()));
            let got = ask(&server.tcp(), path, "{}").await;
            assert_eq!(got.status, status, "{got:?}");
            let expected = if format == Format::Messages { anthropic } else { openai };
            let message = match &of.hint {
                None => of.message.clone(),
                Some(hint) => format!("{} ({hint})", of.message),
            };
            assert_eq!(error(format, &got), (expected.to_owned(), message));
            let retry_after = match status {
                429 => "3",
                503 => "1",
                _ => "",
            };
            assert_eq!(got.header("retry-after"), retry_after, "{got:?}");
            if format != Format::Messages {
                assert_eq!(got.json()["error"]["code"], *of.code);
            }
        }
    }
    for (path, format) in PATHS {
        let got = server.tcp().send_with("GET", path, &[("x-api-key", KEY)], "").await;
        assert_eq!((got.status, got.header("allow")), (405, "POST"), "{got:?}");
        error(format, &got);
        assert_eq!(server.tcp().send_with("GET", path, &[], "").await.status, 401);
        let got = ask(&server.tcp(), &format!("{path}?beta=true"), "{}").await;
        assert_eq!(got.status, 200, "Anthropic's clients add such a query");
    }
}

#[tokio::test]
async fn pieces_of_a_stream_arrive_one_by_one() {
    let server = Server::start().await;
    for (path, _) in PATHS {
        let pieces = server.fake.stream();
        let (headers, mut body) = open(&server, path).await;
        assert_eq!(headers["content-type"], "text/event-stream");
        assert_eq!(
            (&headers["cache-control"], &headers["x-aos-model"]),
            (&"no-store".parse().unwrap(), &"small".parse().unwrap())
        );
        for sent in ["data: 1\n\n", "data: 2\n\ndata: 3\n\n", "data: half ", "event\n\n"] {
            // Each is here before the next is there, so nothing was kept back.
            pieces.send(sent).await.unwrap();
            assert_eq!(piece(&mut body).await.unwrap(), sent);
        }
        drop(pieces);
        assert_eq!(piece(&mut body).await, None);
    }
    assert_eq!(server.fake.ended.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn whoever_hangs_up_ends_the_exchange() {
    let server = Server::start().await;
    let fake = &server.fake;
    let ended = |count| until(move || fake.ended.load(Ordering::SeqCst) == count);
    let pieces = server.fake.stream();
    let (_, mut body) = open(&server, PATHS[0].0).await;
    pieces.send("data: 1\n\n").await.unwrap();
    assert_eq!(piece(&mut body).await.unwrap(), "data: 1\n\n");
    drop(body);
    ended(1).await;
    assert!(pieces.is_closed(), "in the middle of a stream, while nothing came");
    let door = server.tcp();
    let waiting = tokio::spawn(async move { ask(&door, PATHS[2].0, "held").await });
    until(|| server.fake.waiting.load(Ordering::SeqCst) == 1).await;
    waiting.abort();
    ended(2).await;
}

#[tokio::test]
async fn a_request_too_large_is_a_413_and_many_large_ones_find_no_room() {
    let server = Server::with(64, |options| {
        options.body_bytes_max = 10;
        options.program_bytes_max = 4096;
        options.programs_bytes_max = 24 << 10;
    })
    .await;
    let large = "x".repeat(4096);
    for (path, format) in PATHS {
        assert_eq!(ask(&server.tcp(), path, large.clone()).await.status, 200);
        let got = ask(&server.tcp(), path, format!("{large}x")).await;
        assert_eq!(got.status, 413);
        assert_eq!(error(format, &got).1, "the body is larger than 4096 bytes, the most this route takes");
        let pieces = (0..5).map(|_| Ok::<_, std::io::Error>(Bytes::from("x".repeat(1024))));
        let got = ask(&server.tcp(), path, Body::from_stream(futures_util::stream::iter(pieces))).await;
        assert_eq!(got.status, 413, "one that does not say how long it is");
    }
    let pieces = server.fake.stream();
    let headers = [("x-api-key", KEY)];
    let (status, _, body) = server.tcp().open("POST", PATHS[0].0, &headers, large.clone()).await;
    assert_eq!(status, 200);
    let got = ask(&server.tcp(), PATHS[0].0, large.clone()).await;
    assert_eq!((got.status, got.header("retry-after")), (503, "1"), "{got:?}");
    assert!(error(Format::Chat, &got).1.starts_with("too many large requests at once"));
    assert_eq!(ask(&server.tcp(), PATHS[0].0, "{}").await.status, 200, "a small one finds room");
    drop((pieces, body));
    while ask(&server.tcp(), PATHS[0].0, large.clone()).await.status != 200 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_request_that_does_not_say_how_long_it_is_holds_no_more_room_than_it_takes_once_it_is_read() {
    let server = Server::with(64, |options| {
        options.program_bytes_max = 4096;
        options.programs_bytes_max = 24 << 10;
    })
    .await;
    let pieces = server.fake.stream();
    let untold = Body::from_stream(futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from("{}"))]));
    let (status, _, body) = server.tcp().open("POST", PATHS[0].0, &[("x-api-key", KEY)], untold).await;
    assert_eq!(status, 200);
    assert_eq!(ask(&server.tcp(), PATHS[0].0, "x".repeat(4096)).await.status, 200, "while it is answered");
    drop((pieces, body));
}

/// The next piece is the last, an event of the format that says this error.
async fn assert_last_says(format: Format, body: &mut Incoming, message: &str) {
    let last = String::from_utf8(piece(body).await.unwrap().to_vec()).unwrap();
    let data = last.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["error"]["message"], message);
    match format {
        Format::Chat | Format::Embeddings => assert!(last.starts_with("data: ")),
        Format::Responses | Format::Messages => {
            assert!(last.starts_with("event: error\ndata: ") && data["type"] == "error", "{last}");
        }
    }
    assert!(last.ends_with("\n\n"));
    assert_eq!(piece(body).await, None);
}

/// It ended like a whole one, and clients took it for that.
#[tokio::test]
async fn an_answer_that_may_not_go_on_does_not_look_whole() {
    let server = Server::start().await;
    for (path, format) in PATHS {
        let pieces = server.fake.stream();
        let (_, mut body) = open(&server, path).await;
        pieces.send("data: 1\n\n").await.unwrap();
        assert_eq!(piece(&mut body).await.unwrap(), "data: 1\n\n");
        pieces.send(TAKEN_BACK).await.unwrap();
        assert_last_says(format, &mut body, TAKEN_BACK).await;
    }
    let pieces = server.fake.stream();
    let (_, mut body) = open(&server, PATHS[0].0).await;
    pieces.send("data: {\"ha").await.unwrap();
    assert_eq!(piece(&mut body).await.unwrap(), "data: {\"ha");
    pieces.send(TAKEN_BACK).await.unwrap();
    assert!(body.frame().await.unwrap().is_err(), "the client must see that the transfer broke off");

    let body = futures_util::stream::iter([Ok(Bytes::from("{")), Err(ApiError::forbidden(TAKEN_BACK))]).boxed();
    let relayed = Relayed { status: 200, content_type: "application/json", model: "small".into(), body };
    server.fake.answer_next(Ok(relayed));
    let got = ask(&server.tcp(), PATHS[0].0, "{}").await;
    assert_eq!((got.status, error(PATHS[0].1, &got).1.as_str()), (403, TAKEN_BACK));
}

#[tokio::test]
async fn at_the_daemons_end_a_stream_goes_on_for_a_while() {
    let server = Server::with(64, |options| options.drain_within = PATIENCE).await;
    let pieces = server.fake.stream();
    let (_, mut body) = open(&server, PATHS[0].0).await;
    server.shutdown.cancel();
    // The port is closed once the listener has heard of it.
    while TcpStream::connect(server.address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    pieces.send("data: 1\n\n").await.unwrap();
    drop(pieces);
    assert_eq!(piece(&mut body).await.unwrap(), "data: 1\n\n");
    assert_eq!(piece(&mut body).await, None);
    assert_eq!(server.task.await.unwrap().cut, 0);
}

#[tokio::test]
async fn at_the_daemons_end_a_stream_that_does_not_end_says_so_and_ends() {
    let server = Server::with(64, |options| options.drain_within = Duration::from_secs(4)).await;
    let mut streams = Vec::new();
    for (path, format) in PATHS {
        let pieces = server.fake.stream();
        let (_, mut body) = open(&server, path).await;
        pieces.send("data: 1\n\n").await.unwrap();
        assert_eq!(piece(&mut body).await.unwrap(), "data: 1\n\n");
        streams.push((format, pieces, body));
    }
    server.shutdown.cancel();
    for (format, _pieces, mut body) in streams {
        assert_last_says(format, &mut body, "the daemon is ending (ask again when it is up)").await;
    }
    assert_eq!(server.task.await.unwrap().cut, 0);
    assert_eq!(server.fake.ended.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn at_the_daemons_end_half_an_event_is_not_taken_for_a_whole_one() {
    let server = Server::with(64, |options| options.drain_within = Duration::from_secs(4)).await;
    let pieces = server.fake.stream();
    let (_, mut body) = open(&server, PATHS[0].0).await;
    pieces.send("data: {\"ha").await.unwrap();
    assert_eq!(piece(&mut body).await.unwrap(), "data: {\"ha");
    let door = server.tcp();
    let waiting = tokio::spawn(async move { ask(&door, PATHS[1].0, "held").await });
    until(|| server.fake.waiting.load(Ordering::SeqCst) == 1).await;
    server.shutdown.cancel();
    assert!(body.frame().await.unwrap().is_err(), "the client must see that the transfer broke off");
    let got = waiting.await.unwrap();
    assert_eq!((got.status, error(Format::Responses, &got).0.as_str()), (503, "server_error"));
    assert_eq!(server.task.await.unwrap().cut, 0);
}

#[tokio::test]
async fn programs_are_counted_by_route() {
    let server = Server::start().await;
    ask(&server.tcp(), PATHS[0].0, "{}").await;
    server.tcp().send("POST", PATHS[2].0, "{}").await;
    let text = String::from_utf8(server.tcp().get("/metrics").await.body.to_vec()).unwrap();
    for line in [
        r#"aos_http_requests_total{method="POST",route="/v1/chat/completions",status="2xx"} 1"#,
        r#"aos_http_requests_total{method="POST",route="/v1/messages",status="4xx"} 1"#,
    ] {
        assert!(text.lines().any(|found| found == line), "no `{line}` in\n{text}");
    }
    let document = server.tcp().get("/openapi.json").await.json();
    let operation = &document["paths"]["/v1/messages"]["post"];
    assert_eq!(operation["requestBody"]["content"]["application/json"]["schema"]["type"], "object");
    assert_eq!(operation["security"], json!([{"key": []}, {"x_api_key": []}]));
}
