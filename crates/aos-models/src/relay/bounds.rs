//! What a program may ask for: only what has a worst that can be set aside before, since nothing is spent beyond that.
//!
//! Start at [`Bounds::of`]. What always holds: a field that nobody here knows passes, and so does any value of it; of two
//! fields of one name both are looked at, since nobody knows which one a server takes, and so is a name in any spelling
//! that some server takes for it; what is in the request itself counts by its bytes, and an image, which may be more than
//! these, by the most that a provider makes of one. Deliberately absent: what a file in the request unfolds to.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use aos_abi::inference::Format;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::fields::{Fields, each_of, text};
use super::peek::Misfit;
use crate::failure::quote;

/// Tokens of one image at most: gpt-4o-mini counts 2,833 and 5,667 for each of up to eight tiles ("Images and vision", OpenAI);
/// others make at most half of that of one.
const IMAGE_TOKENS_MAX: u64 = 50_000;
/// Tokens of a provider's own words about one of its tools that the program runs (Anthropic: 245 to some 1,500).
const CLIENT_TOOL_TOKENS_MAX: u64 = 4_096;
/// How deep content lies in content: a part, a result, a document and what it is made of are six.
const INSIDE_MAX: u32 = 12;

/// Fields that say how long an answer may be, at one server or another.
const LIMITS: [&str; 6] =
    ["max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "n_predict", "num_predict"];

/// Fields by which a server does more than answer once with the model that it was told, and what that is.
const MORE: [(&str, &str); 23] = [
    ("web_search_options", "a search by the provider"),
    ("web_search", "a search by the provider"),
    ("search_parameters", "a search by the provider"),
    ("search_settings", "a search by the provider"),
    ("enable_search", "a search by the provider"),
    ("grounding", "a search by the provider"),
    ("connectors", "a search by the provider"),
    ("data_sources", "what the provider finds in other sources"),
    ("cached_content", "content that the provider keeps"),
    ("file_ids", "files that the provider keeps"),
    ("previous_response_id", "a conversation that the provider keeps"),
    ("preset", "settings that the provider keeps"),
    ("deferred", "an answer that is fetched later"),
    ("use_beam_search", "a search through more than one answer"),
    ("chat_template", "a template that may make more of the request than it is"),
    ("plugins", "something that the provider runs"),
    ("mcp_servers", "calls by the provider"),
    ("container", "a machine of the provider"),
    ("thread", "a conversation that the provider keeps"),
    ("prediction", "a prediction, which is paid like an answer"),
    ("models", "another model than it names"),
    ("fallbacks", "another model than it names"),
    ("provider", "another provider than the model's"),
];

/// Fields that say how many answers are made; one is set aside.
const ANSWERS: [&str; 5] = ["n", "best_of", "num_return_sequences", "candidate_count", "beam_width"];

/// The other fields at the top that decide who answers, how long and what it costs.
const DECIDES: [&str; 10] = [
    "model",
    "stream",
    "stream_options",
    "tools",
    "messages",
    "system",
    "input",
    "cache_control",
    "context_management",
    "extra_body",
];

/// Fields of a part that nothing is fetched from, whatever they say: words, what a call holds, and names.
const WORDS: [&str; 20] = [
    "text",
    "input",
    "title",
    "context",
    "thinking",
    "signature",
    "citations",
    "annotations",
    "name",
    "filename",
    "arguments",
    "tool_calls",
    "function",
    "refusal",
    "reasoning",
    "reasoning_content",
    "summary",
    "encrypted_content",
    "role",
    "type",
];

/// Fields of which only some values cost what the model's price says.
const ONLY: [(&str, &[&str]); 4] = [
    ("service_tier", &["auto", "default", "standard", "standard_only", "on_demand", "flex"]),
    ("speed", &["standard"]),
    ("inference_geo", &["global"]),
    ("modalities", &["text"]),
];

/// How long a provider may keep what it is told to: a model has one price for writing to its cache, that of five minutes,
/// and an hour costs more (Anthropic: 2 times the input instead of 1.25).
const CACHED_FOR: &[&str] = &["5m"];

/// How deep content may still lie in a message.
const MESSAGE_INSIDE: u32 = INSIDE_MAX - 2;

/// Names inside parts and tools that are looked at.
const INNER: [&str; 19] = [
    "type",
    "content",
    "output",
    "source",
    "file",
    "image",
    "image_url",
    "url",
    "id",
    "file_id",
    "file_url",
    "file_data",
    "document_url",
    "audio_url",
    "video_url",
    "audio",
    "name",
    "cache_control",
    "ttl",
];

/// Tools that Anthropic describes and the program runs, by what stands before the date.
const CLIENT_TOOLS: [&str; 6] =
    ["bash_", "text_editor_", "memory_", "computer_", "computer_toolset_", "browser_toolset_"];

/// A field that says how long an answer may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit<'a> {
    pub(super) name: &'static str,
    pub(super) value: &'a RawValue,
}

