//! Prompts of long histories: which turns are left out, against the plain way of writing anew for each, and what that costs.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

use aos_abi::inference::Encoding;
use serde_json::json;

use super::tests::{nano, unknown};
use super::*;

/// The prompt by its definition: while it is too long, the oldest turn goes.
fn plainly(nano: &Nano, prompt: &Prompt) -> (Vec<u32>, Shown) {
    let (head, mut turns) = nano.items(&prompt.messages);
    loop {
        let written = nano.write(prompt.tools, head.iter().chain(turns.iter().flatten()), usize::MAX);
        if written.0.len() <= PROMPT_IDS || turns.is_empty() {
            return written;
        }
        turns.remove(0);
    }
}

fn history(messages: Vec<Message>, tools: CallSet) -> Prompt {
    let (system, status) = (String::new(), String::new());
    Prompt { system, messages, status, tools, encoding: Encoding::Constrained, max_output: 100 }
}

fn user(text: impl Into<String>) -> Message {
    Message::User(vec![Part::Text(text.into())])
}

fn reply(text: impl Into<String>) -> Message {
    Message::Assistant { text: text.into(), calls: vec![] }
}

fn result(call: &str, value: &Value) -> Message {
    user(format!("[result c1-0 {call}]\n{}", json!({ "status": "SUCCESS", "result": value })))
}

/// Words of all kinds, known and not, mistyped, with capitals, and what stands between them.
fn text(rng: &mut fastrand::Rng, words: usize) -> String {
    const SOME: [&str; 24] = [
        "document",
        "docment",
        "Docment",
        "DOCMENT",
        "report",
        "reprot",
        "Reprot",
        "delete",
        "deletee",
        "Zqrapp",
        "QZRR",
        "zqrapp.txt",
        "9041",
        "12",
        "min",
        "a_9b",
        "été",
        "☃",
        "\n",
        "\n\n",
        "   ",
        "file",
        "flie.md",
        "\"Flie\"",
    ];
    let unknown = unknown(300);
    let word = |rng: &mut fastrand::Rng| match rng.usize(..3) {
        0 => unknown[rng.usize(..unknown.len())].clone(),
        _ => SOME[rng.usize(..SOME.len())].to_owned(),
    };
    (0..words).map(|_| word(rng)).collect::<Vec<_>>().join(" ")
}

/// What a model may have answered to what was said last.
fn answer(rng: &mut fastrand::Rng, last: &str) -> String {
    let some = text(rng, 3);
    let say = |text: &str| json!({ "say": text }).to_string();
    let call = |name: &str, args: Value| json!({ "calls": [{ "name": name, "args": args }] }).to_string();
    match rng.usize(..10) {
        0 => say("Done."),
        1 | 2 => say(last),
        3 => say(&text(rng, 30)),
        4 => call("FS_READ", json!({ "path": some })),
        5 => call("FS_WRITE", json!({ "path": "zqrapp.txt", "content": last })),
        6 => call("SLEEP", json!({ "seconds": rng.u64(..5000) })),
        7 => call("EXEC_CMD", json!({ "cmd": format!("cp {some} zqrapp.txt") })),
        8 => call("FS_DELETE", json!({ "path": "zqrapp.txt", "recursive": true })),
        _ => some,
    }
}

fn generated(seed: u64) -> Prompt {
    let mut rng = fastrand::Rng::with_seed(seed);
    let rng = &mut rng;
    let most = [4, 40, 500][rng.usize(..3)];
    let mut messages = vec![user(text(rng, 10))];
    for _ in 0..rng.usize(..80) {
        let last = messages.last().map_or(String::new(), |message| match message {
            Message::User(parts) => match &parts[0] {
                Part::Text(text) => text.clone(),
                Part::Image { .. } => String::new(),
            },
            _ => String::new(),
        });
        let shown = last.split_once("\"content\":\"").map_or(last.as_str(), |(_, content)| content);
        let shown = shown.split('"').next().unwrap_or_default().replace("\\n", "\n");
        messages.push(reply(answer(rng, &shown)));
        let count = rng.usize(1..most);
        messages.push(match rng.usize(..4) {
            0 => result("FS_READ", &json!({ "content": text(rng, count), "size": 1, "truncated": rng.bool() })),
            1 => result("SLEEP", &json!({ "slept": 5 })),
            2 => user(format!("<untrusted x>\n{}\n</untrusted>", text(rng, count))),
            _ => user(format!("[input, x]\n{}", text(rng, count))),
        });
    }
    let tools = if rng.bool() { CallSet::all() } else { CallSet::EMPTY };
    history(messages, tools)
}

#[test]
fn as_many_turns_are_left_out_as_by_writing_anew_for_each() {
    let nano = nano();
    let mut left_out = 0;
    for seed in 0..60 {
        let prompt = generated(seed);
        let ((ids, shown), (plain_ids, plain)) = (nano.prompt(&prompt), plainly(&nano, &prompt));
        assert_eq!(ids, plain_ids, "seed {seed}");
        assert_eq!(format!("{:?}{:?}", shown.sources, shown.unsure), format!("{:?}{:?}", plain.sources, plain.unsure));
        let replies = prompt.messages.iter().filter(|message| matches!(message, Message::Assistant { .. })).count();
        left_out += usize::from(ids.iter().filter(|id| **id == nano.reply).count() <= replies);
    }
    assert!(left_out > 20, "turns were left out of {left_out}");
}

