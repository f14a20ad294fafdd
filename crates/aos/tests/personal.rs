//! Personal data, end to end: what a model elsewhere is sent, what comes of the tokens it writes, and what happens where
//! nothing may be sent at all.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use aos_models::scripted::Call;
use rig::{Rig, Setup, any, call, calls, last, read, say};
use serde_json::json;

const ADDRESS: &str = "jane.doe@example.com";
const CARD: &str = "4111 1111 1111 1111";

/// A home whose model is elsewhere, under this label rule, with a file that holds an address and a card.
fn home(rules: Vec<aos_models::scripted::Rule>, net: &str, rule: &str) -> Rig {
    let labels = format!("labels:\n  - {{when: personal, to: model.remote, do: {rule}}}\n");
    let policy = format!("{}{net}{labels}personal_data: {{detect: [email, card]}}\n", rig::POLICY);
    let setup = Setup {
        policy: Some(policy),
        model: "context_window = 400000\n".into(),
        more: "default_model = \"small\"\n".into(),
        ..Setup::default()
    };
    let rig = Rig::with(rules, setup);
    let folder = rig.folder("project");
    std::fs::write(folder.join("customer.txt"), format!("Jane\n{ADDRESS}\ncard {CARD}\n")).unwrap();
    rig
}

/// The only rule of [`home`], as decisions name it.
const RULE: &str = "label: labels[0] personal";

/// The rule that each answer of a model came under, where what it was to be shown was not sent as it is.
fn rules_told(rig: &Rig) -> Vec<Option<String>> {
    let journal = rig.journal();
    let answers = journal.iter().filter(|entry| entry["type"] == "inference_completed");
    answers.map(|entry| entry["personal"]["rule"].as_str().map(str::to_owned)).collect()
}

fn run(rig: &Rig) -> rig::Ran {
    let folder = rig.home().parent().unwrap().join("project");
    rig.aos(&["run", "-w", folder.to_str().unwrap(), "alpha"])
}

/// Takes one request, answers it, and sends what it was.
fn listener() -> (u16, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, got) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
        let mut request = Vec::new();
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut piece) {
            request.extend_from_slice(&piece[..count]);
            if request.windows(9).any(|at| at == b"THE END\"}") || request.ends_with(b"THE END") {
                break;
            }
        }
        stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        sender.send(String::from_utf8_lossy(&request).into_owned()).unwrap();
    });
    (port, got)
}

#[test]
fn a_model_elsewhere_sees_tokens_and_files_and_the_person_get_the_values() {
    let (port, got) = listener();
    let net = format!("    net: [{{to: \"127.0.0.1:{port}\", allow: [\"POST /**\"], private: true}}]\n");
    let rules = vec![any(
        "alpha",
        vec![
            call("FS_READ", json!({ "path": "customer.txt" })),
            calls(vec![
                Call::new("FS_WRITE", json!({ "path": "out.txt", "content": "to [EMAIL_1], card [CARD_1]" })),
                Call::new(
                    "NET_SEND",
                    json!({ "url": format!("http://127.0.0.1:{port}/x"), "method": "POST", "body": "for [EMAIL_1] THE END" }),
                ),
            ]),
            say("I have written to [EMAIL_1]."),
        ],
    )];
    let rig = home(rules, &net, "redact");
    let ran = run(&rig);
    assert_eq!(ran.code, 0, "{ran:?}");
    let sent: Vec<String> = rig.requests().iter().map(ToString::to_string).collect();
    assert_eq!(sent.len(), 3);
    assert!(sent.iter().all(|body| !body.contains(ADDRESS) && !body.contains("4111 1111")), "{sent:?}");
    assert!(sent[1].contains("[EMAIL_1]") && sent[1].contains("[CARD_1]"), "{}", sent[1]);
    assert!(
        sent[2].contains("to [EMAIL_1], card [CARD_1]"),
        "its own words come back to it as it wrote them: {}",
        sent[2]
    );
    let folder = rig.home().parent().unwrap().join("project");
    assert_eq!(read(folder.join("out.txt")), format!("to {ADDRESS}, card {CARD}"));
    assert!(ran.out.contains(&format!("I have written to {ADDRESS}.")), "{ran:?}");
    let request = got.recv_timeout(rig::DEADLINE).unwrap();
    assert!(request.contains("for [EMAIL_1]") && !request.contains(ADDRESS), "what leaves has the token: {request}");
    let labelled: Vec<String> =
        rig.journal().iter().filter(|entry| entry["type"] == "labelled").map(ToString::to_string).collect();
    assert!(labelled.iter().any(|entry| entry.contains("personal")), "{labelled:?}");
    // The journal says by which rule tokens were sent, at each answer that they were sent for; before the file was read
    // there was nothing.
    assert_eq!(rules_told(&rig), [None, Some(RULE.to_owned()), Some(RULE.to_owned())]);
    let exported = rig.aos(&["audit", "export"]);
    assert!(exported.code == 0 && exported.out.matches(RULE).count() == 2, "{exported:?}");
    assert!(!rig.log().contains(ADDRESS), "{}", rig.log());
}

