//! What the files of a workspace carry: where untrusted content may have led to what stands in them, and what of that a
//! command would run.
//!
//! Start at [`replayed`], whose scripts know a word more. Every boot in a script replays all of it and asserts that the same
//! labels come out.

use insta::assert_snapshot;

use crate::labels::LABELS;
use crate::rig::replay_under;

/// As [`replay_under`]; `obeys N` stands for a process that fetches a page and writes what it says into `report.sh`.
fn replayed(policy: &str, script: &str) -> String {
    let said = |line: &str| match line.trim().strip_prefix("obeys ") {
        Some(pid) => format!(
            "{pid}: => NET_FETCH {{\"url\":\"https://example.com/\"}}\ndone {pid} NET_FETCH\n\
             {pid}: => FS_WRITE {{\"path\":\"report.sh\",\"content\":\"evil\"}}\ndone {pid} FS_WRITE"
        ),
        None => line.to_owned(),
    };
    replay_under(policy, &script.lines().map(said).collect::<Vec<_>>().join("\n"))
}

/// Commands reach the network by the rules, and no rule labels files, which would mark what a command leaves behind anyway.
fn with_a_network() -> String {
    LABELS.replace("net: none}", "net: rules}").replace(", label: untrusted.file", "")
}

/// Who shares a workspace runs what the others wrote there: a child, and whoever works on the same folder.
#[test]
fn what_another_wrote_after_untrusted_content_is_not_run_unasked() {
    let told = replayed(
        LABELS,
        r#"
        spawn resident have it fetched, then run `sh report.sh`
        2: => SPAWN_AGENT {"role":"r","task":"t","permissions":["NET_FETCH example.com","FS_WRITE **"]}
        obeys 3
        2: => EXEC_CMD {"cmd":"sh report.sh"}
        reject p1
        boot
        explain 2 EXEC_CMD {"cmd":"sh report.sh"}
        explain 2 FS_WRITE {"path":"a","content":""}
        spawn resident folder=/w/a fetch it
        obeys 4
        spawn resident folder=/w Run `sh a/report.sh`
        5: => EXEC_CMD {"cmd":"sh a/report.sh"}
        spawn resident folder=/other Run `sh report.sh`
        6: => EXEC_CMD {"cmd":"sh report.sh"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident have it fetched, then run `sh report.sh`
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t","permissions":["NET_FETCH example.com","FS_WRITE **"]}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
      → infer 2 turn [task, turn, spawn_agent]
    > 3: => NET_FETCH {"url":"https://example.com/"}
      → call 3 NET_FETCH {"url":"https://example.com/"}
    > done 3 NET_FETCH
    3 labelled untrusted.web
      → infer 3 turn [task, turn, net_fetch]
    > 3: => FS_WRITE {"path":"report.sh","content":"evil"}
      → call 3 FS_WRITE {"path":"report.sh","content":"evil"}
    > done 3 FS_WRITE
      → infer 3 turn [task, turn, net_fetch, turn, fs_write]
    > 2: => EXEC_CMD {"cmd":"sh report.sh"}
    2 ask by label: labels[0] untrusted
    2 proposal p1 pending
    > reject p1
    2 EXEC_CMD = EREJECTED no reason given
      → infer 2 turn [task, turn, spawn_agent, turn, exec_cmd]
    > boot
      → infer 3 turn [task, turn, net_fetch, turn, fs_write]
      → infer 2 turn [task, turn, spawn_agent, turn, exec_cmd]
    > explain 2 EXEC_CMD {"cmd":"sh report.sh"}
    ask by label: labels[0] untrusted; the files it could run were changed after untrusted content was read
    > explain 2 FS_WRITE {"path":"a","content":""}
    allow by role assistant: fs[0] **
    > spawn resident folder=/w/a fetch it
      → infer 4 turn [task]
    > 4: => NET_FETCH {"url":"https://example.com/"}
      → call 4 NET_FETCH {"url":"https://example.com/"}
    > done 4 NET_FETCH
    4 labelled untrusted.web
      → infer 4 turn [task, turn, net_fetch]
    > 4: => FS_WRITE {"path":"report.sh","content":"evil"}
      → call 4 FS_WRITE {"path":"report.sh","content":"evil"}
    > done 4 FS_WRITE
      → infer 4 turn [task, turn, net_fetch, turn, fs_write]
    > spawn resident folder=/w Run `sh a/report.sh`
      → infer 5 turn [task]
    > 5: => EXEC_CMD {"cmd":"sh a/report.sh"}
    5 ask by label: labels[0] untrusted
    5 proposal p2 pending
    > spawn resident folder=/other Run `sh report.sh`
      → infer 6 turn [task]
    > 6: => EXEC_CMD {"cmd":"sh report.sh"}
      → call 6 EXEC_CMD {"cmd":"sh report.sh"}
    "#);
}

/// What was written under labels is not laundered by moving it out of its folder, by a command, or by copying all of it.
#[test]
fn copies_of_files_carry_what_the_files_do() {
    let told = replayed(
        LABELS,
        r#"
        spawn resident folder=/w/a fetch it
        obeys 2
        spawn resident folder=/w/b Run `sh report.sh`
        explain 3 EXEC_CMD {"cmd":"sh report.sh"}
        spawn resident folder=/w move it
        4: => FS_MOVE {"from":"a/report.sh","to":"b/report.sh"}
        done 4 FS_MOVE
        explain 3 EXEC_CMD {"cmd":"sh report.sh"}
        spawn resident copy=/w/a try it
        explain 5 EXEC_CMD {"cmd":"sh report.sh"}
        spawn resident folder=/w/a look at it
        fork 6
        explain 7 EXEC_CMD {"cmd":"sh report.sh"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident folder=/w/a fetch it
      → infer 2 turn [task]
    > 2: => NET_FETCH {"url":"https://example.com/"}
      → call 2 NET_FETCH {"url":"https://example.com/"}
    > done 2 NET_FETCH
    2 labelled untrusted.web
      → infer 2 turn [task, turn, net_fetch]
    > 2: => FS_WRITE {"path":"report.sh","content":"evil"}
      → call 2 FS_WRITE {"path":"report.sh","content":"evil"}
    > done 2 FS_WRITE
      → infer 2 turn [task, turn, net_fetch, turn, fs_write]
    > spawn resident folder=/w/b Run `sh report.sh`
      → infer 3 turn [task]
    > explain 3 EXEC_CMD {"cmd":"sh report.sh"}
    allow by role assistant: exec
    > spawn resident folder=/w move it
      → infer 4 turn [task]
    > 4: => FS_MOVE {"from":"a/report.sh","to":"b/report.sh"}
      → call 4 FS_MOVE {"from":"a/report.sh","to":"b/report.sh"}
    > done 4 FS_MOVE
      → infer 4 turn [task, turn, fs_move]
    > explain 3 EXEC_CMD {"cmd":"sh report.sh"}
    ask by label: labels[0] untrusted; the files it could run were changed after untrusted content was read
    > spawn resident copy=/w/a try it
      → infer 5 turn [task]
    > explain 5 EXEC_CMD {"cmd":"sh report.sh"}
    ask by label: labels[0] untrusted; the files it could run were changed after untrusted content was read
    > spawn resident folder=/w/a look at it
      → infer 6 turn [task]
    > fork 6
      → infer 7 turn [task]
    > explain 7 EXEC_CMD {"cmd":"sh report.sh"}
    ask by label: labels[0] untrusted; the files it could run were changed after untrusted content was read
    "#);
}

/// What a command had fetched when it was given up may be in its files, and nobody will say so.
#[test]
fn a_command_with_a_network_whose_end_nobody_saw_leaves_its_files_marked() {
    let told = replayed(
        &with_a_network(),
        r#"
        spawn resident folder=/w run it
        2: => EXEC_CMD {"cmd":"a"}
        signal 2 KILL
        spawn resident folder=/w run it
        explain 3 EXEC_CMD {"cmd":"b"}
        spawn resident folder=/v run it
        4: => EXEC_CMD {"cmd":"a"}
        boot
        spawn resident folder=/v run it
        explain 5 EXEC_CMD {"cmd":"b"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident folder=/w run it
      → infer 2 turn [task]
    > 2: => EXEC_CMD {"cmd":"a"}
      → call 2 EXEC_CMD {"cmd":"a"}
    > signal 2 KILL
    2 exited 137: killed
      → cancel
    > spawn resident folder=/w run it
      → infer 3 turn [task]
    > explain 3 EXEC_CMD {"cmd":"b"}
    ask by label: labels[0] untrusted; the files it could run were changed after untrusted content was read
    > spawn resident folder=/v run it
      → infer 4 turn [task]
    > 4: => EXEC_CMD {"cmd":"a"}
      → call 4 EXEC_CMD {"cmd":"a"}
    > boot
    4 EXEC_CMD = EINTR the kernel stopped while this ran; its outcome is unknown and it was not run again
      → infer 4 turn [task, turn, exec_cmd]
      → infer 3 turn [task]
    > spawn resident folder=/v run it
      → infer 5 turn [task]
    > explain 5 EXEC_CMD {"cmd":"b"}
    ask by label: labels[0] untrusted; the files it could run were changed after untrusted content was read
    "#);
}

/// A large change takes seconds to be made, and whoever reads the first of its files would know nothing of it.
#[test]
fn what_a_command_reached_marks_its_files_before_its_end() {
    let told = replayed(
        &with_a_network(),
        r#"
        spawn resident folder=/w get it
        2: => EXEC_CMD {"cmd":"a"}
        spawn resident folder=/w read
        3: => FS_READ {"path":"before"}
        done 3 FS_READ
        reaches 2 EXEC_CMD
        3: => FS_READ {"path":"README"}
        done 3 FS_READ
        done 2 EXEC_CMD {"label":"untrusted.web"}
        spawn resident folder=/v look
        4: => NET_FETCH {"url":"https://example.com/"}
        reaches 4 NET_FETCH
        explain 4 EXEC_CMD {"cmd":"b"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident folder=/w get it
      → infer 2 turn [task]
    > 2: => EXEC_CMD {"cmd":"a"}
      → call 2 EXEC_CMD {"cmd":"a"}
    > spawn resident folder=/w read
      → infer 3 turn [task]
    > 3: => FS_READ {"path":"before"}
      → call 3 FS_READ {"path":"before"}
    > done 3 FS_READ
      → infer 3 turn [task, turn, fs_read]
    > reaches 2 EXEC_CMD
    > 3: => FS_READ {"path":"README"}
      → call 3 FS_READ {"path":"README"}
    > done 3 FS_READ
    3 labelled untrusted.web
      → infer 3 turn [task, turn, fs_read, turn, fs_read]
    > done 2 EXEC_CMD {"label":"untrusted.web"}
    2 labelled untrusted.web
      → infer 2 turn [task, turn, exec_cmd]
    > spawn resident folder=/v look
      → infer 4 turn [task]
    > 4: => NET_FETCH {"url":"https://example.com/"}
      → call 4 NET_FETCH {"url":"https://example.com/"}
    > reaches 4 NET_FETCH
    > explain 4 EXEC_CMD {"cmd":"b"}
    allow by role assistant: exec
    "#);
}

/// A fork's files are a copy of files that the one who is gone knew about.
#[test]
fn a_copy_of_files_of_which_nothing_is_known_any_more_is_not_run_unasked() {
    let told = replayed(
        LABELS,
        r#"
        spawn resident have it fetched
        2: => SPAWN_AGENT {"role":"r","task":"t","permissions":["EXEC_CMD","FS_READ **"]}
        obeys 2
        3: => SYS_EXIT {}
        2: => SYS_EXIT {}
        prune 2
        fork 3
        explain 4 EXEC_CMD {"cmd":"sh report.sh"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident have it fetched
      → infer 2 turn [task]
    > 2: => SPAWN_AGENT {"role":"r","task":"t","permissions":["EXEC_CMD","FS_READ **"]}
    3 spawned by 2
    2 SPAWN_AGENT = {"pid":3}
      → infer 3 turn [task]
      → infer 2 turn [task, turn, spawn_agent]
    > 2: => NET_FETCH {"url":"https://example.com/"}
      → call 2 NET_FETCH {"url":"https://example.com/"}
    > done 2 NET_FETCH
    2 labelled untrusted.web
      → infer 2 turn [task, turn, spawn_agent, turn, net_fetch]
    > 2: => FS_WRITE {"path":"report.sh","content":"evil"}
      → call 2 FS_WRITE {"path":"report.sh","content":"evil"}
    > done 2 FS_WRITE
      → infer 2 turn [task, turn, spawn_agent, turn, net_fetch, turn, fs_write]
    > 3: => SYS_EXIT {}
    3 charged 1000 + 100 tokens, $0.0011
    3 exited 0: SYS_EXIT
    > 2: => SYS_EXIT {}
    2 charged 1000 + 100 tokens, $0.0011
    2 exited 0: SYS_EXIT
    > prune 2
    > fork 3
    > explain 4 EXEC_CMD {"cmd":"sh report.sh"}
    ask by label: labels[0] untrusted; the files it could run were changed after untrusted content was read
    "#);
}

/// Commands of one folder run one after the other: what the first fetches, the second would run.
#[test]
fn a_command_is_not_run_unasked_beside_one_that_may_be_fetching() {
    let told = replayed(
        &with_a_network(),
        r#"
        spawn resident folder=/w run it
        2: => EXEC_CMD {"cmd":"a"}
        spawn resident folder=/w/b Run `b`
        explain 3 EXEC_CMD {"cmd":"b"}
        spawn resident folder=/v Run `b`
        explain 4 EXEC_CMD {"cmd":"b"}
        done 2 EXEC_CMD
        explain 3 EXEC_CMD {"cmd":"b"}
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident folder=/w run it
      → infer 2 turn [task]
    > 2: => EXEC_CMD {"cmd":"a"}
      → call 2 EXEC_CMD {"cmd":"a"}
    > spawn resident folder=/w/b Run `b`
      → infer 3 turn [task]
    > explain 3 EXEC_CMD {"cmd":"b"}
    ask by label: labels[0] untrusted; the files it could run were changed after untrusted content was read
    > spawn resident folder=/v Run `b`
      → infer 4 turn [task]
    > explain 4 EXEC_CMD {"cmd":"b"}
    allow by role assistant: exec
    > done 2 EXEC_CMD
      → infer 2 turn [task, turn, exec_cmd]
    > explain 3 EXEC_CMD {"cmd":"b"}
    allow by role assistant: exec
    "#);
}

/// An agent may put a command before a person by itself, and has it made by another name then.
#[test]
fn a_command_that_was_proposed_is_a_command() {
    let proposed = r#"=> PROPOSE {"action":{"name":"EXEC_CMD","args":{"cmd":"a"}},"why":"it fetches"}"#;
    let told = replayed(
        &with_a_network(),
        &format!(
            r#"
            spawn resident folder=/beside get it
            2: {proposed}
            approve p1
            spawn resident folder=/beside Run `b`
            explain 3 EXEC_CMD {{"cmd":"b"}}
            spawn resident folder=/reached get it
            4: {proposed}
            approve p2
            reaches 4 EXEC_CMD
            done 4 EXEC_CMD
            spawn resident folder=/reached Run `b`
            explain 5 EXEC_CMD {{"cmd":"b"}}
            spawn resident folder=/killed get it
            6: {proposed}
            approve p3
            signal 6 KILL
            spawn resident folder=/killed Run `b`
            explain 7 EXEC_CMD {{"cmd":"b"}}
            spawn resident folder=/cut get it
            8: {proposed}
            approve p4
            boot
            spawn resident folder=/cut Run `b`
            explain 9 EXEC_CMD {{"cmd":"b"}}
            "#
        ),
    );
    let said: Vec<&str> = told.lines().filter(|line| line.contains(" by label") || line.contains("allow by")).collect();
    let asked =
        "ask by label: labels[0] untrusted; the files it could run were changed after untrusted content was read";
    assert_eq!(said, [asked; 4], "{told}");
}

/// What a command fetches is in its files before anybody says so: it counts for copies made meanwhile, for whoever sees the
/// folder as a mount, and also where another policy lets it fetch nothing by then.
#[test]
fn what_a_command_under_way_may_be_fetching_counts_wherever_its_files_go() {
    let reader = "roles:\n  reader: {exec: {shell: true, programs: [sh], net: none}, mounts: [{host: /w/a, at: a, ops: [read]}]}\n";
    let told = replayed(
        &with_a_network().replace("roles:\n", reader),
        r#"
        spawn resident folder=/w get it
        2: => EXEC_CMD {"cmd":"a"}
        fork 2
        spawn resident copy=/w try it
        spawn resident copy=/v try it
        spawn resident role=reader read
        explain 3 EXEC_CMD {"cmd":"b"}
        explain 4 EXEC_CMD {"cmd":"b"}
        explain 6 EXEC_CMD {"cmd":"b"}
        explain 5 EXEC_CMD {"cmd":"b"}
        spawn resident folder=/w read
        policy net: rules} => net: none}
        signal 2 KILL
        explain 7 EXEC_CMD {"cmd":"b"}
        "#,
    );
    let said: Vec<&str> = told.lines().filter(|line| line.contains(" by ")).collect();
    let asked = |line: &&str| line.starts_with("ask by label");
    assert_eq!(said.iter().map(asked).collect::<Vec<_>>(), [true, true, true, false, true], "{told}");
}

/// `make` takes the next makefile where the first is gone. What a person asked to be deleted marks nothing.
#[test]
fn what_was_taken_away_after_untrusted_content_counts_as_changed() {
    let told = replayed(
        LABELS,
        r#"
        spawn resident folder=/w Fetch it, and delete `old.txt`
        2: => NET_FETCH {"url":"https://example.com/"}
        done 2 NET_FETCH
        2: => FS_DELETE {"path":"old.txt"}
        done 2 FS_DELETE
        spawn resident folder=/w make
        explain 3 EXEC_CMD {"cmd":"make"}
        2: => FS_DELETE {"path":"GNUmakefile"}
        done 2 FS_DELETE
        explain 3 EXEC_CMD {"cmd":"make"}
        "#,
    );
    let said: Vec<&str> = told.lines().filter(|line| line.contains(" by ")).collect();
    assert!(said[0].starts_with("allow") && said[1].starts_with("ask by label"), "{told}");
}

/// Nobody's silence says yes to what would be asked about by now.
#[test]
fn a_held_command_whose_files_were_changed_meanwhile_is_not_run_unasked() {
    let policy = LABELS.replace("net: none}", "net: none, verdict: hold, window: 10s}");
    let told = replayed(
        &policy,
        r#"
        spawn resident folder=/w Run `sh report.sh`
        2: => EXEC_CMD {"cmd":"sh report.sh"}
        spawn resident folder=/w fetch it
        obeys 3
        after 11
        2: => EXEC_CMD {"cmd":"sh report.sh"}
        spawn resident folder=/x Run `sh report.sh`
        4: => EXEC_CMD {"cmd":"sh report.sh"}
        signal 4 STOP
        after 11
        spawn resident folder=/x fetch it
        obeys 5
        signal 4 CONT
        "#,
    );
    assert_snapshot!(told, @r#"
    > spawn resident folder=/w Run `sh report.sh`
      → infer 2 turn [task]
    > 2: => EXEC_CMD {"cmd":"sh report.sh"}
    2 hold by role assistant: exec
    2 proposal p1 pending
    > spawn resident folder=/w fetch it
      → infer 3 turn [task]
    > 3: => NET_FETCH {"url":"https://example.com/"}
      → call 3 NET_FETCH {"url":"https://example.com/"}
    > done 3 NET_FETCH
    3 labelled untrusted.web
      → infer 3 turn [task, turn, net_fetch]
    > 3: => FS_WRITE {"path":"report.sh","content":"evil"}
      → call 3 FS_WRITE {"path":"report.sh","content":"evil"}
    > done 3 FS_WRITE
      → infer 3 turn [task, turn, net_fetch, turn, fs_write]
    > after 11
    2 proposal p1 expired
    2 EXEC_CMD = EREJECTED by now a person has to be asked: label: labels[0] untrusted
      → infer 2 turn [task, turn, exec_cmd]
    > 2: => EXEC_CMD {"cmd":"sh report.sh"}
    2 ask by label: labels[0] untrusted
    2 proposal p2 pending
    > spawn resident folder=/x Run `sh report.sh`
      → infer 4 turn [task]
    > 4: => EXEC_CMD {"cmd":"sh report.sh"}
    4 hold by role assistant: exec
    4 proposal p3 pending
    > signal 4 STOP
    > after 11
    > spawn resident folder=/x fetch it
      → infer 5 turn [task]
    > 5: => NET_FETCH {"url":"https://example.com/"}
      → call 5 NET_FETCH {"url":"https://example.com/"}
    > done 5 NET_FETCH
    5 labelled untrusted.web
      → infer 5 turn [task, turn, net_fetch]
    > 5: => FS_WRITE {"path":"report.sh","content":"evil"}
      → call 5 FS_WRITE {"path":"report.sh","content":"evil"}
    > done 5 FS_WRITE
      → infer 5 turn [task, turn, net_fetch, turn, fs_write]
    > signal 4 CONT
    4 proposal p3 expired
    4 EXEC_CMD = EREJECTED by now a person has to be asked: label: labels[0] untrusted
      → infer 4 turn [task, turn, exec_cmd]
    "#);
}

/// A person said yes to what the files were then; whoever stops a process chooses when it is made.
#[test]
fn an_approval_is_for_the_files_as_they_were_known() {
    let ask = LABELS.replace("net: none}", "net: none, verdict: ask}");
    let told = replayed(
        &ask,
        r#"
        spawn resident folder=/w Run `sh report.sh`
        2: => EXEC_CMD {"cmd":"sh report.sh"}
        signal 2 STOP
        approve p1
        spawn resident folder=/w fetch it
        obeys 3
        signal 2 CONT
        2: => EXEC_CMD {"cmd":"sh report.sh"}
        risks
        signal 2 STOP
        approve p2
        signal 2 CONT
        "#,
    );
    let late = "2 EXEC_CMD = EREJECTED the approval does not hold any more: the files it could run were changed after \
                untrusted content was read by another agent";
    assert!(told.contains(late), "{told}");
    assert!(told.contains("p2 the files it could run were changed after untrusted content was read"), "{told}");
    assert_eq!(told.matches("call 2 EXEC_CMD").count(), 1, "{told}");
}

/// A mount shows the files of a folder that another process may have changed.
#[test]
fn what_stands_in_a_mounted_folder_carries_the_labels_of_who_wrote_there() {
    for (host, folder) in [("/w/a", "/w/a"), ("/w", "/w/a"), ("/w/a/b", "/w/a"), ("~/a", "/w/a")] {
        let mounts = format!("    mounts: [{{host: {host}, at: handbook, ops: [read]}}]\n    exec:");
        let policy = LABELS.replacen("    exec:", &mounts, 1);
        let told = replayed(
            &policy,
            &format!(
                r#"
                spawn resident folder={folder} write
                spawn resident read
                3: => FS_READ {{"path":"handbook/x"}}
                done 3 FS_READ
                2: => NET_FETCH {{"url":"https://example.com/"}}
                done 2 NET_FETCH
                2: => FS_WRITE {{"path":"x","content":"y"}}
                done 2 FS_WRITE
                3: => FS_READ {{"path":"handbook/x"}}
                done 3 FS_READ
                "#
            ),
        );
        assert_eq!(told.matches("3 labelled untrusted.web").count(), 1, "{host}: {told}");
    }
}

/// What is on its way when a policy takes the mount away comes with what it carried.
#[test]
fn what_was_read_of_a_mount_carries_its_labels_also_where_it_is_gone_when_it_comes() {
    let mount = "    mounts: [{host: /w, at: handbook, ops: [read]}]\n    exec:";
    let told = replayed(
        &LABELS.replacen("    exec:", mount, 1),
        r#"
        spawn resident folder=/w write
        2: => NET_FETCH {"url":"https://example.com/"}
        done 2 NET_FETCH
        2: => FS_WRITE {"path":"x","content":"y"}
        done 2 FS_WRITE
        spawn resident read
        3: => FS_READ {"path":"handbook/x"}
        policy {host: /w, => {host: /v,
        done 3 FS_READ
        "#,
    );
    assert!(told.contains("3 labelled untrusted.web"), "{told}");
}

/// Its names would come without what the folder carries, since nothing says any more that it is the process's.
#[test]
fn a_mount_that_a_policy_takes_away_is_watched_no_more() {
    let mount = "    mounts: [{host: /w, at: handbook, ops: [read]}]\n    exec:";
    let told = replayed(
        &LABELS.replacen("    exec:", mount, 1),
        r#"
        spawn resident read
        2: => FS_WATCH {"path":"handbook"}
        policy shell: true, => shell: false,
        policy {host: /w, => {host: /v,
        "#,
    );
    let effects: Vec<&str> = told.lines().filter(|line| line.contains("watch ") && line.contains('→')).collect();
    assert_eq!(effects, ["  → watch 2 w1", "  → unwatch 2 w1", "  → watch 2 w1"], "{told}");
}

/// A folder stayed marked for ever, whatever was undone, looked at or made anew there.
#[test]
fn a_person_who_has_looked_at_a_folder_takes_it_for_theirs() {
    let told = replayed(
        LABELS,
        r#"
        spawn resident folder=/w fetch it
        obeys 2
        spawn resident folder=/w/a trusted=yes go
        spawn resident trusted=yes go
        spawn resident folder=/w go
        explain 3 EXEC_CMD {"cmd":"b"}
        spawn resident folder=/w trusted=yes go
        explain 3 EXEC_CMD {"cmd":"b"}
        explain 4 EXEC_CMD {"cmd":"b"}
        "#,
    );
    let said: Vec<&str> = told.lines().filter(|line| line.contains(" by ") || line.starts_with("refused")).collect();
    assert_eq!(said.len(), 5, "{told}");
    assert!(said[0].contains("/w/a is a part of /w") && said[1].contains("one of its own"), "{told}");
    assert!(said[2].starts_with("ask by label"), "{told}");
    assert!(said[3].starts_with("allow") && said[4].starts_with("allow"), "{told}");
}

/// A person says that others wrote what is sent along.
#[test]
fn a_file_of_others_that_is_sent_along_is_labelled_once_it_is_read() {
    let told = replayed(
        LABELS,
        r#"
        spawn resident untrusted=yes read it
        explain 2 EXEC_CMD {"cmd":"b"}
        2: => FS_READ {"path":"input.txt"}
        done 2 FS_READ
        spawn resident read it
        3: => FS_READ {"path":"input.txt"}
        done 3 FS_READ
        "#,
    );
    assert_eq!(told.matches("labelled").collect::<Vec<_>>().len(), 1, "{told}");
    assert!(told.contains("2 labelled untrusted.file"), "{told}");
    // A command reads what lies there.
    assert!(told.contains("ask by label"), "{told}");
}

/// What a person sends along is a copy like another: of a file of a marked folder, or of one of an agent's own.
#[test]
fn a_file_that_is_sent_along_carries_what_it_did_where_it_lay() {
    let told = replayed(
        LABELS,
        r#"
        spawn resident folder=/w fetch it
        obeys 2
        spawn resident fetch it
        obeys 3
        spawn resident brought=/w/out.md read it
        spawn resident brought=3 read it
        spawn resident brought=0 read it
        spawn resident brought=/v/out.md read it
        spawn resident brought=/w.md read it
        explain 4 EXEC_CMD {"cmd":"b"}
        explain 5 EXEC_CMD {"cmd":"b"}
        explain 6 EXEC_CMD {"cmd":"b"}
        explain 7 EXEC_CMD {"cmd":"b"}
        explain 8 EXEC_CMD {"cmd":"b"}
        "#,
    );
    let said: Vec<&str> = told.lines().filter(|line| line.contains(" by ")).collect();
    let asked = |line: &&str| line.starts_with("ask by label");
    assert_eq!(said.iter().map(asked).collect::<Vec<_>>(), [true, true, true, false, false], "{told}");
}
