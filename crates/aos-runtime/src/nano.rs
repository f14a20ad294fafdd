//! The prompt of aos-nano: what it is shown of a process's history, in tokens.
//!
//! Start at [`Nano::prompt`]. It follows `models/nano/FORMAT.md`, parts 3 and 4, whose vectors are tests here. What always
//! holds: whatever anybody says stands as its JSON escape, so that it has the same tokens where it is read and where it
//! is written into a call; control tokens come from here alone.

use aos_abi::Name;
use aos_abi::inference::{Message, Part, Prompt};
use aos_abi::syscall::CallSet;
use serde_json::Value;

use crate::fault::Fault;
use crate::vocabulary::Vocabulary;
use crate::weights::Weights;

const TEXT_IDS: usize = 512;
const RESULT_IDS: usize = 384;
const PROMPT_IDS: usize = 1088;
const SUMMARY: &str = "[summary of what happened before this point]\n";
const INPUT_END: &str = "[end of standard input]";
/// How a call begins, up to its name.
const OPENING: &str = "{\"calls\":[{\"name\":\"";

/// The control tokens, and the calls that a model knows.
pub(crate) struct Nano {
    lack: u32,
    user: u32,
    reply: u32,
    result: u32,
    error: u32,
    told: u32,
    cut: u32,
    end: u32,
    calls: Vec<Name>,
}

/// Tokens, and the escaped texts in them that an answer may copy from.
#[derive(Clone, Default)]
pub(crate) struct Shown {
    pub(crate) ids: Vec<u32>,
    pub(crate) sources: Vec<String>,
}

/// What is said in the place of a call that the process may not make. Under the grammar alone the model would make the
/// likeliest other call, which nobody asked for.
pub(crate) struct Refusals {
    /// The token that a call's name follows.
    opening: u32,
    /// The names of such calls as tokens, each with the whole reply.
    replies: Vec<(u32, String)>,
}

impl Refusals {
    /// Whether a call begins here.
    pub(crate) fn follow(&self, id: u32) -> bool {
        self.opening == id
    }

    /// The reply, where the model would rather have made one of these calls than go on with the token that it may.
    pub(crate) fn instead(&self, logits: &[f32], chosen: u32) -> Option<&str> {
        let likely = |id: u32| logits.get(id as usize).copied().filter(|logit| !logit.is_nan());
        let rather = self.replies.iter().filter_map(|(id, reply)| Some((likely(*id)?, reply)));
        let (wanted, reply) = rather.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
        likely(chosen).is_none_or(|chosen| wanted > chosen).then_some(reply)
    }
}

impl Nano {
    /// What a file says of the form.
    pub(crate) fn of(weights: &Weights, vocabulary: &Vocabulary) -> Result<Nano, Fault> {
        if weights.id("aos.nano.format") != Some(1) {
            return Err(weights.unsupported("its aos.nano.format is not 1".to_owned()));
        }
        let control = |name: &str| {
            vocabulary.control(name).ok_or_else(|| weights.unsupported(format!("it has no control token {name}")))
        };
        let calls = weights.texts("aos.nano.calls").unwrap_or_default();
        let known = |call: &String| Name::ALL.iter().copied().find(|name| name.as_str() == call);
        let calls: Vec<Name> = calls
            .iter()
            .map(|call| known(call).ok_or_else(|| weights.unsupported(format!("there is no system call {call}"))))
            .collect::<Result<_, _>>()?;
        Ok(Nano {
            lack: control("<|lack|>")?,
            user: control("<|user|>")?,
            reply: control("<|reply|>")?,
            result: control("<|result|>")?,
            error: control("<|error|>")?,
            told: control("<|told|>")?,
            cut: control("<|cut|>")?,
            end: control("<|end|>")?,
            calls,
        })
    }

