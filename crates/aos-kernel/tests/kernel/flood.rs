//! Denials in masses: what is kept for people is bounded by process, by tree, by the hour and in all.

use std::collections::BTreeSet;

use crate::rig::replay_under;

/// Reads and has children, and writes nothing.
const NARROW: &str = r#"
version: 1
default_role: assistant
roles:
  assistant:
    calls: [SPAWN_AGENT, ASK_USER]
    fs:
      - {path: "**", ops: [read]}
"#;

/// A call that is denied, on a file of this name, of so many bytes.
fn write(file: &str, bytes: usize) -> String {
    format!(" => FS_WRITE {{\"path\":\"{file}\",\"content\":\"{}\"}}", "x".repeat(bytes))
}

/// How many denials were kept, and the numbers of those that gave way.
fn kept(told: &str) -> (usize, BTreeSet<u64>) {
    let over = told.lines().filter_map(|line| line.split_once("proposal p")?.1.strip_suffix(" expired"));
    (told.matches("would take").count(), over.map(|number| number.parse().unwrap()).collect())
}

#[test]
fn of_256_in_all_the_oldest_of_each_tree_that_has_the_most_gives_way_in_turn() {
    // One that somebody lifted already is none of them, and the only one of another tree is not the first to go.
    let mut script = String::from("spawn resident go\n2:");
    script.push_str(&format!("{}\n2: ok\napprove p1\n2: ok\n", write("lifted", 1)));
    script.push_str(&format!("spawn resident go\n3:{}\n3: ok\n", write("only", 1)));
    for pid in 4..=20 {
        let calls: String = (0..16).map(|nth| write(&format!("{pid}-{nth}"), 1)).collect();
        script.push_str(&format!("spawn resident go\n{pid}:{calls}\n{pid}: ok\n"));
    }
    let (kept, over) = kept(&replay_under(NARROW, &script));
    assert_eq!(kept, 2 + 17 * 16);
    // Seventeen too many: the oldest of each tree that has sixteen, one after the other, and once all have fifteen the
    // oldest of all that have.
    let firsts = (0..16).map(|tree| 3 + tree * 16);
    assert_eq!(over, firsts.chain([4]).collect());
}

#[test]
fn the_arguments_that_are_kept_of_a_process_are_bounded_and_one_call_alone_may_be_too_long() {
    let half = 70 << 10;
    let calls = [write("first", half), write("second", half), write("third", 1), write("whole", 129 << 10)].concat();
    let (kept, over) = kept(&replay_under(NARROW, &format!("spawn resident go\n2:{calls}\n2: ok")));
    assert_eq!((kept, over), (3, BTreeSet::from([1])));
}

#[test]
fn a_process_has_64_approvals_that_it_has_not_used_and_no_more_until_one_is_taken_back() {
    let mut script = String::from("spawn resident go\n");
    for nth in 1..=65 {
        if nth == 60 {
            script.push_str("after 3601\n");
        }
        script.push_str(&format!("2:{}\napprove p{nth}\n", write(&format!("n{nth}"), 1)));
    }
    let told = replay_under(NARROW, &format!("{script}reject p1 no\napprove p65"));
    assert_eq!(told.matches("told of p").count(), 65, "{told}");
    let refused: Vec<&str> = told.lines().filter(|line| line.starts_with("refused")).collect();
    assert_eq!(refused, ["refused: EAGAIN process 2 has 64 approvals that it has not used"]);
    assert!(told.ends_with("2 told of p65: Once, FS_WRITE {\"path\":\"n65\",\"content\":\"x\"}\n"), "{told}");
}

#[test]
fn sixty_an_hour_are_those_of_a_process_and_of_all_below_it() {
    let mut script = String::from(
        "spawn resident go\n2: => SPAWN_AGENT {\"role\":\"r\",\"task\":\"t\",\"permissions\":[\"FS_READ\"]}\n",
    );
    for nth in 0..40 {
        script.push_str(&format!("2:{}\n3:{}\n", write(&format!("a{nth}"), 1), write(&format!("b{nth}"), 1)));
    }
    script.push_str(&format!("spawn resident go\n4:{}\n", write("other", 1)));
    let told = replay_under(NARROW, &script);
    let of = |pid: u64| {
        let kept = |line: &&str| line.starts_with(&format!("{pid} p")) && line.contains("would take");
        told.lines().filter(kept).count()
    };
    assert_eq!((of(2), of(3), of(4)), (30, 30, 1), "{told}");
}
