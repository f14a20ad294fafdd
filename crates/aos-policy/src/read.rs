//! Typed reading: what a value must be, with a fault at its place where it is not.
//!
//! Start at [`Reader::fields`]. Faults are gathered, so that one check shows all of them. What always holds: a key that
//! is not asked for is a fault; a value of the wrong shape is a fault; nothing is coerced.

use crate::fault::{Fault, nearest};
use crate::yaml::{Key, Node, Value};

/// Gathers faults while a tree is read.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub(crate) faults: Vec<Fault>,
}

/// The entries of a map whose keys are all known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'n> {
    pub(crate) node: &'n Node,
    entries: &'n [(Key, Node)],
}

impl<'n> Fields<'n> {
    pub(crate) fn get(&self, name: &str) -> Option<&'n Node> {
        self.entries.iter().find(|(key, _)| key.name == name).map(|(_, node)| node)
    }
}

impl Reader {
    pub(crate) fn fault(&mut self, node: &Node, message: impl Into<String>, hint: impl Into<String>) {
        self.faults.push(Fault::at(node.place, message).hint(hint));
    }

    /// A map with these keys and no others.
    pub(crate) fn fields<'n>(&mut self, node: &'n Node, what: &str, known: &[&str]) -> Option<Fields<'n>> {
        let Value::Map(entries) = &node.value else {
            self.fault(
                node,
                format!("{what} is a map, here is {}", node.value.what()),
                format!("keys: {}", known.join(", ")),
            );
            return None;
        };
        for (key, _) in entries.iter().filter(|(key, _)| !known.contains(&key.name.as_str())) {
            let message = format!("{what} has no key `{}`", key.name);
            self.faults.push(Fault::at(key.place, message).hint(nearest(&key.name, known)));
        }
        Some(Fields { node, entries })
    }

    /// A map with names of the writer's choice.
    pub(crate) fn named<'n>(&mut self, node: &'n Node, what: &str) -> &'n [(Key, Node)] {
        match &node.value {
            Value::Map(entries) => entries,
            value => {
                self.fault(node, format!("{what} is a map, here is {}", value.what()), "write `name: …` below it");
                &[]
            }
        }
    }

    pub(crate) fn need<'n>(&mut self, fields: &Fields<'n>, name: &str) -> Option<&'n Node> {
        let found = fields.get(name);
        if found.is_none() {
            self.fault(fields.node, format!("`{name}` is missing"), format!("add `{name}: …`"));
        }
        found
    }

    pub(crate) fn list<'n>(&mut self, node: &'n Node, what: &str) -> &'n [Node] {
        match &node.value {
            Value::List(items) => items,
            value => {
                self.fault(
                    node,
                    format!("{what} is a list, here is {}", value.what()),
                    "write `[…]`, or lines with `- `",
                );
                &[]
            }
        }
    }

    /// The same of a rule that would be about nothing with an empty one: whoever wrote it meant something.
    pub(crate) fn some<'n>(&mut self, node: &'n Node, what: &str, hint: &str) -> &'n [Node] {
        if matches!(&node.value, Value::List(items) if items.is_empty()) {
            self.fault(node, format!("{what} is empty, so the rule is about nothing"), hint);
        }
        self.list(node, what)
    }

    pub(crate) fn text<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n str> {
        match &node.value {
            Value::Scalar(text, quoted) if *quoted || node.value.what() != "nothing" => Some(text),
            value => {
                let hint =
                    if matches!(value, Value::List(_)) { "write one of them" } else { "write it on the same line" };
                self.fault(node, format!("{what} is a text, here is {}", value.what()), hint);
                None
            }
        }
    }

    /// One of some words.
    pub(crate) fn word<'n>(&mut self, node: &'n Node, what: &str, known: &[&str]) -> Option<&'n str> {
        let text = self.text(node, what)?;
        if known.contains(&text) {
            return Some(text);
        }
        self.fault(node, format!("`{text}` is no {what}"), nearest(text, known));
        None
    }

    pub(crate) fn flag(&mut self, node: &Node, what: &str) -> Option<bool> {
        match &node.value {
            Value::Scalar(text, false) if text == "true" => Some(true),
            Value::Scalar(text, false) if text == "false" => Some(false),
            _ => {
                self.fault(node, format!("{what} is neither true nor false"), "write `true` or `false`");
                None
            }
        }
    }

    /// A whole number with an optional ending, such as `500k`, `60s` or `512MiB`.
    fn scaled(&mut self, node: &Node, what: &str, endings: &[(&str, u64)], example: &str) -> Option<u64> {
        let text = self.text(node, what)?;
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, ending) = text.split_at(digits);
        let scale = endings.iter().find(|(known, _)| *known == ending).map(|(_, scale)| *scale);
        let value = number.parse::<u64>().ok().zip(scale).and_then(|(number, scale)| number.checked_mul(scale));
        if value.is_none() {
            self.fault(node, format!("`{text}` is no {what}"), format!("write it such as `{example}`"));
        }
        value
    }

    /// How many; the example is one that suits what is counted.
    pub(crate) fn count(&mut self, node: &Node, what: &str, example: &str) -> Option<u64> {
        self.scaled(node, what, &[("", 1), ("k", 1000), ("M", 1_000_000)], example)
    }

    /// Of what a command has a few dozen or hundreds.
    pub(crate) fn few(&mut self, node: &Node, what: &str) -> Option<u64> {
        self.count(node, what, "64")
    }

    pub(crate) fn bytes(&mut self, node: &Node, what: &str) -> Option<u64> {
        let endings = [("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
        self.scaled(node, what, &endings, "512MiB")
    }

    /// A length of time in milliseconds.
    pub(crate) fn span(&mut self, node: &Node, what: &str) -> Option<u64> {
        let endings = [("ms", 1), ("s", 1000), ("m", 60_000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        self.scaled(node, what, &endings, "15m")
    }

    /// `TEXT/day`, `TEXT/min` and so on: the text, and the seconds it is about.
    pub(crate) fn per<'n>(&mut self, node: &'n Node, what: &str, example: &str) -> Option<(&'n str, u64)> {
        let text = self.text(node, what)?;
        let units = [("s", 1), ("min", 60), ("h", 3600), ("day", 86_400)];
        let split = text.split_once('/').and_then(|(amount, unit)| {
            units.iter().find(|(known, _)| *known == unit).map(|(_, seconds)| (amount, *seconds))
        });
        if split.is_none() {
            self.fault(
                node,
                format!("`{text}` is no {what}"),
                format!("write it such as `{example}`; per s, min, h or day"),
            );
        }
        split
    }

    /// `60/min`: how many, in how many seconds.
    pub(crate) fn rate(&mut self, node: &Node, what: &str) -> Option<(u64, u64)> {
        let (amount, seconds) = self.per(node, what, "60/min")?;
        let plain = Node { place: node.place, value: Value::Scalar(amount.to_owned(), false) };
        self.count(&plain, what, "60").map(|count| (count, seconds))
    }
}
