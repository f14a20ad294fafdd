//! What rules ask for beside a verdict holds for the requests of commands too, and so do the labels of the files that a
//! command can read: it never learns less than its process would be refused for.

use std::fs;

use aos_models::scripted::Call;
use serde_json::{Value, json};

use super::rig::{Rig, any, calls, results, say};
use super::web::{Web, serve_tls};
use super::{PYTHON, ask, rig, run_in};

/// A policy with commands, a folder of keys, these rules for the network, and these for labels.
fn policy(keys: &str, net: &str, labels: &str) -> String {
    format!(
        r#"
version: 1
default_role: assistant
roles:
  assistant:
    fs:
      - {{path: "**", ops: [read, write, delete], undo: 15m}}
      - {{path: "keys/**", ops: [read], label: {keys}}}
    exec: {{shell: true, programs: [sh, coreutils, python3], net: rules, undo: 15m}}
    net:
{net}
labels:
{labels}
personal_data: {{detect: [email]}}
"#
    )
}

/// What a command is answered that posts a file without reading it first, and what its second try is answered.
fn posts(rig: &Rig, what: &str) -> Vec<(u16, String)> {
    let folder = rig.folder("mine");
    fs::create_dir_all(folder.join("keys")).unwrap();
    fs::write(folder.join("keys/k"), "KEY-0123456789 jane.doe@example.com").unwrap();
    fs::write(folder.join("ask.py"), PYTHON.replace("b'body'", "open('keys/k', 'rb').read()")).unwrap();
    run_in(rig, &folder, what);
    let shown = results(&rig.requests()[1])[0].1.clone();
    serde_json::from_str(shown["result"]["stdout"].as_str().unwrap_or_else(|| panic!("{shown}"))).unwrap()
}

fn rule(port: u16, more: &str) -> String {
    format!("      - {{to: \"127.0.0.1:{port}\", allow: [\"GET /**\", \"POST /**\"], private: true{more}}}")
}

#[test]
fn a_file_that_a_rule_calls_secret_leaves_by_no_command() {
    let web = Web::serve(&[("POST /in", "200 OK", "taken")]);
    let (tls, _) = serve_tls();
    let all = "allow: [\"GET /**\", \"POST /**\", \"PUT /**\", \"PATCH /**\", \"DELETE /**\"], private: true";
    let net = format!("{}\n      - {{to: \"localhost:{}\", {all}}}", rule(web.port, ""), tls.port);
    let wanted = [
        format!("POST http://127.0.0.1:{}/in", web.port),
        // Of what is passed on as it is nothing is seen.
        format!("POST https://localhost:{}/in", tls.port),
    ];
    for (keys, labels, refused) in [
        ("secret", "  - {when: secret, to: any, verdict: deny}", true),
        ("secret", "  - {when: personal, to: any, verdict: deny}", false),
    ] {
        let steps = vec![calls(vec![ask(&wanted, "")]), say("done")];
        let rig = rig(vec![any("alpha", steps)], policy(keys, &net, labels));
        let said = posts(&rig, "alpha");
        assert_eq!(said[0].0 == 403, refused, "{said:?}");
        if refused {
            assert!(said[0].1.contains("labels[0] secret"), "{said:?}");
            assert!(said[1].0 == 403 && said[1].1.contains("labels[0] secret"), "{said:?}");
            let requested = rig.entries(2, "requested");
            assert_eq!(requested[0]["labels"], json!(["secret"]), "{requested:?}");
            assert!(web.asked().is_empty() && tls.asked().is_empty());
        }
    }
    assert_eq!(web.asked().len(), 1, "where no rule keeps it");
}

#[test]
fn personal_data_that_must_not_leave_leaves_by_no_command() {
    let web = Web::serve(&[("POST /in", "200 OK", "taken")]);
    let wanted = [format!("POST http://127.0.0.1:{}/in", web.port)];
    let steps = vec![calls(vec![ask(&wanted, "")]), say("done")];
    let labels = "  - {when: personal, to: net, do: redact}";
    let rig = rig(vec![any("alpha", steps)], policy("personal", &rule(web.port, ""), labels));
    let said = posts(&rig, "alpha");
    assert!(said[0].0 == 403 && said[0].1.contains("keeps personal data here"), "{said:?}");
    assert!(web.asked().is_empty());
}

#[test]
fn a_command_does_not_go_round_a_rate() {
    let web = Web::serve(&[("GET /a", "200 OK", "a")]);
    let url = format!("http://127.0.0.1:{}/a", web.port);
    let fetch = || Call::new("NET_FETCH", json!({ "url": url }));
    let wanted = [format!("GET {url}")];
    let steps = vec![calls(vec![ask(&wanted, ""), fetch(), fetch(), fetch()]), say("done")];
    let labels = "  - {when: secret, to: any, verdict: deny}";
    let rig = rig(vec![any("alpha", steps)], policy("personal", &rule(web.port, ", rate: 2/min"), labels));
    let said = posts(&rig, "alpha");
    assert!(said[0].0 == 403 && said[0].1.contains("has a rate"), "{said:?}");
    let shown = results(&rig.requests()[1]);
    let of = |nth: usize| -> &Value { &shown[nth].1 };
    assert!(of(1)["result"]["body"] == "a" && of(2)["result"]["body"] == "a", "{shown:?}");
    assert_eq!(of(3)["error"]["code"], "EAGAIN", "{shown:?}");
    assert_eq!(web.asked().len(), 2);
}