#[test]
fn what_must_stay_goes_to_a_model_of_this_machine() {
    let rules = vec![any("alpha", vec![call("FS_READ", json!({ "path": "customer.txt" })), say("read")])];
    let rig = home(rules, "", "local_only");
    let config = read(rig.file("aos.toml"));
    let server = config.lines().find(|line| line.starts_with("base_url")).unwrap();
    let more = format!("{config}\n[models.home]\nprovider = \"openai\"\n{server}\nmodel = \"at-home\"\nlocal = true\n");
    std::fs::write(rig.file("aos.toml"), more).unwrap();
    let ran = run(&rig);
    assert_eq!(ran.code, 0, "{ran:?}");
    let asked: Vec<(String, bool)> = rig
        .requests()
        .iter()
        .map(|body| (body["model"].as_str().unwrap_or_default().to_owned(), body.to_string().contains(ADDRESS)))
        .collect();
    assert_eq!(asked, [("scripted".to_owned(), false), ("at-home".to_owned(), true)]);
    assert_eq!(rules_told(&rig), [None, Some(RULE.to_owned()), None], "asked elsewhere, withheld, asked here");
    let routed = rig.journal().into_iter().rfind(|entry| entry["type"] == "routed").unwrap();
    assert!(routed["model"] == "home" && routed["why"].as_str().unwrap().contains(RULE), "{routed}");
}

fn reads_a_customer() -> Vec<aos_models::scripted::Rule> {
    vec![any("alpha", vec![call("FS_READ", json!({ "path": "customer.txt" })), say("read of [EMAIL_1]")])]
}

#[test]
fn what_must_stay_goes_nowhere_where_no_model_is_here() {
    let rig = home(reads_a_customer(), "", "deny");
    let ran = run(&rig);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("local = true") && ran.err.contains(RULE), "{ran:?}");
    assert_eq!(rules_told(&rig), [None, Some(RULE.to_owned())]);
    assert!(rig.requests().iter().all(|body| !body.to_string().contains(ADDRESS)));
}

#[test]
fn a_person_says_whether_a_model_elsewhere_may_see_tokens() {
    for (answer, code) in [("approve", 0), ("reject", 1)] {
        let rig = home(reads_a_customer(), "", "local_only");
        rig.up();
        let folder = rig.home().parent().unwrap().join("project");
        let running = rig.start(&["run", "-w", folder.to_str().unwrap(), "alpha"]);
        let open = || rig.json(&["proposals"]).as_array().unwrap().first().map(|open| open["id"].clone());
        let id = rig::until("a question", open);
        assert_eq!(rig.aos(&[answer, id.as_str().unwrap()]).code, 0);
        let ran = running.end();
        assert_eq!(ran.code, code, "{answer}: {ran:?}");
        let sent = rig.requests();
        assert!(sent.iter().all(|body| !body.to_string().contains(ADDRESS)), "{answer}");
        assert_eq!(sent.iter().any(|body| body.to_string().contains("[EMAIL_1]")), code == 0, "{answer}");
        assert_eq!(ran.out.contains(&format!("read of {ADDRESS}")), code == 0, "{answer}: {ran:?}");
        assert_eq!(ran.err.contains("local = true"), code == 1, "{answer}: {ran:?}");
    }
}

