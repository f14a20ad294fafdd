//! YAML as the policy needs it: a tree of plain values, each with its place, read strictly from parser events.
//!
//! Start at [`read`]. What always holds: one document; no anchors, aliases, tags or complex keys; no key twice; depth
//! and size bounded. Deliberately absent: YAML's implicit types. A scalar is its text, and whoever reads it says what
//! it must be, so `no` is never a boolean and `1.10` never a number by surprise.

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use crate::fault::Fault;

/// Longest file, in bytes: 10,000 rules take less than a tenth of it.
pub const FILE_BYTES_MAX: usize = 8 << 20;
/// Deepest nesting; the language itself needs six.
const DEPTH_MAX: usize = 16;

/// A place in the file, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// A value with its place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Text, and whether it stood in quotes or a block.
    Scalar(String, bool),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) place: Place,
    pub(crate) name: String,
}

impl Value {
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Value::Scalar(text, false) if text.is_empty() || text == "~" || text == "null" => "nothing",
            Value::Scalar(..) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }
}

/// Reads the one document of a text; one with nothing in it should begin with `first`.
pub(crate) fn read(text: &str, first: &str) -> Result<Node, Fault> {
    let start = Place { line: 1, column: 1 };
    if text.len() > FILE_BYTES_MAX {
        let what = format!("the file holds {} bytes, the most is {FILE_BYTES_MAX}", text.len());
        return Err(Fault::at(start, what).hint("name what belongs together by a pattern, such as `docs/**`"));
    }
    let mut reader = Reader { text, parser: Parser::new_from_str(text), last: start };
    loop {
        match reader.next()? {
            (Event::StreamStart | Event::Nothing, _) => {}
            (Event::DocumentStart(_), _) => break,
            (_, place) => return Err(Fault::at(place, "the file is empty").hint(format!("begin with `{first}`"))),
        }
    }
    let first = reader.next()?;
    let node = reader.node(first, 0)?;
    loop {
        match reader.next()? {
            (Event::DocumentEnd | Event::Nothing, _) => {}
            (Event::StreamEnd, _) => return Ok(node),
            (_, place) => return Err(Fault::at(place, "the file holds a second document").hint("keep one")),
        }
    }
}

const NEST_LESS: &str = "take some of the brackets or indentation away; the language itself needs six levels";

/// What to do about what the parser says.
fn way_out(said: &str) -> &'static str {
    let has = |word: &str| said.to_ascii_lowercase().contains(word);
    if is_tab(said) {
        "indent with spaces"
    } else if has("anchor") || has("alias") {
        "write the value out where it holds; names for values (`&a`, `*a`) are refused"
    } else if has("recursion") || has("nest") || has("depth") {
        NEST_LESS
    } else {
        "look at the indentation, the quotes and the brackets of this line and of the one above"
    }
}

/// Whether the parser complains of a tab.
fn is_tab(said: &str) -> bool {
    said.split(|one: char| !one.is_alphanumeric()).any(|word| word.starts_with("tab"))
}

/// The first tab of an indentation from a line on: the parser names where it was when it found it, which is before it or
/// behind it.
fn tab(text: &str, from: Place) -> Option<Place> {
    let lines = text.lines().enumerate().skip(from.line - 1);
    lines.into_iter().find_map(|(at, line)| {
        let column = line.chars().take_while(|one| one.is_whitespace()).position(|one| one == '\t')?;
        Some(Place { line: at + 1, column: column + 1 })
    })
}

struct Reader<'t> {
    text: &'t str,
    parser: Parser<'t, StrInput<'t>>,
    last: Place,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Place), Fault> {
        match self.parser.next_event() {
            None => Err(Fault::at(self.last, "the file ends too early").hint("close what was opened above")),
            Some(Err(error)) => {
                let place = Place { line: error.marker().line().max(1), column: error.marker().col() + 1 };
                let place = tab(self.text, place).filter(|_| is_tab(error.info())).unwrap_or(place);
                Err(Fault::at(place, format!("this is not YAML: {}", error.info())).hint(way_out(error.info())))
            }
            Some(Ok((event, span))) => {
                self.last = place(&span);
                Ok((event, self.last))
            }
        }
    }

    fn node(&mut self, (event, place): (Event<'t>, Place), depth: usize) -> Result<Node, Fault> {
        if depth > DEPTH_MAX {
            return Err(Fault::at(place, format!("it is nested deeper than {DEPTH_MAX} levels")).hint(NEST_LESS));
        }
        let value = match event {
            Event::Scalar(text, style, anchor, tag) => {
                plain(place, anchor, tag.is_some())?;
                Value::Scalar(text.into_owned(), style != ScalarStyle::Plain)
            }
            Event::SequenceStart(anchor, tag) => {
                plain(place, anchor, tag.is_some())?;
                self.list(depth)?
            }
            Event::MappingStart(anchor, tag) => {
                plain(place, anchor, tag.is_some())?;
                self.map(depth)?
            }
            Event::Alias(_) => {
                return Err(Fault::at(place, "aliases are refused").hint("write the value out where it holds"));
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => return Err(Fault::at(place, "a value is missing here")),
        };
        Ok(Node { place, value })
    }

    fn list(&mut self, depth: usize) -> Result<Value, Fault> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::List(items)),
                event => items.push(self.node(event, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, Fault> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        let mut seen = std::collections::BTreeMap::new();
        loop {
            let key = match self.next()? {
                (Event::MappingEnd, _) => return Ok(Value::Map(entries)),
                (Event::Scalar(name, _, anchor, tag), place) => {
                    plain(place, anchor, tag.is_some())?;
                    Key { place, name: name.into_owned() }
                }
                (_, place) => return Err(Fault::at(place, "a key must be a plain word")),
            };
            if let Some(line) = seen.insert(key.name.clone(), key.place.line) {
                let message = format!("the key `{}` stands here twice, first on line {line}", key.name);
                return Err(Fault::at(key.place, message).hint("keep one of them"));
            }
            let event = self.next()?;
            entries.push((key, self.node(event, depth + 1)?));
        }
    }
}

fn plain(place: Place, anchor: usize, tagged: bool) -> Result<(), Fault> {
    if anchor != 0 {
        return Err(Fault::at(place, "anchors are refused").hint("write the value out where it holds"));
    }
    if tagged {
        return Err(Fault::at(place, "tags are refused").hint("write the value plainly"));
    }
    Ok(())
}

fn place(span: &Span) -> Place {
    Place { line: span.start.line().max(1), column: span.start.col() + 1 }
}
