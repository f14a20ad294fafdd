//! What aos-nano may answer: the calls that it knows, the shapes of their arguments, and the sentences that it says, as the
//! file beside its weights has them (`aos.nano.grammar`). Nothing of them is written here.

use serde_json::Value;

use crate::vocabulary::Vocabulary;

/// How the tokens of fields, literals and sentences are named.
const FIELD_MARK: &str = "@:";
const LITERAL_MARK: &str = "=:";
const SAID_MARK: &str = "!:";
/// The path of a file that goes into a folder.
const INTO: &str = "{}/{}";

/// What may stand in a field.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A span of what was shown.
    Copy,
    /// A span, written as a line.
    Line,
    /// A whole number.
    Int,
    /// The number of a process, which was told.
    Pid,
    /// A length of time, as counts with their units; seconds in the call.
    Duration,
    /// Five fields of a cron line.
    Cron,
    /// `true`, which is said by the field alone.
    True,
    /// One replacement: a span, and a span or nothing.
    Edits,
    /// Some of these names.
    List(Vec<(String, u32)>),
    /// One of these, with a span in each of its places.
    Literals(Vec<Template>),
}

/// A text with a place, `{}`, for each span.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) text: String,
    pub(crate) id: u32,
}

impl Template {
    pub(crate) fn spans(&self) -> usize {
        self.text.matches("{}").count()
    }

    /// The text with these spans; `None` where they are not as many as its places.
    pub(crate) fn fill(&self, spans: &[String]) -> Option<String> {
        let mut parts = self.text.split("{}");
        let mut text = parts.next()?.to_owned();
        for span in spans {
            text += span;
            text += parts.next()?;
        }
        parts.next().is_none().then_some(text)
    }
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) id: u32,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) id: u32,
    pub(crate) shapes: Vec<Vec<Field>>,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Grammar {
    pub(crate) calls: Vec<Call>,
    pub(crate) say: Vec<Template>,
    /// Fields whose text may come from anywhere; all others say what a call is about.
    pub(crate) contents: Vec<String>,
    /// Calls whose results name things.
    pub(crate) naming: Vec<String>,
    /// The sentence for what asks for nothing.
    pub(crate) noted: String,
}

impl Grammar {
    /// Read from a file's metadata; `None` where it is of another form, or a token for some part of it is missing.
    pub(crate) fn of(written: &Value, vocabulary: &Vocabulary) -> Option<Grammar> {
        let token = |mark: &str, text: &str| vocabulary.control(&format!("{mark}{text}"));
        let template = |mark: &str, text: &Value| {
            let text = text.as_str()?.to_owned();
            Some(Template { id: token(mark, &text)?, text })
        };
        let kind = |kind: &Value| -> Option<Kind> {
            if let Some(kind) = kind.as_str() {
                return match kind {
                    "copy" => Some(Kind::Copy),
                    "line" => Some(Kind::Line),
                    "int" => Some(Kind::Int),
                    "pid" => Some(Kind::Pid),
                    "duration" => Some(Kind::Duration),
                    "cron" => Some(Kind::Cron),
                    "true" => Some(Kind::True),
                    "edits" => Some(Kind::Edits),
                    _ => None,
                };
            }
            match kind.as_array()?.as_slice() {
                [Value::String(list), Value::Array(names)] if list == "list" => {
                    let names = names.iter().map(|name| Some((name.as_str()?.to_owned(), token("", name.as_str()?)?)));
                    names.collect::<Option<_>>().map(Kind::List)
                }
                literals => {
                    let literals = literals.iter().map(|literal| template(LITERAL_MARK, literal));
                    literals.collect::<Option<_>>().map(Kind::Literals)
                }
            }
        };
        let field = |field: &Value| {
            let [name, of] = field.as_array()?.as_slice() else { return None };
            let name = name.as_str()?.to_owned();
            Some(Field { id: token(FIELD_MARK, &name)?, name, kind: kind(of)? })
        };
        let shape = |shape: &Value| shape.as_array()?.iter().map(field).collect::<Option<Vec<Field>>>();
        let call = |(name, shapes): (&String, &Value)| {
            let shapes = shapes.as_array()?.iter().map(shape).collect::<Option<_>>()?;
            Some(Call { name: name.clone(), id: token("", name)?, shapes })
        };
        let calls = written.get("calls")?.as_object()?.iter().map(call).collect::<Option<_>>()?;
        let say = written.get("say")?.as_array()?.iter().map(|text| template(SAID_MARK, text));
        let texts = |key: &str| {
            let texts = written.get(key)?.as_array()?.iter();
            texts.map(|text| text.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        };
        let noted = written.get("noted")?.as_str()?.to_owned();
        let (contents, naming) = (texts("contents")?, texts("naming")?);
        Some(Grammar { calls, say: say.collect::<Option<_>>()?, contents, naming, noted })
    }

    /// Whether a token is that of a literal or of a sentence.
    pub(crate) fn is_template(&self, id: u32) -> bool {
        let kinds = self.calls.iter().flat_map(|call| call.shapes.iter().flatten()).map(|field| &field.kind);
        let literals = kinds.filter_map(|kind| if let Kind::Literals(literals) = kind { Some(literals) } else { None });
        literals.flatten().chain(&self.say).any(|template| template.id == id)
    }

    /// Whether a token is the literal of a path of two parts.
    pub(crate) fn is_into(&self, id: u32) -> bool {
        let mut fields = self.calls.iter().flat_map(|call| call.shapes.iter().flatten());
        fields.any(|field| matches!(&field.kind, Kind::Literals(literals) if literals.iter().any(|literal| literal.id == id && literal.text == INTO)))
    }

    /// Whether a token is that of a field.
    pub(crate) fn is_field(&self, id: u32) -> bool {
        self.calls.iter().flat_map(|call| call.shapes.iter().flatten()).any(|field| field.id == id)
    }

    pub(crate) fn call(&self, name: &str) -> Option<&Call> {
        self.calls.iter().find(|call| call.name == name)
    }

    /// The sentence in the place of a call that may not be made: the one that names it.
    pub(crate) fn refusal(&self, name: &str) -> Option<&str> {
        let names = |text: &str| {
            let mut words = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
            !text.contains("{}") && words.any(|word| word == name)
        };
        self.say.iter().map(|template| template.text.as_str()).find(|text| names(text))
    }
}
