//! What another program wishes of a model beside the conversation: its own tools, how to sample, the answer's form.
//!
//! An agent has none: its tools are the system calls. Start at [`Request`], which every provider's `body` writes.
//! Deliberately absent: fields that only one provider knows; they reach it where its own format is passed on as it came.

use std::ops::Range;
use std::sync::Arc;

use aos_abi::inference::Prompt;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::tools::{Shape, Tools, gemini_schema};
use crate::turns::{self, Turn};

/// What a request to a provider says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The provider's name for the model.
    pub(crate) model: &'a str,
    /// The conversation.
    pub(crate) prompt: &'a Prompt,
    /// What another program wishes; `None` for an agent's own inference.
    pub(crate) wishes: Option<&'a Wishes>,
}

/// Tools, sampling and the answer's form, as every provider knows them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wishes {
    pub(crate) tools: Vec<Tool>,
    pub(crate) calling: Option<Calling>,
    pub(crate) temperature: Option<f64>,
    pub(crate) top_p: Option<f64>,
    /// Texts before which the answer ends.
    pub(crate) stop: Vec<String>,
    pub(crate) form: Option<Form>,
    /// How long to think, in OpenAI's words; other providers have none like it.
    pub(crate) effort: Option<String>,
}

/// A function that the program offers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    /// JSON Schema of its arguments.
    pub(crate) parameters: Value,
}

/// Whether the model is to call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Calling {
    Auto,
    Nothing,
    Any,
    Only(String),
}

/// What the answer's text must be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Form {
    /// Any JSON object.
    Json,
    /// JSON that fits a schema, under a name.
    Schema { name: String, schema: Value },
}

impl<'a> Request<'a> {
    /// The conversation in turns. A program's calls travel in the provider's own form always, since its tools have no other.
    pub(crate) fn turns(&self) -> Vec<Turn<'a>> {
        turns::turns(self.prompt, self.native())
    }

    /// The turns of some of the messages; what stands before them ends with the other side's word.
    pub(crate) fn part(&self, range: Range<usize>) -> Vec<Turn<'a>> {
        turns::part(self.prompt, self.native(), range)
    }

    fn native(&self) -> bool {
        self.wishes.is_some() || turns::native(self.prompt)
    }

    /// The tools to declare, in the provider's shape.
    pub(crate) fn declared(&self, shape: Shape, tools: &Tools) -> Option<Arc<RawValue>> {
        match self.wishes {
            None => turns::native(self.prompt).then(|| tools.get(shape, self.prompt.tools)),
            Some(wishes) if wishes.tools.is_empty() => None,
            Some(wishes) => Some(raw(&wishes.declared(shape))),
        }
    }
}

impl Wishes {
    fn declared(&self, shape: Shape) -> Value {
        let each = |one: fn(&Tool) -> Value| -> Vec<Value> { self.tools.iter().map(one).collect() };
        match shape {
            Shape::Openai | Shape::OpenaiConstrained => Value::Array(each(|tool| {
                let mut function = json!({"name": tool.name, "parameters": tool.parameters});
                describe(&mut function, tool);
                json!({"type": "function", "function": function})
            })),
            Shape::Anthropic => Value::Array(each(|tool| {
                let mut declared = json!({"name": tool.name, "input_schema": tool.parameters});
                describe(&mut declared, tool);
                declared
            })),
            Shape::Gemini => json!([{"functionDeclarations": each(|tool| {
                let mut declared = json!({"name": tool.name});
                describe(&mut declared, tool);
                let parameters = gemini_schema(&tool.parameters);
                if parameters.get("properties").is_some() {
                    declared["parameters"] = parameters;
                }
                declared
            })}]),
        }
    }
}

fn describe(declared: &mut Value, tool: &Tool) {
    if let Some(description) = &tool.description {
        declared["description"] = Value::from(description.as_str());
    }
}

/// A JSON value as it is written.
pub(crate) fn raw(value: &Value) -> Arc<RawValue> {
    Arc::from(to_raw_value(value).expect("a JSON value can be written"))
}