impl Limit<'_> {
    /// Whether it says one; null is none.
    pub(super) fn says(&self) -> bool {
        self.value.get() != "null"
    }
}

/// What there is to set aside for a request beside its bytes.
#[derive(Debug, Default)]
pub(super) struct Bounds<'a> {
    /// The fields that limit the answer; all but one say nothing.
    pub(super) limits: Vec<Limit<'a>>,
    pub(super) weight: Weight,
}

/// What a request holds that is more than a token for each of its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Images in it.
    pub(crate) images: u64,
    /// Bytes of the parts that hold them.
    pub(crate) image_bytes: usize,
    /// Tokens that they may be beyond these bytes.
    beyond: u64,
    /// Tokens that the provider may add to describe its tools.
    described: u64,
}

impl Weight {
    /// Tokens beyond one for each byte of the request.
    pub(crate) fn beyond_bytes(&self) -> u64 {
        self.beyond.saturating_add(self.described)
    }

    /// Tokens beyond one for each byte of its text.
    pub(crate) fn beyond_text(&self) -> u64 {
        self.images.saturating_mul(IMAGE_TOKENS_MAX).saturating_add(self.described)
    }
}

impl<'a> Bounds<'a> {
    /// What bounds a request in this format.
    ///
    /// # Errors
    /// Where something has no bound that is known here.
    pub(super) fn of(format: Format, body: &'a [u8]) -> Result<Bounds<'a>, Misfit> {
        let mut bounds = Bounds::default();
        let Fields(fields) = serde_json::from_slice(body)?;
        for (name, value) in &fields {
            bounds.field(format, name, value)?;
        }
        bounds.one_limit()?;
        Ok(bounds)
    }

    fn field(&mut self, format: Format, name: &str, value: &'a RawValue) -> Result<(), Misfit> {
        spelled(name)?;
        if let Some(name) = LIMITS.into_iter().find(|limit| *limit == name) {
            return self.limit(format, name, value);
        }
        if is_nothing(value) {
            return Ok(());
        }
        if let Some((_, what)) = MORE.iter().find(|(more, _)| *more == name) {
            return Err(Misfit::new(format!("`{name}` asks for {what}, and what that costs is not known before"))
                .hint(format!("leave `{name}` out")));
        }
        if let Some((_, values)) = ONLY.iter().find(|(only, _)| *only == name) {
            return only(name, value, values);
        }
        match name {
            _ if ANSWERS.contains(&name) && value.get().parse() != Ok(1.0) => {
                Err(Misfit::new(format!("`{name}` asks for more than one answer, and only one is set aside"))
                    .hint(format!("leave `{name}` out and ask again for another answer")))
            }
            "tools" => each_of(value, |tool| self.tool(format, tool)),
            "messages" | "system" | "input" => self.content(value, INSIDE_MAX),
            "cache_control" => cached_for(value),
            "context_management" => only_clears(value),
            "extra_body" => self.extra(format, value, INSIDE_MAX),
            _ => Ok(()),
        }
    }

    /// Fields that a server reads as if they stood at the top, or passes on to another one, by whose name they stand together.
    fn extra(&mut self, format: Format, value: &'a RawValue, inside: u32) -> Result<(), Misfit> {
        let Some(inside) = inside.checked_sub(1) else { return Err(too_deep()) };
        for (name, value) in object(value)?.map_or(Vec::new(), |Fields(fields)| fields) {
            if matches!(&*name, "model" | "stream" | "stream_options") {
                return Err(Misfit::new(format!("`{name}` in `extra_body` may be taken for that of the request"))
                    .hint("say it where it belongs"));
            }
            self.field(format, &name, value)?;
            self.extra(format, value, inside)?;
        }
        Ok(())
    }

    fn limit(&mut self, format: Format, name: &'static str, value: &'a RawValue) -> Result<(), Misfit> {
        let own: &[&str] = match format {
            Format::Chat => &["max_completion_tokens", "max_tokens"],
            Format::Responses => &["max_output_tokens"],
            Format::Messages => &["max_tokens"],
            // Vectors have no length that anybody says.
            Format::Embeddings => return Ok(()),
        };
        if own.contains(&name) {
            self.limits.push(Limit { name, value });
            return Ok(());
        }
        if value.get() == "null" {
            return Ok(());
        }
        Err(Misfit::new(format!(
            "`{name}` is no field of this format, and a server may take it for the answer's limit"
        ))
        .hint(format!("say it as `{}`", own[0])))
    }

    fn one_limit(&self) -> Result<(), Misfit> {
        let mut said = self.limits.iter().filter(|limit| limit.says());
        match (said.next(), said.next()) {
            (Some(one), Some(other)) => Err(Misfit::new(format!(
                "`{}` and `{}` both limit the answer, and which of them counts is the server's to say",
                one.name, other.name
            ))
            .hint("leave one of them out")),
            _ => Ok(()),
        }
    }

    /// A tool must be one that the program runs: a call of another one costs more than the answer.
    fn tool(&mut self, format: Format, tool: &'a RawValue) -> Result<(), Misfit> {
        let Some(Fields(fields)) = object(tool)? else { return Ok(()) };
        all_cached_for(&fields)?;
        // Gateways to Anthropic's models take it from inside the function, too.
        for (_, function) in fields.iter().filter(|(name, _)| name == "function") {
            all_cached_for(&object(function)?.unwrap_or_default().0)?;
        }
        let kinds = kinds(&fields);
        let runs = |kind: &str| match format {
            Format::Chat => matches!(kind, "function" | "custom"),
            Format::Messages => kind == "custom" || is_client_tool(kind),
            // Never passed on: whatever reads them says which it takes.
            Format::Responses | Format::Embeddings => true,
        };
        let described = fields.iter().any(|(name, value)| matches!(&**name, "name" | "function") && !is_nothing(value));
        if let Some(kind) = kinds.iter().find(|kind| !runs(kind)) {
            return Err(runs_itself(&format!("`{}`", quote(kind, ""))));
        }
        if kinds.is_empty() && !described && !fields.is_empty() {
            let name = fields.first().map_or("", |(name, _)| name);
            return Err(runs_itself(&format!("with `{}` and no name", quote(name, ""))));
        }
        if kinds.iter().any(|kind| is_client_tool(kind)) {
            self.weight.described = self.weight.described.saturating_add(CLIENT_TOOL_TOKENS_MAX);
        }
        Ok(())
    }

    /// Content, wherever it stands: a text, a part or a list of them.
    fn content(&mut self, content: &'a RawValue, inside: u32) -> Result<(), Misfit> {
        let Some(inside) = inside.checked_sub(1) else {
            return Err(too_deep());
        };
        match content.get().as_bytes().first() {
            Some(b'[') => each_of(content, |part| self.content(part, inside)),
            Some(b'{') => self.part(content, inside),
            _ => Ok(()),
        }
    }

    fn part(&mut self, part: &'a RawValue, inside: u32) -> Result<(), Misfit> {
        let Some(Fields(fields)) = object(part)? else { return Ok(()) };
        all_cached_for(&fields)?;
        let kinds = kinds(&fields);
        let is_image = |kind: &Cow<'_, str>| matches!(&**kind, "image" | "image_url" | "input_image");
        let holds_image =
            fields.iter().any(|(name, value)| matches!(&**name, "image" | "image_url") && !is_nothing(value));
        if holds_image || kinds.iter().any(is_image) {
            self.image(part);
        }
        // However it is given, an image is no more than it was counted for.
        if !kinds.is_empty() && kinds.iter().all(is_image) {
            return Ok(());
        }
        if kinds.iter().any(|kind| kind == "url") {
            return Err(unknown_size("by its address"));
        }
        for (name, value) in fields.iter().filter(|(_, value)| !is_nothing(value)) {
            match &**name {
                "content" | "output" | "source" | "file" => self.content(value, inside)?,
                "file_id" => return Err(unknown_size("by the id of a file")),
                "audio" if has(value, "id")? => return Err(unknown_size("by the id of an earlier answer")),
                "file_url" | "document_url" | "audio_url" | "video_url" | "file_data" if is_elsewhere(value)? => {
                    return Err(unknown_size("by its address"));
                }
                _ => {}
            }
            // A message has other fields than its parts have, and only what it holds is fetched from.
            let is_words = says_all(&kinds, "search_result") && &**name == "source"
                || WORDS.contains(&&**name)
                || says_all(&kinds, "text") && &**name == "data";
            if inside < MESSAGE_INSIDE && !is_words && fetched(name, value, inside)? {
                return Err(unknown_size("by its address"));
            }
        }
        Ok(())
    }

    fn image(&mut self, part: &RawValue) {
        let (weight, bytes) = (&mut self.weight, part.get().len());
        weight.images = weight.images.saturating_add(1);
        weight.image_bytes = weight.image_bytes.saturating_add(bytes);
        weight.beyond = weight.beyond.saturating_add(IMAGE_TOKENS_MAX.saturating_sub(bytes as u64));
    }
}

/// The names at the top that decide, and those inside that are looked at, as they are folded.
static DECIDING: LazyLock<BTreeMap<String, &str>> = LazyLock::new(|| {
    let more = MORE.iter().map(|(name, _)| *name).chain(ONLY.iter().map(|(name, _)| *name));
    DECIDES.into_iter().chain(ANSWERS).chain(LIMITS).chain(more).map(|name| (fold(name), name)).collect()
});
static INSIDE: LazyLock<BTreeMap<String, &str>> =
    LazyLock::new(|| INNER.into_iter().map(|name| (fold(name), name)).collect());

/// Servers differ in what they take for one name: Go's read any letter case and its foldings, and the last of two; others
/// read `maxTokens`. What is decided here by one of them and there by the other is decided by nobody.
fn spelled(name: &str) -> Result<(), Misfit> {
    match DECIDING.get(&fold(name)) {
        Some(own) if *own != name => Err(other_spelling(name, own)),
        _ => Ok(()),
    }
}

/// The same for one name inside an object.
///
/// # Errors
/// Where it stands there in another spelling.
pub(super) fn inner_spelled(value: &RawValue, own: &str) -> Result<(), Misfit> {
    let Fields(fields) = object(value)?.unwrap_or_default();
    match fields.iter().find(|(name, _)| name != own && fold(name) == fold(own)) {
        Some((name, _)) => Err(other_spelling(name, own)),
        None => Ok(()),
    }
}

fn other_spelling(name: &str, own: &str) -> Misfit {
    let name = quote(name, "");
    Misfit::new(format!("`{name}` is `{own}` in another spelling, and a server may take it for that"))
        .hint(format!("spell it `{own}`"))
}

/// A name without what servers see no difference in: letter case and its foldings (a long s, the sign for Kelvin), and what
/// stands between words.
fn fold(name: &str) -> String {
    let upper = name.chars().flat_map(char::to_uppercase);
    // The dot of a capital dotted i stays behind when it is made small.
    upper.flat_map(char::to_lowercase).filter(|c| !matches!(c, '_' | '-' | '\u{307}')).collect()
}

/// Whether a value says no more than the field's absence would.
fn is_nothing(value: &RawValue) -> bool {
    let text = value.get();
    let list = || text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    matches!(text, "null" | "false" | "\"\"") || list().is_some_and(|inside| inside.trim().is_empty())
}

/// A text, or a list of texts, all of which must be among these.
fn only(name: &str, value: &RawValue, values: &[&str]) -> Result<(), Misfit> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Said {
        One(String),
        More(Vec<String>),
    }
    let said = match serde_json::from_str(value.get()) {
        Ok(Said::One(text)) => vec![text],
        Ok(Said::More(texts)) => texts,
        Err(_) => vec![value.get().to_owned()],
    };
    match said.iter().find(|said| !values.contains(&said.as_str())) {
        None => Ok(()),
        Some(other) => Err(Misfit::new(format!(
            "`{name}` is `{}`, which costs something else than the model's price says",
            quote(other, "")
        ))
        .hint(format!("leave `{name}` out; what passes is {}", values.join(", ")))),
    }
}

