//! The few fields of a request that decide about it, and where they stand in its bytes.
//!
//! Start at [`Head::of`]. What always holds: nothing but the fields named here and those that cost (`bounds`) is looked at,
//! and what is written anew differs from what came in exactly these places.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use aos_abi::inference::Format;
use aos_abi::model::Ability;
use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::bounds::{Bounds, Weight, inner_spelled};
use crate::failure::quote;
use crate::wire::Text;

/// Most bytes of a model's name, which `aos.toml` gives: more than any there is.
const MODEL_BYTES_MAX: usize = 256;

/// A request that cannot be served as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Misfit {
    /// What is wrong, lower case, without a full stop.
    pub message: String,
    /// The way out.
    pub hint: Option<String>,
}

impl Misfit {
    pub(crate) fn new(message: impl Into<String>) -> Misfit {
        Misfit { message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Misfit {
        self.hint = Some(hint.into());
        self
    }
}

impl From<serde_json::Error> for Misfit {
    fn from(error: serde_json::Error) -> Misfit {
        Misfit::new(format!("the request cannot be read: {}", quote(&error.to_string(), "")))
    }
}

/// What stands at the head of a request, whatever its format.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) stream: bool,
    pub(crate) max_output: Option<u32>,
    /// What the model must be able to do.
    pub(crate) needs: BTreeSet<Ability>,
    /// It says something of thinking, and not that there is to be none: what is thought is paid and may not be heard.
    pub(crate) thinks: bool,
    /// Where the model's name stands.
    model: Range<usize>,
    /// Where the options of the stream stand, and whether they ask for usage.
    options: Option<(Range<usize>, bool)>,
    limits: Vec<Limit>,
    /// What it may come to beyond its bytes.
    pub(crate) weight: Weight,
}

/// Where a limit of the answer stands, with its name in front.
#[derive(Clone, Debug)]
struct Limit {
    place: Range<usize>,
    name: &'static str,
    /// It says one, and is not null.
    says: bool,
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    model: &'a RawValue,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(borrow, default)]
    stream_options: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response_format: Option<&'a RawValue>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    output_config: Option<&'a RawValue>,
    #[serde(borrow, default)]
    output_format: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning_effort: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow, default)]
    thinking: Option<&'a RawValue>,
    #[serde(borrow, default)]
    thinking_budget: Option<&'a RawValue>,
    #[serde(borrow, default)]
    enable_thinking: Option<&'a RawValue>,
    #[serde(borrow, default)]
    include_reasoning: Option<&'a RawValue>,
    #[serde(borrow, default)]
    chat_template_kwargs: Option<&'a RawValue>,
}

impl Fields<'_> {
    /// What the model must be able to do, as each format says it.
    fn needs(&self, weight: &Weight) -> BTreeSet<Ability> {
        let mut needs = BTreeSet::new();
        let listed = self.tools.and_then(|tools| tools.get().strip_prefix('['));
        if listed.is_some_and(|tools| !tools.trim_start().starts_with(']')) {
            needs.insert(Ability::Tools);
        }
        let (text, config) = (Inside::of(self.text).format, Inside::of(self.output_config).format);
        let mut forms = [self.response_format, text, config, self.output_format].into_iter();
        if forms.any(|form| Inside::of(form).kind().is_some_and(|kind| kind == "json_schema")) {
            needs.insert(Ability::JsonSchema);
        }
        // Whoever says that there is to be none asks for nothing.
        let mut efforts =
            [self.reasoning_effort, Inside::of(self.reasoning).effort].into_iter().flatten().filter_map(word);
        let effort = efforts.any(|effort| !matches!(&*effort, "none" | "minimal"));
        if effort || Inside::of(self.thinking).kind().is_some_and(|kind| kind != "disabled") {
            needs.insert(Ability::Reasoning);
        }
        if weight.images > 0 {
            needs.insert(Ability::Images);
        }
        needs
    }

    /// Whether its model may think: by any field that asks for it, in however few words (`needs` reads only what is plain).
    fn thinks(&self) -> bool {
        let said = [
            self.reasoning_effort,
            self.reasoning,
            self.thinking,
            self.thinking_budget,
            self.enable_thinking,
            self.include_reasoning,
        ];
        let template = Inside::of(self.chat_template_kwargs);
        said.into_iter().chain([template.enable_thinking, template.thinking]).flatten().any(asks)
    }
}

