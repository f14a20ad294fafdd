//! What the policy limits: rates, budgets of roles, children, and questions to people.

use insta::assert_snapshot;

use crate::rig::{POLICY, replay_under};

const LIMITED: &str = r#"
version: 1
default_role: assistant
limits: {spawn: {depth: 1, children: 2}}
roles:
  assistant:
    calls: [SPAWN_AGENT, PROPOSE]
    fs:
      - {path: "**", ops: [read, write]}
      - {path: "asks/**", ops: [write], verdict: ask}
      - {path: "holds/**", ops: [write], verdict: hold, window: 2m}
      - {path: "log/**", ops: [write], rate: 2/min}
    ipc: [{peer: "*", ops: [send], rate: 1/h}]
  reader:
    fs: [{path: "**", ops: [read]}]
  cheap:
    calls: [SPAWN_AGENT]
    fs: [{path: "**", ops: [read]}]
    budget: {usd: 0.01117/h, tokens: 1M/day, calls: 3/h, wall: 4h}
  tiny:
    budget: {tokens: 10/day}
proposals: {ttl: 1h, max_asks: 2/h}
"#;

/// A rate counts from the first call, tells when it begins anew, and outlives a restart.
#[test]
fn a_rate_holds() {
    let told = replay_under(
        LIMITED,
        r#"
        spawn resident go
        2: => FS_WRITE {"path":"log/a","content":""} => FS_WRITE {"path":"a","content":""}
        done 2 FS_WRITE
        done 2 FS_WRITE
        after 20
        2: => FS_WRITE {"path":"log/b","content":""} => FS_WRITE {"path":"log/c","content":""}
        explain 2 FS_WRITE {"path":"log/d","content":""}
        boot
        done 2 FS_WRITE
        after 39
        2: => FS_WRITE {"path":"log/e","content":""}
        after 1
        explain 2 FS_WRITE {"path":"log/d","content":""}
        2: => FS_WRITE {"path":"log/f","content":""}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_WRITE {"path":"log/a","content":""} => FS_WRITE {"path":"a","content":""}
      → call 2 FS_WRITE {"path":"log/a","content":""}
    > done 2 FS_WRITE
      → call 2 FS_WRITE {"path":"a","content":""}
    > done 2 FS_WRITE
      → infer 2 turn [task, turn, fs_write, fs_write]
    > after 20
    > 2: => FS_WRITE {"path":"log/b","content":""} => FS_WRITE {"path":"log/c","content":""}
      → call 2 FS_WRITE {"path":"log/b","content":""}
    > explain 2 FS_WRITE {"path":"log/d","content":""}
    deny by role assistant: fs[3] log/**, rate 2/min; it begins anew at 2026-11-22T00:01:00.000Z
    > boot
      → call 2 FS_WRITE {"path":"log/b","content":""}
    > done 2 FS_WRITE
    2 deny by role assistant: fs[3] log/**, rate 2/min
    2 FS_WRITE = EAGAIN the policy lets FS_WRITE no oftener: role assistant: fs[3] log/**, rate 2/min
      → infer 2 turn [task, turn, fs_write, fs_write, turn, fs_write, fs_write]
    > after 39
    > 2: => FS_WRITE {"path":"log/e","content":""}
    2 deny by role assistant: fs[3] log/**, rate 2/min
    2 FS_WRITE = EAGAIN the policy lets FS_WRITE no oftener: role assistant: fs[3] log/**, rate 2/min
      → infer 2 turn [task, turn, fs_write, fs_write, turn, fs_write, fs_write, turn, fs_write]
    > after 1
    > explain 2 FS_WRITE {"path":"log/d","content":""}
    deny by role assistant: fs[3] log/**, rate 2/min; it begins anew at 2026-11-22T00:01:00.000Z
    > 2: => FS_WRITE {"path":"log/f","content":""}
      → call 2 FS_WRITE {"path":"log/f","content":""}
    "#);
}

/// The role's budget renews; what is under way counts; children draw on it too.
#[test]
fn the_budget_of_a_role_holds() {
    let told = replay_under(
        LIMITED,
        r#"
        spawn resident role=cheap go
        2: ok
        input 2 more
        ps 2
        after 3600
        2: ok
        budgets
        spawn oneshot role=cheap parent=2 below
        spawn oneshot role=cheap other
        input 2 more
        "#,
    );
    assert_snapshot!(told, @"
    > spawn resident role=cheap go
      → infer 2 turn [task]
    > 2: ok
    2 nearly spent: $0.01007 left of the role's $0.01117, and one inference may take $0.010822, until 2026-11-22T01:00:00.000Z
    > input 2 more
    2 waits until 2026-11-22T01:00:00.000Z: role cheap: budget.usd of $0.01117 is spent: $0.01007 left, up to $0.01108 needed; it renews at 2026-11-22T01:00:00.000Z; policy.yaml changes it
    > ps 2
    2 is blocked for budget: role cheap: budget.usd of $0.01117 is spent: $0.01007 left, up to $0.01108 needed; it renews at 2026-11-22T01:00:00.000Z; policy.yaml changes it
    > after 3600
      → infer 2 turn [task, turn, input more]
    > 2: ok
    2 nearly spent: $0.01007 left of the role's $0.01117, and one inference may take $0.01108, until 2026-11-22T02:00:00.000Z
    > budgets
    2 of no limit: spent $0.0022, reserved $0, carved $0
    > spawn oneshot role=cheap parent=2 below
    3 exited 5: role cheap: budget.usd of $0.01117 is spent: $0.01007 left, up to $0.01084 needed; it renews at 2026-11-22T02:00:00.000Z; policy.yaml changes it
    2 stopped: the budget is too small: role cheap: budget.usd of $0.01117, up to $0.011572 needed; raise it in policy.yaml, or let the model answer less (`max_output`)
    > spawn oneshot role=cheap other
      → infer 4 turn [task]
    > input 2 more
    ");
}

#[test]
fn the_calls_of_a_role_are_counted() {
    let told = replay_under(
        LIMITED,
        r#"
        spawn resident role=cheap model=free go
        2: => FS_READ {"path":"a"} => FS_READ {"path":"b"} => SLEEP {"seconds":1} => FS_READ {"path":"c"} => SYS_EXIT {}
        done 2 FS_READ
        done 2 FS_READ
        after 1
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident role=cheap model=free go
      → infer 2 turn [task]
    > 2: => FS_READ {"path":"a"} => FS_READ {"path":"b"} => SLEEP {"seconds":1} => FS_READ {"path":"c"} => SYS_EXIT {}
    2 nearly spent: 1 call left of the role's 3 calls, until 2026-11-22T01:00:00.000Z
      → call 2 FS_READ {"path":"a"}
      → call 2 FS_READ {"path":"b"}
    > done 2 FS_READ
    > done 2 FS_READ
    > after 1
    2 SLEEP = {"slept_s":1.0}
    2 FS_READ = EDQUOT role cheap: budget.calls of 3 calls is spent: 0 calls left, up to 1 calls needed
    2 exited 0: SYS_EXIT
    "#);
}

#[test]
fn a_role_may_be_too_poor_for_its_model() {
    let told = replay_under(
        LIMITED,
        r#"
        spawn oneshot role=tiny go
        spawn resident role=tiny go
        ps 3
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn oneshot role=tiny go
    2 exited 5: the budget is too small: role tiny: budget.tokens of 10 tokens, up to 6070 tokens needed; raise it in policy.yaml, or let the model answer less (`max_output`)
    > spawn resident role=tiny go
    3 stopped: the budget is too small: role tiny: budget.tokens of 10 tokens, up to 6058 tokens needed; raise it in policy.yaml, or let the model answer less (`max_output`)
    > ps 3
    3 is stopped: the budget is too small: role tiny: budget.tokens of 10 tokens, up to 6058 tokens needed; raise it in policy.yaml, or let the model answer less (`max_output`)
    "#);
}

#[test]
fn a_role_limits_how_long_its_processes_live() {
    let told = replay_under(
        LIMITED,
        r#"
        spawn resident role=cheap model=free go
        2: ok
        after 14400
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident role=cheap model=free go
      → infer 2 turn [task]
    > 2: ok
    > after 14400
    2 exited 124: ran past its time
    "#);
}

/// A child has its parent's role; nobody has a role that is not there.
#[test]
fn a_process_has_the_role_it_was_given() {
    let told = replay_under(
        LIMITED,
        r#"
        spawn resident role=nobody go
        spawn resident role=reader model=free go
        2: => FS_READ {"path":"a"} => FS_WRITE {"path":"a","content":""}
        spawn resident role=cheap model=free go
        3: => SPAWN_AGENT {"role":"r","task":"t","permissions":["FS_READ **"]}
        explain 4 FS_READ {"path":"a"}
        explain 4 FS_WRITE {"path":"a","content":""}
        fork 2
        explain 5 FS_WRITE {"path":"a","content":""}
        3: => SPAWN_AGENT {"role":"r","permissions":["FS_WRITE **"]}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident role=nobody go
    refused: ENOENT the policy has no role `nobody`
    > spawn resident role=reader model=free go
      → infer 2 turn [task]
    > 2: => FS_READ {"path":"a"} => FS_WRITE {"path":"a","content":""}
      → call 2 FS_READ {"path":"a"}
    > spawn resident role=cheap model=free go
      → infer 3 turn [task]
    > 3: => SPAWN_AGENT {"role":"r","task":"t","permissions":["FS_READ **"]}
    4 spawned by 3
    3 SPAWN_AGENT = {"pid":4}
      → infer 4 turn [task]
      → infer 3 turn [task, turn, spawn_agent]
    > explain 4 FS_READ {"path":"a"}
    allow by role cheap: fs[0] **
    > explain 4 FS_WRITE {"path":"a","content":""}
    deny by role cheap: no rule; FS_WRITE a
    > fork 2
      → infer 5 turn [task, turn]
    > explain 5 FS_WRITE {"path":"a","content":""}
    deny by role reader: no rule; FS_WRITE a
    > 3: => SPAWN_AGENT {"role":"r","permissions":["FS_WRITE **"]}
    3 nearly spent: 1 call left of the role's 3 calls, until 2026-11-22T01:00:00.000Z
    3 p1 is closed: a child can never do what its parent cannot: give it less
    3 SPAWN_AGENT = EPERM the grant `FS_WRITE **` exceeds its parent: `FS_WRITE x` would be allowed to the child and is not to the role cheap
      → infer 3 turn [task, turn, spawn_agent, turn, spawn_agent], told: nearly spent: 1 call left of the role's 3 calls, until 2026-11-22T01:00:00.000Z
    "#);
}

#[test]
fn children_are_limited_in_number_and_depth() {
    let told = replay_under(
        LIMITED,
        r#"
        spawn resident model=free go
        2: => SPAWN_AGENT {"role":"r","task":"t","permissions":["SPAWN_AGENT"]} => SPAWN_AGENT {"role":"r"} => SPAWN_AGENT {"role":"r"}
        3: => SPAWN_AGENT {"role":"r"}
        spawn resident parent=3 below
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident model=free go
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t","permissions":["SPAWN_AGENT"]} => SPAWN_AGENT {"role":"r"} => SPAWN_AGENT {"role":"r"}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
    4 spawned by 2
    2 SPAWN_AGENT = {"pid":4}
    2 SPAWN_AGENT = EAGAIN 2 children live already, the most is 2 (limits.spawn.children)
      → infer 3 turn [task]
      → infer 2 turn [task, turn, spawn_agent, spawn_agent, spawn_agent]
    > 3: => SPAWN_AGENT {"role":"r"}
    3 p1 is closed: do it yourself, or leave it to your parent
    3 SPAWN_AGENT = EPERM the policy denies it: processes are 1 deep below the first, the most is 1 (limits.spawn.depth)
      → infer 3 turn [task, turn, spawn_agent]
    > spawn resident parent=3 below
    refused: EPERM the policy denies it: processes are 1 deep below the first, the most is 1 (limits.spawn.depth)
    "#);
}

/// Children of children were no more bounded than by their depth: sixteen each, four deep, are seventy thousand.
#[test]
fn all_that_descend_from_one_process_are_limited_too() {
    let wide = LIMITED.replace("{depth: 1, children: 2}", "{depth: 4, children: 256}");
    let told = replay_under(
        &wide,
        r#"
        spawn resident
        times 256 spawn resident parent=2
        times 255 spawn resident parent=3
        signal 3 KILL
        times 2 spawn resident parent=4
        ps 515
        spawn resident parent=4
        spawn resident parent=259
        boot
        spawn resident parent=259
        spawn resident
        signal 515 KILL
        spawn resident parent=259
        ps 517
        "#,
    );
    let refused = "refused: EAGAIN 512 processes that descend from 2 live already";
    let told: Vec<&str> = told.lines().filter(|line| !line.starts_with("> times")).collect();
    let of = |command: &str| told.iter().filter(|line| line.starts_with(command)).count();
    assert_eq!((of("refused"), of(refused)), (3, 3), "also of one whose parent has ended: {told:?}");
    assert!(told.contains(&"515 is blocked for stdin") && told.contains(&"517 is blocked for stdin"), "{told:?}");
}

/// A held call waits as long as its rule says, not a quarter of an hour.
#[test]
fn a_held_call_waits_as_long_as_its_rule_says() {
    let told = replay_under(
        LIMITED,
        r#"
        spawn resident model=free go
        2: => FS_WRITE {"path":"holds/a","content":""}
        after 119
        ps 2
        after 1
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident model=free go
      → infer 2 turn [task]
    > 2: => FS_WRITE {"path":"holds/a","content":""}
    2 hold by role assistant: fs[2] holds/**
    2 proposal p1 pending
    > after 119
    > ps 2
    2 is blocked for approval
    > after 1
    2 proposal p1 executed
      → call 2 FS_WRITE {"path":"holds/a","content":""}
    "#);
}

/// A question lives as long as the policy says.
#[test]
fn a_question_lives_as_long_as_the_policy_says() {
    let told = replay_under(
        LIMITED,
        r#"
        spawn resident model=free go
        2: => FS_WRITE {"path":"asks/a","content":""}
        after 3599
        ps 2
        after 1
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident model=free go
      → infer 2 turn [task]
    > 2: => FS_WRITE {"path":"asks/a","content":""}
    2 ask by role assistant: fs[1] asks/**
    2 proposal p1 pending
    > after 3599
    > ps 2
    2 is blocked for approval
    > after 1
    2 proposal p1 expired
    2 FS_WRITE = EREJECTED nobody answered in time
      → infer 2 turn [task, turn, fs_write]
    "#);
}

/// The whole tree shares the questions it may ask.
#[test]
fn people_are_asked_no_oftener_than_they_want() {
    let told = replay_under(
        LIMITED,
        r#"
        spawn resident model=free go
        2: => FS_WRITE {"path":"asks/a","content":""} => SPAWN_AGENT {"role":"r","task":"t","permissions":["FS_WRITE **"]}
        approve p1
        done 2 FS_WRITE
        3: => FS_WRITE {"path":"asks/b","content":""}
        approve p2
        done 3 FS_WRITE
        explain 3 FS_WRITE {"path":"asks/c","content":""}
        3: => FS_WRITE {"path":"asks/c","content":""}
        2: => PROPOSE {"action":{"name":"FS_WRITE","args":{"path":"x","content":""}},"why":"?"} => FS_WRITE {"path":"holds/a","content":""}
        boot
        after 3600
        2: => FS_WRITE {"path":"asks/d","content":""}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident model=free go
      → infer 2 turn [task]
    > 2: => FS_WRITE {"path":"asks/a","content":""} => SPAWN_AGENT {"role":"r","task":"t","permissions":["FS_WRITE **"]}
    2 ask by role assistant: fs[1] asks/**
    2 proposal p1 pending
    > approve p1
    2 proposal p1 executed
      → call 2 FS_WRITE {"path":"asks/a","content":""}
    > done 2 FS_WRITE
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
      → infer 2 turn [task, turn, fs_write, spawn_agent]
    > 3: => FS_WRITE {"path":"asks/b","content":""}
    3 ask by role assistant: fs[1] asks/**
    3 proposal p2 pending
    > approve p2
    3 proposal p2 executed
      → call 3 FS_WRITE {"path":"asks/b","content":""}
    > done 3 FS_WRITE
      → infer 3 turn [task, turn, fs_write]
    > explain 3 FS_WRITE {"path":"asks/c","content":""}
    deny by proposals.max_asks 2/h; it begins anew at 2026-11-22T01:00:00.000Z
    > 3: => FS_WRITE {"path":"asks/c","content":""}
    3 deny by proposals.max_asks 2/h
    3 FS_WRITE = EAGAIN the policy lets FS_WRITE no oftener: proposals.max_asks 2/h
      → infer 3 turn [task, turn, fs_write, turn, fs_write]
    > 2: => PROPOSE {"action":{"name":"FS_WRITE","args":{"path":"x","content":""}},"why":"?"} => FS_WRITE {"path":"holds/a","content":""}
    2 PROPOSE = EAGAIN the policy lets FS_WRITE no oftener: proposals.max_asks 2/h
    2 hold by role assistant: fs[2] holds/**
    2 proposal p3 pending
    > boot
      → infer 3 turn [task, turn, fs_write, turn, fs_write]
    > after 3600
    2 proposal p3 executed
      → call 2 FS_WRITE {"path":"holds/a","content":""}
    > 2: => FS_WRITE {"path":"asks/d","content":""}
    refused: ENOENT nothing waits for effect 13.1
    "#);
}

/// `ASK_USER` is a question like any other: it counts, and is counted.
#[test]
fn a_process_asks_of_itself_no_oftener_either() {
    let told = replay_under(
        &LIMITED.replacen("PROPOSE]", "PROPOSE, ASK_USER]", 1),
        r#"
        spawn resident model=free go
        2: => ASK_USER {"question":"which one?"}
        input 2 the second
        2: => FS_WRITE {"path":"asks/a","content":""}
        reject p1
        explain 2 ASK_USER {"question":"and now?"}
        2: => ASK_USER {"question":"and now?"}
        after 3600
        2: => ASK_USER {"question":"and now?"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident model=free go
      → infer 2 turn [task]
    > 2: => ASK_USER {"question":"which one?"}
    > input 2 the second
    2 ASK_USER = {"answer":"the second"}
      → infer 2 turn [task, turn, ask_user]
    > 2: => FS_WRITE {"path":"asks/a","content":""}
    2 ask by role assistant: fs[1] asks/**
    2 proposal p1 pending
    > reject p1
    2 FS_WRITE = EREJECTED no reason given
      → infer 2 turn [task, turn, ask_user, turn, fs_write]
    > explain 2 ASK_USER {"question":"and now?"}
    deny by proposals.max_asks 2/h; it begins anew at 2026-11-22T01:00:00.000Z
    > 2: => ASK_USER {"question":"and now?"}
    2 deny by proposals.max_asks 2/h
    2 ASK_USER = EAGAIN the policy lets ASK_USER no oftener: proposals.max_asks 2/h
      → infer 2 turn [task, turn, ask_user, turn, fs_write, turn, ask_user]
    > after 3600
    > 2: => ASK_USER {"question":"and now?"}
    "#);
}

/// The same call again gets the same answer, and nobody is asked. To the byte: another one is another question.
#[test]
fn what_was_refused_is_not_asked_again() {
    let told = replay_under(
        POLICY,
        r#"
        spawn resident go
        2: => FS_WRITE {"path":"asks/a","content":"x"}
        reject p1 not that file
        2: => FS_WRITE {"content":"x","path":"asks/a"} => PROPOSE {"action":{"name":"FS_WRITE","args":{"path":"asks/a","content":"x"}},"why":"?"} => FS_WRITE {"path":"asks/a","content":"y"}
        boot
        approve p2
        done 2 FS_WRITE
        after 86400
        2: => FS_WRITE {"path":"asks/a","content":"x"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_WRITE {"path":"asks/a","content":"x"}
    2 ask by role assistant: fs[1] asks/**
    2 proposal p1 pending
    > reject p1 not that file
    2 FS_WRITE = EREJECTED not that file
      → infer 2 turn [task, turn, fs_write]
    > 2: => FS_WRITE {"content":"x","path":"asks/a"} => PROPOSE {"action":{"name":"FS_WRITE","args":{"path":"asks/a","content":"x"}},"why":"?"} => FS_WRITE {"path":"asks/a","content":"y"}
    2 ask by role assistant: fs[1] asks/**
    2 FS_WRITE = EREJECTED refused already, as p1: not that file
    2 PROPOSE = EREJECTED refused already, as p1: not that file
    2 ask by role assistant: fs[1] asks/**
    2 proposal p2 pending
    > boot
    > approve p2
    2 proposal p2 executed
      → call 2 FS_WRITE {"path":"asks/a","content":"y"}
    > done 2 FS_WRITE
      → infer 2 turn [task, turn, fs_write, turn, fs_write, propose, fs_write]
    > after 86400
    > 2: => FS_WRITE {"path":"asks/a","content":"x"}
    2 ask by role assistant: fs[1] asks/**
    2 proposal p3 pending
    "#);
}

/// It ran while its process was stopped.
#[test]
fn an_approved_call_waits_until_its_process_goes_on() {
    let told = replay_under(
        POLICY,
        r#"
        spawn resident go
        2: => FS_WRITE {"path":"asks/a","content":""} => FS_WRITE {"path":"b","content":""}
        signal 2 STOP
        approve p1
        approve p1
        boot
        signal 2 CONT
        done 2 FS_WRITE
        done 2 FS_WRITE
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_WRITE {"path":"asks/a","content":""} => FS_WRITE {"path":"b","content":""}
    2 ask by role assistant: fs[1] asks/**
    2 proposal p1 pending
    > signal 2 STOP
    > approve p1
    > approve p1
    refused: ENOENT no open proposal `p1`
    > boot
    > signal 2 CONT
    2 proposal p1 executed
      → call 2 FS_WRITE {"path":"asks/a","content":""}
    > done 2 FS_WRITE
      → call 2 FS_WRITE {"path":"b","content":""}
    > done 2 FS_WRITE
      → infer 2 turn [task, turn, fs_write, fs_write]
    "#);
}

/// Nor does it run after TERM.
#[test]
fn an_approved_call_that_term_overtakes_is_not_run() {
    let told = replay_under(
        POLICY,
        r#"
        spawn resident go
        2: => FS_WRITE {"path":"asks/a","content":""}
        signal 2 STOP
        approve p1
        signal 2 TERM
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_WRITE {"path":"asks/a","content":""}
    2 ask by role assistant: fs[1] asks/**
    2 proposal p1 pending
    > signal 2 STOP
    > approve p1
    > signal 2 TERM
    2 proposal p1 expired
    2 FS_WRITE = EINTR not run: TERM came first
      → infer 2 turn [task, turn, fs_write, term]
    "#);
}

/// An approval holds as long as the question did, and no longer.
#[test]
fn an_approval_is_over_with_its_question() {
    let told = replay_under(
        POLICY,
        r#"
        spawn resident go
        2: => FS_WRITE {"path":"asks/a","content":""}
        signal 2 STOP
        approve p1
        after 86401
        signal 2 CONT
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident go
      → infer 2 turn [task]
    > 2: => FS_WRITE {"path":"asks/a","content":""}
    2 ask by role assistant: fs[1] asks/**
    2 proposal p1 pending
    > signal 2 STOP
    > approve p1
    > after 86401
    > signal 2 CONT
    2 proposal p1 expired
    2 FS_WRITE = EREJECTED the approval is over: it came too late, or its process was stopped for too long
      → infer 2 turn [task, turn, fs_write]
    "#);
}

#[test]
fn a_role_decides_which_models_its_processes_use() {
    let policy = POLICY.replace("    exec: {", "    models: {tiers: [small], strong: ask}\n    exec: {");
    let told = replay_under(
        &policy,
        "spawn oneshot model=m t\n\
         spawn oneshot model=wide t\n\
         spawn oneshot model=free t\n\
         spawn oneshot model=b by a person, who needs no question\n\
         2: => SPAWN_AGENT {\"role\":\"r\",\"model\":\"b\",\"task\":\"t\"}\n\
         approve p1\n\
         2: => SPAWN_AGENT {\"role\":\"r\",\"model\":\"wide\",\"task\":\"t\"} => SPAWN_AGENT {\"role\":\"r\",\"model\":\"m\",\"task\":\"t\"}\n",
    );
    let says = |words: &str| assert!(told.contains(words), "{words}\n{told}");
    says("refused: EPERM the role may not use `wide`, a model of the tier `nano`");
    says("refused: EPERM the role may not use `free`, a model of no tier");
    says("ask by role : models b");
    says("proposal p1 pending");
    says("proposal p1 executed");
    says("SPAWN_AGENT = {\"pid\":4}");
    says("EPERM the role may not use `wide`");
    says("SPAWN_AGENT = {\"pid\":5}");
}

#[test]
fn a_model_that_the_role_loses_is_used_no_more_from_the_next_turn_on() {
    let policy = POLICY.replace("    exec: {", "    models: {tiers: [small, nano]}\n    exec: {");
    let told = replay_under(
        &policy,
        "spawn resident model=wide t\n\
         spawn oneshot model=wide t\n\
         policy tiers: [small, nano] => tiers: [small]\n\
         2: => FS_WRITE {\"path\":\"a\",\"content\":\"1\"}\n\
         done 2 FS_WRITE\n\
         3: => FS_WRITE {\"path\":\"a\",\"content\":\"1\"}\n\
         done 3 FS_WRITE\n\
         ps 2\n\
         ps 3\n\
         policy tiers: [small] => tiers: [small, nano]\n\
         signal 2 CONT\n",
    );
    let says = |words: &str| assert!(told.contains(words), "{words}\n{told}");
    // What was on its way comes back, and its call is made; the next turn is not.
    says("call 2 FS_WRITE");
    says("the policy was changed, and the role may not use `wide` any more");
    let turns = told.matches("infer 2 turn").count();
    assert_eq!(turns, 2, "one before and one after it may again\n{told}");
    assert_eq!(told.matches("infer 3 turn").count(), 1, "{told}");
}
