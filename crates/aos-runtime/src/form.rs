//! The form in which a model is shown a conversation: control tokens between texts.
//!
//! Start at [`Form::of`]. What always holds: texts are encoded apart from the control tokens between them, so that nothing
//! that anybody wrote can end a turn or begin one. Deliberately absent: the Jinja templates that files carry, which mix
//! the two; the forms that are known here are recognised by their control tokens.

use std::borrow::Cow;
use std::sync::Arc;

use aos_abi::decode::shown_id;
use aos_abi::inference::{Encoding, Message, NativeCall, Part, Prompt};
use aos_abi::syscall::CallSet;
use serde_json::Value;

use crate::fault::Fault;
use crate::guide::{Guide, Guides};
use crate::nano::{self, Nano};
use crate::vocabulary::Vocabulary;
use crate::weights::Weights;

/// Least tokens around the text of a turn: its begin and its end.
const TURN_LEAST: usize = 2;

/// How a model is talked to.
pub(crate) enum Form {
    /// aos-nano's own.
    Nano(Arc<Nano>),
    /// `<|im_start|>role … <|im_end|>`: SmolLM, Qwen and many more.
    ChatMl { begin: u32, end: u32, bos: Option<u32> },
    /// `<|start_header_id|>role<|end_header_id|> … <|eot_id|>`: Llama 3.
    Llama3 { begin: u32, behind: u32, end: u32, bos: Option<u32> },
}

/// A prompt as a model reads it.
pub(crate) struct Written {
    pub(crate) ids: Vec<u32>,
    /// How many of them, at the beginning, are the role's and nothing of the conversation.
    pub(crate) role: usize,
    /// What holds the answer; nothing where any text will do.
    pub(crate) guide: Option<Guide>,
}

impl Form {
    /// The form of the model in a file.
    ///
    /// # Errors
    /// [`Fault::Unsupported`] where no form that is known here fits its control tokens.
    pub(crate) fn of(weights: &Weights, vocabulary: &Vocabulary) -> Result<Form, Fault> {
        if weights.text("aos.nano.grammar").is_ok() {
            return Ok(Form::Nano(Arc::new(Nano::of(weights, vocabulary)?)));
        }
        let control = |name: &str| vocabulary.control(name);
        let bos = vocabulary.bos.filter(|_| weights.flag("tokenizer.ggml.add_bos_token"));
        if let (Some(begin), Some(behind), Some(end)) =
            (control("<|start_header_id|>"), control("<|end_header_id|>"), control("<|eot_id|>"))
        {
            return Ok(Form::Llama3 { begin, behind, end, bos: bos.or(vocabulary.bos) });
        }
        // Where the end of a turn is the end of the text too, it is no control token by its type alone.
        if let (Some(begin), Some(end)) = (control("<|im_start|>"), control("<|im_end|>")) {
            return Ok(Form::ChatMl { begin, end, bos });
        }
        Err(weights.unsupported("it has the control tokens of no chat form that is known here".to_owned()))
    }

    /// The token that ends a reply.
    pub(crate) fn end(&self, vocabulary: &Vocabulary) -> u32 {
        match self {
            Form::Nano(..) => vocabulary.eos,
            Form::ChatMl { end, .. } | Form::Llama3 { end, .. } => *end,
        }
    }

    /// What the voices but the first read in the place of each token; none where one voice is enough.
    pub(crate) fn voices(&self) -> Vec<Vec<u32>> {
        match self {
            Form::Nano(nano) => nano.voices(),
            Form::ChatMl { .. } | Form::Llama3 { .. } => Vec::new(),
        }
    }

    /// A prompt in this form, and the grammar of its answer. `fits` is asked first about the least tokens that it can have.
    ///
    /// # Errors
    /// What `fits` says, or [`Fault::Grammar`]; where it must be `whole`, [`Fault::TooLong`] for what would be cut and
    /// [`Fault::Unread`] for what would not be read.
    pub(crate) fn write(
        &self,
        prompt: &Prompt,
        whole: bool,
        vocabulary: &Vocabulary,
        guides: &mut Guides,
        fits: impl Fn(usize) -> Result<(), Fault>,
    ) -> Result<Written, Fault> {
        match self {
            Form::Nano(nano) => {
                // What an agent is told of itself it needs not: its calls are those that it may make. Another program would
                // be answered as if it had not said that.
                if whole && !prompt.system.trim().is_empty() {
                    return Err(Fault::Unread("aos-nano reads no system message"));
                }
                let (ids, shown) = nano.prompt(prompt);
                if let (true, Some((tokens, window))) = (whole, shown.beyond) {
                    return Err(Fault::TooLong { tokens, window });
                }
                let guide = Guide::Nano(Box::new(nano::Guide::new(nano.clone(), shown, prompt.tools)));
                // Its prompt has no beginning that is the role's, and is never longer than it takes.
                Ok(Written { ids, role: 0, guide: Some(guide) })
            }
            Form::ChatMl { .. } | Form::Llama3 { .. } => {
                let (ids, role) = self.chat(prompt, vocabulary, fits)?;
                let guide = (prompt.tools != CallSet::EMPTY).then(|| guides.calls(prompt.tools)).transpose()?;
                Ok(Written { ids, role, guide })
            }
        }
    }

