//! Secrets that are taken back: by the policy, or out of the place where they are kept. They are put in no more, by nobody.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use aos_models::scripted::Call;
use serde_json::json;

use super::rig::{Rig, any, calls, results, say};
use super::web::Web;
use super::{PYTHON, ask, policy, rig, run_in};

const VALUE: &str = "ghp_taken-back-0123456789";
pub(crate) const WITHIN: Duration = Duration::from_secs(60);

/// The rules with a secret for this port, and without it.
fn rules(port: u16, secret: bool) -> String {
    let rule = format!("      - {{to: \"127.0.0.1:{port}\", allow: [\"GET /me\"], private: true}}\n");
    let secrets = format!("    secrets:\n      - {{name: TOKEN, to: \"127.0.0.1:{port}\", header: authorization}}\n");
    policy(&if secret { format!("{rule}{secrets}") } else { rule })
}

fn keep(rig: &Rig) -> std::path::PathBuf {
    let _ = fs::create_dir(rig.file("secrets"));
    let file = rig.file("secrets/TOKEN");
    fs::write(&file, VALUE).unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    file
}

#[test]
fn a_secret_that_was_taken_back_is_put_in_no_more() {
    let web = Web::serve(&[("GET /me", "200 OK", "you said {told}")]);
    let url = format!("http://127.0.0.1:{}/me", web.port);
    let both = || {
        let fetch = Call::new("NET_FETCH", json!({ "url": url }));
        vec![calls(vec![fetch, ask(&[format!("GET {url}")], "")]), say("done")]
    };
    let rig = rig(vec![any("", both())], rules(web.port, true));
    let file = keep(&rig);
    // What a call and a command are told, and what the other side was.
    let attempt = |what: &str| {
        let before = web.asked().len();
        // Each on a folder of its own: what one command fetches, no other process runs.
        let folder = rig.folder(what);
        fs::write(folder.join("ask.py"), PYTHON).unwrap();
        run_in(&rig, &folder, what);
        let shown = results(rig.requests().last().unwrap());
        let told: Vec<bool> = web.asked()[before..].iter().map(|request| request.contains("authorization: ")).collect();
        (shown[0].1.clone(), shown[1].1["result"]["stdout"].as_str().unwrap().to_owned(), told)
    };
    let (fetched, printed, told) = attempt("first");
    assert_eq!(told, [true, true], "{fetched} {printed}");

    // Out of the policy.
    fs::write(rig.file("policy.yaml"), rules(web.port, false)).unwrap();
    assert_eq!(rig.aos(&["policy", "reload"]).code, 0);
    let (fetched, printed, told) = attempt("second");
    assert_eq!(told, [false, false], "{fetched} {printed}");
    assert!(
        fetched["result"]["body"] == "you said nobody" && printed.contains("you said nobody"),
        "{fetched} {printed}"
    );

    // In it again, and out of the place where it is kept.
    fs::write(rig.file("policy.yaml"), rules(web.port, true)).unwrap();
    assert_eq!(rig.aos(&["policy", "reload"]).code, 0);
    assert_eq!(attempt("third").2, [true, true]);
    fs::remove_file(&file).unwrap();
    let (fetched, printed, told) = attempt("fourth");
    assert_eq!(told, [false; 0], "nobody is asked without it");
    assert_eq!(fetched["error"]["code"], "EIO", "{fetched}");
    assert!(printed.contains("[502, ") && printed.contains("TOKEN cannot be put in"), "{printed}");
}

/// Answers each request with what it said in `authorization`: when it is told to.
pub(crate) fn slow() -> (u16, Receiver<String>, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, asked) = channel();
    let (go, may) = channel::<()>();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut head, mut reader) = (String::new(), BufReader::new(stream.try_clone().unwrap()));
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|read| read > 0) {}
            let told =
                head.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or("nobody").to_owned();
            if sender.send(told.clone()).is_err() || may.recv().is_err() {
                return;
            }
            let body = format!("you said {told}");
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            // Whoever asked may be gone by then.
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    (port, asked, go)
}

#[test]
fn a_command_that_runs_loses_a_secret_that_is_taken_back() {
    for out_of_the_policy in [false, true] {
        let (port, asked, go) = slow();
        let me = format!("GET http://127.0.0.1:{port}/me");
        let steps = vec![calls(vec![ask(&[me.clone(), me], "")]), say("done")];
        let rig = rig(vec![any("alpha", steps)], rules(port, true));
        let folder = rig.folder("mine");
        fs::write(folder.join("ask.py"), PYTHON).unwrap();
        let file = keep(&rig);
        let running = rig.start(&["run", "-w", folder.to_str().unwrap(), "alpha"]);
        assert_eq!(asked.recv_timeout(WITHIN).unwrap(), format!("Bearer {VALUE}"));
        if out_of_the_policy {
            fs::write(rig.file("policy.yaml"), rules(port, false)).unwrap();
            assert_eq!(rig.aos(&["policy", "reload"]).code, 0);
        } else {
            fs::remove_file(file).unwrap();
        }
        go.send(()).unwrap();
        let ran = running.end();
        assert_eq!(ran.code, 0, "{ran:?}\n{}", rig.log());
        let shown = results(&rig.requests()[1])[0].1["result"]["stdout"].as_str().unwrap().to_owned();
        let said: Vec<(u16, String)> = serde_json::from_str(&shown).unwrap();
        if out_of_the_policy {
            // What is open is closed, and nothing more goes out.
            assert!(said.iter().all(|(status, _)| *status == 403), "{said:?}");
        } else {
            let covered = "*".repeat(VALUE.len());
            assert_eq!(said[0], (200, format!("you said Bearer {covered}")), "what it was is covered all the same");
            assert!(said[1].0 == 502 && said[1].1.contains("TOKEN cannot be put in"), "{said:?}");
        }
        assert!(asked.try_recv().is_err(), "the second request never left");
        assert!(!format!("{shown}{}", rig.log()).contains(VALUE));
    }
}
