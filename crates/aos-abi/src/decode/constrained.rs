//! The constrained form: one JSON object, `{"calls":[{"name":…,"args":{…}}],"say":…}`.
//!
//! Start at [`read`]. The object is read member by member, so that calls that are complete survive a reply that was cut
//! off or breaks later. What always holds: text inside the object is never searched for tags.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::{Written, WrittenCall, was_cut_off};
use crate::{CallError, Code, Name};

const FORM: &str = r#"a correct reply: {"calls":[{"name":"FS_READ","args":{"path":"notes.txt"}}],"say":""}"#;

/// A correct reply with one call of that name.
pub(super) fn example(name: Name) -> String {
    format!(r#"a correct reply: {{"calls":[{{"name":"{name}","args":{}}}],"say":""}}"#, name.spec().example)
}

#[derive(Deserialize)]
struct Element {
    name: String,
    #[serde(default)]
    args: Option<Box<RawValue>>,
}

/// Reads the object; `None` where the reply is no such object, so that it is read as text.
pub(super) fn read(text: &str, cut_off: bool) -> Option<Written> {
    let mut cursor = Cursor { text: unfenced(text.trim()), at: 0 };
    let mut written = Written::default();
    let mut known = false;
    cursor.eat(b'{').then_some(())?;
    match members(&mut cursor, &mut written, &mut known) {
        Ok(()) => {
            let rest = cursor.text[cursor.at..].trim();
            if !rest.is_empty() {
                written.say = format!("{} {rest}", written.say);
            }
        }
        // Without a single known member it is not this form at all.
        Err(_) if !known => return None,
        Err(broken) => {
            let cut = cut_off && broken.at_end;
            let fault = if cut {
                was_cut_off()
            } else {
                CallError::new(Code::Inval, crate::syscall::at(&broken.pointer, &broken.expected)).hint(FORM)
            };
            let args = cursor.text[cursor.at..].to_owned();
            // A cut through what it says loses words, not a call.
            if !(cut && broken.pointer == "/say") {
                written.calls.push(WrittenCall { name: String::new(), args, fault: Some(fault) });
            }
        }
    }
    written.say = written.say.trim().to_owned();
    known.then_some(written)
}

/// Where and why the object breaks.
struct Broken {
    pointer: String,
    expected: String,
    at_end: bool,
}

fn members(cursor: &mut Cursor<'_>, written: &mut Written, known: &mut bool) -> Result<(), Broken> {
    if cursor.eat(b'}') {
        return Ok(());
    }
    loop {
        let key: String = cursor.value("")?;
        cursor.expect(b':', "")?;
        match key.as_str() {
            "calls" => {
                *known = true;
                elements(cursor, written)?;
            }
            "say" => {
                let said: Option<String> = cursor.value("/say")?;
                *known = true;
                written.say = said.unwrap_or_default();
            }
            other => {
                cursor.value::<IgnoredAny>(&format!("/{}", other.replace('~', "~0").replace('/', "~1")))?;
            }
        }
        if cursor.eat(b'}') {
            return Ok(());
        }
        cursor.expect(b',', "")?;
    }
}

fn elements(cursor: &mut Cursor<'_>, written: &mut Written) -> Result<(), Broken> {
    cursor.expect(b'[', "/calls")?;
    if cursor.eat(b']') {
        return Ok(());
    }
    for nth in 0usize.. {
        let pointer = format!("/calls/{nth}");
        let raw: &RawValue = cursor.value(&pointer)?;
        written.calls.push(match serde_json::from_str::<Element>(raw.get()) {
            Ok(element) => {
                let args = element.args.map_or_else(String::new, |args| args.get().to_owned());
                WrittenCall { name: element.name, args, fault: None }
            }
            Err(error) => {
                let fault = CallError::new(Code::Inval, format!("at `{pointer}`: {error}")).hint(FORM);
                WrittenCall { name: String::new(), args: raw.get().to_owned(), fault: Some(fault) }
            }
        });
        if cursor.eat(b']') {
            break;
        }
        cursor.expect(b',', "/calls")?;
    }
    Ok(())
}

/// The content of a fence that wraps the whole reply, else the reply.
fn unfenced(text: &str) -> &str {
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inner.map_or(text, |inner| inner.trim_start_matches(|c: char| c.is_ascii_alphanumeric()).trim())
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn skip_white(&mut self) {
        self.at += self.text.as_bytes()[self.at..].iter().take_while(|b| b.is_ascii_whitespace()).count();
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.skip_white();
        let there = self.text.as_bytes().get(self.at) == Some(&byte);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, byte: u8, pointer: &str) -> Result<(), Broken> {
        if self.eat(byte) {
            return Ok(());
        }
        let expected = format!("expected `{}`", char::from(byte));
        Err(Broken { pointer: pointer.to_owned(), expected, at_end: self.at == self.text.len() })
    }

    fn value<T: Deserialize<'a>>(&mut self, pointer: &str) -> Result<T, Broken> {
        self.skip_white();
        let mut stream = serde_json::Deserializer::from_str(&self.text[self.at..]).into_iter::<T>();
        match stream.next() {
            Some(Ok(value)) => {
                self.at += stream.byte_offset();
                Ok(value)
            }
            Some(Err(error)) => {
                Err(Broken { pointer: pointer.to_owned(), expected: error.to_string(), at_end: error.is_eof() })
            }
            None => Err(Broken { pointer: pointer.to_owned(), expected: "expected a value".into(), at_end: true }),
        }
    }
}
