//! What was last written of a conversation, so that of one that grows only what is new is written.
//!
//! Start at [`Written::so_far`]. A request holds the whole history again, and writing it as JSON takes longer than all
//! else that a turn does. What always holds: a request written with it is, byte for byte, the one written without it;
//! only messages that can no longer change are kept, up to an answer of the model, where a new message begins in every
//! case. Deliberately absent: the formats that move marks through the history (Anthropic's), which are written whole.

use aos_abi::inference::{Message, Prompt};

use crate::openai::Way;
use crate::turns;

/// The beginning of a conversation as it stands in a request. Whoever holds it calls [`Written::keep`] before it is
/// used for the next prompt.
#[derive(Debug, Default)]
pub struct Written {
    /// Whether calls and results are in the provider's own form in it.
    native: bool,
    /// In which way they are written.
    way: Way,
    /// Messages of the prompt that it holds.
    messages: usize,
    /// They, with commas between.
    text: Vec<u8>,
}

impl Written {
    /// Of the next prompt's messages as many are the same as in the last: what was written of others is forgotten.
    pub fn keep(&mut self, same: usize) {
        if self.messages > same {
            *self = Written::default();
        }
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// What is written of this prompt, and of how many messages.
    pub(crate) fn so_far(&self, prompt: &Prompt, way: Way) -> (&[u8], usize) {
        let fits =
            self.native == turns::native(prompt) && self.way == way && begins_a_turn(&prompt.messages, self.messages);
        if fits { (&self.text, self.messages) } else { (&[], 0) }
    }

    /// How many messages of a prompt can be kept when it is written, those before the last answer.
    pub(crate) fn settled(prompt: &Prompt) -> usize {
        let messages = &prompt.messages;
        (1..messages.len()).rev().find(|at| begins_a_turn(messages, *at)).unwrap_or(0)
    }

    /// `text` is what stands for so many messages.
    pub(crate) fn put(&mut self, prompt: &Prompt, way: Way, messages: usize, text: &[u8]) {
        self.native = turns::native(prompt);
        self.way = way;
        self.messages = messages;
        // What was there before is how it begins.
        let before = if text.starts_with(&self.text) { self.text.len() } else { 0 };
        self.text.truncate(before);
        self.text.extend_from_slice(&text[before..]);
    }
}

/// Whether the message at this place is an answer, and the one before it is none: then what is before stands in turns of
/// its own. What shows nothing is in no turn.
fn begins_a_turn(messages: &[Message], at: usize) -> bool {
    let answer = |message: &Message| matches!(message, Message::Assistant { .. });
    let Some([before, this]) = at.checked_sub(1).and_then(|before| messages.get(before..=at)) else { return false };
    answer(this) && !answer(before) && turns::shows(before) && turns::shows(this)
}

#[cfg(test)]
mod tests {
    use aos_abi::inference::{Encoding, NativeCall, Part};
    use aos_abi::syscall::{CallSet, Name};
    use proptest::prelude::*;

    use super::*;
    use crate::openai::{self, Quirks};
    use crate::tools::Tools;
    use crate::wishes::Request;

    /// Whatever there may be, also what no window shows: answers in a row, and messages in which nothing is visible.
    fn message() -> impl Strategy<Value = Message> {
        let text =
            || prop::sample::select(vec!["", " \n", "a \"word\"", "on\u{7}é", "go", "done"]).prop_map(str::to_owned);
        let part = prop_oneof![
            4 => text().prop_map(Part::Text),
            1 => Just(Part::Image { media_type: "image/png".into(), base64: "aGk=".into() }),
        ];
        let call = (0..3u8).prop_map(|nth| NativeCall {
            id: format!("c{nth}"),
            name: "FS_READ".into(),
            arguments: ["", "{\"path\":\"a\"}", "[1"][usize::from(nth)].into(),
        });
        prop_oneof![
            prop::collection::vec(part, 0..3).prop_map(Message::User),
            (text(), prop::collection::vec(call, 0..3)).prop_map(|(text, calls)| Message::Assistant { text, calls }),
            text().prop_map(|content| Message::Result { call_id: "c0".into(), name: "FS_READ".into(), content }),
        ]
    }

    const AT: &str = "http://a/v1";
    const GOOGLE: &str = "https://generativelanguage.googleapis.com/v1beta/openai";

    fn body(prompt: &Prompt, address: &str, quirks: Quirks, written: &mut Written) -> String {
        let request = Request { model: "gemini-flash-latest", prompt, wishes: None };
        String::from_utf8(openai::body(&request, address, &Tools::default(), quirks, written)).unwrap()
    }

    proptest! {
        /// A conversation of which each prompt has some of the beginning of the one before, with servers of all kinds.
        #[test]
        fn what_was_written_before_changes_no_byte(
            steps in prop::collection::vec(
                (any::<prop::sample::Index>(), prop::collection::vec(message(), 0..6), any::<[bool; 5]>()), 1..8),
        ) {
            let mut written = Written::default();
            let mut messages: Vec<Message> = Vec::new();
            for (stays, more, [status, system, native, bridged, google]) in steps {
                let same = stays.index(messages.len() + 1);
                messages.truncate(same);
                messages.extend(more);
                let prompt = Prompt {
                    system: if system { "You help.".into() } else { String::new() },
                    messages: messages.clone(),
                    status: if status { "now".into() } else { String::new() },
                    tools: if native { [Name::FsRead].into_iter().collect() } else { CallSet::EMPTY },
                    encoding: Encoding::Native,
                    max_output: 10,
                };
                written.keep(same);
                let quirks = Quirks(if bridged { Quirks::NO_USER_AFTER_TOOL } else { 0 });
                let at = if google { GOOGLE } else { AT };
                let whole = body(&prompt, at, quirks, &mut Written::default());
                prop_assert_eq!(&body(&prompt, at, quirks, &mut written), &whole);
                let calls = whole.contains("\"tool_calls\"");
                prop_assert_eq!(whole.contains("skip_thought_signature_validator"), google && calls, "{}", whole);
                let refused = whole.split("\"role\":\"tool\"").skip(1).any(|rest| {
                    rest.split("\"role\":\"").nth(1).is_some_and(|next| next.starts_with("user"))
                });
                prop_assert!(!(bridged && refused), "{whole}");
                prop_assert!(serde_json::from_str::<serde_json::Value>(&whole).is_ok(), "{whole}");
            }
        }
    }

    #[test]
    fn all_before_the_last_answer_is_written_once() {
        let user = |text: &str| Message::User(vec![Part::Text(text.into())]);
        let answer = |text: &str| Message::Assistant { text: text.into(), calls: vec![] };
        let prompt = |messages: Vec<Message>| Prompt {
            system: "You help.".into(),
            messages,
            status: "now".into(),
            tools: CallSet::EMPTY,
            encoding: Encoding::Text,
            max_output: 10,
        };
        let mut written = Written::default();
        body(&prompt(vec![user("1"), answer("2"), user("3")]), AT, Quirks(0), &mut written);
        assert_eq!(written.text, br#"{"role":"user","content":"1"}"#);
        written.keep(1);
        let grown = prompt(vec![user("1"), answer("2"), user("3"), answer("4"), user("5")]);
        assert_eq!(written.so_far(&grown, Way::default()), (&br#"{"role":"user","content":"1"}"#[..], 1));
        body(&grown, AT, Quirks(0), &mut written);
        assert_eq!(written.messages, 3);
        written.keep(2);
        assert_eq!(written.bytes(), 0, "one of them may have changed");
    }
}
