//! Hints: what a denial says would let the call pass does so, where it is put where it says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod rig;

use aos_abi::Syscall;
use aos_abi::entry::Verdict;
use aos_policy::address::Listens;
use aos_policy::{Grants, Labels, Policy, Subject};
use proptest::prelude::*;
use rig::oracle::{LISTENS, Model};
use rig::universe::{calls, labels, models};
use rig::{call, file, say, subject};

const NOTHING: &str = "no grant lets it pass";

/// A policy and the grants of a process and its ancestors, as a person can change them.
struct Changed {
    text: String,
    chain: Vec<Vec<String>>,
}

impl Changed {
    /// Puts a line at the beginning of the role.
    fn section(&mut self, name: &str, value: &str) {
        let (head, begin) = (format!("    {name}:\n"), "  r:\n");
        let (at, line) = match self.text.find(&head) {
            Some(at) => (at + head.len(), format!("      - {value}\n")),
            None => (self.text.find(begin).unwrap() + begin.len(), format!("{head}      - {value}\n")),
        };
        self.text.insert_str(at, &line);
    }

    /// Does what a hint says.
    fn follow(&mut self, hint: &str) {
        let mut rest = hint;
        let take = |rest: &mut &str, end: &str| {
            let at = rest.find(end).map_or(rest.len(), |at| at + end.len());
            let (taken, after) = rest.split_at(at);
            *rest = after.strip_prefix(", ").unwrap_or(after);
            taken.to_owned()
        };
        if let Some(rule) = rest.strip_prefix("a rule of the role's `net`: ") {
            rest = rule;
            let rule = take(&mut rest, "private: true}");
            self.section("net", &rule);
        } else if let Some(exec) = rest.strip_prefix("in the role: ") {
            rest = exec;
            let exec = take(&mut rest, "]}");
            self.text = self.text.replacen("  r:\n", &format!("  r:\n    {exec}\n"), 1);
        } else if rest.starts_with("plain words alone") {
            take(&mut rest, "in the role's `exec`");
            self.text = self.text.replace("shell: false", "shell: true");
        } else if let Some((program, _)) = rest.split_once(" in `programs` of the role's `exec`") {
            self.text = self.text.replace("programs: [", &format!("programs: [{program}, "));
            take(&mut rest, "`exec`");
        }
        for grant in rest.split(", ").filter(|grant| !grant.is_empty()) {
            if !grant.starts_with("EXEC_CMD") {
                self.section("calls", &format!("\"{}\"", grant.replace('\\', "\\\\").replace('"', "\\\"")));
            }
            self.chain.iter_mut().for_each(|grants| grants.push(grant.to_owned()));
        }
    }

    fn say(&self, subject: &Subject<'_>, call: &Syscall) -> (Verdict, String) {
        let policy = file(&self.text).away_from(listens());
        let parse = |grants: &Vec<String>| Grants::parse(grants).unwrap_or_else(|fault| panic!("{fault}: {grants:?}"));
        let chain: Vec<Grants> = self.chain.iter().map(parse).collect();
        let said = policy.explain(&Subject { chain: &chain, ..*subject }, call);
        (said.verdict, said.rule)
    }
}

fn listens() -> Option<Listens> {
    Some(Listens(LISTENS.parse().unwrap()))
}

