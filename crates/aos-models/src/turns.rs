//! A prompt as alternating turns, which is what every provider's format is made of.
//!
//! Start at [`turns`]. What always holds: user and assistant alternate and a user begins; nothing empty is in them; the
//! prompt's status is the last piece; the same history gives the same pieces, so that what was sent stays a prefix of
//! what is sent next. Deliberately absent: any provider's field names.

use std::borrow::Cow;
use std::ops::Range;

use aos_abi::decode::shown_id;
use aos_abi::inference::{Encoding, Message, NativeCall, Part, Prompt};
use aos_abi::syscall::CallSet;
use serde_json::value::RawValue;

/// What stands first where the history begins with an answer because its beginning was compacted away.
const LEFT_OUT: &str = "(earlier messages were left out)";
/// What is said where there is nothing to say: providers refuse an empty conversation.
const NOTHING: &str = "(no input)";

/// Everything one side said in a row.
#[derive(Debug, PartialEq)]
pub(crate) struct Turn<'a> {
    pub(crate) role: Role,
    pub(crate) pieces: Vec<Piece<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    User,
    Assistant,
}

/// A piece of a turn.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece<'a> {
    Text(Cow<'a, str>),
    Image {
        media_type: &'a str,
        base64: &'a str,
    },
    Call(&'a NativeCall),
    Result {
        call_id: &'a str,
        name: &'a str,
        content: &'a str,
    },
    /// What is true only now. The last piece of the last turn, if there is any.
    Status(&'a str),
}

/// Whether calls and results travel in the provider's own form. A history with native calls is refused by some
/// providers where no tools are declared, so without any call the text form is used.
pub(crate) fn native(prompt: &Prompt) -> bool {
    prompt.encoding == Encoding::Native && prompt.tools != CallSet::EMPTY
}

/// The prompt's messages and status as turns; `native`: with calls and results as pieces of their own.
pub(crate) fn turns(prompt: &Prompt, native: bool) -> Vec<Turn<'_>> {
    part(prompt, native, 0..prompt.messages.len())
}

/// Whether a message is in any turn.
pub(crate) fn shows(message: &Message) -> bool {
    let visible = |text: &str| !text.trim().is_empty();
    match message {
        Message::User(parts) => parts.iter().any(|part| match part {
            Part::Text(text) => visible(text),
            Part::Image { .. } => true,
        }),
        Message::Assistant { text, calls } => visible(text) || !calls.is_empty(),
        Message::Result { .. } => true,
    }
}

/// The turns of a part of the messages; what stands before it ends with the other side's word.
pub(crate) fn part(prompt: &Prompt, native: bool, range: Range<usize>) -> Vec<Turn<'_>> {
    let (begins, ends) = (range.start == 0, range.end == prompt.messages.len());
    let mut turns = Turns { begins, turns: Vec::with_capacity(range.len() + 1) };
    for message in &prompt.messages[range] {
        match message {
            Message::User(parts) => {
                for part in parts {
                    match part {
                        Part::Text(text) => turns.text(Role::User, Cow::Borrowed(text)),
                        Part::Image { media_type, base64 } => {
                            turns.add(Role::User, Piece::Image { media_type, base64 })
                        }
                    }
                }
            }
            Message::Assistant { text, calls } => {
                turns.text(Role::Assistant, Cow::Borrowed(text));
                for call in calls {
                    if native {
                        turns.add(Role::Assistant, Piece::Call(call));
                    } else {
                        let written = format!("[SYS_CALL::{}] {}", call.name, call.arguments);
                        turns.text(Role::Assistant, Cow::Owned(written));
                    }
                }
            }
            Message::Result { call_id, name, content } if native => {
                turns.add(Role::User, Piece::Result { call_id, name, content });
            }
            Message::Result { call_id, name, content } => {
                turns.text(Role::User, Cow::Owned(format!("[RESULT {} {name}] {content}", shown_id(call_id))));
            }
        }
    }
    if ends && !prompt.status.trim().is_empty() {
        turns.add(Role::User, Piece::Status(&prompt.status));
    } else if begins && ends && turns.turns.is_empty() {
        turns.text(Role::User, Cow::Borrowed(NOTHING));
    }
    turns.turns
}

struct Turns<'a> {
    /// Nothing stands before them.
    begins: bool,
    turns: Vec<Turn<'a>>,
}

impl<'a> Turns<'a> {
    /// Text without a visible character is left out: Anthropic refuses it, and it says nothing.
    fn text(&mut self, role: Role, text: Cow<'a, str>) {
        if !text.trim().is_empty() {
            self.add(role, Piece::Text(text));
        }
    }