/// What is to be kept in the provider's cache is kept for no longer than its price is for.
fn cached_for(control: &RawValue) -> Result<(), Misfit> {
    let Fields(fields) = object(control)?.unwrap_or_default();
    let mut said = fields.iter().filter(|(name, value)| name == "ttl" && !is_nothing(value));
    said.try_for_each(|(name, value)| only(name, value, CACHED_FOR))
}

fn all_cached_for(fields: &[(Cow<'_, str>, &RawValue)]) -> Result<(), Misfit> {
    fields.iter().filter(|(name, _)| name == "cache_control").try_for_each(|(_, control)| cached_for(control))
}

fn is_client_tool(kind: &str) -> bool {
    let dated = |date: &str| !date.is_empty() && date.bytes().all(|byte| byte.is_ascii_digit());
    CLIENT_TOOLS.iter().any(|tool| kind.strip_prefix(tool).is_some_and(dated))
}

fn runs_itself(tool: &str) -> Misfit {
    Misfit::new(format!("the tool {tool} is run by the provider, and what that costs is not known before"))
        .hint("offer a tool that the program runs itself")
}

fn unknown_size(how: &str) -> Misfit {
    Misfit::new(format!("content is given {how}, so that nobody here knows how much it is and what it costs"))
        .hint("send it in the request, as text or in base64")
}

/// Whether a value, or the `url` in it, is an address that a server would fetch from.
fn is_elsewhere(value: &RawValue) -> Result<bool, Misfit> {
    let fields = object(value)?.map_or(Vec::new(), |Fields(fields)| fields);
    let urls = fields.iter().filter(|(name, _)| name == "url").map(|(_, value)| *value);
    Ok(urls.chain([value]).any(is_address))
}

/// Whether a value is a text that begins as an address does.
fn is_address(value: &RawValue) -> bool {
    if !value.get().starts_with('"') {
        return false;
    }
    match text(value) {
        Some(text) => text.trim_start().split_once(':').is_some_and(|(scheme, rest)| {
            let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
            is_scheme && !scheme.is_empty() && (rest.starts_with("//") || scheme.eq_ignore_ascii_case("file"))
        }),
        // With half a character in it, it cannot be told.
        None => true,
    }
}

/// Whether anything in a field of a part is an address, however deep it lies there. What is content itself is looked at as
/// such.
fn fetched(name: &str, value: &RawValue, inside: u32) -> Result<bool, Misfit> {
    if matches!(name, "content" | "output") || name == "source" && value.get().starts_with('{') {
        return Ok(false);
    }
    let Some(inside) = inside.checked_sub(1) else { return Err(too_deep()) };
    let mut found = is_address(value);
    each_of(value, |value| {
        found = found || fetched("", value, inside)?;
        Ok(())
    })?;
    for (_, value) in object(value)?.map_or(Vec::new(), |Fields(fields)| fields) {
        found = found || fetched("", value, inside)?;
    }
    Ok(found)
}

/// What has the provider forget parts of the conversation costs nothing; what has it write summaries does.
fn only_clears(value: &RawValue) -> Result<(), Misfit> {
    let clears = |edit: &RawValue| -> Result<bool, Misfit> {
        let kinds = object(edit)?
            .map_or(Vec::new(), |Fields(fields)| kinds(&fields).into_iter().map(Cow::into_owned).collect());
        Ok(!kinds.is_empty() && kinds.iter().all(|kind| kind.starts_with("clear_")))
    };
    let mut all = value.get().starts_with('{');
    for (name, value) in object(value)?.map_or(Vec::new(), |Fields(fields)| fields) {
        all &= name == "edits";
        each_of(value, |edit| {
            all &= clears(edit)?;
            Ok(())
        })?;
    }
    if all {
        return Ok(());
    }
    Err(Misfit::new("`context_management` asks for summaries by the provider, and what they cost is not known before")
        .hint("leave `context_management` out, or in it all edits but those that clear something"))
}

fn too_deep() -> Misfit {
    Misfit::new("the content lies deeper than that of any format").hint("send it flat")
}

/// What a part or a tool says that it is; nothing where it says nothing.
fn kinds<'a>(fields: &[(Cow<'a, str>, &'a RawValue)]) -> Vec<Cow<'a, str>> {
    let said = fields.iter().filter(|(name, value)| name == "type" && !is_nothing(value));
    said.map(|(_, value)| text(value).unwrap_or(Cow::Borrowed(value.get()))).collect()
}

/// Whether a part says that it is this and nothing else.
fn says_all(kinds: &[Cow<'_, str>], kind: &str) -> bool {
    !kinds.is_empty() && kinds.iter().all(|said| said == kind)
}

impl<'a> Fields<'a> {
    /// The same under the names that a server may take theirs for.
    fn taken(mut self) -> Fields<'a> {
        for (name, _) in &mut self.0 {
            if let Some(own) = INSIDE.get(&fold(name)) {
                *name = Cow::Borrowed(own);
            }
        }
        self
    }
}

/// The fields of an object; `None` where it is none.
fn object(value: &RawValue) -> Result<Option<Fields<'_>>, Misfit> {
    let fields = value.get().starts_with('{').then(|| serde_json::from_str::<Fields<'_>>(value.get())).transpose()?;
    Ok(fields.map(Fields::taken))
}

fn has(value: &RawValue, field: &str) -> Result<bool, Misfit> {
    Ok(object(value)?
        .is_some_and(|Fields(fields)| fields.iter().any(|(name, value)| name == field && !is_nothing(value))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(format: Format, rest: &str) -> Result<Weight, Misfit> {
        Bounds::of(format, format!("{{\"model\":\"m\",{rest}}}").as_bytes()).map(|bounds| bounds.weight)
    }

    fn shown(parts: &str) -> Weight {
        bounds(Format::Chat, &format!(r#""messages":[{{"role":"user","content":[{parts}]}}]"#)).unwrap()
    }

    #[test]
    fn an_image_counts_by_the_most_that_one_may_be() {
        let by_address = r#"{"type":"image_url","image_url":{"url":"https://x/a.png"}}"#;
        let weight = shown(&format!("{by_address},{by_address}"));
        let bytes = 2 * by_address.len();
        assert_eq!((weight.images, weight.image_bytes), (2, bytes));
        assert_eq!(weight.beyond_bytes() + bytes as u64, 2 * IMAGE_TOKENS_MAX);
        let large =
            format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{}"}}}}"#, "A".repeat(70_000));
        assert_eq!((shown(&large).images, shown(&large).beyond_bytes()), (1, 0), "its bytes are more");
        assert_eq!(shown(r#"{"type":"text","text":"an image at https://x/a.png"}"#), Weight::default());
        let of_anthropic = r#"{"type":"image","source":{"type":"file","file_id":"f"}},{"type":"image","source":{"type":"url","url":"u"}}"#;
        let result = format!(r#"{{"type":"tool_result","content":[{of_anthropic}]}}"#);
        assert_eq!(shown(&result).images, 2);
        assert_eq!(bounds(Format::Embeddings, r#""input":[{"image":"https://x/a.png"},"a"]"#).unwrap().images, 1);
    }

    #[test]
    fn a_tool_that_the_provider_describes_counts_its_words() {
        let tools = r#""tools":[{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"e"},{"name":"f"}]"#;
        assert_eq!(bounds(Format::Messages, tools).unwrap().beyond_bytes(), 2 * CLIENT_TOOL_TOKENS_MAX);
    }

    #[test]
    fn of_two_fields_of_one_name_both_are_looked_at() {
        for rest in [
            r#""n":1,"n":9"#,
            r#""max_tokens":1,"max_tokens":9"#,
            r#""messages":[{"content":[{"type":"file","file":{"file_id":"f"}}]}],"messages":[]"#,
            r#""messages":[{"content":[{"type":"file","file":{"file_id":"f"},"file":{}}]}]"#,
            r#""messages":[{"content":[{"type":"document","type":"image","source":{"type":"url","url":"u"}}]}]"#,
            r#""tools":[{"type":"web_search","type":"function","name":"f"}]"#,
        ] {
            assert!(bounds(Format::Chat, rest).is_err(), "{rest}");
        }
    }

    /// Go's servers take any of these for the name, and the last of two.
    #[test]
    fn another_spelling_of_what_decides_is_refused() {
        for name in [
            "Model",
            "MODEL",
            "MAX_TOKENS",
            "max_to\u{212a}ens",
            "\u{17f}tream",
            "Stream_Options",
            "N",
            "BEST_OF",
            "maxTokens",
            "Messages",
            "Tools",
            "Service_Tier",
            "Web-Search-Options",
            "cacheControl",
        ] {
            let misfit = bounds(Format::Chat, &format!(r#""{name}":1"#)).unwrap_err();
            assert!(misfit.message.contains("in another spelling"), "{name}: {misfit:?}");
        }
        assert!(bounds(Format::Chat, r#""\u006dodels":null,"remodel":1,"Seed":2,"":3"#).is_ok());
    }

    #[test]
    fn another_spelling_inside_is_looked_at_too() {
        for part in [
            r#"{"type":"document","Source":{"type":"url","url":"u"}}"#,
            r#"{"TYPE":"document","source":{"Type":"url","url":"u"}}"#,
            r#"{"type":"file","FILE":{"fileId":"f"}}"#,
            r#"{"type":"text","cacheControl":{"type":"ephemeral","TTL":"1h"}}"#,
            r#"{"type":"text","cache_control":{"ttl":"1h","ttl":"5m"}}"#,
        ] {
            let rest = format!(r#""messages":[{{"role":"user","content":"a","CONTENT":[{part}]}}]"#);
            assert!(bounds(Format::Messages, &rest).is_err(), "{part}");
        }
    }

    #[test]
    fn content_has_a_depth() {
        let nested = |deep: usize| format!(r#""messages":{}{}"#, "[".repeat(deep), "]".repeat(deep));
        assert!(bounds(Format::Chat, &nested(10)).is_ok());
        assert!(bounds(Format::Chat, &nested(20)).is_err());
    }

    #[test]
    fn half_a_character_is_the_servers_to_judge() {
        assert!(
            bounds(Format::Chat, r#""messages":[{"content":"\ud83d"},{"content":[{"type":"text","text":"\ud83d"}]}]"#)
                .is_ok()
        );
    }
}
