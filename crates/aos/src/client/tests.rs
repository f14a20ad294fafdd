//! The client against a fake daemon.

use std::sync::atomic::{AtomicUsize, Ordering};

use aos_abi::Lsn;
use serde_json::{Value, json};

use super::fake::{Fake, Reply};
use super::*;

fn entry(lsn: u64) -> String {
    let data =
        json!({"lsn": lsn, "at": "2026-11-22T00:00:00.000Z", "pid": 7, "type": "input", "text": "x", "from_pid": 1});
    format!("id: {lsn}\nevent: input\ndata: {data}\n\n")
}

async fn lsns(events: &mut Events, count: usize) -> Vec<u64> {
    let mut found = Vec::new();
    while found.len() < count {
        match events.next().await.unwrap() {
            Some(Event::Entry(line)) => {
                assert!(line.entry.is_some(), "{}", line.json);
                found.push(line.lsn.0);
            }
            Some(Event::Progress(_) | Event::Lost | Event::Back) => {}
            None => break,
        }
    }
    found
}

#[tokio::test]
async fn a_request_and_its_answer() {
    let fake = Fake::serve(|seen| match seen.what.as_str() {
        "POST /v1/processes/7/stdin" => Reply(200, r#"{"pid":7,"lsn":9}"#.into()),
        _ => Reply(404, r#"{"error":{"code":"ESRCH","message":"no process 8","hint":"aos ps"}}"#.into()),
    });
    let client = fake.client();
    let stdin = Address::of("/v1/processes").then(7).then("stdin");
    let value: Value = client.post(&stdin, &json!({"text": "hé"})).await.unwrap();
    assert_eq!(value, json!({"pid": 7, "lsn": 9}));
    assert_eq!(fake.seen()[0].body, r#"{"text":"hé"}"#);
    let error = client.get::<Value>(&Address::of("/v1/processes").then(8)).await.unwrap_err();
    assert!(matches!(&error, Error::Refused { status: 404, error } if error.code == "ESRCH"), "{error:?}");
}

/// One that was just killed still lets in who connects, and answers nobody.
#[tokio::test]
async fn what_only_looks_is_asked_again_where_the_daemon_goes_away() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path()).unwrap();
    home.create().unwrap();
    let dying = tokio::net::UnixListener::bind(home.socket()).unwrap();
    let client = Client::new(home.clone(), Start::Never);
    let change = client.clone();
    let lets_in = async {
        drop(dying.accept().await.unwrap());
        drop(dying.accept().await.unwrap());
        std::fs::remove_file(home.socket()).unwrap();
        drop(dying);
        Fake::serve_at(home.clone(), |_| Reply(200, "[]".into()))
    };
    let both = async {
        let error = change.post::<Value>(&Address::of("/v1/processes"), &json!({})).await.unwrap_err();
        assert!(matches!(error, Error::Lost { .. }), "what it may have done is not repeated: {error:?}");
        client.get::<Value>(&Address::of("/v1/processes")).await
    };
    let (fake, answer) = tokio::join!(lets_in, both);
    assert_eq!(answer.unwrap(), json!([]));
    assert_eq!(fake.seen().len(), 1);
}

#[tokio::test]
async fn what_is_no_answer_is_said_to_be_none() {
    let fake = Fake::serve(|seen| match seen.what.as_str() {
        "GET /text" => Reply(200, "hello".into()),
        "GET /gone" => Reply(204, String::new()),
        _ => Reply(500, "<html>".into()),
    });
    let client = fake.client();
    for path in ["/text", "/page"] {
        assert!(matches!(client.get::<Value>(&Address::of(path)).await, Err(Error::Broken { .. })), "{path}");
    }
    let none = client.get_if_ready::<Value>(&Address::of("/gone"), Duration::from_secs(1)).await.unwrap();
    assert_eq!(none, None);
}

#[tokio::test]
async fn a_socket_left_behind_counts_as_no_daemon() {
    let fake = Fake::serve(|_| Reply(200, "1".into()));
    let client = fake.client();
    assert!(client.is_up().await.unwrap());
    let _dir = fake.kill().await;
    assert!(!client.is_up().await.unwrap());
    let error = client.get::<Value>(&Address::of("/x")).await.unwrap_err();
    assert!(matches!(error, Error::NoDaemon { .. }), "{error:?}");
}

#[tokio::test]
async fn a_daemon_that_does_not_come_up_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path()).unwrap();
    let program = dir.path().join("daemon");
    std::fs::write(
        &program,
        "#!/bin/sh\necho 'error: the journal is torn' >&2\necho '  try: aos restore FILE' >&2\nexit 1\n",
    )
    .unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let client = Client::new(home.clone(), Start::With(program));
    let error = client.get::<Value>(&Address::of("/x")).await.unwrap_err();
    let Error::NotStarted { reason, hint, log } = error else { panic!("{error:?}") };
    assert_eq!((reason.as_str(), hint.as_deref()), ("the journal is torn", Some("aos restore FILE")));
    assert_eq!(log, home.daemon_log());
}