/// Whether the value of a field about thinking asks for any.
fn asks(field: &RawValue) -> bool {
    let off = |value: &RawValue| {
        matches!(value.get(), "null" | "false" | "0")
            || word(value).is_some_and(|word| matches!(&*word, "none" | "disabled"))
    };
    let inside = Inside::of(Some(field));
    !off(field) && ![inside.kind, inside.effort, inside.enabled].into_iter().flatten().any(off)
}

/// What is looked at in a field that says what is needed; the rest of it is not read, however much it is.
#[derive(Default, Deserialize)]
struct Inside<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default)]
    format: Option<&'a RawValue>,
    #[serde(borrow, default)]
    effort: Option<&'a RawValue>,
    #[serde(borrow, default)]
    enabled: Option<&'a RawValue>,
    #[serde(borrow, default)]
    enable_thinking: Option<&'a RawValue>,
    #[serde(borrow, default)]
    thinking: Option<&'a RawValue>,
}

impl<'a> Inside<'a> {
    /// Nothing where the field is no object.
    fn of(field: Option<&'a RawValue>) -> Inside<'a> {
        let object = field.filter(|field| field.get().starts_with('{'));
        object.and_then(|object| serde_json::from_str(object.get()).ok()).unwrap_or_default()
    }

    fn kind(&self) -> Option<Cow<'a, str>> {
        self.kind.and_then(word)
    }
}

fn word(value: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Text<'_>>(value.get()).ok().map(|text| text.0)
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

/// What is written anew when a request is passed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anew<'a> {
    /// The server's name for the model.
    pub(crate) model: &'a str,
    /// Whether a stream must end with what it used.
    pub(crate) usage: bool,
    /// The most tokens that may be answered, and the field that says so where the request has none; `None`: nothing does.
    pub(crate) max_output: u32,
    pub(crate) limit_field: Option<&'static str>,
}

impl Head {
    /// The head of a request and the model that it names.
    ///
    /// # Errors
    /// Where the body is no JSON object, a field that decides is not what it should be, or something is asked for that has
    /// no bound.
    pub(crate) fn of(format: Format, body: &[u8]) -> Result<(Head, String), Misfit> {
        // The library would read an array as the fields in their order.
        if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
            return Err(Misfit::new("a JSON object was expected"));
        }
        let fields: Fields<'_> = serde_json::from_slice(body)?;
        let model: String = serde_json::from_str(fields.model.get())
            .map_err(|_| Misfit::new("`model` is not a string").hint("GET /v1/models lists what there is"))?;
        // It is journaled, whether there is such a model or not.
        if model.len() > MODEL_BYTES_MAX {
            return Err(Misfit::new("`model` is longer than any name").hint("GET /v1/models lists what there is"));
        }
        let place = |raw: &RawValue| {
            let start = raw.get().as_ptr().addr() - body.as_ptr().addr();
            start..start + raw.get().len()
        };
        let Bounds { limits, weight } = Bounds::of(format, body)?;
        let said = limits.iter().find(|limit| limit.says()).map(|limit| limit.value.get().parse::<u64>());
        let max_output = match said {
            // Some servers take it for no limit at all.
            Some(Ok(0)) if format == Format::Chat => {
                return Err(Misfit::new("an answer of 0 tokens is none").hint("ask for at least one token"));
            }
            Some(Ok(tokens)) => Some(tokens),
            Some(Err(_)) => {
                return Err(Misfit::new("the most tokens of the answer are not a whole number from 0 up"));
            }
            None => None,
        };
        let limits = limits.iter().map(|limit| {
            let place = with_name(body, place(limit.value));
            Limit { place, name: limit.name, says: limit.says() }
        });
        let options = match fields.stream_options.filter(|raw| raw.get() != "null") {
            None => None,
            Some(raw) => {
                let options: StreamOptions = serde_json::from_str(raw.get())?;
                inner_spelled(raw, "include_usage")?;
                Some((place(raw), options.include_usage.unwrap_or(false)))
            }
        };
        let head = Head {
            stream: fields.stream.unwrap_or(false),
            max_output: max_output.map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX)),
            needs: fields.needs(&weight),
            thinks: fields.thinks(),
            model: place(fields.model),
            options,
            limits: limits.collect(),
            weight,
        };
        Ok((head, model))
    }

    /// Whether the program asked for the usage of a stream.
    pub(crate) fn wants_usage(&self) -> bool {
        self.options.as_ref().is_some_and(|(_, usage)| *usage)
    }

    /// The body as it is passed on.
    pub(crate) fn anew(&self, body: &[u8], anew: Anew<'_>) -> Bytes {
        let mut changes = vec![(self.model.clone(), json_string(anew.model))];
        let mut added = String::new();
        if let Some(field) = anew.limit_field {
            let most = self.max_output.unwrap_or(anew.max_output).min(anew.max_output);
            let counts = |limit: &&Limit| limit.says || limit.name == field;
            match self.limits.iter().filter(counts).collect::<Vec<_>>().as_slice() {
                [] => added.push_str(&format!(",\"{field}\":{most}")),
                [one] if one.name == field && self.max_output == Some(most) => {}
                // A limit under a name that the server does not know would be none.
                limits => {
                    changes.extend(limits.iter().map(|limit| (limit.place.clone(), format!("\"{field}\":{most}"))));
                }
            }
        }
        if anew.usage && self.stream {
            match &self.options {
                Some((_, true)) => {}
                Some((place, false)) => changes.push((place.clone(), "{\"include_usage\":true}".to_owned())),
                None => added.push_str(",\"stream_options\":{\"include_usage\":true}"),
            }
        }
        changes.sort_unstable_by_key(|(place, _)| place.start);
        let mut written = BytesMut::with_capacity(body.len() + added.len() + 64);
        let mut at = 0;
        for (place, text) in changes {
            written.put_slice(&body[at..place.start]);
            written.put_slice(text.as_bytes());
            at = place.end;
        }
        // The object has a model, so its last field ends before the last brace.
        let end = body.iter().rposition(|byte| *byte == b'}').unwrap_or(body.len()).max(at);
        written.put_slice(&body[at..end]);
        written.put_slice(added.as_bytes());
        written.put_slice(&body[end..]);
        written.freeze()
    }
}