/// Tokens are made from the window, so a daemon that was killed fills in what the one before it has shown.
#[test]
fn tokens_outlive_the_daemon_and_memory_holds_values_that_models_see_as_tokens() {
    let (port, got) = listener();
    let net = format!("    net: [{{to: \"127.0.0.1:{port}\", allow: [\"POST /**\"], private: true}}]\n");
    let post =
        json!({ "url": format!("http://127.0.0.1:{port}/x"), "method": "POST", "body": "for [EMAIL_1] THE END" });
    let write = json!({ "path": "out.txt", "content": "to [EMAIL_1], card [CARD_1]" });
    let rules = vec![
        last(
            "alpha",
            vec![calls(vec![
                Call::new("FS_READ", json!({ "path": "customer.txt" })),
                Call::new("MEM_WRITE", json!({ "key": "note", "value": "nothing yet" })),
            ])],
        ),
        last("beta", vec![calls(vec![Call::new("FS_WRITE", write), Call::new("NET_SEND", post)])]),
        last("gamma", vec![call("MEM_WRITE", json!({ "key": "customer", "value": "mail [EMAIL_1]" }))]),
        last("delta", vec![call("MEM_READ", json!({ "query": "customer" }))]),
        any("alpha", vec![say("done")]),
    ];
    let rig = home(rules, &net, "redact");
    let folder = rig.home().parent().unwrap().join("project");
    let pid = rig.spawn(&["-w", folder.to_str().unwrap(), "alpha"]);
    rig.until_idle(pid);
    let tell = |text: &str| {
        assert_eq!(rig.aos(&["send", &pid.to_string(), text]).code, 0);
        rig.until_idle(pid);
    };
    rig.kill_daemon();
    rig.up();
    tell("beta");
    assert_eq!(read(folder.join("out.txt")), format!("to {ADDRESS}, card {CARD}"));
    let request = got.recv_timeout(rig::DEADLINE).unwrap();
    assert!(request.contains("for [EMAIL_1]") && !request.contains(ADDRESS), "what leaves has the token: {request}");
    tell("gamma");
    rig.kill_daemon();
    rig.up();
    tell("delta");
    let results = rig.entries(pid, "result");
    let hit = results.iter().rev().find(|entry| entry["name"] == "MEM_READ").unwrap().to_string();
    assert!(hit.contains(&format!("mail {ADDRESS}")), "memory holds the value: {hit}");
    let sent: Vec<String> = rig.requests().iter().map(ToString::to_string).collect();
    assert!(sent.iter().all(|body| !body.contains(ADDRESS) && !body.contains("4111 1111")), "{sent:?}");
    assert!(sent.last().unwrap().contains("mail [EMAIL_1]"), "{sent:?}");
    assert!(!rig.log().contains(ADDRESS), "{}", rig.log());
}

/// In this a pattern of the policy below is found so often that the detector gives up on it.
fn flood() -> String {
    "Q".repeat(5000)
}

/// The same home with a detector that fails where it is given too much.
fn failing(rules: Vec<aos_models::scripted::Rule>, net: &str) -> Rig {
    let rig = home(rules, net, "redact");
    let policy = read(rig.file("policy.yaml"));
    let more = policy
        .replace("labels:\n", "labels:\n  - {when: personal, to: net, do: redact}\n")
        .replace("[email, card]}", "[email, card], custom: {mark: \"Q\"}}");
    std::fs::write(rig.file("policy.yaml"), more).unwrap();
    std::fs::write(rig.home().parent().unwrap().join("project").join("flood.txt"), flood()).unwrap();
    rig
}

/// Nothing of the flood is where it must not be, and as many prompts as these were sent.
fn assert_withheld(rig: &Rig, sent: usize) {
    let requests = rig.requests();
    assert_eq!(requests.len(), sent, "{requests:?}");
    assert!(requests.iter().all(|body| !body.to_string().contains("QQ")));
    assert!(!rig.log().contains("QQ"));
}

