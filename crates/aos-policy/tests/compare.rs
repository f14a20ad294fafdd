//! Differences between two files, and expectations of one.

mod rig;

use aos_abi::entry::Verdict;
use aos_abi::{Pid, Syscall};
use aos_policy::diff::diff;
use aos_policy::{Given, Labels, Policy, Subject, expect};
use rig::role;

fn changes(old: &str, new: &str) -> Vec<String> {
    diff(&role(old), &role(new)).iter().map(ToString::to_string).collect()
}

/// Of a file in which all labels were gone it said that it allows the same.
#[test]
fn what_no_call_shows_is_named() {
    let policy = |role: &str, more: &str| {
        let text = format!("version: 1\ndefault_role: a\nroles:\n  a: {{{role}}}\n{more}");
        aos_policy::Policy::parse(&text).unwrap_or_else(|faults| panic!("{faults:?}"))
    };
    let fs = "fs: [{path: '**', ops: [read, write]}]";
    let exec = "exec: {shell: true, programs: [sh]}";
    let label = "labels: [{when: secret, to: any, do: deny}]\n";
    let plain = (fs.to_owned(), "");
    let cases = [
        (plain.clone(), plain.clone(), vec![]),
        ((fs.into(), label), plain.clone(), vec!["labels: gone is {when: secret, to: any, do: deny}"]),
        (plain.clone(), (fs.into(), "limits: {spawn: {depth: 1, children: 1}}\n"), vec!["limits"]),
        (plain.clone(), (fs.into(), "proposals: {ttl: 1h, approvers: [owner]}\n"), vec!["proposals"]),
        (plain.clone(), (fs.into(), "personal_data: {detect: [email]}\n"), vec!["personal_data"]),
        (
            (format!("{fs}, {exec}"), ""),
            (format!("{fs}, {}", exec.replace("[sh]", "[sh, git]")), ""),
            vec!["role a: exec: programs new: git"],
        ),
        (plain.clone(), (format!("{fs}, models: {{tiers: [small]}}"), ""), vec!["role a: models"]),
        (plain.clone(), (format!("{fs}, budget: {{usd: 1.00/day}}"), ""), vec!["role a: budget"]),
        (
            plain,
            (fs.replace("]}]", "], undo: 1m}]"), ""),
            vec!["role a: undo, window, rate, redact or label of FS_READ, FS_WRITE, FS_EDIT"],
        ),
    ];
    for ((old, old_more), (new, new_more), expected) in cases {
        let found = aos_policy::diff::beside(&policy(&old, old_more), &policy(&new, new_more));
        assert_eq!(found.len(), expected.len(), "{old} {new}: {found:?}");
        for (found, expected) in found.iter().zip(&expected) {
            let begin = expected.split(" of ").next().unwrap_or_default();
            assert!(found.to_string().starts_with(begin), "{found} {expected}");
        }
    }
}

fn told(old: &str, new: &str) -> Vec<String> {
    aos_policy::diff::beside(&role(old), &role(new)).iter().map(ToString::to_string).collect()
}

/// That commands became possible at all was "exec differs" where they have no shell.
#[test]
fn programs_shell_and_network_that_come_and_go_are_named() {
    let exec = |shell: bool, programs: &str, net: &str| {
        format!("{{exec: {{shell: {shell}, programs: [{programs}], net: {net}}}}}")
    };
    let git = exec(false, "git", "none");
    assert_eq!(changes("{}", &git), ["+ r: EXEC_CMD git was deny (role r: no rule), is allow (role r: exec)"]);
    assert_eq!(changes(&git, "{}"), ["- r: EXEC_CMD git was allow (role r: exec), is deny (role r: no rule)"]);
    assert_eq!(told("{}", &git), ["role r: exec: programs new: git"]);
    assert_eq!(told(&git, "{}"), ["role r: exec: programs gone: git"]);

    let more = exec(false, "jq, git, './**'", "none");
    let lines = changes(&git, &more);
    assert!(lines.iter().any(|line| line.starts_with("+ r: EXEC_CMD jq was deny")), "{lines:?}");
    assert_eq!(told(&git, &more), ["role r: exec: programs new: jq, ./**"]);
    let own = changes(&git, &exec(false, "git, './**'", "none"));
    assert!(own.iter().any(|line| line.starts_with("+ r: EXEC_CMD ./x was deny")), "{own:?}");

    let open = exec(true, "git, sh", "rules");
    let lines = changes(&git, &open);
    assert!(lines.iter().any(|line| line.starts_with("+ r: EXEC_CMD sh -c 'x' was deny")), "{lines:?}");
    let all = "role r: exec: programs new: sh; `shell` was false, is true; `net` was none, is rules";
    assert_eq!(told(&git, &open), [all]);
    assert_eq!(told(&exec(true, "sh, git", "none"), &exec(true, "git, sh", "none")), [""; 0], "the order is nothing");
}

