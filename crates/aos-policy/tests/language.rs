//! The language of the file: the whole example of the documentation, and what is refused with its place.

mod rig;

use aos_abi::entry::Verdict;
use aos_policy::settings::ExecNet;
use aos_policy::{Given, Labels, Policy, Subject};
use rig::{call, file, line, role, say, subject};

const COMPLETE: &str = include_str!("complete.yaml");

#[test]
fn the_complete_example_means_what_it_says() {
    let policy = file(COMPLETE);
    let cases = [
        (r#"FS_READ {"path":"notes.txt"}"#, "allow · role assistant: fs[0] **"),
        (r#"FS_WRITE {"path":"notes.txt","content":""}"#, "allow · role assistant: fs[0] **"),
        (r#"FS_WRITE {"path":"contracts/a","content":""}"#, "ask · role assistant: fs[1] contracts/**"),
        (r#"FS_MOVE {"from":"contracts/a","to":"b"}"#, "ask · role assistant: fs[1] contracts/**"),
        (r#"FS_MOVE {"from":"b","to":"contracts/a"}"#, "ask · role assistant: fs[1] contracts/**"),
        (r#"FS_READ {"path":"contracts/a"}"#, "allow · role assistant: fs[0] **"),
        (r#"FS_READ {"path":"handbook/a"}"#, "allow · role assistant: mounts[0] handbook/**"),
        (r#"FS_WRITE {"path":"handbook/a","content":""}"#, "deny · role assistant: mounts[0] handbook/**"),
        (r#"FS_DELETE {"path":"contracts"}"#, "ask · role assistant: fs[1] contracts/**"),
        (r#"FS_READ {"path":"x/.aos/policy.yaml"}"#, "deny · floor: the daemon's own files are closed to agents"),
        (r#"EXEC_CMD {"cmd":"ls | wc"}"#, "allow · role assistant: exec"),
        (
            r#"NET_FETCH {"url":"https://api.github.com/repos/acme/x"}"#,
            "allow · role assistant: net[0] api.github.com:443",
        ),
        (r#"NET_FETCH {"url":"https://api.github.com/user"}"#, "deny · role assistant: no rule"),
        (r#"NET_FETCH {"url":"https://a.example.com/"}"#, "allow · role assistant: net[1] *.example.com:443"),
        (r#"NET_FETCH {"url":"https://a.b.example.com/"}"#, "deny · role assistant: no rule"),
        (r#"NET_FETCH {"url":"https://example.com/"}"#, "deny · role assistant: no rule"),
        (
            r#"NET_SEND {"url":"https://api.github.com/repos/acme/x/issues","method":"POST"}"#,
            "hold · role assistant: net[2] api.github.com:443",
        ),
        (
            r#"NET_SEND {"url":"https://api.github.com/repos/acme/x/issues","method":"PUT"}"#,
            "deny · role assistant: no rule",
        ),
        (
            r#"NET_SEND {"url":"https://api.github.com/repos/acme/x/issues","method":"post"}"#,
            "deny · floor: there is no such method",
        ),
        (r#"NET_FETCH {"url":"http://127.0.0.1:8080/x"}"#, "allow · role assistant: net[3] 127.0.0.1:8080"),
        (r#"MEM_WRITE {"key":"k","value":"v"}"#, "allow · role assistant: memory[0] self/**"),
        (r#"MEM_READ {"query":"q","namespace":"team/x"}"#, "allow · role assistant: memory[1] team/**"),
        (r#"MEM_WRITE {"key":"k","value":"v","namespace":"team/x"}"#, "deny · role assistant: no rule"),
        (r#"SEND_MSG {"to_pid":9,"content":"x"}"#, "allow · role assistant: ipc[0] *"),
        (r#"TOOL_CALL {"name":"github.create_issue","args":{}}"#, "ask · role assistant: tools[0] github.*"),
        (r#"TOOL_CALL {"name":"clock.now","args":{}}"#, "allow · role assistant: tools[1] clock.now"),
        (
            r#"CHANNEL_SEND {"channel":"telegram","to":"@me","content":"x"}"#,
            "allow · role assistant: channels[0] telegram",
        ),
        (r#"CHANNEL_SEND {"channel":"telegram","to":"@you","content":"x"}"#, "deny · role assistant: no rule"),
        (
            r#"CHANNEL_SEND {"channel":"email","to":"a.b@example.com","content":"x"}"#,
            "hold · role assistant: channels[1] email",
        ),
        (r#"SYS_UNSCHEDULE {"timer_id":"t1"}"#, "allow · role assistant: calls[4] SYS_SCHEDULE"),
        (r#"SYS_REGISTER_WEBHOOK {"path":"orders"}"#, "deny · role assistant: no rule"),
    ];
    for (text, expected) in cases {
        assert_eq!(line(&policy, text), expected, "{text}");
    }
    assert_eq!(
        say(&policy, r#"NET_FETCH {"url":"https://api.github.com:8443/user/a?b"}"#).hint.as_deref(),
        Some("NET_FETCH api.github.com:8443/user/a")
    );
}

#[test]
fn obligations_come_with_the_verdict() {
    let policy = file(COMPLETE);
    assert_eq!(say(&policy, r#"FS_WRITE {"path":"a","content":""}"#).obligations.undo_ms, Some(900_000));
    assert_eq!(say(&policy, r#"FS_READ {"path":"a"}"#).obligations.undo_ms, None, "a reading has nothing to undo");
    let fetched = say(&policy, r#"NET_FETCH {"url":"http://127.0.0.1:8080/x"}"#).obligations.labels;
    assert_eq!(fetched, Labels::WEB, "what the network answers is untrusted though no rule says so");
    let rates = say(&policy, r#"SEND_MSG {"to":"writer","content":"x"}"#).obligations.rates;
    assert_eq!(rates.iter().map(|rate| (rate.count, rate.per_s)).collect::<Vec<_>>(), [(60, 60)]);
}

/// A listing is judged by all that it shows, also where its glob is what reaches down.
#[test]
fn a_listing_is_judged_by_the_levels_that_it_shows() {
    let fs = "[{path: '**', ops: [read]}, {path: 'mail/**', ops: [read], verdict: ask}]";
    let policy = file(&format!("version: 1\ndefault_role: r\nroles:\n  r:\n    fs: {fs}\n"));
    for (args, verdict) in [
        ("{}", Verdict::Allow),
        (r#"{"glob":"*.md"}"#, Verdict::Allow),
        (r#"{"glob":"**/*.md","depth":1}"#, Verdict::Allow),
        (r#"{"depth":0}"#, Verdict::Allow),
        (r#"{"depth":2}"#, Verdict::Ask),
        (r#"{"glob":"**/*.md"}"#, Verdict::Ask),
        (r#"{"glob":"./mail/*"}"#, Verdict::Ask),
    ] {
        assert_eq!(say(&policy, &format!("FS_LIST {args}")).verdict, verdict, "{args}");
    }
}

/// An edit shows what it edits: whoever may not read a file may not edit it, and what a reading carries, an edit does.
#[test]
fn an_edit_is_a_reading_too() {
    let fs = "[{path: '**', ops: [read, write]}, {path: 'mail/**', ops: [read], label: untrusted.file}, \
               {path: 'keys/**', ops: [read], verdict: ask}]";
    let policy = file(&format!(
        "version: 1\ndefault_role: r\nroles:\n  r:\n    fs: {fs}\n  w:\n    fs: [{{path: '**', ops: [write]}}]\n"
    ));
    let edit = |path: &str| format!(r#"FS_EDIT {{"path":"{path}","edits":[{{"old":"a","new":"b"}}]}}"#);
    assert_eq!(say(&policy, &edit("mail/1")).obligations.labels, Labels::FILE);
    assert_eq!(say(&policy, &edit("notes")).obligations.labels, Labels::NONE);
    assert_eq!(say(&policy, &edit("keys/a")).verdict, Verdict::Ask);
    let written = policy.explain(&Subject { role: "w", ..subject(&[]) }, &call(&edit("notes")));
    assert_eq!(written.verdict, Verdict::Deny, "{written:?}");
    // A name is whoever's who put it there.
    let labels = "{path: 'inbox/*', ops: [read], label: untrusted.file}";
    let policy =
        file(&format!("version: 1\ndefault_role: r\nroles:\n  r:\n    fs: [{{path: '**', ops: [read]}}, {labels}]\n"));
    for (folder, carries) in
        [("inbox", Labels::FILE), ("./inbox/", Labels::FILE), (".", Labels::NONE), ("inbox/a", Labels::NONE)]
    {
        assert_eq!(policy.labels_of_names("r", folder), carries, "{folder}");
    }
    // The name of the folder that a rule is about stands in the rule.
    let of = |path: &str, folder: &str| {
        let rule = format!("{{path: '{path}', ops: [read], label: secret}}");
        let text =
            format!("version: 1\ndefault_role: r\nroles:\n  r:\n    fs: [{{path: '**', ops: [read]}}, {rule}]\n");
        file(&text).labels_of_names("r", folder)
    };
    for (path, folder, carries) in [
        ("sec/**", ".", Labels::NONE),
        ("a/sec/**", "a", Labels::NONE),
        ("sec/**", "sec", Labels::SECRET),
        ("sec/**", "sec/deep", Labels::SECRET),
        ("sec", ".", Labels::SECRET),
        ("*/**", ".", Labels::SECRET),
        ("**", ".", Labels::SECRET),
    ] {
        assert_eq!(of(path, folder), carries, "{path} {folder}");
    }
}

#[test]
fn a_rule_for_where_the_daemon_listens_is_found() {
    let rule = |to: &str| format!("{{to: '{to}', allow: [\"GET /**\"], private: true}}");
    let rules = ["127.0.0.1:7700", "localhost:7700", "127.0.0.1:7701", "10.0.0.1:7700"].map(rule).join(", ");
    let policy = role(&format!("{{net: [{rules}]}}"));
    let listens = aos_policy::address::Listens("127.0.0.1:7700".parse().unwrap());
    assert_eq!(policy.granted_in_vain(listens), ["r: 127.0.0.1:7700", "r: localhost:7700"]);
}

#[test]
fn a_label_on_nothing_that_is_read_is_found() {
    let of = |rules: &str| {
        Policy::parse(&format!("version: 1\ndefault_role: r\nroles:\n  r: {{fs: [{rules}]}}\n"))
            .unwrap()
            .labels_unread()
    };
    let all = "{path: \"**\", ops: [read, write, delete]}";
    assert_eq!(of(&format!("{all}, {{path: in/**, ops: [write, delete], label: secret}}")), ["r: fs[1] in/**"]);
    assert_eq!(of(&format!("{{path: in/**, ops: [delete], label: secret}}, {all}")), ["r: fs[0] in/**"]);
    assert_eq!(of(&format!("{all}, {{path: in/**, ops: [read, write], label: secret}}")), [""; 0]);
    assert_eq!(of(all), [""; 0]);
}

/// Each was accepted, and did nothing.
#[test]
fn what_a_rule_would_promise_in_vain_is_refused() {
    let fs = |more: &str| {
        format!("version: 1\ndefault_role: r\nroles:\n  r:\n    fs: [{{path: a, ops: [write], {more}}}]\n")
    };
    let label =
        "version: 1\ndefault_role: r\nroles: {r: }\nlabels: [{when: untrusted, calls: [EXEC_CMD], verdict: allow}]\n";
    for (text, why) in [
        (fs("verdict: deny, undo: 15m"), "what is denied leaves nothing to undo"),
        (fs("undo: 0s"), "an `undo` of no time keeps nothing"),
        (fs("undo: 400d"), "nothing is kept for longer than a year"),
        (label.to_owned(), "a label rule that allows does nothing"),
    ] {
        let faults = Policy::parse(&text).unwrap_err();
        assert!(faults.len() == 1 && faults[0].message == why && faults[0].hint.is_some(), "{faults:?}");
    }
    for more in ["verdict: ask, undo: 15m", "verdict: hold, undo: 366d"] {
        assert!(Policy::parse(&fs(more)).is_ok(), "what is approved is kept: {more}");
    }
}

/// What no rule lets one read is not brought to where it can be read.
#[test]
fn a_move_is_a_reading_too() {
    let policy = role(
        "{fs: [{path: 'pub/**', ops: [read, write, delete]}, {path: 'vault/**', ops: [write, delete]}, \
         {path: 'pub/drafts/**', ops: [read], verdict: ask, label: secret}]}",
    );
    assert_eq!(line(&policy, r#"FS_MOVE {"from":"vault/key","to":"pub/key"}"#), "deny · role r: no rule");
    assert_eq!(line(&policy, r#"FS_MOVE {"from":"pub/drafts/a","to":"pub/a"}"#), "ask · role r: fs[2] pub/drafts/**");
    assert_eq!(line(&policy, r#"FS_MOVE {"from":"pub/drafts","to":"pub/a"}"#), "ask · role r: fs[2] pub/drafts/**");
    let moved = say(&policy, r#"FS_MOVE {"from":"pub/a","to":"vault/a"}"#);
    assert_eq!((moved.verdict.as_str(), moved.obligations.labels), ("allow", aos_policy::Labels::NONE));
}

#[test]
fn settings_are_typed() {
    let policy = file(COMPLETE);
    let role = policy.role("").expect("it has a default role");
    let exec = role.exec.as_ref().expect("it has exec");
    assert_eq!((exec.shell, exec.net, exec.programs.len()), (true, ExecNet::Closed, 6));
    assert_eq!((role.mounts[0].at.as_str(), role.mounts[0].host.as_str()), ("handbook", "~/Documents/handbook"));
    assert_eq!((role.mounts[0].line, role.mounts[0].column), (15, 16));
    assert_eq!(role.models.verdict("small"), Verdict::Allow);
    assert_eq!(role.models.verdict("strong"), Verdict::Ask);
    assert_eq!(role.models.verdict("frontier"), Verdict::Deny);
    assert_eq!(role.budget.usd.map(|(usd, per)| (usd.dollars(), per)), Some((1.0, 86_400)));
    assert_eq!((role.budget.tokens, role.budget.calls), (Some((500_000, 86_400)), Some((2000, 86_400))));
    assert_eq!(role.budget.wall_ms, Some(8 * 3_600_000));
    assert_eq!((role.secrets[0].host.as_str(), role.secrets[0].port), ("api.github.com", 443));
    assert_eq!((policy.limits().spawn_depth, policy.limits().spawn_children), (4, 16));
    assert_eq!((policy.limits().sandbox.memory_bytes, policy.limits().sandbox.wall_ms), (512 << 20, 120_000));
    assert_eq!((policy.proposals().ttl_ms, policy.proposals().max_asks), (86_400_000, Some((6, 3600))));
    assert_eq!(policy.personal_data().detect.len(), 5);
    assert_eq!(policy.personal_data().custom["employee_id"], "E-[0-9]{6}");
}

#[test]
fn labels_make_stricter_and_say_so() {
    let policy = file(COMPLETE);
    let with = |labels, text: &str| {
        let said = policy.explain(&Subject { labels, ..subject(&[]) }, &call(text));
        format!("{} · {}", said.verdict.as_str(), said.rule)
    };
    assert_eq!(with(Labels::WEBHOOK, r#"EXEC_CMD {"cmd":"ls"}"#), "ask · label: labels[0] untrusted");
    assert_eq!(with(Labels::SECRET, r#"NET_FETCH {"url":"https://a.example.com/"}"#), "deny · label: labels[2] secret");
    assert_eq!(with(Labels::PERSONAL, r#"EXEC_CMD {"cmd":"ls"}"#), "allow · role assistant: exec");
    // A quarantined child has no grants: the way through for untrusted content.
    let spawn = r#"SPAWN_AGENT {"role":"r","task":"t"}"#;
    assert_eq!(with(Labels::WEB, spawn), "ask · label: labels[0] untrusted");
    let quarantine = r#"SPAWN_AGENT {"role":"r","task":"t","quarantine":true}"#;
    assert_eq!(with(Labels::WEB, quarantine), "allow · role assistant: calls[6] SPAWN_AGENT");
    let armed = r#"SPAWN_AGENT {"role":"r","task":"t","quarantine":true,"permissions":["EXEC_CMD"]}"#;
    assert_eq!(with(Labels::WEB, armed), "ask · label: labels[0] untrusted");
    // Models.
    assert!(policy.model_flow(Labels::PERSONAL).obligations.redact);
    assert_eq!(policy.model_flow(Labels::SECRET).verdict, Verdict::Deny);
    assert_eq!(policy.model_flow(Labels::WEB).verdict, Verdict::Allow);
    let rule = |labels| policy.model_rule(labels).map(ToString::to_string);
    assert_eq!(rule(Labels::PERSONAL.and(Labels::SECRET)), rule(Labels::SECRET), "the strictest");
    assert!(rule(Labels::PERSONAL).is_some_and(|rule| rule.ends_with("personal")) && rule(Labels::WEB).is_none());
}

#[test]
fn the_default_file_is_for_a_newcomer() {
    let policy = file(Policy::default_text());
    for (text, expected) in [
        (r#"FS_DELETE {"path":"a"}"#, "allow · role assistant: fs[0] **"),
        (r#"EXEC_CMD {"cmd":"ls | wc -l"}"#, "allow · role assistant: exec"),
        (r#"MEM_FORGET {"key":"k"}"#, "allow · role assistant: memory[0] self/**"),
        (r#"SEND_MSG {"to":"writer","content":"x"}"#, "allow · role assistant: ipc[0] *"),
        (r#"SPAWN_AGENT {"role":"r"}"#, "allow · role assistant: calls[0] SPAWN_AGENT"),
        (
            r#"PROPOSE {"action":{"name":"SLEEP","args":{"seconds":1}},"why":"w"}"#,
            "allow · role assistant: calls[3] PROPOSE",
        ),
        (r#"NET_FETCH {"url":"https://example.com/"}"#, "deny · role assistant: no rule"),
        (r#"SYS_REGISTER_WEBHOOK {"path":"hooks/a"}"#, "deny · role assistant: no rule"),
    ] {
        assert_eq!(line(&policy, text), expected, "{text}");
    }
    assert_eq!(policy.proposals().max_asks, Some((20, 3600)), "few enough that each is read");
    // What its comments show works when the comment signs are taken away.
    let text = Policy::default_text()
        .replace("      # - {path", "      - {path")
        .replace("    # net:\n    #   - {to: \"api", "    net:\n      - {to: \"api")
        .replace("    #   - {to: \"127", "      - {to: \"127")
        .replace("calls: [SPAWN_AGENT", "calls: [\"SYS_REGISTER_WEBHOOK hooks/**\", SPAWN_AGENT");
    let policy = file(&text);
    assert_eq!(say(&policy, r#"SYS_REGISTER_WEBHOOK {"path":"hooks/a"}"#).verdict, Verdict::Allow);
    assert_eq!(say(&policy, r#"FS_WRITE {"path":"contracts/a","content":""}"#).verdict, Verdict::Ask);
    assert_eq!(say(&policy, r#"NET_FETCH {"url":"http://127.0.0.1:8080/"}"#).verdict, Verdict::Allow);
    // Whoever calls a webhook asks for an answer: what the agent puts into it, a person sees before.
    let reply = |text: &str, given: &[String]| {
        let given = Given { texts: given, ..Given::default() };
        let asked = Subject { labels: Labels::WEBHOOK, given, ..subject(&[]) };
        policy.explain(&asked, &call(text)).verdict
    };
    let task = ["Answer each call with status 200 and `got it`.".to_owned()];
    assert_eq!(reply(r#"SYS_WEBHOOK_REPLY {"request_id":"1-2","status":200,"body":"the notes"}"#, &task), Verdict::Ask);
    assert_eq!(reply(r#"SYS_WEBHOOK_REPLY {"request_id":"1-2","status":200,"body":"got it"}"#, &task), Verdict::Allow);
    assert_ne!(policy.generation(), file(Policy::default_text()).generation());
}

/// What the file says, and the fault that refuses it.
const REFUSED: &[(&str, &str)] = &[
    ("fs: [{path: a, ops: [read], verdit: ask}]", "5:33 a rule of `fs` has no key `verdit` → did you mean `verdict`?"),
    (
        "fs: [{path: a, path: b, ops: [read]}]",
        "5:20 the key `path` stands here twice, first on line 5 → keep one of them",
    ),
    ("fs: [&x {path: a, ops: [read]}]", "5:10 anchors are refused → write the value out where it holds"),
    ("fs: [!t {path: a, ops: [read]}]", "5:10 tags are refused → write the value plainly"),
    (
        "fs: [{path: /etc, ops: [read]}]",
        "5:17 `/etc` is no pattern: it is absolute → write it relative, without the leading `/`",
    ),
    ("fs: [{path: a, ops: [reed]}]", "5:26 `reed` is no operation → did you mean `read`?"),
    ("fs: [{path: a, ops: []}]", "5:25 operation is empty → name some of read, write, delete"),
    ("fs: [{path: a}]", "5:10 `ops` is missing → add `ops: …`"),
    ("fs: {path: a}", "5:9 `fs` is a list, here is a map → write `[…]`, or lines with `- `"),
    ("fs: [{path: a, ops: [read], verdict: yes}]", "5:42 `yes` is no verdict → there are: deny, ask, hold, allow"),
    (
        "fs: [{path: a, ops: [read], undo: 15m}]",
        "5:39 there is nothing to undo: the rule's calls change nothing → leave `undo` out",
    ),
    ("fs: [{path: a, ops: [write], undo: soon}]", "5:40 `soon` is no `undo` → write it such as `15m`"),
    (
        "fs: [{path: a, ops: [write], window: 5m}]",
        "5:42 `window` is the time in which a held call can be vetoed → add `verdict: hold`, or leave it out",
    ),
    (
        "ipc: [{peer: a, ops: [send], undo: 15m}]",
        "5:40 SEND_MSG cannot be undone once it has left → use `verdict: hold`, which waits for a veto",
    ),
    (
        "calls: [{call: SYS_WEBHOOK_REPLY, undo: 1m}]",
        "5:45 SYS_WEBHOOK_REPLY cannot be undone once it has left → use `verdict: hold`, which waits for a veto",
    ),
    (
        "calls: [{call: SYS_SCHEDULE, undo: 1m}]",
        "5:40 nothing is kept of what SYS_SCHEDULE changes, so no undo brings it back → leave `undo` out: it is for files, and commands that change them",
    ),
    (
        "calls: [FS_READ]",
        "5:13 `FS_READ` says not on what, and there is no `fs` → add a section `fs`, or a pattern such as `FS_READ **`",
    ),
    (
        "calls: [FS_REED]",
        "5:13 `FS_REED` is no grant: no system call `FS_REED` → the nearest are FS_READ, FS_EDIT, FS_DELETE",
    ),
    (
        "calls: [SPAWN_AGENT x]",
        "5:13 `SPAWN_AGENT x` is no grant: SPAWN_AGENT takes no pattern → write `SPAWN_AGENT` alone",
    ),
    (
        "fs: [{path: a, ops: [read], rate: 0/min}]",
        "5:39 a `rate` of 0 lets no call through, and says that one may be made later → write `verdict: deny` instead",
    ),
    ("exec: {shell: no, programs: [sh]}", "5:19 `shell` is neither true nor false → write `true` or `false`"),
    (
        "exec: {shell: true, programs: [sh, ./build/**]}",
        "5:40 `./build/**` is no program → `./**` is all that lies in the workspace; name others by an absolute path",
    ),
    ("exec: {shell: true}", "5:11 `programs` is missing → add `programs: …`"),
    ("net: [{to: 'a.com', allow: ['GET a']}]", "5:33 `GET a` is no method and path → write it such as `GET /repos/**`"),
    (
        "net: [{to: 'a.com', allow: ['FETCH /a']}]",
        "5:33 `FETCH` is no method → there are GET, POST, PUT, PATCH, DELETE",
    ),
    (
        "net: [{to: '10.0.0.1', allow: ['GET /']}]",
        "5:16 `10.0.0.1` is a private address → add `private: true` if that is meant",
    ),
    (
        "net: [{to: '**', allow: ['GET /'], private: true}]",
        "5:16 a private address must be named → name the host, such as `127.0.0.1:8080`",
    ),
    (
        "net: [{to: '169.254.169.254:80', allow: ['GET /'], private: true}]",
        "5:16 metadata services are closed to agents → remove the rule; nothing opens them",
    ),
    (
        "net: [{to: 'a.com:99999', allow: ['GET /']}]",
        "5:16 `a.com:99999` has no port from 1 to 65535 → write `host:443`, or `host:*`",
    ),
    (
        "net: [{to: 'a.com', allow: ['POST /a'], undo: 1m}]",
        "5:51 NET_SEND cannot be undone once it has left → use `verdict: hold`, which waits for a veto",
    ),
    (
        "mounts: [{host: etc, at: a, ops: [read]}]",
        "5:21 `etc` cannot be mounted → write an absolute folder or `~/…`, without `..`, outside of the daemon's home",
    ),
    (
        "mounts: [{host: /a, at: ../a, ops: [read]}]",
        "5:29 `../a` is no pattern: it has a `.` or `..` → write the path without them",
    ),
    (
        "mounts: [{host: /a/../b, at: a, ops: [read]}]",
        "5:21 `/a/../b` cannot be mounted → write an absolute folder or `~/…`, without `..`, outside of the daemon's home",
    ),
    (
        "mounts: [{host: /, at: a, ops: [read]}]",
        "5:21 `/` cannot be mounted → write an absolute folder or `~/…`, without `..`, outside of the daemon's home",
    ),
    (
        "mounts: [{host: ~/.aos/workspaces, at: a, ops: [read]}]",
        "5:21 `~/.aos/workspaces` cannot be mounted → write an absolute folder or `~/…`, without `..`, outside of the daemon's home",
    ),
    (
        "mounts: [{host: /a, at: a, ops: [read, write]}]",
        "5:37 a mount can be read and nothing else → write `ops: [read]`; to have a folder changed, run on it with `aos run -w DIR`",
    ),
    (
        "mounts: [{host: /a, at: a/b, ops: [read]}]",
        "5:29 `at` is one folder at the top of the workspace → write one name, such as `handbook`",
    ),
    (
        "mounts: [{host: /a, at: '*', ops: [read]}]",
        "5:29 `at` is one folder at the top of the workspace → write one name, such as `handbook`",
    ),
    (
        "mounts: [{host: /a, at: .AOS, ops: [read]}]",
        "5:29 `at` is one folder at the top of the workspace → write one name, such as `handbook`",
    ),
    (
        "mounts: [{host: /a, at: .aos, ops: [read]}]",
        "5:29 `at` is one folder at the top of the workspace → write one name, such as `handbook`",
    ),
    (
        "mounts: [{host: /a, at: a, ops: [read]}, {host: /b, at: a, ops: [read]}]",
        "5:61 `a` is mounted twice → give each mount a name of its own",
    ),
    ("models: {tiers: [small, small]}", "5:29 `small` stands here twice → keep one"),
    ("models: {tiers: [smal]}", "5:22 `smal` is no tier → did you mean `small`?"),
    ("models: {tiers: [huge]}", "5:22 `huge` is no tier → there are: nano, small, standard, strong, frontier"),
    ("models: {tiers: []}", "5:21 tier is empty → name some of nano, small, standard, strong, frontier"),
    (
        "models: {huge: ask}",
        "5:14 `models` has no key `huge` → there are: tiers, nano, small, standard, strong, frontier",
    ),
    ("models: {small: maybe}", "5:21 `maybe` is no verdict → there are: deny, ask, hold, allow"),
    ("models: {tiers: [small], small: ask}", "5:37 `small` is in `tiers` too → name it once"),
    ("budget: {usd: 1.00}", "5:19 `1.00` is no `usd` → write it such as `1.00/day`; per s, min, h or day"),
    ("budget: {usd: -1/day}", "5:19 `-1` is no amount of dollars → write it such as `1.00/day`"),
    (
        "secrets: [{name: a, to: '*.com', header: x}]",
        "5:29 `*.com` is no host and port → name one host, such as `api.example.com:443`",
    ),
    (
        "files: []",
        "5:5 a role has no key `files` → there are: calls, fs, mounts, exec, net, models, budget, memory, ipc, tools, channels, secrets",
    ),
    (
        "fs: [*a]",
        "5:10 this is not YAML: while parsing node, found unknown anchor → write the value out where it holds; names for values (`&a`, `*a`) are refused",
    ),
];

#[test]
fn every_fault_is_refused_with_its_place_and_the_way_out() {
    let mut differ = Vec::new();
    for (body, expected) in REFUSED {
        let text = format!("version: 1\ndefault_role: r\nroles:\n  r:\n    {body}\n");
        let said = match Policy::parse(&text) {
            Ok(_) => "it was taken".to_owned(),
            Err(faults) => {
                let fault = &faults[0];
                format!("{}:{} {} → {}", fault.line, fault.column, fault.message, fault.hint.as_deref().unwrap_or(""))
            }
        };
        if said != *expected {
            differ.push(format!("{body}\n  expected {expected}\n  was      {said}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn all_faults_are_shown_at_once_in_the_order_of_the_file() {
    let text = "version: 1\ndefault_role: s\nroles:\n  r:\n    fs: [{path: /a, ops: [x]}]\nlabel: []\n";
    let faults: Vec<String> = Policy::parse(text).unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(
        faults,
        [
            "line 2, column 15: there is no role `s`",
            "line 5, column 17: `/a` is no pattern: it is absolute",
            "line 5, column 27: `x` is no operation",
            "line 6, column 1: the file has no key `label`",
        ]
    );
}

/// Each was taken, and did less than it said: a request left the machine.
#[test]
fn a_label_rule_says_no_more_than_it_does() {
    let told = |rule: &str| {
        let text = format!("version: 1\ndefault_role: a\nroles: {{a: {{calls: []}}}}\nlabels:\n  - {rule}\n");
        Policy::parse(&text).err().map(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    };
    let local = "only a model can be chosen for being on this machine";
    let found = "only personal data is found in a text and replaced";
    for (rule, said) in [
        ("{when: personal, to: net, do: local_only}", local),
        ("{when: personal, to: any, do: local_only}", local),
        ("{when: personal, calls: [NET_SEND], do: local_only}", local),
        ("{when: secret, to: model.remote, do: redact}", found),
        ("{when: untrusted, to: net, do: redact}", found),
        ("{when: personal, to: model.remote, verdict: ask}", "no prompt waits for a person"),
        ("{when: secret, to: model.remote, verdict: hold}", "no prompt waits for a person"),
    ] {
        assert!(told(rule).is_some_and(|faults| faults.contains(said)), "{rule}: {:?}", told(rule));
    }
    for rule in [
        "{when: personal, to: model.remote, do: local_only}",
        "{when: secret, to: model.remote, do: local_only}",
        "{when: personal, to: any, do: redact}",
        "{when: secret, to: any, verdict: ask}",
        "{when: secret, to: any, do: deny}",
    ] {
        assert_eq!(told(rule), None, "{rule}");
    }
}

/// Each was taken, and denied or asked about nothing: whoever takes the last word out of such a list means no rule, or has made
/// a mistake, and the rule looked as if it held.
#[test]
fn a_rule_that_is_about_nothing_is_refused() {
    let told = |role: &str, labels: &str| {
        let text = format!("version: 1\ndefault_role: a\nroles: {{a: {role}}}\nlabels: {labels}\n");
        Policy::parse(&text).err().map(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    };
    for (role, labels, said) in [
        ("{}", "[{when: secret, calls: [], verdict: deny}]", "`calls` is empty, so the rule is about nothing"),
        ("{net: [{to: a.example, allow: [], verdict: deny}]}", "[]", "`allow` is empty"),
        ("{channels: [{channel: mail, to: [], verdict: deny}]}", "[]", "`to` is empty"),
        ("{fs: [{path: '**', ops: []}]}", "[]", "operation is empty"),
    ] {
        assert!(
            told(role, labels).is_some_and(|faults| faults.contains(said)),
            "{role} {labels}: {:?}",
            told(role, labels)
        );
    }
    for role in ["{}", "{fs: [], net: [], calls: [], channels: []}"] {
        assert_eq!(told(role, "[]"), None, "{role}: a section without rules grants nothing, and says so");
    }
}

#[test]
fn hostile_yaml_is_refused_and_ends() {
    let deep = "[".repeat(100_000);
    let wide = format!("version: 1\nroles: {{{}}}", "a: {}, ".repeat(2));
    let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n".to_owned();
    for text in
        [deep, wide, bomb, "--- \nversion: 1\n---\nversion: 1\n".to_owned(), "\u{feff}%YAML 9.9\n---\n{}".to_owned()]
    {
        assert!(Policy::parse(&text).is_err());
    }
}

#[test]
fn a_personal_pattern_that_is_none_is_a_fault_with_its_line() {
    let with = |custom: &str| {
        let roles = "version: 1\ndefault_role: a\nroles: {a: {calls: []}}\n";
        let text = format!("{roles}personal_data:\n  detect: [email]\n  custom:\n    {custom}\n");
        match Policy::parse(&text) {
            Ok(policy) => format!("{} found", policy.detector().find("E-123456 a@example.com").unwrap().len()),
            Err(faults) => faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        }
    };
    assert_eq!(with("employee: 'E-[0-9]{6}'"), "2 found");
    for (custom, said) in [
        ("employee: 'E-[0-9'", "unclosed character class"),
        ("employee: 'a{1000}{1000}'", "exceeds size limit"),
        ("employee: 'x*'", "empty text"),
        ("email: 'x'", "built-in detector"),
    ] {
        let fault = with(custom);
        assert!(fault.contains("line 7") && fault.contains(said), "{custom}: {fault}");
    }
}

/// The parser's own place was the end of the line before, or behind the tab.
#[test]
fn a_tab_is_named_where_it_stands() {
    let start = "version: 1\ndefault_role: r\n";
    for (text, place) in [
        ("version: 1\n\tdefault_role: r\n".to_owned(), (2, 1)),
        (format!("{start}roles:\n\tr: {{}}\n"), (4, 1)),
        (format!("{start}roles:\n  r:\n  \t fs: []\n"), (5, 3)),
        (format!("{start}roles:\n  r: {{}}\n\nlabels:\n\t- {{}}\n"), (7, 1)),
    ] {
        let faults = Policy::parse(&text).unwrap_err();
        let places: Vec<_> = faults.iter().map(|fault| (fault.line, fault.column)).collect();
        assert_eq!(places, [place], "{text:?}: {faults:?}");
        assert_eq!(faults[0].hint.as_deref(), Some("indent with spaces"), "{text:?}");
    }
}

/// A word of five million letters was printed whole.
#[test]
fn a_fault_quotes_no_more_than_anybody_reads() {
    let word = "ä".repeat(500_000);
    for text in [
        format!("version: {word}\n"),
        format!("version: 1\ndefault_role: {word}\nroles: {{r: {{}}}}\n"),
        format!("version: 1\ndefault_role: r\nroles: {{r: {{fs: [{{paths: ['**'], ops: [{word}]}}]}}}}\n"),
    ] {
        let faults = Policy::parse(&text).unwrap_err();
        for fault in &faults {
            let all = format!("{fault} {}", fault.hint.as_deref().unwrap_or_default());
            assert!(all.chars().count() < 2_500, "{}", all.len());
        }
        assert!(faults.iter().any(|fault| fault.message.contains("ä…ä")), "its beginning and its end: {faults:?}");
    }
}

#[test]
fn a_label_rule_is_about_one_label() {
    let text = Policy::default_text().replace("when: untrusted,", "when: [untrusted, personal],");
    let faults = Policy::parse(&text).unwrap_err();
    assert_eq!(faults[0].message, "`when` is one label, here is a list");
    assert!(faults[0].hint.as_deref().unwrap().starts_with("write a rule for each of them"), "{faults:?}");
}

/// These had no way out, or one that helped nobody: `pids: -1` was to be written "such as `500k`".
#[test]
fn what_is_no_yaml_and_what_is_no_number_have_a_way_out() {
    let start = "version: 1\ndefault_role: r\n";
    let deep = format!("{start}roles: {}{}\n", "[".repeat(40), "]".repeat(40));
    let deeper = format!("{start}roles: {}{}\n", "[".repeat(2000), "]".repeat(2000));
    let limits = |what: &str| format!("{start}roles: {{r: {{}}}}\nlimits: {what}\n");
    for (text, hint) in [
        (format!("{start}roles:\n\tr: {{}}\n"), "indent with spaces"),
        (format!("{start}roles: *other\n"), "write the value out where it holds"),
        (deep, "the language itself needs six levels"),
        (deeper, "the language itself needs six levels"),
        (format!("{start}roles: {{r: \"\n"), "look at the indentation, the quotes and the brackets"),
        (limits("{sandbox: {pids: -1}}"), "write it such as `64`"),
        (limits("{sandbox: {files: many}}"), "write it such as `64`"),
        (limits("{spawn: {depth: -1}}"), "write it such as `4`"),
        (format!("{start}roles: {{r: {{budget: {{tokens: lots/day}}}}}}\n"), "write it such as"),
    ] {
        let faults = Policy::parse(&text).unwrap_err();
        let hinted = faults.iter().all(|fault| fault.hint.as_deref().is_some_and(|said| said.contains(hint)));
        assert!(hinted, "{}: {faults:?}", text.chars().take(80).collect::<String>());
    }
}