    /// The tokens of a prompt, and how many of them are the role's.
    fn chat(
        &self,
        prompt: &Prompt,
        vocabulary: &Vocabulary,
        fits: impl Fn(usize) -> Result<(), Fault>,
    ) -> Result<(Vec<u32>, usize), Fault> {
        let turns = turns(prompt);
        fits(turns.iter().map(|(_, text)| TURN_LEAST + vocabulary.least(text.len())).sum())?;
        let mut ids: Vec<u32> = match self {
            Form::ChatMl { bos, .. } | Form::Llama3 { bos, .. } => bos.iter().copied().collect(),
            Form::Nano(..) => Vec::new(),
        };
        let mut role = 0;
        for (nth, (by, text)) in turns.iter().enumerate() {
            self.turn(by, text, vocabulary, &mut ids);
            if nth == 0 {
                role = ids.len();
            }
        }
        self.open("assistant", vocabulary, &mut ids);
        Ok((ids, role))
    }

    fn open(&self, role: &str, vocabulary: &Vocabulary, ids: &mut Vec<u32>) {
        match self {
            Form::ChatMl { begin, .. } => {
                ids.push(*begin);
                ids.extend(vocabulary.encode(&format!("{role}\n")));
            }
            Form::Llama3 { begin, behind, .. } => {
                ids.push(*begin);
                ids.extend(vocabulary.encode(role));
                ids.push(*behind);
                ids.extend(vocabulary.encode("\n\n"));
            }
            Form::Nano(..) => {}
        }
    }

    fn turn(&self, role: &str, text: &str, vocabulary: &Vocabulary, ids: &mut Vec<u32>) {
        self.open(role, vocabulary, ids);
        ids.extend(vocabulary.encode(text));
        ids.push(self.end(vocabulary));
        if let Form::ChatMl { .. } = self {
            ids.extend(vocabulary.encode("\n"));
        }
    }
}

/// The turns of a prompt: who speaks, and what. The first is the role's.
fn turns(prompt: &Prompt) -> Vec<(&'static str, Cow<'_, str>)> {
    let mut turns = vec![("system", Cow::Borrowed(prompt.system.as_str()))];
    let mut user = String::new();
    let add = |user: &mut String, text: &str| {
        if !user.is_empty() {
            user.push('\n');
        }
        user.push_str(text);
    };
    for message in &prompt.messages {
        match message {
            Message::User(parts) => {
                for part in parts {
                    match part {
                        Part::Text(text) => add(&mut user, text),
                        Part::Image { .. } => add(&mut user, "[an image: your model is shown none]"),
                    }
                }
            }
            Message::Result { call_id, name, content } => {
                add(&mut user, &format!("[result {} {name}]\n{content}", shown_id(call_id)));
            }
            Message::Assistant { text, calls } => {
                if !user.is_empty() {
                    turns.push(("user", Cow::Owned(std::mem::take(&mut user))));
                }
                turns.push(("assistant", reply_text(text, calls)));
            }
        }
    }
    if !prompt.status.is_empty() {
        add(&mut user, &prompt.status);
    }
    if !user.is_empty() {
        turns.push(("user", Cow::Owned(user)));
    }
    turns
}

/// An earlier reply as the model would have written it.
fn reply_text<'t>(text: &'t str, calls: &[NativeCall]) -> Cow<'t, str> {
    if calls.is_empty() {
        return Cow::Borrowed(text);
    }
    let calls: Vec<String> = calls
        .iter()
        .map(|call| format!("{{\"name\":{},\"args\":{}}}", Value::from(call.name.as_str()), call.arguments))
        .collect();
    Cow::Owned(format!("{{\"calls\":[{}],\"say\":{}}}", calls.join(","), Value::from(text)))
}

/// A finished reply that a guide held to its form, in the encoding that was asked for: its text and its native calls.
pub(crate) fn told(written: String, prompt: &Prompt) -> (String, Vec<NativeCall>) {
    if prompt.encoding == Encoding::Constrained && prompt.tools != CallSet::EMPTY {
        return (written, Vec::new());
    }
    let Ok(mut reply) = serde_json::from_str::<Value>(&written) else { return (written, Vec::new()) };
    let calls = match reply.get_mut("calls").map(Value::take) {
        Some(Value::Array(calls)) => calls,
        _ => Vec::new(),
    };
    let mut text = reply.get("say").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut native = Vec::new();
    for call in calls {
        let name = call["name"].as_str().unwrap_or_default();
        let arguments = call["args"].to_string();
        match prompt.encoding {
            Encoding::Native => {
                native.push(NativeCall { id: String::new(), name: name.to_owned(), arguments });
            }
            Encoding::Text | Encoding::Constrained => {
                text.push('\n');
                text.push_str(&aos_abi::decode::text_form(name, &arguments));
            }
        }
    }
    (text.trim_start().to_owned(), native)
}