#[test]
fn turns_that_are_left_out_cost_nothing() {
    let nano = nano();
    let words = unknown(8000);
    let turn = |words: &[String]| [reply(r#"{"say":"Done."}"#), user(format!("[input, x]\n{}", words.join(" ")))];
    let read = |turns: usize| {
        let turns = words.chunks(100).cycle().take(turns).flat_map(turn);
        let prompt = history([user("Hello")].into_iter().chain(turns).collect(), CallSet::all());
        let before = nano.words.read.load(Relaxed);
        assert!(nano.prompt(&prompt).0.len() > PROMPT_IDS - 110);
        nano.words.read.load(Relaxed) - before
    };
    assert_eq!(read(20), read(400));
    // Counted once, and written twice since slots run out.
    assert!(read(400) < 4 * PROMPT_IDS, "{}", read(400));

    // How long such a reply is shows only where it is written: then no more is than has room.
    let long = json!({ "say": words[..300].join("\n") }).to_string();
    let turns = (0..500).flat_map(|_| [reply(long.clone()), user("[input, x]\nGo on")]);
    let prompt = history([user("Hello")].into_iter().chain(turns).collect(), CallSet::all());
    let before = nano.words.read.load(Relaxed);
    nano.prompt(&prompt);
    let read = nano.words.read.load(Relaxed) - before;
    assert!(read < PROMPT_IDS * 2 * PROMPT_IDS, "{read}");
}

#[test]
fn what_a_slip_may_mean_is_what_all_slips_of_it_make() {
    let nano = nano();
    let mut words: Vec<&str> = nano.words.plain().collect();
    words.sort_unstable();
    let plain: HashSet<&str> = words.iter().copied().collect();
    let mut rng = fastrand::Rng::with_seed(7);
    let mut found = 0;
    for _ in 0..3000 {
        let mut word: Vec<char> = words[rng.usize(..words.len())].chars().collect();
        for _ in 0..rng.usize(1..3) {
            let at = rng.usize(..word.len());
            match rng.usize(..4) {
                0 if at + 1 < word.len() => word.swap(at, at + 1),
                1 => drop(word.remove(at)),
                2 => word.insert(at, rng.lowercase()),
                _ => word[at] = rng.lowercase(),
            }
        }
        let word: String = word.into_iter().collect();
        if !plain.contains(word.as_str()) {
            let slip = nano.words.slip(&word);
            assert_eq!(slip, slip_plainly(&plain, &word), "{word}");
            found += usize::from(slip.is_some());
        }
    }
    assert!(found > 1000, "{found}");
}

/// The known word that is meant, by making all that a slip could have been made of.
fn slip_plainly(plain: &HashSet<&str>, word: &str) -> Option<String> {
    let end = word.len();
    if !(4..=20).contains(&end) {
        return None;
    }
    let with = |at: usize, letters: &str, behind: usize| format!("{}{letters}{}", &word[..at], &word[behind..]);
    let each = |at: usize, behind: usize| ('a'..='z').map(move |letter| with(at, &letter.to_string(), behind));
    let swapped = |at: usize| with(at, &format!("{}{}", &word[at + 1..at + 2], &word[at..=at]), at + 2);
    let ways: [Vec<String>; 4] = [
        (1..end - 1).map(swapped).collect(),
        (1..end).map(|at| with(at, "", at + 1)).collect(),
        (1..=end).flat_map(|at| each(at, at)).collect(),
        (1..end).filter(|_| end > 4).flat_map(|at| each(at, at + 1)).collect(),
    ];
    let known = |way: Vec<String>| way.into_iter().filter(|word| plain.contains(word.as_str())).collect::<HashSet<_>>();
    let meant = ways.into_iter().map(known).find(|meant| !meant.is_empty())?;
    (meant.len() == 1).then(|| meant.into_iter().next())?
}

#[test]
fn a_reply_of_many_lines_is_made_of_the_longest_that_were_shown() {
    let nano = nano();
    let said = ["red", "0", "green\nblue", "0\n0\nred", "  one two\n\n\nthree"].map(user);
    let read = ["unheard\nred\nred", "blue\nblue"].map(|text| result("FS_READ", &json!({ "content": text })));
    let (_, shown) = nano.prompt(&history([said.to_vec(), read.to_vec()].concat(), CallSet::all()));
    let codec = nano.codec(&shown);
    let lines = ["red", "0", "green", "blue", "one two", "three", "", "unheard"];
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..500 {
        let text: Vec<&str> = (0..rng.usize(2..12)).map(|_| lines[rng.usize(..lines.len())]).collect();
        let text = text.join("\n");
        let want = [vec![nano.marks.say], codec.lines_plainly(&text), vec![nano.marks.end]].concat();
        assert_eq!(codec.encode(&json!({ "say": text }).to_string()), Some(want), "{text:?}");
    }
}

/// It takes no step of the stack for each line, and no more of what cannot be shown than there is room for.
#[test]
fn a_reply_of_more_lines_than_a_prompt_takes_costs_no_more_than_there_is_room() {
    let nano = nano();
    let rows =
        [vec!["0"; 200_000].join("\n"), vec!["unheard"; 200_000].join("\n"), vec!["0 unheard"; 200_000].join("\n")];
    for row in rows {
        for long in [
            json!({ "say": row }),
            json!({ "calls": [row, row] }),
            json!({ "calls": [{ "name": "FS_READ", "args": { "path": row } }] }),
        ] {
            let prompt = history(vec![user("0"), reply(long.to_string()), user("[input, x]\nGo on")], CallSet::all());
            let before = nano.words.read.load(Relaxed);
            assert!(nano.prompt(&prompt).0.len() < 10);
            let read = nano.words.read.load(Relaxed) - before;
            assert!(read < 4 * PROMPT_IDS, "{read}");
        }
    }
}
