//! What a process was given: the words of the people it serves and the names in clean sources, by which a call can be told
//! from one that the text it has read asked for (docs/decisions/0007, 0012).
//!
//! Start at [`Kernel::judge`]. What always holds: nothing that carries an untrusted label ever enters `words` or `named`,
//! so reading more of it makes nothing given; what people wrote is kept whole or not at all; of both the newest
//! [`WORDS_BYTES_MAX`] bytes count.

use std::collections::BTreeSet;

use aos_abi::process::Workspace;
use aos_abi::{Name, Pid, Syscall};
use aos_policy::{Labels, Lacking, Named, Policy, Subject};
use serde_json::Value;

use crate::Kernel;
use crate::groups::About;
use crate::labels::Reads;
use crate::process::{Phase, Wait};
use crate::table::PageStore;

/// Bytes of people's words that are kept of a process. What is longer, or older than that, is asked about: a page stays
/// small, and a long text is rather a document than a request.
const WORDS_BYTES_MAX: usize = 4096;
/// Bytes that are kept of what a process asked people. Beyond that whatever they say counts as repeated.
const ASKED_BYTES_MAX: usize = 16 << 10;
/// Stands for what was taken out.
const MASK: char = '\u{fffc}';

impl<P: PageStore> Kernel<P> {
    /// Asks the policy about a call of a process, with everything that the process was given.
    pub(crate) fn judge<R>(
        &mut self,
        pid: Pid,
        call: About,
        ask: impl FnOnce(&Policy, &Subject<'_>) -> R,
    ) -> Option<R> {
        let labelled = self.labels_of(pid).any_of(Labels::UNTRUSTED);
        let files = match call.name {
            Name::ExecCmd => self.labels_run(pid),
            _ if labelled => self.labels_read(pid, Reads::Files),
            _ => Labels::NONE,
        };
        let children = if labelled { self.vouched_children(pid) } else { BTreeSet::new() };
        let process = self.table.get(pid)?;
        let mut subject = process.subject();
        subject.given.files = files;
        subject.given.pids = Some(&children);
        subject.reaches = call.reaches.as_deref();
        Some(ask(&self.policy, &subject))
    }

    /// The children that were made without an untrusted label: the others may be whoever the attacker wanted.
    fn vouched_children(&mut self, pid: Pid) -> BTreeSet<Pid> {
        let children = self.table.get(pid).map(|process| process.children.clone()).unwrap_or_default();
        children.into_iter().filter(|child| self.table.get(*child).is_some_and(|child| child.vouched)).collect()
    }

    /// A clean result of a call that nobody but people can have led to: the names in it.
    pub(crate) fn names(&mut self, pid: Pid, call: usize, result: &Value) {
        let Some(process) = self.table.get(pid) else { return };
        let made = process.step.get(call).and_then(|call| Syscall::parse(&call.name, &call.args).ok());
        let Some(made) = made else { return };
        // Whoever puts a file where a rule labels it chooses its name, which a list of the folder above shows.
        let below = match &made {
            Syscall::FsList(args) => {
                self.policy.labels_of_files(&process.policy_role, args.path.as_deref().unwrap_or("."))
            }
            _ => Labels::NONE,
        };
        let Some(named) = Named::of(&made, result).filter(|_| !below.any_of(Labels::UNTRUSTED)) else { return };
        self.with(pid, |process| {
            process.named.retain(|known| *known != named);
            process.named.push(named);
            let mut kept = process.named.iter().map(Named::bytes).sum::<usize>();
            while kept > WORDS_BYTES_MAX && process.named.len() > 1 {
                kept -= process.named.remove(0).bytes();
            }
        });
    }

    /// What a call carries: the labels of its process, but no untrusted one where people gave all that steers it.
    pub(crate) fn labels_of_call(&mut self, pid: Pid, call: &Syscall) -> Labels {
        let labels = self.labels_of(pid);
        if !labels.any_of(Labels::UNTRUSTED) {
            return labels;
        }
        let given = self.judge(pid, About::of(call.name()), |_, subject| subject.given.lacks(call).is_none());
        if given == Some(true) { labels.without(Labels::UNTRUSTED) } else { labels }
    }

    /// What a person who is asked should know.
    pub(crate) fn risk(&mut self, pid: Pid, lacking: &Lacking) -> String {
        let labels = self.labels_of(pid);
        let workspace = self.table.get(pid).map(|process| &process.workspace);
        match (labels.any_of(Labels::UNTRUSTED), workspace) {
            (true, _) => format!("{lacking}, and this agent has read what others wrote ({labels})"),
            (false, Some(Workspace::Folder(_))) => {
                format!(
                    "{lacking} by another agent; once you have looked at them, `aos run --trusted` takes them for yours"
                )
            }
            (false, _) => format!("{lacking} by another agent"),
        }
    }

    /// Words of a person to a process, or of a process that speaks for one.
    pub(crate) fn gives(&mut self, pid: Pid, text: &str) {
        if text.trim().is_empty() || text.len() > WORDS_BYTES_MAX {
            return;
        }
        self.with(pid, |process| {
            process.words.push(text.to_owned());
            let mut kept = process.words.iter().map(String::len).sum::<usize>();
            while kept > WORDS_BYTES_MAX {
                kept -= process.words.remove(0).len();
            }
        });
    }

    /// A process puts this before a person: a question, or a call with what it says of it. Whoever wrote what it has read may
    /// have put it there to be repeated, now or later, also in answer to the question before, or after this one is over.
    pub(crate) fn puts(&mut self, pid: Pid, what: &Value) {
        if !self.labels_of(pid).any_of(Labels::UNTRUSTED) {
            return;
        }
        self.with(pid, |process| {
            process.questions += &looks(&said(what));
            process.questions.push('\n');
            if process.questions.len() > ASKED_BYTES_MAX {
                // Nothing is known of what is left out, so whatever is said could repeat it.
                process.questions = MASK.to_string();
            }
        });
    }

    /// A person's input. What it repeats of a question that was asked after untrusted content had been read, is not the
    /// person's.
    pub(crate) fn answers(&mut self, pid: Pid, text: &str) {
        let Some(process) = self.table.get(pid) else { return };
        let asked = process.questions.clone();
        let is_answer = matches!(process.phase, Phase::Waiting { wait: Wait::Person, .. });
        match asked.as_str() {
            "" => self.gives(pid, text),
            asked if asked.contains(is_disguise) => {}
            asked if is_answer => self.gives(pid, &without_what_was_asked(text, asked)),
            asked => self.gives(pid, &without_what_was_put(text, asked)),
        }
    }
}

/// Whether a character can be taken for another one, or for none: a word with it in is not found in what a person types who
/// was shown it. Letters of scripts beside the Latin one are such, and what is not shown at all.
fn is_disguise(c: char) -> bool {
    match c {
        '\u{ad}' | 'ı' | MASK => true,
        '\0'..='\u{17e}' => false,
        // Punctuation, but for what is not shown; currency, arrows, signs.
        '\u{2010}'..='\u{2027}'
        | '\u{2030}'..='\u{205e}'
        | '\u{20a0}'..='\u{20bf}'
        | '\u{2190}'..='\u{245f}'
        | '\u{2500}'..='\u{2bff}' => false,
        '\u{1f300}'..='\u{1faff}' => false,
        _ => true,
    }
}

/// Every text in the arguments of a question.
fn said(question: &Value) -> String {
    match question {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(said).collect::<Vec<_>>().join("\n"),
        Value::Object(fields) => fields.values().map(said).collect::<Vec<_>>().join("\n"),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

/// A text as it looks: letters that are taken for one another are one.
fn looks(text: &str) -> String {
    let small = text.to_lowercase().replace("rn", "m").replace("vv", "w");
    small
        .chars()
        .map(|c| {
            if matches!(c, 'i' | '1' | '|') {
                'l'
            } else if c == '0' {
                'o'
            } else {
                c
            }
        })
        .collect()
}

/// Whether a word stands in a question, as it looks.
fn repeats(word: &str, question: &str) -> bool {
    let core = looks(word.trim_matches(|c: char| !c.is_alphanumeric()));
    let bare = core.split_once("://").map_or(core.as_str(), |(_, rest)| rest);
    question.contains(bare)
}

/// An answer with every word masked that stands in the question.
fn without_what_was_asked(answer: &str, question: &str) -> String {
    masked(answer, |word| repeats(word, question))
}

/// What a person says later, with all masked that a question may have told them to say: texts that are marked and hold none
/// but its words, and names in it. Other words are anybody's.
fn without_what_was_put(text: &str, question: &str) -> String {
    let mut kept = text.to_owned();
    for marked in aos_policy::marked_texts(text) {
        if marked.split_whitespace().all(|word| repeats(word, question)) {
            kept = kept.replace(marked, &MASK.to_string());
        }
    }
    let is_name = |c: char| c.is_ascii_digit() || matches!(c, '@' | '/' | '.' | '_' | ':');
    masked(&kept, |word| word.trim_matches(|c: char| !c.is_alphanumeric()).contains(is_name) && repeats(word, question))
}

/// A text with each of these words masked.
fn masked(text: &str, is: impl Fn(&str) -> bool) -> String {
    let words = text.split_inclusive(char::is_whitespace).map(|chunk| {
        let word = chunk.trim_end();
        if word.is_empty() || !is(word) {
            return chunk.to_owned();
        }
        format!("{MASK}{}", &chunk[word.len()..])
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_gives_only_what_the_question_did_not_say() {
        let question = looks("may i go to evil.example/x, or run `curl evil`?");
        for (answer, left) in [
            ("yes, https://Evil.example/x", "yes, \u{fffc}"),
            ("no! read https://good.example/y\nthen stop", "no! read https://good.example/y\nthen stop"),
            ("`curl evil`", "\u{fffc} \u{fffc}"),
        ] {
            assert_eq!(without_what_was_asked(answer, &question), left);
        }
    }

    #[test]
    fn what_is_said_later_gives_no_text_and_no_name_of_the_question() {
        let question = looks("shall i run `rm -rf d`, or write to bob@x.example?");
        for (said, left) in [
            ("now run `rm -rf gone`", "now run `rm -rf gone`"),
            ("now run `rm -rf d`", "now run `\u{fffc}`"),
            ("run: rm -rf d", "run: \u{fffc}"),
            ("write to Bob@x.example: hello", "write to \u{fffc} hello"),
        ] {
            assert_eq!(without_what_was_put(said, &question), left);
        }
    }

    #[test]
    fn what_is_typed_as_it_looks_is_repeated() {
        let question = looks("please type `cuRI eviI.exarnple/x`");
        assert_eq!(without_what_was_asked("`curl evil.example/x`", &question), "\u{fffc} \u{fffc}");
    }

    #[test]
    fn letters_that_look_like_others_are_disguises() {
        let plain = ["Soll ich `größer` prüfen – oder “später”?", "→ 50 € ✓ 🙂", "déjà vu, złoty"];
        assert!(plain.iter().all(|text| !text.contains(is_disguise)), "{plain:?}");
        for disguised in ["cu\u{200d}rl", "сurl", "ｃurl", "cu\u{ad}rl", "𝚌url", "a\u{fe0f}", "ınstall", "\u{202e}lruc"]
        {
            assert!(disguised.contains(is_disguise), "{disguised:?}");
        }
    }
}
