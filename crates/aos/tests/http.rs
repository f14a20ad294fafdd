//! The HTTP interface of the running daemon, end to end: who comes in, and streams that survive a restart.
//!
//! Start at the first test. What always holds: requests go over plain sockets, without the client under test.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use serde_json::{Value, json};

use rig::{Rig, Sent, any, echo, say, until};

/// The paths of `/openapi.json` with a process and a proposal that are there.
fn paths(rig: &Rig, method: &str) -> Vec<String> {
    let document = rig.get("/openapi.json");
    let paths = document["paths"].as_object().unwrap();
    let named = paths.iter().filter(|(_, methods)| methods.get(method).is_some()).map(|(path, _)| path.clone());
    named.map(|path| path.replace("{pid}", "2").replace("{id}", "p1").replace("{path}", "orders")).collect()
}

#[test]
fn over_tcp_every_route_needs_the_token_and_reads_do_too() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    let open = ["/healthz", "/hooks/orders"];
    let reads = paths(&rig, "get");
    assert!(reads.len() > 12 && reads.contains(&"/v1/processes/2/events".to_owned()), "{reads:?}");
    let mut asked = 0;
    for (method, path) in ["get", "post", "put", "delete"]
        .into_iter()
        .flat_map(|method| paths(&rig, method).into_iter().map(move |p| (method, p)))
    {
        if open.contains(&path.as_str()) {
            continue;
        }
        let method = method.to_uppercase();
        for wrong in [
            &[][..],
            &[("Authorization", "Bearer 00000000000000000000000000000000")],
            &[("Authorization", "Basic eDp5")],
        ] {
            let answer = rig.tcp(&method, &path, wrong, None);
            assert_eq!(answer.status, 401, "{method} {path} {wrong:?}: {answer:?}");
            let programs = [
                "/v1/chat/completions",
                "/v1/responses",
                "/v1/messages",
                "/v1/messages/count_tokens",
                "/v1/embeddings",
            ];
            let programs = programs.contains(&path.as_str());
            let way_out = if programs { "aos models key" } else { "run/token" };
            assert!(answer.json()["error"].to_string().contains(way_out), "{answer:?}");
            asked += 1;
        }
    }
    assert!(asked > 60, "{asked}");
    assert_eq!(rig.tcp("GET", "/nowhere", &[], None).status, 401, "not even what is not there is told");
    assert_eq!(rig.tcp("GET", "/healthz", &[], None).status, 200);
    let bearer = format!("Bearer {}", rig.token());
    let answer = rig.tcp("GET", "/v1/processes?all=true", &[("Authorization", &bearer)], None);
    assert_eq!((answer.status, &answer.json()[0]["result"]), (200, &json!("done")));
    assert_eq!(rig.json(&["status"])["processes"]["exited"], 1, "nothing of it did anything");
}

#[test]
fn a_removed_token_is_made_anew_and_the_old_one_refused() {
    let rig = Rig::new(vec![]);
    rig.up();
    let status =
        |token: &str| rig.tcp("GET", "/v1/status", &[("Authorization", &format!("Bearer {token}"))], None).status;
    let old = rig.token();
    assert_eq!(status(&old), 200);
    rig.stop();
    std::fs::remove_file(rig.file("run/token")).unwrap();
    rig.up();
    assert_eq!((status(&rig.token()), status(&old)), (200, 401));
}

#[test]
fn a_web_page_of_another_name_is_kept_out() {
    let rig = Rig::new(vec![]);
    rig.up();
    let stream = std::net::TcpStream::connect(rig.listen()).unwrap();
    stream.set_read_timeout(Some(rig::DEADLINE)).unwrap();
    use std::io::{Read as _, Write as _};
    let mut stream = stream;
    let token = rig.token();
    write!(stream, "GET /v1/status HTTP/1.0\r\nHost: evil.example\r\nAuthorization: Bearer {token}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 403") || answer.starts_with("HTTP/1.1 403"), "{answer}");
}

/// The files of a home that others than their owner have a right on.
fn open_files(folder: &std::path::Path) -> Vec<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut open = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            open.extend(open_files(&entry.path()));
        } else if metadata.permissions().mode() & 0o077 != 0
            && entry.file_name() != "aos.toml"
            && entry.file_name() != "policy.yaml"
        {
            open.push(format!("{} {:o}", entry.path().display(), metadata.permissions().mode()));
        }
    }
    open
}