    /// A prompt, ready to go on. Where it is too long, the oldest replies with what follows them are left out.
    pub(crate) fn prompt(&self, prompt: &Prompt, vocabulary: &Vocabulary) -> Shown {
        let mut head = Shown::default();
        let lacking: Vec<Name> = self.calls.iter().copied().filter(|name| !prompt.tools.contains(*name)).collect();
        if !lacking.is_empty() {
            head.ids.push(self.lack);
            head.ids.extend(lacking.iter().flat_map(|name| vocabulary.encode(name.as_str())));
        }
        let mut turns: Vec<Shown> = Vec::new();
        for (nth, message) in prompt.messages.iter().enumerate() {
            match message {
                Message::Assistant { text, .. } => {
                    let mut ids = vec![self.reply];
                    ids.extend(vocabulary.encode(text));
                    ids.push(self.end);
                    turns.push(Shown { ids, sources: Vec::new() });
                }
                Message::User(parts) => {
                    let place = turns.last_mut().unwrap_or(&mut head);
                    for (part_nth, part) in parts.iter().enumerate() {
                        if let Part::Text(text) = part {
                            self.part(text, nth == 0 && part_nth == 0, vocabulary, place);
                        }
                    }
                }
                Message::Result { name, content, .. } => {
                    self.outcome(name, content, vocabulary, turns.last_mut().unwrap_or(&mut head));
                }
            }
        }
        let size = |turns: &[Shown]| turns.iter().map(|turn| turn.ids.len()).sum::<usize>();
        let mut left_out = 0;
        while left_out < turns.len() && head.ids.len() + size(&turns[left_out..]) + 1 > PROMPT_IDS {
            left_out += 1;
        }
        for turn in turns.drain(..).skip(left_out) {
            head.ids.extend(turn.ids);
            head.sources.extend(turn.sources);
        }
        head.ids.push(self.reply);
        head
    }

    /// For a process with these calls; `said` are the sentences that the model knows, and the one that names a call is said
    /// in its place.
    pub(crate) fn refusals(&self, said: &[&str], tools: CallSet, vocabulary: &Vocabulary) -> Option<Refusals> {
        let alone = |text: &str| <[u32; 1]>::try_from(vocabulary.encode(text)).ok().map(|[id]| id);
        let names = |text: &str, name: Name| {
            let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            !text.contains("{}") && words.any(|word| word == name.as_str())
        };
        let lacking = self.calls.iter().copied().filter(|name| !tools.contains(*name));
        let reply = |name: Name| {
            let text = said.iter().find(|text| names(text, name))?;
            Some((alone(name.as_str())?, format!("{{\"say\":\"{}\"}}", escaped(text))))
        };
        Some(Refusals { opening: alone(OPENING)?, replies: lacking.filter_map(reply).collect() })
    }

    fn part(&self, part: &str, first: bool, vocabulary: &Vocabulary, to: &mut Shown) {
        if let Some(rest) = part.strip_prefix("[result ")
            && let Some((header, body)) = rest.split_once("]\n")
        {
            let name = header.rsplit(' ').next().unwrap_or_default();
            return self.outcome(name, body, vocabulary, to);
        }
        let part = part.trim();
        let (mut control, mut text) = (self.user, part);
        if !first {
            if part.starts_with("<untrusted ") {
                control = self.told;
                let inner = part.split_once('\n').map_or("", |(_, inner)| inner);
                text = inner.rsplit_once("\n</untrusted>").map_or("", |(inner, _)| inner);
            } else if let Some(summary) = part.strip_prefix(SUMMARY) {
                (control, text) = (self.told, summary);
            } else if ["[input, ", "[timer ", "[message "].iter().any(|begin| part.starts_with(begin))
                && let Some((_, inner)) = part.split_once("]\n")
            {
                text = inner;
            } else if part.starts_with('[') && part.ends_with(']') && !part.contains('\n') {
                text = "";
            }
            text = text.strip_suffix(INPUT_END).unwrap_or(text);
        }
        let text = text.trim();
        if !text.is_empty() {
            self.put(control, &escaped(text), TEXT_IDS, false, vocabulary, to);
        }
    }

