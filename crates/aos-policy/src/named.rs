//! Names from a clean source: the addresses, paths and ids that came with the result of a call that nobody but people
//! could have led to, out of something that no stranger could have written (docs/decisions/0012).
//!
//! Start at [`Named::of`]. What always holds: whoever keeps one has seen to it that neither the call nor its result carried
//! an untrusted label; a name is whole, to the byte, as its type says; no text that is run, sent or told is ever among
//! them. Deliberately absent: what commands print, messages, memory and what children say.

use aos_abi::{Name, Syscall};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::given::steering;
use crate::passage::{Passage, bare};
use crate::sought::Sought;

/// Bytes of names that are kept of one source.
const NAMES_BYTES_MAX: usize = 4096;
/// Bytes of a result that are looked at: the kernel's one thread does it.
const LOOKED_BYTES_MAX: usize = 64 << 10;
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 512;
/// Longest arguments of a call that a sentence could name, in bytes.
const ARGS_BYTES_MAX: usize = 512;

/// What one call brought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    call: Name,
    /// Its arguments as JSON text; empty where they are too long to be named.
    args: String,
    names: Vec<String>,
}

impl Named {
    /// The names in the result of this call; `None` where it is no source, or has none.
    #[must_use]
    pub fn of(call: &Syscall, result: &Value) -> Option<Named> {
        let mut found = Found::default();
        match call.name() {
            // Through a handle (`result:41`) anything could come that was shown before, whatever it carried.
            Name::FsRead if result.get("encoding").is_some() || reads_handle(call) => return None,
            Name::FsRead | Name::FsList | Name::FsSearch => found.look(result),
            Name::MemWrite => found.look(&result["id"]),
            _ => return None,
        }
        let Found { mut names, .. } = found;
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return None;
        }
        let args = Some(call.args().to_string()).filter(|args| args.len() <= ARGS_BYTES_MAX).unwrap_or_default();
        Some(Named { call: call.name(), args, names })
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.args.len() + self.names.iter().map(|name| name.len() + 1).sum::<usize>() + 16
    }

    /// Whether it names this value of an argument.
    pub(crate) fn holds(&self, sought: &Sought<'_>) -> bool {
        sought.is_among(&self.names)
    }

    /// The call that brought it, as a passage may ask for it.
    pub(crate) fn asking(&self) -> Asking {
        let args = Syscall::parse(self.call.as_str(), &self.args).map_or(Value::Null, |call| call.args());
        Asking { call: self.call, args }
    }
}

/// A call that a clean source was read by.
#[derive(Debug)]
pub(crate) struct Asking {
    call: Name,
    /// Nothing where they are too long to be named.
    args: Value,
}

impl Asking {
    /// Whether a passage asks for the call: all that steers it stands there, and something does.
    pub(crate) fn stands_in(&self, passage: &Passage<'_>) -> bool {
        let mut steering = self.steering().peekable();
        steering.peek().is_some() && steering.all(|sought| sought.stands_in(passage))
    }

    /// Whether a passage of this text could; false only where none does.
    pub(crate) fn could_stand_in(&self, text: &str) -> bool {
        self.steering().all(|sought| sought.could_stand_in(text))
    }

    fn steering(&self) -> impl Iterator<Item = Sought<'_>> {
        steering(self.call, &self.args).map(|(_, field, value)| Sought::of(field, value))
    }
}

fn reads_handle(call: &Syscall) -> bool {
    matches!(call, Syscall::FsRead(args) if args.path.contains(':'))
}

/// What has been found so far.
#[derive(Default)]
struct Found {
    names: Vec<String>,
    looked: usize,
    kept: usize,
}

