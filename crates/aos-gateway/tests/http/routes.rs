//! Every route: its answer when all is well, and the form of its errors.

use std::sync::atomic::Ordering;

use aos_abi::Pid;
use aos_gateway::route::{Content, Operation, ROUTES, Route, Verb};
use axum::http::header;
use http_body_util::BodyExt;

use crate::client::Got;
use crate::fake::KEY;
use crate::server::{Server, TOKEN};

/// A request that each route answers well: its path, its query and its body.
pub(crate) fn example(route: &Route) -> (String, &'static str) {
    let (subject, query, body) = match route.operation {
        Operation::Health | Operation::Metrics | Operation::OpenApi | Operation::Syscalls => ("", "", ""),
        Operation::Status | Operation::Models | Operation::AuditVerify | Operation::Shutdown => ("", "", ""),
        Operation::PolicyReload => ("", "", ""),
        Operation::Model => ("small", "", ""),
        Operation::Processes | Operation::Proposals => ("", "?all=true", ""),
        Operation::Spawn => ("", "", r#"{"task":"count"}"#),
        Operation::MakeKey => ("", "", r#"{"name":"editor"}"#),
        Operation::Process => ("7", "", ""),
        Operation::Kill => ("7", "?tree=true", ""),
        Operation::Input => ("7", "", r#"{"text":"hi"}"#),
        Operation::Signal => ("7", "", r#"{"signal":"TERM"}"#),
        Operation::SignalGroup => ("night", "", r#"{"signal":"TERM"}"#),
        Operation::Timers => ("", "", ""),
        Operation::Unschedule => ("7", "?id=t1", ""),
        Operation::Fork => ("7", "", ""),
        Operation::ProcessEvents => ("7", "?follow=false", ""),
        Operation::Wait => ("7", "?timeout_s=0.5", ""),
        Operation::Replay => ("7", "?at=5", ""),
        Operation::Budget => ("7", "", r#"{"usd":0.5}"#),
        Operation::Events => ("", "?after=0&follow=false", ""),
        Operation::Approve | Operation::Undo => ("p3", "", ""),
        Operation::Reject => ("p3", "", r#"{"why":"no"}"#),
        Operation::Explain => ("", "", r#"{"pid":7,"call":{"name":"FS_DELETE","args":{"path":"a"}}}"#),
        Operation::ModelRoute => ("", "", r#"{"task":"go"}"#),
        Operation::Cost => ("", "?by=model", ""),
        Operation::MemorySearch => ("", "?q=green%20things&namespace=a&limit=3", ""),
        Operation::MemoryList => ("", "?limit=3", ""),
        Operation::MemoryShow | Operation::MemoryForget => ("m1", "", ""),
        Operation::MemoryExport => ("", "?namespace=a", ""),
        Operation::AuditExport => ("", "?after=0", ""),
        Operation::Backup => ("", "", r#"{"file":"/tmp/a.tar"}"#),
        Operation::Prune => ("", "", r#"{"dry_run":true}"#),
        Operation::Hook => ("open", "", "hi"),
        Operation::ChatCompletions
        | Operation::Responses
        | Operation::Messages
        | Operation::CountTokens
        | Operation::Embeddings => ("", "", r#"{"model":"small"}"#),
    };
    (format!("{}{query}", filled(route, subject)), body)
}

pub(crate) fn filled(route: &Route, subject: &str) -> String {
    match route.path.split_once('{') {
        None => route.path.to_owned(),
        Some((before, rest)) => format!("{before}{subject}{}", rest.split_once('}').unwrap().1),
    }
}

pub(crate) fn method(route: &Route) -> &'static str {
    if route.verb == Verb::Any { "POST" } else { route.verb.as_str() }
}

#[tokio::test]
async fn every_route_answers_through_both_doors() {
    let server = Server::with(64, |options| options.page_entries = 3).await;
    for _ in 0..10 {
        server.fake.append(Pid(7), "hi");
    }
    for door in [server.tcp(), server.unix()] {
        for route in ROUTES {
            let (path, body) = example(route);
            let key = [("x-api-key", KEY)];
            let got = match route.format() {
                None => door.send(method(route), &path, body).await,
                Some(_) => door.send_with(method(route), &path, &key, body).await,
            };
            // The agent's own status.
            let status = if route.operation == Operation::Hook { 201 } else { route.status };
            assert_eq!(got.status, status, "{path}: {got:?}");
            let content_type = match route.content {
                Content::Json(_) | Content::Model => "application/json",
                Content::JsonLines => "application/x-ndjson",
                Content::Events => "text/event-stream",
                Content::Metrics => "text/plain; version=0.0.4; charset=utf-8",
                Content::Agent => "text/plain",
                Content::Nothing => "",
            };
            assert_eq!(got.header("content-type"), content_type, "{path}");
            assert_eq!(got.header("cache-control"), "no-store", "{path}");
            assert_eq!(got.header("x-content-type-options"), "nosniff", "{path}");
            match route.content {
                Content::Json(_) | Content::Model => drop(got.json()),
                Content::Nothing => assert!(got.body.is_empty(), "{path}"),
                Content::JsonLines | Content::Events | Content::Metrics | Content::Agent => {
                    assert!(!got.body.is_empty(), "{path}");
                }
            }
        }
    }
    assert!(server.fake.shut_down.load(Ordering::SeqCst));
}

#[tokio::test]
async fn answers_are_those_of_the_system() {
    let server = Server::start().await;
    let door = server.unix();
    assert_eq!(door.send("DELETE", "/v1/processes/7", "").await.body, r#"{"pid":7,"lsn":1}"#, "the signal KILL");
    // It comes in pieces, of which the first and the last are empty.
    let pids = |table: serde_json::Value| -> Vec<u64> {
        table.as_array().unwrap().iter().map(|process| process["pid"].as_u64().unwrap()).collect()
    };
    assert_eq!(pids(door.get("/v1/processes").await.json()), [8]);
    let all = door.get("/v1/processes?all=true").await.json();
    assert_eq!((&all[0]["result"], pids(all.clone())), (&"42 words".into(), vec![7, 8, 9]));
    assert_eq!(pids(door.get("/v1/processes?all=true&group=night").await.json()), [9]);
    let held = |table: serde_json::Value| -> Vec<(u64, String)> {
        let row =
            |row: &serde_json::Value| (row["pid"].as_u64().unwrap(), row["timer_id"].as_str().unwrap().to_owned());
        table.as_array().unwrap().iter().map(row).collect()
    };
    let timer = |pid| (pid, "t1".to_owned());
    assert_eq!(held(door.get("/v1/timers").await.json()), [timer(8), timer(9)]);
    assert_eq!(held(door.get("/v1/timers?pid=7").await.json()), [timer(7)]);
    assert_eq!(door.get("/v1/timers?pid=404").await.status, 404);
    assert_eq!(door.send("DELETE", "/v1/processes/7/timers?id=t1", "").await.body, r#"{"pid":7,"lsn":41}"#);
    assert_eq!(door.send("DELETE", "/v1/processes/7/timers", "").await.status, 400, "which?");
    let got = door.send("POST", "/v1/groups/night/signal", r#"{"signal":"STOP","tree":true}"#).await;
    assert_eq!(got.body, r#"{"lsn":1,"pids":[7,9]}"#);
    assert_eq!(door.send("POST", "/v1/groups/day/signal", r#"{"signal":"STOP"}"#).await.status, 404);
    assert_eq!(door.get("/v1/processes/7/replay?at=5").await.json()["inputs"], 5);
    assert_eq!(door.get("/v1/cost?by=pid").await.json()["groups"]["Pid"]["inferences"], 3);
    assert_eq!(door.get("/v1/cost").await.json()["groups"]["Day"]["inferences"], 3);
    assert_eq!(door.get("/v1/memory/search?q=a%20b").await.json()["hits"][0]["key"], "a b");
    let models = door.get("/v1/models").await.json();
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&"list".into(), &"small".into()));
    assert_eq!(door.get("/v1/syscalls").await.json()[0]["name"], "SPAWN_AGENT");
    assert_eq!(door.get("/openapi.json").await.json()["openapi"], "3.1.0");
    let head = door.send("HEAD", "/v1/status", "").await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    door.send("POST", "/v1/processes", r#"{"task":"tidy","budget":{"usd":0.5}}"#).await;
    assert_eq!(server.fake.spawned.lock().unwrap()[0].task.as_deref(), Some("tidy"));
}

#[tokio::test]
async fn what_there_is_not_is_a_404_of_the_same_form() {
    let server = Server::start().await;
    let door = server.tcp();
    for route in ROUTES.iter().filter(|route| route.path.contains('{')) {
        let (path, body) = example(route);
        let query = path.split_once('?').map_or(String::new(), |(_, query)| format!("?{query}"));
        let got = door.send(method(route), &format!("{}{query}", filled(route, "404")), body).await;
        assert_eq!(got.status, 404, "{}: {got:?}", route.path);
        got.error();
    }
    let got = door.get("/v1/processes/404").await;
    assert_eq!(got.error(), "ESRCH: no process 404");
    assert_eq!(got.json()["error"]["hint"], "`aos ps` lists them");
    let got = door.get("/v1/proceses").await;
    assert_eq!(got.error(), "not_found: there is no route `/v1/proceses`");
    assert!(got.json()["error"]["hint"].as_str().unwrap().starts_with("the nearest is /v1/processes;"));
    for absent in ["/", "/mcp"] {
        let got = door.get(absent).await;
        assert_eq!(got.status, 404);
        assert!(got.error().ends_with("is not in this version"), "{got:?}");
    }
    assert_eq!(door.get("/v1/processes/").await.status, 404);
}

#[tokio::test]
async fn a_wrong_request_says_what_is_wrong() {
    let server = Server::start().await;
    let door = server.tcp();
    let ours = || ROUTES.iter().filter(|route| route.format().is_none());
    for route in ours().filter(|route| route.body.is_some()) {
        let got = door.send(method(route), &filled(route, "7"), r#"{"surprise":1}"#).await;
        assert_eq!(got.status, 400, "{}: {got:?}", route.path);
        assert!(got.error().starts_with("EINVAL: at `/surprise`: unknown field"), "{got:?}");
    }
    for route in ours().filter(|route| route.operation != Operation::Hook) {
        let (_, body) = example(route);
        let got = door.send(method(route), &format!("{}?surprise=1", filled(route, "7")), body).await;
        assert_eq!(got.status, 400, "{}: {got:?}", route.path);
        got.error();
    }
    let got = door.send("PATCH", "/v1/processes", "").await;
    assert_eq!((got.status, got.header("allow")), (405, "GET, POST"));
    got.error();
    assert_eq!(door.send("PUT", "/v1/processes/7/budget", "[]").await.status, 400);
    assert_eq!(door.get("/v1/processes/x7").await.error(), "usage: `x7` is no pid");
    let got = door.get("/v1/memory/%ff").await;
    assert_eq!(got.status, 400, "{got:?}");
    got.error();
}

#[tokio::test]
async fn a_full_queue_is_a_429_with_its_time() {
    let server = Server::start().await;
    let got = server.tcp().send("POST", "/v1/processes/6/stdin", r#"{"text":"hi"}"#).await;
    assert_eq!((got.status, got.header("retry-after")), (429, "3"));
    assert_eq!(got.error(), "EAGAIN: the queue is full");
}

#[tokio::test]
async fn an_unwell_system_says_so_to_everybody() {
    let server = Server::start().await;
    server.fake.healthy.store(false, Ordering::SeqCst);
    let got = server.tcp().send_with("GET", "/healthz", &[], "").await;
    assert_eq!((got.status, got.header("retry-after")), (503, "1"));
    got.error();
}

#[tokio::test]
async fn a_wait_ends_with_the_process_or_with_its_time() {
    let server = Server::start().await;
    assert_eq!(server.tcp().get("/v1/processes/7/wait").await.json()["exit_code"], 0);
    let got = server.tcp().get("/v1/processes/8/wait?timeout_s=0.01").await;
    assert_eq!((got.status, got.body.len()), (204, 0));
    let door = server.unix();
    let waiting = tokio::spawn(async move { door.get("/v1/processes/9/wait?timeout_s=3600").await });
    server.fake.gate.add_permits(1);
    assert_eq!(waiting.await.unwrap().json()["pid"], 9);
}

#[tokio::test]
async fn requests_are_counted_by_route() {
    let server = Server::start().await;
    let door = server.tcp();
    door.get("/v1/status").await;
    door.get("/v1/processes/404").await;
    door.get("/nowhere").await;
    let text = String::from_utf8(door.get("/metrics").await.body.to_vec()).unwrap();
    for line in [
        r#"aos_http_requests_total{method="GET",route="/v1/status",status="2xx"} 1"#,
        r#"aos_http_requests_total{method="GET",route="/v1/processes/{pid}",status="4xx"} 1"#,
        r#"aos_http_requests_total{method="",route="none",status="4xx"} 1"#,
        "aos_journal_appends_total 12",
    ] {
        assert!(text.lines().any(|found| found == line), "no `{line}` in\n{text}");
    }
}

fn lines(got: &Got) -> Vec<serde_json::Value> {
    got.body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

#[tokio::test]
async fn exports_are_whole_over_many_pages() {
    let server = Server::with(64, |options| options.page_entries = 3).await;
    for _ in 0..10 {
        server.fake.append(Pid(7), "hi\nthere");
    }
    let entries = lines(&server.tcp().get("/v1/admin/audit/export?after=2").await);
    let lsns: Vec<u64> = entries.iter().map(|entry| entry["lsn"].as_u64().unwrap()).collect();
    assert_eq!(lsns, (3..=10).collect::<Vec<_>>());
    let memories = lines(&server.tcp().get("/v1/memory/export").await);
    let ids: Vec<&str> = memories.iter().map(|memory| memory["id"].as_str().unwrap()).collect();
    assert_eq!(ids, (1..=20).map(|nth| format!("m{nth}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn half_an_export_is_not_taken_for_a_whole_one() {
    let server = Server::with(64, |options| options.page_entries = 64).await;
    let long = "x".repeat(64 << 10);
    for _ in 0..2000 {
        server.fake.append(Pid(7), &long);
    }
    let token = format!("Bearer {TOKEN}");
    let headers = [(header::AUTHORIZATION.as_str(), token.as_str())];
    let (status, _, mut body) = server.tcp().open("GET", "/v1/admin/audit/export", &headers, "").await;
    assert_eq!(status, 200);
    body.frame().await.unwrap().unwrap();
    server.fake.broken.store(true, Ordering::SeqCst);
    let mut broke = false;
    while let Some(frame) = body.frame().await {
        broke |= frame.is_err();
    }
    assert!(broke, "the client must see that the transfer broke off");
    let got = server.tcp().get("/v1/admin/audit/export").await;
    assert_eq!((got.status, got.error().as_str()), (500, "EIO: the disk is gone"));
}