const NOT_SENT: &str = "the detector of personal data failed, so nothing was sent";

#[test]
fn where_the_detector_fails_no_task_no_result_and_no_input_is_sent() {
    let rig = failing(vec![any("alpha", vec![say("read")])], "");
    let ran = rig.aos(&["run", &format!("alpha {}", flood())]);
    assert!(ran.code != 0 && ran.err.contains(NOT_SENT), "{} {}", ran.code, ran.err);
    assert_withheld(&rig, 0);

    let reads = |file: &str| vec![any("alpha", vec![call("FS_READ", json!({ "path": file })), say("read")])];
    let rig = failing(reads("flood.txt"), "");
    let ran = run(&rig);
    assert!(ran.code != 0 && ran.err.contains(NOT_SENT), "{} {}", ran.code, ran.err);
    assert_withheld(&rig, 1);
    assert_eq!(run(&failing(reads("customer.txt"), "")).code, 0, "what it can look at goes on");

    let rig = failing(vec![any("alpha", vec![say("waits")])], "");
    let pid = rig.spawn(&["alpha"]);
    rig.until_idle(pid);
    assert_eq!(rig.aos(&["send", &pid.to_string(), &flood()]).code, 0);
    rig::until("it is told", || {
        let stopped = rig.entries(pid, "stopped");
        stopped.first().filter(|entry| entry.to_string().contains(NOT_SENT)).cloned()
    });
    assert_withheld(&rig, 1);
}

#[test]
fn where_the_detector_fails_no_request_is_made() {
    let (port, got) = listener();
    let net = format!("    net: [{{to: \"127.0.0.1:{port}\", allow: [\"POST /**\"], private: true}}]\n");
    let url = format!("http://127.0.0.1:{port}/x");
    let send = call("NET_SEND", json!({ "url": url, "method": "POST", "body": format!("{} THE END", flood()) }));
    let rig = failing(vec![any("alpha", vec![call("FS_READ", json!({ "path": "customer.txt" })), send])], &net);
    let ran = run(&rig);
    assert!(ran.code != 0 && ran.err.contains(NOT_SENT), "{} {}", ran.code, ran.err);
    let journal = rig.journal();
    let result = journal.iter().rev().find(|entry| entry["type"] == "result" && entry["name"] == "NET_SEND").unwrap();
    assert_eq!(result["error"]["code"], "EPERM");
    let said = result["error"]["message"].as_str().unwrap();
    assert!(said.contains("it may hold personal data (a pattern"), "{said}");
    assert!(got.try_recv().is_err(), "nothing was sent");
    assert_withheld(&rig, 2);
}

#[test]
fn where_the_detector_fails_nothing_remembered_is_shown() {
    let kept = format!("floods: {}", flood());
    let write = json!({ "key": "floods", "value": kept, "namespace": "team" });
    let rules = vec![
        any("beta", vec![call("MEM_READ", json!({ "query": "floods", "namespace": "team" })), say("read")]),
        any("alpha", vec![call("MEM_WRITE", write), say("kept")]),
    ];
    let rig = home(rules, "", "redact");
    let policy = read(rig.file("policy.yaml"));
    let shared = policy.replace("self/**", "**");
    std::fs::write(rig.file("policy.yaml"), &shared).unwrap();
    let ran = rig.aos(&["run", "alpha"]);
    assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
    std::fs::write(rig.file("policy.yaml"), shared.replace("card]}", "card], custom: {mark: \"Q\"}}")).unwrap();
    assert_eq!(rig.aos(&["policy", "reload"]).code, 0);
    let before = rig.requests().len();
    let ran = rig.aos(&["run", "beta"]);
    assert!(ran.code != 0 && ran.err.contains(NOT_SENT), "{} {}", ran.code, ran.err);
    let requests = rig.requests();
    assert_eq!(requests.len(), before + 1, "the first turn, before it had read anything");
    assert!(!requests[before].to_string().contains("QQ"));
}