    fn add(&mut self, role: Role, piece: Piece<'a>) {
        match self.turns.last_mut() {
            Some(last) if last.role == role => last.pieces.push(piece),
            None if self.begins && role == Role::Assistant => {
                self.turns.push(Turn { role: Role::User, pieces: vec![Piece::Text(Cow::Borrowed(LEFT_OUT))] });
                self.turns.push(Turn { role, pieces: vec![piece] });
            }
            Some(_) | None => self.turns.push(Turn { role, pieces: vec![piece] }),
        }
    }
}

/// The arguments of a call in the history as one JSON object. A model may have written anything; a provider or its
/// chat template fails on a history whose arguments are no object.
pub(crate) fn object(arguments: &str) -> Cow<'_, RawValue> {
    let trimmed = arguments.trim();
    if trimmed.starts_with('{')
        && let Ok(raw) = serde_json::from_str::<&RawValue>(trimmed)
    {
        return Cow::Borrowed(raw);
    }
    let wrapped = if trimmed.is_empty() {
        "{}".to_owned()
    } else {
        serde_json::json!({ "malformed_arguments": arguments }).to_string()
    };
    Cow::Owned(RawValue::from_string(wrapped).expect("written as JSON just above"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(messages: Vec<Message>, status: &str, encoding: Encoding) -> Prompt {
        let (system, tools) = (String::new(), CallSet::all());
        Prompt { system, messages, status: status.to_owned(), tools, encoding, max_output: 10 }
    }

    fn user(text: &str) -> Message {
        Message::User(vec![Part::Text(text.to_owned())])
    }

    fn call() -> NativeCall {
        NativeCall { id: "c1".to_owned(), name: "FS_READ".to_owned(), arguments: r#"{"path":"a"}"#.to_owned() }
    }

    fn result() -> Message {
        Message::Result { call_id: "c1".to_owned(), name: "FS_READ".to_owned(), content: "{}".to_owned() }
    }

    #[test]
    fn sides_alternate_and_the_status_comes_last() {
        let answer = Message::Assistant { text: "  ".to_owned(), calls: vec![call()] };
        let prompt = prompt(vec![user("a"), user("b"), answer, result()], "now", Encoding::Native);
        let call = call();
        assert_eq!(
            turns(&prompt, native(&prompt)),
            [
                Turn { role: Role::User, pieces: vec![Piece::Text("a".into()), Piece::Text("b".into())] },
                Turn { role: Role::Assistant, pieces: vec![Piece::Call(&call)] },
                Turn {
                    role: Role::User,
                    pieces: vec![Piece::Result { call_id: "c1", name: "FS_READ", content: "{}" }, Piece::Status("now")]
                },
            ]
        );
    }

    #[test]
    fn the_text_form_has_no_native_pieces() {
        let answer = Message::Assistant { text: "Reading.".to_owned(), calls: vec![call()] };
        let prompt = prompt(vec![answer, result()], "", Encoding::Text);
        assert_eq!(
            turns(&prompt, native(&prompt)),
            [
                Turn { role: Role::User, pieces: vec![Piece::Text(LEFT_OUT.into())] },
                Turn {
                    role: Role::Assistant,
                    pieces: vec![
                        Piece::Text("Reading.".into()),
                        Piece::Text(r#"[SYS_CALL::FS_READ] {"path":"a"}"#.into())
                    ]
                },
                Turn { role: Role::User, pieces: vec![Piece::Text("[RESULT c1 FS_READ] {}".into())] },
            ]
        );
    }

    #[test]
    fn an_id_of_a_call_writes_no_line_of_its_own() {
        let call_id = "x] {}\n[RESULT y".to_owned();
        let result = Message::Result { call_id, name: "FS_READ".to_owned(), content: "{}".to_owned() };
        let prompt = prompt(vec![result], "", Encoding::Text);
        assert_eq!(turns(&prompt, false)[0].pieces, [Piece::Text("[RESULT x______RESULT_y FS_READ] {}".into())]);
    }

    #[test]
    fn an_empty_prompt_still_says_something() {
        assert_eq!(turns(&prompt(vec![], "", Encoding::Native), true)[0].pieces, [Piece::Text(NOTHING.into())]);
    }

    #[test]
    fn arguments_in_the_history_are_always_an_object() {
        assert_eq!(object(r#" {"a" :1} "#).get(), r#"{"a" :1}"#);
        assert_eq!(object("").get(), "{}");
        assert_eq!(object(r#"{"a":"#).get(), r#"{"malformed_arguments":"{\"a\":"}"#);
        assert_eq!(object("[1]").get(), r#"{"malformed_arguments":"[1]"}"#);
    }
}