#[tokio::test]
async fn a_stream_is_taken_up_where_it_broke() {
    let calls = AtomicUsize::new(0);
    // Broken in the middle of an event, then 503 as a starting daemon answers, then the rest with one entry twice.
    let fake = Fake::serve(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Reply(200, format!("{}{}", entry(3), &entry(4)[..10])),
        1 => Reply(503, r#"{"error":{"code":"unavailable","message":"starting","hint":null}}"#.into()),
        _ => Reply(200, format!("{}{}{}", entry(3), entry(4), entry(6))),
    });
    let mut events = fake.client().events(Address::of("/v1/events"), Lsn(2), true);
    assert_eq!(lsns(&mut events, 3).await, [3, 4, 6]);
    let asked: Vec<_> = fake.seen().into_iter().map(|seen| seen.last_event_id.unwrap()).collect();
    assert_eq!(asked, ["2", "3", "3"]);
}

/// A stream that has had its first event, and whose daemon died; and the home, with the folder that holds it.
async fn bereft() -> (Events, Home, Option<tempfile::TempDir>) {
    let fake = Fake::serve(|_| Reply(200, entry(1)));
    let (client, home) = (fake.client(), fake.home.clone());
    let mut events = client.events(Address::of("/v1/events"), Lsn::ZERO, true);
    assert_eq!(lsns(&mut events, 1).await, [1]);
    let dir = fake.kill().await;
    assert_eq!(events.next().await.unwrap(), Some(Event::Lost));
    (events, home, dir)
}

#[tokio::test]
async fn a_stream_outlives_its_daemon() {
    let (mut events, home, _dir) = bereft().await;
    std::fs::remove_file(home.socket()).unwrap();
    let _next = Fake::serve_at(home, |_| Reply(200, entry(2)));
    assert_eq!(events.next().await.unwrap(), Some(Event::Back));
    assert_eq!(lsns(&mut events, 1).await, [2]);
}

/// As a screen asks, which draws meanwhile.
async fn in_ticks(events: &mut Events, ticks: usize) -> Option<Event> {
    for _ in 0..ticks {
        if let Ok(event) = timeout(Duration::from_millis(20), events.next()).await {
            return event.unwrap();
        }
    }
    None
}

#[tokio::test]
async fn a_stream_outlives_its_daemon_also_where_it_is_asked_in_ticks() {
    let (mut events, home, _dir) = bereft().await;
    assert_eq!(in_ticks(&mut events, 10).await, None);
    std::fs::remove_file(home.socket()).unwrap();
    let _next = Fake::serve_at(home, |_| Reply(200, entry(2)));
    assert_eq!(in_ticks(&mut events, 100).await, Some(Event::Back));
    assert_eq!(lsns(&mut events, 1).await, [2]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_silent_is_lost_also_where_it_is_asked_in_ticks() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path()).unwrap();
    home.create().unwrap();
    let silent = tokio::net::UnixListener::bind(home.socket()).unwrap();
    let mut events = Client::new(home, Start::Never).events(Address::of("/v1/events"), Lsn::ZERO, true);
    let answer = async {
        let (mut stream, _) = silent.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 200 X\r\n\r\n").await.unwrap();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = answer => {}
        lost = in_ticks(&mut events, 5_000) => assert_eq!(lost, Some(Event::Lost)),
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_stays_away_is_given_up() {
    let fake = Fake::serve(|_| Reply(200, entry(1)));
    let mut events = fake.client().events(Address::of("/v1/events"), Lsn::ZERO, true);
    assert_eq!(lsns(&mut events, 1).await, [1]);
    let _dir = fake.kill().await;
    assert_eq!(events.next().await.unwrap(), Some(Event::Lost));
    assert!(matches!(events.next().await, Err(Error::Gone { .. })));
}

#[tokio::test]
async fn a_stream_that_does_not_follow_ends() {
    let progress = "event: progress\ndata: {\"pid\":7,\"effect\":\"1.0\",\"text\":\"he\"}\n\n";
    let fake = Fake::serve(move |_| Reply(200, format!("{}{progress}id: 5\ndata: {{\"type\":\"new\"}}\n\n", entry(1))));
    let mut events = fake.client().events(Address::of("/v1/events"), Lsn::ZERO, false);
    let mut found = Vec::new();
    while let Some(event) = events.next().await.unwrap() {
        found.push(event);
    }
    assert_eq!(fake.seen()[0].what, "GET /v1/events?follow=false");
    assert!(matches!(&found[1], Event::Progress(progress) if progress.text == "he"));
    // A type that this program does not know is handed on as it came.
    assert!(matches!(&found[2], Event::Entry(line) if line.entry.is_none() && line.json == r#"{"type":"new"}"#));
}