/// Of a role that is new as a whole nothing but calls was shown.
#[test]
fn a_new_role_tells_its_programs() {
    let policy = |more: &str| {
        Policy::parse(&format!("version: 1\ndefault_role: a\nroles:\n  a: {{calls: [ASK_USER]}}\n{more}")).unwrap()
    };
    let with = policy("  b: {exec: {shell: true, programs: [sh], net: rules}}\n");
    let parts = aos_policy::diff::beside(&policy(""), &with);
    assert_eq!(parts.len(), 1, "{parts:?}");
    let expected = "role b: exec: programs new: sh; `shell` was false, is true; `net` was none, is rules";
    assert_eq!(parts[0].to_string(), expected);
}

/// One rule that came to allow all methods showed `POST` alone.
#[test]
fn every_method_has_an_example_of_its_own() {
    let net = |more: &str| format!("{{net: [{{to: 'api.example.com:443', allow: ['GET /**'{more}]}}]}}");
    let lines = changes(&net(""), &net(", 'POST /**', 'DELETE /**', 'PUT /x'"));
    assert_eq!(lines.len(), 3, "{}", lines.join("\n"));
    for method in ["POST", "DELETE", "PUT"] {
        let begin = format!("+ r: NET_SEND {method} api.example.com/");
        assert!(lines.iter().any(|line| line.starts_with(&begin)), "{begin}\n{}", lines.join("\n"));
    }
}

