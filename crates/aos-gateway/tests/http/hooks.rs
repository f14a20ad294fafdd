//! Webhooks: who may call an agent from outside, and what becomes of the call.

use std::sync::atomic::Ordering;

use aos_abi::Timestamp;
use aos_abi::limits::WEBHOOK_BODY_BYTES_MAX;
use aos_gateway::{TakenWebhook, sign};
use axum::body::Body;
use bytes::Bytes;

use crate::client::{Door, Got};
use crate::fake::NOW_S;
use crate::server::Server;

async fn signed(door: &Door, secret: &str, at_s: u64, body: &str, sent: &str) -> Got {
    signed_at(door, "/hooks/signed", secret, at_s, body, sent).await
}

async fn signed_at(door: &Door, path: &str, secret: &str, at_s: u64, body: &str, sent: &str) -> Got {
    let (signature, stamp) = (sign(secret, at_s, body.as_bytes()), at_s.to_string());
    let headers = [("x-aos-signature", signature.as_str()), ("x-aos-timestamp", stamp.as_str())];
    door.send_with("POST", path, &headers, sent.to_owned()).await
}

#[tokio::test]
async fn an_agent_hears_the_request_and_answers_it() {
    let server = Server::start().await;
    let headers = [("x-event", "push"), ("authorization", "Bearer mine"), ("cookie", "a=b")];
    let got = server.tcp().send_with("PUT", "/hooks/a%2Fb%20c?x=1&y=%20", &headers, "hi").await;
    assert_eq!((got.status, &got.body[..]), (201, &b"heard hi"[..]), "{got:?}");
    assert_eq!(got.header("content-security-policy"), "sandbox");
    let calls = server.fake.calls.lock().unwrap();
    let call = &calls[0];
    assert_eq!((call.method.as_str(), call.path.as_str(), call.query.as_deref()), ("PUT", "a/b c", Some("x=1&y=%20")));
    assert_eq!(call.pid.0, 7);
    assert_eq!(call.at.0, NOW_S as i64 * 1000);
    let names: Vec<&str> = call.headers.keys().map(String::as_str).collect();
    assert_eq!(names, ["x-event"], "no credentials, nothing of the connection");
}

#[tokio::test]
async fn every_method_is_taken() {
    let server = Server::start().await;
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"] {
        assert_eq!(server.tcp().send_with(method, "/hooks/open", &[], "").await.status, 201, "{method}");
    }
}

