//! Connections of which only the host can be seen: opened where everything there is allowed, and nowhere else.

mod rig;

use aos_abi::Syscall;
use aos_abi::entry::Verdict;
use aos_policy::address::Listens;
use aos_policy::{Labels, Policy, Subject};
use rig::{grants, role, subject};

const ALL: &str = r#"["GET /**", "POST /**", "PUT /**", "PATCH /**", "DELETE /**"]"#;

fn opens(body: &str, host: &str, port: u16) -> Result<Labels, String> {
    role(body).opens(&subject(&[]), host, port).map(|allowed| allowed.obligations.labels)
}

#[test]
fn a_tunnel_needs_every_method_and_every_path() {
    let all = format!(r#"{{net: [{{to: "a.b.dev:443", allow: {ALL}}}]}}"#);
    let policy = role(&all);
    let allowed = policy.opens(&subject(&[]), "a.b.dev", 443).unwrap();
    assert_eq!((allowed.rule.as_str(), allowed.obligations.labels), ("role r: net[0] a.b.dev:443", Labels::WEB));
    assert_eq!(allowed.generation, policy.generation());
    for (host, port) in [("a.b.dev", 444), ("c.b.dev", 443), ("x.a.b.dev", 443)] {
        assert!(opens(&all, host, port).is_err(), "{host}:{port}");
    }
    let got = opens(r#"{net: [{to: "a.b.dev:443", allow: ["GET /**"]}]}"#, "a.b.dev", 443).unwrap_err();
    assert!(got.contains("TLS hides the method"), "{got}");
    let paths =
        format!(r#"{{net: [{{to: "a.b.dev:443", allow: {ALL}}}, {{to: "*.b.dev:443", allow: ["GET /x/**"]}}]}}"#);
    let got = opens(&paths, "a.b.dev", 443).unwrap_err();
    assert!(got.contains("names paths"), "{got}");
    assert!(opens("{fs: []}", "a.b.dev", 443).is_err());
    for (host, port, speaks) in
        [("a.b.dev", 443, true), ("a.b.dev", 80, false), ("x.b.dev", 443, true), ("b.dev", 443, false)]
    {
        assert_eq!(role(&paths).speaks_of("r", host, port), speaks, "{host}:{port}");
    }
}

#[test]
fn a_stricter_word_on_a_part_closes_the_tunnel() {
    for verdict in ["ask", "hold", "deny"] {
        let body = format!(
            r#"{{net: [{{to: "a.b.dev:443", allow: {ALL}}}, {{to: "a.b.dev:443", allow: ["POST /admin/**"], verdict: {verdict}}}]}}"#
        );
        let got = opens(&body, "a.b.dev", 443).unwrap_err();
        assert!(got.contains(verdict), "{got}");
    }
}

#[test]
fn grants_of_a_process_and_its_ancestors_count_too() {
    let policy = role(&format!(r#"{{net: [{{to: "a.b.dev:443", allow: {ALL}}}]}}"#));
    let whole = grants(&["NET_FETCH a.b.dev", "NET_SEND a.b.dev"]);
    let bare = grants(&["NET_FETCH", "NET_SEND"]);
    assert!(policy.opens(&subject(&[whole.clone(), bare]), "a.b.dev", 443).is_ok());
    for narrow in [&["NET_FETCH a.b.dev"][..], &["NET_FETCH a.b.dev/x/**", "NET_SEND a.b.dev"], &[]] {
        assert!(policy.opens(&subject(&[whole.clone(), grants(narrow)]), "a.b.dev", 443).is_err(), "{narrow:?}");
    }
}

#[test]
fn rules_about_labels_close_tunnels_and_rules_of_hosts_label_what_comes_through() {
    let text = format!(
        r#"{{version: 1, default_role: r, roles: {{r: {{net: [{{to: "a.b.dev:443", allow: {ALL}, label: personal}}]}}}},
            labels: [{{when: secret, calls: [NET_SEND], verdict: ask}}]}}"#
    );
    let policy = Policy::parse(&text).unwrap();
    let with = |labels| {
        policy.opens(&Subject { labels, ..subject(&[]) }, "a.b.dev", 443).map(|allowed| allowed.obligations.labels)
    };
    assert_eq!(with(Labels::WEB), Ok(Labels::WEB.and(Labels::PERSONAL)));
    assert_eq!(with(Labels::SECRET), Err("label: labels[0] secret says ask to NET_SEND".to_owned()));
}

#[test]
fn private_hosts_are_those_that_rules_name() {
    let policy = role(
        r#"{net: [{to: "127.0.0.1:8080", allow: ["GET /**"], private: true}, {to: "a.b.dev:443", allow: ["GET /**"]}]}"#,
    );
    assert_eq!(policy.private_hosts("r"), ["127.0.0.1:8080"]);
}

/// Only the driver knew of it: `explain` told of a grant that helped nothing, and the journal had `allow` for what was refused.
#[test]
fn nothing_is_asked_of_the_daemon_itself_whatever_a_rule_or_a_person_says() {
    let hosts =
        ["127.0.0.1", "127.9.9.9", "localhost", "a.localhost", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]", "192.0.2.1"];
    let rules: Vec<String> =
        hosts.iter().map(|host| format!(r#"{{to: "{host}:7717", allow: {ALL}, private: true}}"#)).collect();
    let body = format!("{{net: [{}]}}", rules.join(", "));
    let listening = |at: &str| role(&body).away_from(Some(Listens(at.parse().unwrap())));
    let get = |host: &str, port: u16| {
        Syscall::parse("NET_FETCH", &format!(r#"{{"url":"http://{host}:{port}/v1/status"}}"#)).unwrap()
    };
    for at in ["127.0.0.1:7717", "0.0.0.0:7717", "[::1]:7717"] {
        let policy = listening(at);
        assert_eq!(policy.generation(), role(&body).generation(), "the file is the same");
        for host in &hosts[..7] {
            let said = policy.explain(&subject(&[]), &get(host, 7717));
            assert_eq!(said.rule, "floor: the daemon's own address is closed to agents", "{host} at {at}");
            assert!(said.verdict == Verdict::Deny && said.hint.unwrap().contains("SEND_MSG"), "{host} at {at}");
            assert_eq!(policy.wanting(&subject(&[]), &get(host, 7717)), None, "no yes lifts it");
            let why = policy.opens(&subject(&[]), host, 7717).unwrap_err();
            assert!(why.starts_with("floor: ") && !policy.speaks_of("r", host, 7717), "{host} at {at}: {why}");
        }
        assert_eq!(policy.explain(&subject(&[]), &get("192.0.2.1", 7717)).verdict, Verdict::Allow, "another machine");
    }
    // One network card alone, and nothing where nobody listens.
    let card = listening("192.0.2.1:7717");
    assert_eq!(card.explain(&subject(&[]), &get("192.0.2.1", 7717)).verdict, Verdict::Deny);
    assert_eq!(card.explain(&subject(&[]), &get("localhost", 7717)).verdict, Verdict::Allow);
    for host in hosts {
        assert_eq!(role(&body).explain(&subject(&[]), &get(host, 7717)).verdict, Verdict::Allow, "{host}");
    }
    let child = r#"{"role":"x","task":"t","attachments":["http://localhost:7717/a"]}"#;
    let spawn = Syscall::parse("SPAWN_AGENT", child).unwrap();
    let policy = role(&body.replace("net:", "calls: [SPAWN_AGENT], net:"));
    let said = policy.away_from(Some(Listens("127.0.0.1:7717".parse().unwrap()))).explain(&subject(&[]), &spawn);
    assert!(said.rule.starts_with("floor: the daemon"), "what a child is shown is fetched, too: {}", said.rule);
}