fn changed(model: &Model) -> Changed {
    let text = |(name, pattern): &(&str, String)| format!("{name} {pattern}").trim().to_owned();
    Changed { text: model.yaml(), chain: model.chain.iter().map(|grants| grants.iter().map(text).collect()).collect() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_call_passes_once_what_its_denial_says_is_done(
        model in models(),
        calls in prop::collection::vec(calls(), 12),
        carried in labels(),
    ) {
        let labels = carried.iter().filter_map(|name| Labels::named(name)).fold(Labels::NONE, Labels::and);
        let policy = file(&model.yaml()).away_from(listens());
        for call in calls {
            let mut changed = changed(&model);
            let subject = Subject { labels, ..subject(&[]) };
            let chain: Vec<Grants> = changed.chain.iter().map(|grants| Grants::parse(grants).unwrap()).collect();
            let said = policy.explain(&Subject { chain: &chain, ..subject }, &call);
            let Some(hint) = said.hint.filter(|_| said.verdict == Verdict::Deny && !said.rule.starts_with("floor: ")) else {
                continue;
            };
            if hint.starts_with(NOTHING) {
                // Whatever is granted, it stays denied.
                changed.follow("FS_* **, MEM_* **, NET_* **:*, SEND_MSG *, TOOL_CALL *, CHANNEL_SEND **, KILL **, SPAWN_AGENT");
                prop_assert_eq!(changed.say(&subject, &call).0, Verdict::Deny, "{:?}: {}", call, hint);
            } else {
                changed.follow(&hint);
                let (verdict, rule) = changed.say(&subject, &call);
                prop_assert!(verdict > Verdict::Deny, "{call:?}: {hint}: {rule}\n{}{:?}", changed.text, changed.chain);
            }
        }
    }
}

const FEW: &str = "version: 1\ndefault_role: r\nroles:\n  r:\n    calls: [ASK_USER]\n";

/// Each of them named a grant that did not let the call pass, or a part of what it takes.
#[test]
fn all_that_a_denied_call_takes_is_said() {
    let policy = file(FEW);
    for (text, hint) in [
        (r#"EXEC_CMD {"cmd":"git log"}"#, r#"in the role: exec: {shell: false, programs: ["git"]}"#),
        (r#"EXEC_CMD {"cmd":"git log | wc"}"#, r#"in the role: exec: {shell: true, programs: [sh, "git"]}"#),
        (r#"EXEC_CMD {"cmd":"./a.out"}"#, r#"in the role: exec: {shell: false, programs: ["./**"]}"#),
        (r#"EXEC_CMD {"cmd":"$x"}"#, "in the role: exec: {shell: true, programs: [sh]}"),
        (
            r#"NET_FETCH {"url":"http://10.0.0.1/x"}"#,
            r#"a rule of the role's `net`: {to: "10.0.0.1:80", allow: ["GET /x"], private: true}"#,
        ),
        (r#"FS_MOVE {"from":"a","to":"b"}"#, "FS_MOVE a, FS_MOVE b"),
    ] {
        let said = say(&policy, text);
        assert_eq!((said.verdict, said.hint.as_deref()), (Verdict::Deny, Some(hint)), "{text}");
        let mut changed = Changed { text: FEW.replace("calls: [ASK_USER]", "budget: {calls: 9/min}"), chain: vec![] };
        changed.follow(hint);
        assert_eq!(changed.say(&subject(&[]), &call(text)).0, Verdict::Allow, "{text}");
    }
    // Where a rule names the host and says nothing of its being private.
    let granted = file(&FEW.replace("ASK_USER", "\"NET_FETCH 10.0.0.1:80/x\""));
    let said = say(&granted, r#"NET_FETCH {"url":"http://10.0.0.1/x"}"#);
    assert!(said.rule.starts_with("floor: private") && said.hint.unwrap().ends_with("private: true}"));
    // One part of it lacks a grant, another is denied by a rule.
    let closed = file(&format!("{FEW}    fs: [{{path: b, ops: [write], verdict: deny}}]\n"));
    let said = say(&closed, r#"FS_MOVE {"from":"a","to":"b"}"#);
    assert_eq!(said.hint.as_deref(), Some("no grant lets it pass: role r: fs[0] b"));
    let said = say(&Policy::deny_all(), r#"FS_READ {"path":"a"}"#);
    assert_eq!(said.rule, "floor: there is no policy.yaml");
    assert!(said.hint.unwrap().starts_with("`aos init` writes"));
}