    /// A result as the kernel shows it.
    fn outcome(&self, name: &str, body: &str, vocabulary: &Vocabulary, to: &mut Shown) {
        // What is no outcome is shown as it stands, so that nothing is lost without a word.
        let outcome: Value = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
        if let Some(error) = outcome.get("error") {
            let of = |key: &str| error[key].as_str().unwrap_or_default();
            let said = escaped(&format!("{} {}", of("code"), of("message")));
            return self.put(self.error, &said, RESULT_IDS, false, vocabulary, to);
        }
        let by_kernel = is_cut(&outcome);
        let value = match by_kernel {
            true => outcome.get("shown"),
            false => outcome.get("result"),
        };
        let value = value.unwrap_or(&outcome);
        let said = text_of(name, value);
        // Line feeds at its end say nothing.
        let said = match said.trim_end_matches(['\r', '\n']) {
            "" => "(nothing)",
            said => said,
        };
        self.put(self.result, &escaped(said), RESULT_IDS, by_kernel || is_cut(value), vocabulary, to);
    }

    fn put(&self, control: u32, text: &str, most: usize, was_cut: bool, vocabulary: &Vocabulary, to: &mut Shown) {
        let mut ids = vocabulary.encode(text);
        let too_long = ids.len() > most;
        ids.truncate(most);
        to.sources.push(if too_long { vocabulary.decode(&ids) } else { text.to_owned() });
        to.ids.push(control);
        to.ids.extend(ids);
        if was_cut || too_long {
            to.ids.push(self.cut);
        }
    }
}

fn is_cut(value: &Value) -> bool {
    value.get("truncated").and_then(Value::as_bool).unwrap_or(false)
}

/// The inside of the JSON string of a text.
pub(crate) fn escaped(text: &str) -> String {
    let quoted = serde_json::to_string(text).expect("a string is JSON");
    quoted[1..quoted.len() - 1].to_owned()
}

/// What a result says, as plain text.
fn text_of(name: &str, value: &Value) -> String {
    match value {
        Value::Object(fields) => known(name, value).unwrap_or_else(|| {
            let own = fields.iter().filter(|(_, item)| !item.is_object() && !item.is_array());
            let lines: Vec<String> = own.map(|(field, item)| format!("{field} {}", scalar(item))).collect();
            lines.join("\n")
        }),
        other => scalar(other),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The results that have a form of their own; `None` where the fields are not those.
fn known(name: &str, value: &Value) -> Option<String> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let lines = |key: &str, line: &dyn Fn(&Value) -> Option<String>| {
        let lines: Option<Vec<String>> = value.get(key)?.as_array()?.iter().map(line).collect();
        lines.map(|lines| lines.join("\n"))
    };
    match name {
        "FS_READ" => text(value, "content"),
        "EXEC_CMD" => {
            let mut said: Vec<String> = ["stdout", "stderr"]
                .iter()
                .filter_map(|stream| text(value, stream))
                .map(|printed| printed.trim_end().to_owned())
                .filter(|printed| !printed.is_empty())
                .collect();
            said.extend(exit_code(value));
            Some(said.join("\n"))
        }
        "NET_FETCH" | "NET_SEND" => {
            let status = value.get("status")?.as_u64()?;
            let body = text(value, "body")?;
            Some(if status >= 400 { format!("status {status}\n{body}") } else { body })
        }
        "FS_LIST" => lines("entries", &|entry| {
            let folder = entry.get("kind")? == "folder";
            Some(text(entry, "path")? + if folder { "/" } else { "" })
        }),
        "FS_SEARCH" => lines("matches", &|hit| {
            Some(format!("{}:{}: {}", text(hit, "path")?, hit.get("line")?, text(hit, "text")?))
        }),
        "MEM_READ" => lines("hits", &|hit| Some(format!("{}: {}", text(hit, "key")?, text(hit, "value")?))),
        "RECV_MSG" => lines("messages", &|message| text(message, "content")),
        "WAIT" => {
            let result = value.get("result")?;
            value.get("exit_code")?;
            let said = (!result.is_null()).then(|| scalar(result));
            let said: Vec<String> = said.into_iter().chain(exit_code(value)).collect();
            Some(said.join("\n"))
        }
        _ => None,
    }
}

fn exit_code(value: &Value) -> Option<String> {
    let code = value.get("exit_code").and_then(Value::as_i64).filter(|code| *code != 0)?;
    Some(format!("exit code {code}"))
}