/// A field from its name to the end of its value. The name holds no quotation mark, so its first one is the next before.
fn with_name(body: &[u8], value: Range<usize>) -> Range<usize> {
    let quote_before = |end: usize| body[..end].iter().rposition(|byte| *byte == b'"').unwrap_or(0);
    quote_before(quote_before(value.start))..value.end
}

fn json_string(text: &str) -> String {
    serde_json::to_string(text).expect("a string can be written as JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANEW: Anew<'_> = Anew { model: "qwen\"3", usage: true, max_output: 100, limit_field: Some("max_tokens") };

    fn anew(body: &str) -> String {
        let (head, _) = Head::of(Format::Chat, body.as_bytes()).unwrap();
        String::from_utf8(head.anew(body.as_bytes(), ANEW).to_vec()).unwrap()
    }

    #[test]
    fn nothing_but_what_decides_is_written_anew() {
        assert_eq!(
            anew(r#" {"odd":{"model":1, "b":[ 1 ]} ,"model" : "small","max_tokens":7,"x":"}"} "#),
            r#" {"odd":{"model":1, "b":[ 1 ]} ,"model" : "qwen\"3","max_tokens":7,"x":"}"} "#
        );
        assert_eq!(
            anew(r#"{"stream":true,"model":"a\u0062","max_completion_tokens":5000}"#),
            r#"{"stream":true,"model":"qwen\"3","max_tokens":100,"stream_options":{"include_usage":true}}"#
        );
        assert_eq!(
            anew(r#"{"stream_options":{"include_usage":false},"stream":true,"model":"a"}"#),
            r#"{"stream_options":{"include_usage":true},"stream":true,"model":"qwen\"3","max_tokens":100}"#
        );
    }

    /// A server that does not know the name that a limit goes by has none.
    #[test]
    fn a_limit_is_said_in_the_servers_words() {
        for (limits, expected) in [
            (r#""max_completion_tokens":1"#, r#""max_tokens":1"#),
            (r#""max\u005fcompletion_tokens" : 1"#, r#""max_tokens":1"#),
            (r#""max_tokens":null"#, r#""max_tokens":100"#),
            (r#""max_completion_tokens":5,"max_tokens":null"#, r#""max_tokens":5,"max_tokens":5"#),
            (r#""max_tokens" :  7,"max_completion_tokens":null"#, r#""max_tokens" :  7,"max_completion_tokens":null"#),
        ] {
            assert_eq!(
                anew(&format!(r#"{{"model":"m",{limits},"x":"\"max_tokens\":9"}}"#)),
                format!(r#"{{"model":"qwen\"3",{expected},"x":"\"max_tokens\":9"}}"#)
            );
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for body in [
            "",
            "[]",
            "{}",
            r#"{"model":3}"#,
            &format!(r#"{{"model":"{}"}}"#, "m".repeat(257)),
            r#"{"model":"a","max_tokens":"x"}"#,
            r#"{"model":"a","max_tokens":0}"#,
            r#"{"model":"a","model":"b"}"#,
            r#"["a",true]"#,
            r#"{"model":"a","Model":"b"}"#,
            r#"{"MODEL":"b","model":"a"}"#,
            r#"{"model":"a","max_tokens":1,"MAX_TOKENS":100000}"#,
            "{\"model\":\"a\",\"max_tokens\":1,\"max_to\u{212a}ens\":100000}",
            r#"{"model":"a","max_tokens":1,"max_to\u212aens":100000}"#,
            "{\"model\":\"a\",\"\u{17f}tream\":true}",
            r#"{"model":"a","stream_options":{"include_usage":true,"Include_Usage":false}}"#,
        ] {
            assert!(Head::of(Format::Chat, body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn what_the_model_must_be_able_to_do_is_read_in_every_format() {
        let needs = |rest: &str| {
            let body = format!("{{\"model\":\"auto\",{rest}}}");
            let (head, _) = Head::of(Format::Chat, body.as_bytes()).unwrap();
            head.needs.into_iter().map(Ability::name).collect::<Vec<_>>().join(" ")
        };
        for (rest, expected) in [
            (r#""messages":[{"role":"user","content":"an image, {\"type\":\"image\"}"}]"#, ""),
            (r#""tools":[],"response_format":{"type":"json_object"},"reasoning_effort":"none","thinking":null"#, ""),
            (r#""thinking":{"type":"disabled"},"text":{"format":{"type":"text"}},"reasoning":{}"#, ""),
            (
                r#""tools":[{}],"response_format":{"type":"json_schema"},"reasoning_effort":"low""#,
                "tools reasoning json_schema",
            ),
            (r#""text":{"format":{"type":"json_schema"}},"reasoning":{"effort":"high"}"#, "reasoning json_schema"),
            (
                r#""output_config":{"format":{"type":"json_schema"}},"thinking":{"type":"adaptive"}"#,
                "reasoning json_schema",
            ),
            (r#""messages":[{"role":"user","content":[{"type":"image_url"}]}]"#, "images"),
            (r#""input":[{"role":"user","content":[{"type":"input_image"}]}]"#, "images"),
            (
                r#""messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image"}]}]}]"#,
                "images",
            ),
            (r#""messages":[{"content":[{"type":"tool_use","input":{"type":"image"}}]}]"#, ""),
        ] {
            assert_eq!(needs(rest), expected, "{rest}");
        }
    }

    #[test]
    fn whether_a_model_may_think_is_read_in_every_form() {
        let thinks =
            |rest: &str| Head::of(Format::Chat, format!("{{\"model\":\"m\",{rest}}}").as_bytes()).unwrap().0.thinks;
        for rest in [
            r#""reasoning_effort":"minimal""#,
            r#""reasoning":{}"#,
            r#""reasoning":{"max_tokens":2000}"#,
            r#""reasoning":{"enabled":true}"#,
            r#""thinking":{"type":"enabled","budget_tokens":1024}"#,
            r#""thinking":true"#,
            r#""enable_thinking":true"#,
            r#""thinking_budget":512"#,
            r#""include_reasoning":true"#,
            r#""chat_template_kwargs":{"enable_thinking":true}"#,
            r#""chat_template_kwargs":{"thinking":true}"#,
        ] {
            assert!(thinks(rest), "{rest}");
        }
        for rest in [
            r#""messages":[{"role":"user","content":"thinking"}]"#,
            r#""reasoning_effort":"none""#,
            r#""reasoning_effort":null,"reasoning":null,"thinking":null"#,
            r#""reasoning":{"effort":"none"}"#,
            r#""reasoning":{"enabled":false}"#,
            r#""thinking":{"type":"disabled"}"#,
            r#""enable_thinking":false,"thinking_budget":0,"include_reasoning":false"#,
            r#""chat_template_kwargs":{"enable_thinking":false}"#,
        ] {
            assert!(!thinks(rest), "{rest}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_else_stands_there_is_kept(text in "\\PC{0,20}", number in 0u64..1000, stream: bool) {
            let body = serde_json::json!({"a": text, "model": text, "stream": stream, "z": {"model": number}});
            let written: serde_json::Value = serde_json::from_str(&anew(&body.to_string())).unwrap();
            proptest::prop_assert_eq!(&written["a"], &body["a"]);
            proptest::prop_assert_eq!(&written["z"], &body["z"]);
            proptest::prop_assert_eq!(&written["model"], "qwen\"3");
            proptest::prop_assert_eq!(&written["max_tokens"], 100);
        }
    }
}
