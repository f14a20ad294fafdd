//! Whether the commands that the documentation names are commands of this program.
//!
//! Start at [`documented_features_are_compiled_in`]. Nothing is executed: each command line goes through the parser that
//! the program itself has. Where a line holds a placeholder (`PID`, `$pid`, `…`) only its commands and flags are checked.

use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use clap::error::ErrorKind;

use super::*;

/// A command line in the documentation.
#[derive(Debug)]
struct Line {
    /// File and line.
    at: String,
    words: Vec<String>,
    /// It stands in a block of its own, to be typed as it is.
    whole: bool,
}

/// Every `aos …` in a fenced block of the README and of `docs/`, and every one between backticks, is known.
#[test]
fn documented_features_are_compiled_in() {
    let mut lines = Vec::new();
    for file in documents() {
        let text = std::fs::read_to_string(&file).unwrap();
        lines_of(&file.file_name().unwrap().to_string_lossy(), &text, &mut lines);
    }
    let faults: Vec<String> = lines.iter().filter_map(|line| Some(format!("{}: {}", line.at, fault(line)?))).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // The documentation has more than a hundred; where few are found, this test has gone blind.
    assert!(lines.iter().filter(|line| line.whole).count() >= 30, "{lines:?}");
    assert!(lines.iter().filter(|line| !line.whole).count() >= 20, "{lines:?}");
}

#[test]
fn what_is_not_there_is_found() {
    let text = "`aos frobnicate` and `aos ps --al`\n```\n$ aos nothing 3 | aos run --wiht x\naos is only output here\n```\n\
                ```sh\n  aos kill seven\naos apps          what is not there yet\nfor p in $(aos ps --jsonn); do\n\
                aos spawn --name a \\\n  --rolle b\n```\n\
                but `aos kill PID`, `aos ps -a`, `aos apps`, `aos COMMAND --help`\n```\naos ps      what runs\n\
                aos send $pid 'a | aos nothing' # aos nothing\n```\n";
    let mut lines = Vec::new();
    lines_of("a.md", text, &mut lines);
    let faults: Vec<String> = lines.iter().filter_map(|line| Some(format!("{}: {}", line.at, fault(line)?))).collect();
    insta::assert_snapshot!(faults.join("\n"), @r"
    a.md:1: `aos frobnicate` names no command `frobnicate`
    a.md:1: `aos ps --al` has no flag `--al`
    a.md:3: `aos nothing 3` names no command `nothing`
    a.md:3: `aos run --wiht x` has no flag `--wiht`
    a.md:7: `aos kill seven`: error: invalid value 'seven' for '<PID>...': invalid digit found in string
    a.md:8: `aos apps` is typed, and `apps` is not there yet
    a.md:9: `aos ps --jsonn` has no flag `--jsonn`
    a.md:10: `aos spawn --name a --rolle b` has no flag `--rolle`
    ");
}

/// The README, and everything below `docs/`.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut files, mut folders) = (vec![root.join("README.md")], vec![root.join("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "md") {
                files.push(path);
            }
        }
    }
    files
}

fn lines_of(name: &str, text: &str, lines: &mut Vec<Line>) {
    let mut add = |number: usize, text: &str, whole: bool| {
        for words in commands(text) {
            lines.push(Line { at: format!("{name}:{}", number + 1), words, whole });
        }
    };
    // The lines of the block that is open; where one begins with a prompt, those without are output.
    let mut block: Option<Vec<(usize, String)>> = None;
    for (number, line) in text.lines().enumerate() {
        match &mut block {
            None if line.trim_start().starts_with("```") => block = Some(Vec::new()),
            None => line.split('`').skip(1).step_by(2).for_each(|span| add(number, span, false)),
            Some(block_lines) if line.trim_start().starts_with("```") => {
                let prompt = block_lines.iter().any(|(_, line)| line.starts_with("$ "));
                for (number, line) in block_lines.drain(..) {
                    match line.strip_prefix("$ ") {
                        Some(typed) => add(number, typed, true),
                        None if prompt => {}
                        None => add(number, &line, true),
                    }
                }
                block = None;
            }
            Some(block_lines) => match block_lines.last_mut().filter(|(_, last)| last.ends_with('\\')) {
                Some((_, last)) => {
                    last.pop();
                    last.push_str(line.trim_start());
                }
                None => block_lines.push((number, line.to_owned())),
            },
        }
    }
}

/// The commands of a line of shell that are `aos`, each as its words. Two spaces end one: what it does is said there.
fn commands(line: &str) -> Vec<Vec<String>> {
    let (mut found, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut quote = None;
    let mut rest = line.trim().chars().peekable();
    while let Some(char) = rest.next() {
        match (quote, char) {
            (Some(open), _) if char == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(char),
            (None, '\'' | '"') => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            (None, ' ') => {
                words.extend(word.take());
                if rest.peek().is_some_and(|next| matches!(next, ' ' | '#')) {
                    break;
                }
            }
            (None, '|' | '&' | ';' | '>' | '<' | '(' | ')') => {
                words.extend(word.take());
                found.push(std::mem::take(&mut words));
            }
            (None, _) => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    found.push(words);
    found.retain(|words| words.len() > 1 && words[0] == "aos");
    found
}

/// What is wrong with a line, if anything is.
fn fault(line: &Line) -> Option<String> {
    let mut root = Cli::command();
    // So that every command has the flags that all have.
    root.build();
    let mut command = &root;
    let mut words = line.words.iter().skip(1).peekable();
    while let Some(word) = words.next_if(|word| command.has_subcommands() && !word.starts_with('-')) {
        if is_placeholder(word) {
            return None;
        }
        let Some(found) = command.find_subcommand(word) else {
            return Some(format!("`{}` names no command `{word}`", line.words.join(" ")));
        };
        if line.whole && found.is_hide_set() {
            return Some(format!("`{}` is typed, and `{word}` is not there yet", line.words.join(" ")));
        }
        command = found;
    }
    for flag in words.take_while(|word| *word != "--").filter(|word| word.starts_with('-') && word.len() > 1) {
        let name = flag.split('=').next().unwrap_or(flag);
        let known = command.get_arguments().any(|argument| match name.strip_prefix("--") {
            Some(long) => argument.get_long() == Some(long),
            None => argument.get_short() == name.chars().nth(1),
        });
        if !known {
            return Some(format!("`{}` has no flag `{name}`", line.words.join(" ")));
        }
    }
    if !line.whole || line.words.iter().any(|word| is_placeholder(word)) {
        return None;
    }
    match root.try_get_matches_from(&line.words) {
        Ok(_) => None,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => None,
        Err(error) => Some(format!("`{}`: {}", line.words.join(" "), error.to_string().lines().next().unwrap_or(""))),
    }
}

/// `PID`, `$pid`, `<FILE>`, `[OPTIONS]`, `…`: what people put something in the place of.
fn is_placeholder(word: &str) -> bool {
    let capitals = word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    capitals || word.contains(['$', '<', '[', '…']) || word.contains("...")
}