/// `~ labels` left it to the reader which rule was gone.
#[test]
fn rules_of_labels_that_come_and_go_are_told_in_their_words() {
    let told = |old: &str, new: &str| {
        let policy = |rules: &str| {
            let fs = "version: 1\ndefault_role: r\nroles: {r: {fs: [{path: '**', ops: [read]}]}}\n";
            Policy::parse(&format!("{fs}labels: [{rules}]\n")).unwrap()
        };
        let parts = aos_policy::diff::beside(&policy(old), &policy(new));
        parts.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (secret, web) = ("{when: secret, to: any, do: deny}", "{when: untrusted, calls: [EXEC_CMD], verdict: ask}");
    let both = format!("{secret}, {web}");
    assert_eq!(told(&both, &format!("{web}, {secret}")), [""; 0], "the order is nothing");
    assert_eq!(told(&both, web), [format!("labels: gone is {secret}")]);
    assert_eq!(told(secret, &both), [format!("labels: new is {web}")]);
    let strict = web.replace("ask", "deny");
    assert_eq!(told(web, &strict), [format!("labels: gone is {web}; new is {strict}")]);
    // As to calls they are the same; as to models they are not.
    let calls =
        "{when: secret, calls: [NET_FETCH, NET_SEND, CHANNEL_SEND, TOOL_CALL, SYS_WEBHOOK_REPLY, SEND_MSG], do: deny}";
    assert_eq!(told(secret, calls), [format!("labels: gone is {secret}; new is {calls}")]);
    let long = calls.replace("SEND_MSG", "SEND_MSG, EXEC_CMD, FS_WRITE");
    assert_eq!(told("", &long), [format!("labels: new is {}", calls.replace("SEND_MSG", "SEND_MSG, 2 more"))]);
}

#[test]
fn a_difference_comes_with_an_example() {
    assert_eq!(changes("{fs: [{path: a/**, ops: [read]}]}", "{fs: [{path: a/**, ops: [read]}]}"), [""; 0]);
    let lines = changes(
        "{fs: [{path: docs/**, ops: [write]}], ipc: [{peer: '*', ops: [send]}]}",
        "{fs: [{path: docs/**, ops: [write]}, {path: docs/law/**, ops: [write], verdict: ask}, {path: out/*, ops: [write]}]}",
    );
    let expected = [
        "- r: FS_WRITE docs/law/x was allow (role r: fs[0] docs/**), is ask (role r: fs[1] docs/law/**)",
        "+ r: FS_WRITE out/x was deny (role r: no rule), is allow (role r: fs[2] out/*)",
        "- r: SEND_MSG x was allow (role r: ipc[0] *), is deny (role r: no rule)",
    ];
    for line in expected {
        assert!(lines.iter().any(|said| said == line), "{line}\n{}", lines.join("\n"));
    }
    // What two rules cover together is no change.
    let parts = "{fs: [{path: a, ops: [read]}, {path: a/*/**, ops: [read]}]}";
    assert_eq!(changes("{fs: [{path: a/**, ops: [read]}]}", parts), [""; 0]);
    let net = changes(
        "{net: [{to: '*.example.com', allow: ['GET /**']}]}",
        "{net: [{to: '*.example.com', allow: ['GET /**', 'POST /in/*']}, {to: 'a.example.com', allow: ['GET /x/**'], verdict: deny}]}",
    );
    assert!(net.iter().any(|line| line.starts_with("- r: NET_FETCH a.example.com/x")), "{}", net.join("\n"));
    assert!(net.iter().any(|line| line.starts_with("+ r: NET_SEND POST y.example.com/in/y")), "{}", net.join("\n"));
    let exec = changes("{}", "{exec: {shell: true, programs: [sh]}, calls: [ASK_USER]}");
    assert_eq!(exec.len(), 2, "{}", exec.join("\n"));
}

/// Where a file goes from and where it goes to are two actions: a person was told of both in the same words.
#[test]
fn a_difference_is_said_once() {
    let lines = changes("{}", "{fs: [{path: a/**, ops: [write, delete]}]}");
    let mut unlike = lines.clone();
    unlike.sort_unstable();
    unlike.dedup();
    assert_eq!(lines.len(), unlike.len(), "{}", lines.join("\n"));
    assert!(lines.iter().any(|line| line.starts_with("+ r: FS_MOVE a/x")), "{}", lines.join("\n"));
}

#[test]
fn expectations_pass_fail_or_are_refused() {
    let policy = role("{fs: [{path: docs/**, ops: [read]}], calls: [{call: SPAWN_AGENT, verdict: ask}]}");
    let text = "- {call: FS_READ, args: {path: docs/a, limit: 10}, verdict: allow}\n\
                - {call: FS_READ, args: {path: b}, verdict: allow}\n\
                - call: FS_READ\n  args: {path: docs/b}\n  verdict: deny\n  grants: [\"FS_READ docs/a\"]\n\
                - {call: SPAWN_AGENT, args: {role: x}, verdict: ask, labels: [untrusted]}\n";
    let outcomes = expect::check(&policy, text).unwrap();
    assert_eq!(
        outcomes.iter().map(|o| (o.line, o.passed())).collect::<Vec<_>>(),
        [(1, true), (2, false), (3, true), (7, true)]
    );
    assert_eq!(outcomes[1].rule, "role r: no rule");
    for (broken, message) in [
        ("- {call: FS_READ, args: {path: a}}", "`verdict` is missing"),
        ("[]", "the file holds no expectation"),
        ("- {call: FS_READ, args: {pat: a}, verdict: deny}", "at `/pat`"),
        ("- {call: FS_READ, args: {path: a}, verdict: deny, role: q}", "there is no role `q`"),
        ("- {call: FS_READ, args: {path: a}, verdict: deny, grants: [X]}", "`X` is no grant"),
    ] {
        let faults = expect::check(&policy, broken).unwrap_err();
        assert!(faults[0].message.contains(message), "{broken}: {}", faults[0]);
    }
}

/// Of the past only what was recorded is known: whether people had given what steers a call, not their words.
#[test]
fn what_was_given_then_is_given_again() {
    let file = |labels: &str| {
        let text = "version: 1\ndefault_role: r\nroles: {r: {exec: {shell: true, programs: [sh], net: none}}}\n";
        Policy::parse(&format!("{text}{labels}")).unwrap()
    };
    let asks = file("labels: [{when: untrusted, calls: [EXEC_CMD], verdict: ask}]\n");
    let denies = file("labels: [{when: untrusted, calls: [EXEC_CMD], verdict: deny}]\n");
    let call = Syscall::parse("EXEC_CMD", r#"{"cmd":"make"}"#).unwrap();
    let said = |policy: &Policy, labels: Labels, given: bool| {
        let subject = Subject { pid: Pid(2), role: "", chain: &[], labels, given: Given::default(), reaches: None };
        policy.explain_past(&subject, given, &call).verdict
    };
    assert_eq!(said(&asks, Labels::WEB, false), Verdict::Ask);
    assert_eq!(said(&asks, Labels::WEB, true), Verdict::Allow);
    assert_eq!(said(&asks, Labels::NONE, false), Verdict::Allow);
    assert_eq!(said(&denies, Labels::WEB, true), Verdict::Deny, "what is denied is never lifted");
}