#[tokio::test]
async fn only_a_right_and_new_signature_passes() {
    let server = Server::start().await;
    let door = server.tcp();
    assert_eq!(door.send_with("POST", "/hooks/signed", &[], "hi").await.status, 401);
    for (what, got) in [
        ("another key", signed(&door, "guess", NOW_S, "hi", "hi").await),
        ("another body", signed(&door, "key", NOW_S, "hi", "ho").await),
        ("too old", signed(&door, "key", NOW_S - 301, "hi", "hi").await),
        ("too new", signed(&door, "key", NOW_S + 301, "hi", "hi").await),
    ] {
        assert_eq!(got.status, 401, "{what}: {got:?}");
        got.error();
    }
    assert!(server.fake.calls.lock().unwrap().is_empty(), "no agent heard of any of it");
    assert_eq!(signed(&door, "key", NOW_S, "hi", "hi").await.status, 201);
    let again = signed(&door, "key", NOW_S, "hi", "hi").await;
    assert_eq!(again.status, 409);
    again.error();
    server.fake.now.fetch_add(299_000, Ordering::SeqCst);
    assert_eq!(signed(&door, "key", NOW_S, "hi", "hi").await.status, 409, "remembered while it is valid");
    assert_eq!(signed(&door, "key", NOW_S + 1, "hi", "hi").await.status, 201, "signed anew");
    server.fake.now.fetch_add(2000, Ordering::SeqCst);
    assert_eq!(signed(&door, "key", NOW_S, "hi", "hi").await.status, 401, "and refused for its age after that");
    assert_eq!(server.fake.calls.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn what_an_earlier_daemon_took_is_not_taken_again() {
    let server = Server::start().await;
    let at = |s: u64| Timestamp(i64::try_from(s * 1000).unwrap());
    let taken = |name: &str, signature: String| TakenWebhook {
        path: "signed?x=1".into(),
        headers: [(name.to_owned(), signature), ("x-aos-timestamp".to_owned(), NOW_S.to_string())].into(),
        at: at(NOW_S),
    };
    *server.fake.taken.lock().unwrap() = vec![
        taken("x-aos-signature", format!("sha256={}", sign("key", NOW_S, b"hi").to_uppercase())),
        taken("x-aos-signature", "no signature".into()),
        taken("x-other", String::new()),
    ];
    let door = server.tcp();
    assert_eq!(signed(&door, "key", NOW_S, "hi", "hi").await.status, 409);
    assert_eq!(signed(&door, "key", NOW_S + 1, "hi", "hi").await.status, 201);
}

#[tokio::test]
async fn a_signed_request_that_found_a_full_queue_may_come_again() {
    let server = Server::start().await;
    server.fake.healthy.store(false, Ordering::SeqCst);
    let got = signed(&server.tcp(), "key", NOW_S, "hi", "hi").await;
    assert_eq!((got.status, got.header("retry-after")), (503, "2"));
    server.fake.healthy.store(true, Ordering::SeqCst);
    assert_eq!(signed(&server.tcp(), "key", NOW_S, "hi", "hi").await.status, 201);
}

/// It was journaled late, and the repeated request woke the agent once more.
#[tokio::test]
async fn a_signed_request_of_which_nothing_is_known_does_not_come_again() {
    let server = Server::start().await;
    let door = server.tcp();
    let first = tokio::spawn(async move { signed(&door, "key", NOW_S, "held", "held").await.status });
    while server.fake.waiting.load(Ordering::SeqCst) < 1 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    // What the agent may take, and the journal.
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(36)).await;
    tokio::time::resume();
    assert_eq!(first.await.unwrap(), 504);
    server.fake.gate.add_permits(2);
    assert_eq!(signed(&server.tcp(), "key", NOW_S, "held", "held").await.status, 409);
}

#[tokio::test]
async fn the_answer_says_what_became_of_it() {
    let server = Server::start().await;
    let door = server.tcp();
    for path in ["/hooks/late", "/hooks/silent"] {
        let got = door.send_with("POST", path, &[], "hi").await;
        assert_eq!(got.status, 202, "{path}");
        assert!(got.json()["request_id"].as_str().unwrap().starts_with('r'), "{path}: {got:?}");
    }
    for nobodys in ["/hooks/nobody", "/hooks/open/more", "/hooks/Open"] {
        let got = door.send_with("POST", nobodys, &[], "hi").await;
        assert_eq!(got.status, 404, "{nobodys}");
        assert!(got.error().starts_with("not_found: no agent owns the webhook"), "{got:?}");
    }
    let got = door.send_with("POST", "/hooks/full", &[], "hi").await;
    assert_eq!((got.status, got.header("retry-after")), (503, "2"));
    assert_eq!(got.error(), "unavailable: the agent takes no more requests for now");
}

#[tokio::test]
async fn a_body_has_a_limit_whether_it_says_its_length_or_not() {
    let server = Server::start().await;
    let most = vec![b'x'; WEBHOOK_BODY_BYTES_MAX];
    assert_eq!(server.tcp().send_with("POST", "/hooks/open", &[], most.clone()).await.status, 201);
    let mut more = most;
    more.push(b'x');
    let pieces: Vec<Result<Bytes, std::io::Error>> = more.chunks(1000).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
    let got = server.tcp().send_with("POST", "/hooks/open", &[], more).await;
    assert_eq!(got.status, 413);
    got.error();
    let chunked = Body::from_stream(futures_util::stream::iter(pieces));
    assert_eq!(server.tcp().send_with("POST", "/hooks/open", &[], chunked).await.status, 413);
    assert_eq!(server.fake.calls.lock().unwrap().len(), 1);
}

/// Whoever reached one woke its agent as often as they liked, and each turn cost.
#[tokio::test]
async fn an_unsigned_webhook_takes_so_many_in_a_minute_and_a_signed_one_more() {
    let server = Server::with(64, |options| options.webhook_unsigned_per_minute = 3).await;
    let door = server.tcp();
    for _ in 0..3 {
        assert_eq!(door.send_with("POST", "/hooks/open", &[], "hi").await.status, 201);
    }
    let got = door.send_with("POST", "/hooks/open", &[], "hi").await;
    assert_eq!((got.status, got.error()), (429, "EAGAIN: this webhook takes 3 unsigned requests a minute".into()));
    assert!((1..=60).contains(&got.header("retry-after").parse::<u64>().unwrap()), "{got:?}");
    assert_eq!(server.fake.calls.lock().unwrap().len(), 3, "its agent hears of no more");
    assert_eq!(door.send_with("POST", "/hooks/late", &[], "hi").await.status, 202, "another path");
    for at_s in NOW_S..NOW_S + 5 {
        assert_eq!(signed(&door, "key", at_s, "hi", "hi").await.status, 201);
    }
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    tokio::time::resume();
    assert_eq!(door.send_with("POST", "/hooks/open", &[], "hi").await.status, 201, "a minute later");
}

#[tokio::test]
async fn a_foreign_page_may_not_call_an_unsigned_webhook() {
    let server = Server::start().await;
    let foreign = [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")];
    let got = server.tcp().send_with("POST", "/hooks/open", &foreign, "hi").await;
    assert_eq!(got.status, 403);
    got.error();
    assert!(server.fake.calls.lock().unwrap().is_empty());
}

/// The page's name was made to lead here, and then its scripts call their own origin and read the answer.
#[tokio::test]
async fn a_page_under_another_name_may_not_call_an_unsigned_webhook_and_programs_may() {
    let server = Server::start().await;
    let door = server.tcp();
    let evil = ("host", "evil.example:7717");
    let page = [evil, ("origin", "http://evil.example:7717"), ("sec-fetch-site", "same-origin")];
    for (method, headers) in [("POST", &page[..]), ("GET", &page[..1])] {
        let got = door.send_with(method, "/hooks/open", headers, "hi").await;
        assert_eq!(got.status, 403, "{method}");
        assert_eq!(got.error(), "forbidden: this listener is not `evil.example`");
    }
    assert!(server.fake.calls.lock().unwrap().is_empty());
    assert_eq!(door.send_with("POST", "/hooks/open", &[("host", "tunnel.example")], "hi").await.status, 201);
    assert_eq!(door.send_with("GET", "/hooks/open", &[], "").await.status, 201);
    let (signature, stamp) = (sign("key", NOW_S, b""), NOW_S.to_string());
    let signed = [page[0], page[1], page[2], ("x-aos-signature", &*signature), ("x-aos-timestamp", &*stamp)];
    assert_eq!(door.send_with("GET", "/hooks/signed", &signed, "").await.status, 201, "whoever signs may");
}

#[tokio::test]
async fn fifty_at_once_are_all_answered_each_with_its_own() {
    let server = Server::start().await;
    let mut asked = tokio::task::JoinSet::new();
    for nth in 0..50 {
        let door = server.tcp();
        asked.spawn(async move {
            let got = door.send_with("POST", "/hooks/held", &[], format!("{nth}")).await;
            (got.status, got.body == format!("heard {nth}"))
        });
    }
    // All fifty are inside at the same time before the first is answered.
    while server.fake.waiting.load(Ordering::SeqCst) < 50 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    server.fake.gate.add_permits(50);
    assert!(asked.join_all().await.into_iter().all(|answer| answer == (201, true)));
    assert_eq!(server.fake.calls.lock().unwrap().len(), 50);
}

#[tokio::test]
async fn beyond_the_bound_a_webhook_is_told_to_come_again() {
    let server = Server::with(64, |options| options.webhooks_max = 1).await;
    let door = server.tcp();
    let first = tokio::spawn(async move { door.send_with("POST", "/hooks/held", &[], "").await.status });
    while server.fake.waiting.load(Ordering::SeqCst) < 1 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let got = server.tcp().send_with("POST", "/hooks/held", &[], "").await;
    assert_eq!((got.status, got.header("retry-after")), (503, "1"));
    let got = server.tcp().send_with("POST", "/hooks/open", &[], "").await;
    assert_eq!(got.status, 201, "a crowd at one path takes no seat of another");
    let long = vec![b'x'; WEBHOOK_BODY_BYTES_MAX + 1];
    let got = server.tcp().send_with("POST", "/hooks/signed", &[], long).await;
    assert_eq!(got.status, 401, "without a signature none of its body is read");
    server.fake.gate.add_permits(1);
    assert_eq!(first.await.unwrap(), 201);
    server.fake.gate.add_permits(1);
    assert_eq!(server.tcp().send_with("POST", "/hooks/held", &[], "").await.status, 201, "the seat is free again");
}

/// Whoever knew no secret took the seats of all signed webhooks with bodies that did not come.
#[tokio::test]
async fn slow_bodies_to_one_signed_webhook_leave_the_others_their_seats() {
    let server = Server::with(64, |options| options.webhooks_max = 1).await;
    let door = server.tcp();
    let slow = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
    let slow = tokio::spawn(async move {
        door.send_with("POST", "/hooks/signed", &[("x-aos-signature", "guessed")], slow).await.status
    });
    let door = server.tcp();
    let beside = loop {
        match signed(&door, "key", NOW_S, "hi", "hi").await.status {
            // The slow one is not there yet.
            201 | 409 => tokio::time::sleep(std::time::Duration::from_millis(1)).await,
            status => break status,
        }
    };
    assert_eq!(beside, 503, "its own path is full");
    let got = signed_at(&door, "/hooks/signed/too", "key", NOW_S, "hi", "hi").await;
    assert_eq!(got.status, 201);
    slow.abort();
}