#[test]
fn secrets_of_the_home_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let rig = Rig::new(vec![]);
    rig.up();
    let bits = |path: &str| std::fs::metadata(rig.file(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (bits("run/token"), bits("run/aos.sock"), bits("run"), bits("workspaces")),
        (0o600, 0o600, 0o700, 0o700)
    );
    let token = rig.token();
    assert!(token.len() >= 32 && !rig.log().contains(&token));
    assert_eq!(open_files(&rig.home()), Vec::<String>::new());
    // As earlier releases left them.
    rig.kill_daemon();
    for name in ["journal.db", "journal.db-wal", "journal.db-shm", "journal.head", "memory/memory.db"] {
        std::fs::set_permissions(rig.file(name), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    rig.up();
    assert_eq!(open_files(&rig.home()), Vec::<String>::new(), "a start mends them");
    rig.down();
    let journal = std::fs::read(rig.file("journal.db")).unwrap();
    assert!(!journal.windows(token.len()).any(|window| window == token.as_bytes()));
}

/// What a stream brings, up to the exit of `pid`.
fn up_to_the_end(sse: &mut rig::Sse, pid: u64) -> Vec<Sent> {
    let mut got = Vec::new();
    for sent in sse {
        let end = sent.event == "exited" && sent.data["pid"] == pid;
        got.push(sent);
        if end {
            return got;
        }
    }
    panic!("the stream ended early: {got:?}");
}

#[test]
fn a_stream_goes_on_after_a_restart_without_gap_and_without_duplicate() {
    let rig = Rig::new(vec![echo(), any("alpha", vec![say("done")])]);
    let pid = rig.spawn(&["--role", "You answer."]);
    let mut all: Vec<Sent> = Vec::new();
    for round in 0..5 {
        let last = all.last().and_then(|sent| sent.id);
        let mut sse = rig.events(if last.is_none() { "/v1/events?after=0" } else { "/v1/events" }, last);
        let text = json!({ "text": format!("round {round}") });
        assert_eq!(rig.http("POST", &format!("/v1/processes/{pid}/stdin"), Some(&text)).status, 200);
        // Read some of it live, then lose the daemon in the middle.
        let wanted = all.len() + 4;
        while all.len() < wanted {
            all.push(sse.next().unwrap());
        }
        if round % 2 == 0 {
            rig.kill_daemon()
        } else {
            rig.down()
        }
        for rest in sse {
            all.push(rest);
        }
        rig.up();
    }
    rig.until_idle(pid);
    let mut sse = rig.events("/v1/events", all.last().and_then(|sent| sent.id));
    assert_eq!(rig.aos(&["kill", "-s", "KILL", &pid.to_string()]).code, 0);
    all.extend(up_to_the_end(&mut sse, pid));
    let ids: Vec<u64> = all.iter().map(|sent| sent.id.unwrap()).collect();
    let expected: Vec<u64> = (1..=*ids.last().unwrap()).collect();
    assert_eq!(ids, expected);
    let journal = rig.journal();
    for (sent, entry) in all.iter().zip(&journal) {
        assert_eq!(&sent.data, entry);
        assert_eq!(sent.event, entry["type"].as_str().unwrap());
    }
    let own = rig.events(&format!("/v1/processes/{pid}/events?follow=false"), None).map(|sent| sent.data);
    let of_it: Vec<Value> = journal.into_iter().filter(|entry| entry["pid"] == pid).collect();
    assert_eq!(own.collect::<Vec<_>>(), of_it);
}

#[test]
fn a_client_that_follows_lives_through_a_restart() {
    let rig = Rig::new(vec![echo()]);
    let pid = rig.spawn(&["--role", "You answer."]);
    let following = rig.start(&["logs", "-f", "--events", "--json", &pid.to_string()]);
    for text in ["one", "two"] {
        assert_eq!(rig.aos(&["send", &pid.to_string(), text]).code, 0);
        rig.kill_daemon();
        rig.up();
        until("its answer", || (rig.process(pid)["waiting_for"] == "stdin").then_some(()));
    }
    assert_eq!(rig.aos(&["kill", "-s", "KILL", &pid.to_string()]).code, 0);
    let ran = following.end();
    assert_eq!(ran.code, 0, "{ran:?}");
    let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let journal: Vec<Value> = rig.journal().into_iter().filter(|entry| entry["pid"] == pid).collect();
    assert_eq!(lines, journal);
}

#[test]
fn metrics_count_what_happened() {
    let rig = Rig::new(vec![any("alpha", vec![rig::write("a", "1"), say("done")])]);
    assert_eq!(rig.aos(&["run", "alpha"]).code, 0);
    let answer = rig.http("GET", "/metrics", None);
    assert!(answer.header("content-type").starts_with("text/plain; version=0.0.4"), "{answer:?}");
    let text = answer.text();
    let value = |wanted: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(wanted)).unwrap_or_else(|| panic!("{wanted}: {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(value("aos_processes{state=\"exited\"}"), 1.0);
    let entries = rig.journal().len() as f64;
    assert!(text.lines().any(|line| line.ends_with(&format!(" {entries}"))), "{entries} entries: {text}");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, number) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("aos_") && number.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn the_document_names_every_route_and_a_wrong_path_the_nearest() {
    let rig = Rig::new(vec![]);
    rig.up();
    let document = rig.get("/openapi.json");
    assert!(document["openapi"].as_str().unwrap().starts_with("3."), "{}", document["openapi"]);
    for path in ["/v1/processes", "/v1/processes/{pid}/events", "/v1/proposals/{id}/approve", "/metrics", "/healthz"] {
        assert!(document["paths"].get(path).is_some(), "{path}");
    }
    let calls = rig.get("/v1/syscalls");
    assert!(calls.as_array().unwrap().iter().any(|call| call["name"] == "FS_WRITE"), "{calls}");
    for (method, path, status, hint) in [
        ("GET", "/v1/proceses", 404, "/v1/processes"),
        ("GET", "/v1/processes/999", 404, "aos ps"),
        ("GET", "/v1/processes/abc", 400, ""),
        ("GET", "/v1/processes?al=true", 400, ""),
        ("POST", "/mcp", 404, "openapi"),
        ("PATCH", "/v1/processes", 405, "GET, POST"),
        ("POST", "/v1/processes", 400, ""),
        ("POST", "/v1/proposals/p99/approve", 404, "aos proposals"),
    ] {
        let answer = rig.http(method, path, None);
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        let error = &answer.json()["error"];
        assert!(error["hint"].as_str().unwrap_or_default().contains(hint), "{method} {path}: {error}");
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
    let unknown = json!({ "task": "x", "tusk": "y" });
    let answer = rig.http("POST", "/v1/processes", Some(&unknown));
    assert!(answer.status == 400 && answer.text().contains("tusk"), "{answer:?}");
    assert_eq!(rig.json(&["ps", "-a"]), json!([]), "nothing was started by any of it");
}

/// Starts the daemon under limits of descriptors that `ulimit` sets; what the system says of its own afterwards, the soft
/// and the hard one.
fn up_under(rig: &Rig, limits: &str) -> (String, String) {
    let script = format!("{limits}; exec \"$0\" up");
    let arguments = ["-c", &script, env!("CARGO_BIN_EXE_aos")];
    let started = rig.command_of("/bin/sh".as_ref(), &arguments).output().unwrap();
    assert!(started.status.success(), "{started:?}\n{}", rig.log());
    let daemon = rig.daemons()[0].as_raw_nonzero();
    let said = std::fs::read_to_string(format!("/proc/{daemon}/limits")).unwrap();
    let line = said.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let mut words = line.split_whitespace().map(str::to_owned);
    (words.next().unwrap(), words.next().unwrap())
}

#[test]
fn a_crowd_on_tcp_takes_only_a_part_of_the_descriptors() {
    let rig = Rig::new(vec![any("alpha", vec![say("done")])]);
    assert_eq!(up_under(&rig, "ulimit -n 160"), ("160".into(), "160".into()));
    let to = std::fs::read_to_string(rig.file("run/listen")).unwrap();
    // Streams of events, which nothing cuts off. Those beyond a place hear so.
    let head = format!("GET /v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n", rig.token());
    let crowd: Vec<_> = (0..190)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(to.trim()).unwrap();
            let _ = std::io::Write::write_all(&mut stream, head.as_bytes());
            stream
        })
        .collect();
    for _ in 0..3 {
        let ran = rig.aos(&["run", "alpha"]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "done\n"), "{ran:?}\n{}", rig.log());
    }
    drop(crowd);
}

#[test]
fn the_daemon_may_open_as_much_as_the_system_lets_it() {
    let rig = Rig::new(vec![]);
    let (soft, hard) = up_under(&rig, "ulimit -Sn 100");
    assert_eq!(soft, hard);
    assert_ne!(soft, "100");
}