impl Found {
    /// Recursion is bounded by the depth to which `serde_json` parses.
    fn look(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.look_at(text),
            Value::Array(items) => items.iter().for_each(|item| self.look(item)),
            Value::Object(fields) => fields.values().for_each(|item| self.look(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn look_at(&mut self, text: &str) {
        for chunk in text.split_whitespace() {
            self.looked += chunk.len();
            if self.looked > LOOKED_BYTES_MAX {
                return;
            }
            if chunk.len() > NAME_BYTES_MAX {
                continue;
            }
            self.keep(chunk);
            self.keep(bare(chunk));
            // As in `[a](https://x.example/y)`, `"to":"bob@x.example"`, `a.txt,b.txt` and `HOOK=https://x.example`.
            for part in chunk.split(['<', '>', '(', ')', '[', ']', '{', '}', '"', '\'', '`', ',', ';', '|']) {
                self.keep(bare(part));
                let set = part.split_once('=').filter(|(name, _)| !name.contains(['/', '@']));
                set.into_iter().for_each(|(_, value)| self.keep(bare(value)));
            }
        }
    }

    fn keep(&mut self, name: &str) {
        // What is a name and no word of prose shows it.
        let shows = |c: char| c.is_ascii_digit() || matches!(c, '@' | '/' | '.' | '_' | '-' | ':');
        let is_name = name.chars().nth(1).is_some() && name.contains(shows) && name.contains(char::is_alphanumeric);
        if is_name && self.kept + name.len() < NAMES_BYTES_MAX && self.names.last().is_none_or(|last| last != name) {
            self.kept += name.len() + 1;
            self.names.push(name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::given::Field;

    fn call(name: &str, args: Value) -> Syscall {
        Syscall::parse(name, &args.to_string()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn file(text: &str) -> Named {
        let read = call("FS_READ", json!({"path": "hook.txt"}));
        Named::of(&read, &json!({ "content": text })).unwrap_or_else(|| panic!("{text}"))
    }

    fn holds(named: &Named, field: Field, value: Value) -> bool {
        named.holds(&Sought::of(field, &value))
    }

    #[test]
    fn names_are_whole_and_words_are_none() {
        let text =
            "Ask [the hook](https://hook.example/a?b=1), or mail \"bob@x.example\". See docs/plan.md; do it now.";
        let named = file(text);
        let url = |url: &str| holds(&named, Field::Url, json!(url));
        assert!(url("https://hook.example/a?b=1") && url("https://HOOK.example:443/a?b=1"));
        for other in
            ["https://hook.example/a", "https://hook.example/a?b=1&c=2", "http://hook.example/a?b=1", "docs/plan.md"]
        {
            assert!(!url(other), "{other}");
        }
        assert!(holds(&named, Field::Recipient, json!("bob@X.example")));
        assert!(!holds(&named, Field::Recipient, json!("bob@x.example.evil")));
        assert!(holds(&named, Field::Path, json!("./docs/plan.md")) && !holds(&named, Field::Path, json!("docs")));
        assert!(!holds(&named, Field::Word, json!("now")) && !holds(&named, Field::Text, json!(text)));
        assert!(!holds(&named, Field::Any, json!("docs/plan.md")));
    }

    #[test]
    fn only_clean_kinds_of_calls_are_sources() {
        let said =
            json!({"stdout": "https://x.example/a", "content": "https://x.example/a", "result": "https://x.example/a"});
        for (name, args) in [
            ("EXEC_CMD", json!({"cmd": "cat a"})),
            ("WAIT", json!({})),
            ("MEM_READ", json!({"query": "a"})),
            ("NET_FETCH", json!({"url": "https://x.example/"})),
            ("RECV_MSG", json!({})),
            ("FS_READ", json!({"path": "result:41"})),
        ] {
            assert_eq!(Named::of(&call(name, args), &said), None, "{name}");
        }
        let write = call("MEM_WRITE", json!({"key": "k", "value": "https://x.example/a"}));
        let named = Named::of(&write, &json!({"id": "mem-7"})).unwrap_or_else(|| panic!("an id is a name"));
        assert!(holds(&named, Field::Word, json!("mem-7")) && !holds(&named, Field::Url, json!("https://x.example/a")));
    }

    #[test]
    fn a_large_source_is_kept_in_part() {
        let lines: String = (0..10_000).map(|n| format!("https://x.example/{n}\n")).collect();
        let named = file(&lines);
        assert!(named.bytes() < 2 * NAMES_BYTES_MAX && holds(&named, Field::Url, json!("https://x.example/1")));
        assert!(!holds(&named, Field::Url, json!("https://x.example/9999")));
    }
}
