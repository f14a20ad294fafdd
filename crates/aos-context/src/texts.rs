//! The texts of an entry that a prompt can show, each with the name of the field it stands in.
//!
//! Start at [`with_texts`]. What always holds: whatever [`crate::render`] shows of an entry that somebody wrote is among
//! them; an entry whose texts stay is not copied; a call and its result go on having one id. Deliberately absent: ids that
//! the system makes, times, pids, and images; of what anybody else calls base64, it is a text.

use aos_abi::entry::{InferenceOutcome, Outcome};
use aos_abi::{Body, Entry, Name};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

/// Stands for bytes that hold what would be replaced in a text.
const WITHHELD: &str = "[bytes that hold personal data are not shown]";

/// The entry with each text replaced by what `each` makes of it, given the name of its field and the text; `None` where
/// nothing was replaced.
pub fn with_texts(entry: &Entry, each: &mut dyn FnMut(&str, &str) -> Option<String>) -> Option<Entry> {
    let mut pen = Pen { each, wrote: false };
    let body = pen.body(&entry.body)?;
    pen.wrote.then(|| Entry { body, ..entry.clone() })
}

struct Pen<'e> {
    each: &'e mut dyn FnMut(&str, &str) -> Option<String>,
    wrote: bool,
}

impl Pen<'_> {
    /// The body, written anew as far as it has texts; `None` where it has none.
    fn body(&mut self, body: &Body) -> Option<Body> {
        let mut body = match body {
            Body::Spawned(_)
            | Body::Compacted { .. }
            | Body::Input { .. }
            | Body::Message { .. }
            | Body::Timer { .. }
            | Body::Webhook(_)
            | Body::Watch { .. }
            | Body::Exited { .. }
            | Body::Result { .. }
            | Body::InferenceCompleted { .. } => body.clone(),
            _ => return None,
        };
        match &mut body {
            Body::Spawned(spec) => {
                if let Some(task) = &mut spec.task {
                    self.text("task", task);
                }
            }
            Body::Compacted { summary, .. } => self.text("", summary),
            Body::Input { text, .. } => self.text("", text),
            Body::Message { content, attachments, .. } => {
                self.text("", content);
                attachments.iter_mut().for_each(|name| self.text("", name));
            }
            Body::Timer { name, prompt, .. } => {
                self.text("", prompt);
                name.iter_mut().for_each(|name| self.text("", name));
            }
            Body::Webhook(request) => {
                self.text("", &mut request.method);
                self.text("", &mut request.path);
                for (name, mut value) in std::mem::take(&mut request.headers) {
                    let mut written = name.clone();
                    self.text("", &mut written);
                    self.text(&name, &mut value);
                    request.headers.insert(written, value);
                }
                // Bytes are the daemon's own word, for a body that is no UTF-8.
                if request.encoding.is_none() {
                    self.text("", &mut request.body);
                } else if self.holds(&request.body) {
                    (request.body, request.encoding) = (WITHHELD.to_owned(), None);
                }
            }
            Body::Watch { paths, .. } => {
                *paths = std::mem::take(paths)
                    .into_iter()
                    .map(|mut path| {
                        self.text("", &mut path);
                        path
                    })
                    .collect();
            }
            Body::Exited { result, reason, .. } => {
                result.iter_mut().for_each(|result| self.value("", result));
                self.text("", reason);
            }
            Body::Result { call_id, name, outcome, .. } => {
                match outcome {
                    Outcome::Success { result } => self.result(name, result),
                    Outcome::Error { error } => {
                        self.text("", &mut error.message);
                        error.hint.iter_mut().for_each(|hint| self.text("", hint));
                        error.partial.iter_mut().for_each(|partial| self.value("", partial));
                    }
                }
                self.text("", name);
                self.text("", call_id);
            }
            Body::InferenceCompleted { outcome: InferenceOutcome::Answered(reply), .. } => {
                self.text("", &mut reply.text);
                for call in &mut reply.calls {
                    self.json("", &mut call.arguments);
                    self.text("", &mut call.name);
                    self.text("", &mut call.id);
                }
            }
            _ => {}
        }
        Some(body)
    }

    fn text(&mut self, field: &str, text: &mut String) {
        if let Some(written) = (self.each)(field, text) {
            *text = written;
            self.wrote = true;
        }
    }

    /// JSON by its values, so that no escape of it is taken for text; what is no JSON is text.
    fn json(&mut self, field: &str, text: &mut String) {
        let Ok(mut value) = serde_json::from_str::<Value>(text) else { return self.text(field, text) };
        let before = std::mem::take(&mut self.wrote);
        self.value(field, &mut value);
        if self.wrote {
            *text = value.to_string();
        }
        self.wrote |= before;
    }

    /// What a driver brings as base64 is looked at as the bytes that it stands for, since half an image is none; an image is
    /// not looked at. Only the driver's own word for it counts, not that of a child, a server or a file, whose text it would be.
    fn result(&mut self, name: &str, result: &mut Value) {
        let field = match name.parse() {
            Ok(Name::FsRead) => "content",
            Ok(Name::NetFetch | Name::NetSend) => "body",
            _ => return self.value("", result),
        };
        let bytes = result.get("encoding").is_some_and(|encoding| encoding == "base64");
        let image = result["media_type"].as_str().is_some_and(|kind| kind.starts_with("image/"));
        let kept = if bytes { result.get_mut(field).map(Value::take) } else { None };
        self.value("", result);
        if let Some(kept) = kept {
            let shown = image || !kept.as_str().is_some_and(|base64| self.holds(base64));
            result[field] = if shown { kept } else { Value::String(WITHHELD.into()) };
        }
    }

    /// Whether something would be replaced in bytes: in the texts between their zeros, and in what they are without them, as
    /// UTF-16 has one beside each letter.
    fn holds(&mut self, base64: &str) -> bool {
        let Ok(mut bytes) = BASE64.decode(base64) else { return false };
        let apart = String::from_utf8_lossy(&bytes).replace('\0', "\n");
        bytes.retain(|byte| *byte != 0);
        let holds =
            [apart, String::from_utf8_lossy(&bytes).into_owned()].iter().any(|text| (self.each)("", text).is_some());
        self.wrote |= holds;
        holds
    }

    /// Recursion is bounded by the depth of 128 to which `serde_json` parses.
    fn value(&mut self, field: &str, value: &mut Value) {
        match value {
            Value::String(text) => self.text(field, text),
            Value::Number(number) => {
                if let Some(written) = (self.each)(field, &number.to_string()) {
                    *value = Value::String(written);
                    self.wrote = true;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(field, item)),
            Value::Object(fields) => {
                for (name, value) in std::mem::take(fields) {
                    let (mut written, mut value) = (name.clone(), value);
                    self.text("", &mut written);
                    self.value(&name, &mut value);
                    fields.insert(written, value);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use aos_abi::entry::WebhookRequest;
    use aos_abi::inference::{Encoding, Message, NativeCall, Part, Reply, Stop, Usage};
    use aos_abi::{CallError, Code, EffectId, Lsn, Pid, Timestamp};
    use serde_json::json;

    use super::*;

    const SECRET: &str = "a@example.com";

    fn bodies() -> Vec<Body> {
        let text = || format!("x {SECRET} y");
        let reply = Reply {
            text: text(),
            calls: vec![NativeCall {
                id: "c1".into(),
                name: "FS_WRITE".into(),
                arguments: json!({"content": text()}).to_string(),
            }],
            stop: Stop::End,
            usage: Usage::default(),
            model: "m".into(),
        };
        let effect = EffectId { cause: Lsn(1), nth: 0 };
        let request = WebhookRequest {
            id: "r1".into(),
            method: "POST".into(),
            path: text(),
            headers: BTreeMap::from([("from".to_owned(), text()), (text(), "v".to_owned())]),
            body: text(),
            encoding: None,
            reply_by: None,
        };
        let result = |outcome| Body::Result { call_id: "c1".into(), name: "FS_READ".into(), effect: None, outcome };
        vec![
            Body::InferenceCompleted {
                effect,
                latency_ms: 1,
                personal: None,
                outcome: InferenceOutcome::Answered(reply),
            },
            result(Outcome::Success { result: json!({"content": text(), SECRET: [text()]}) }),
            result(Outcome::Error {
                error: CallError {
                    partial: Some(json!({"stdout": text()})),
                    ..CallError::new(Code::NoEnt, text()).hint(text())
                },
            }),
            Body::Input { text: text(), eof: false, from_pid: Pid::INIT, untrusted: false },
            Body::Message { message_id: "m1".into(), from_pid: Pid(9), content: text(), attachments: vec![text()] },
            Body::Timer { timer_id: "t1".into(), name: Some(text()), prompt: text(), missed: 0, untrusted: false },
            Body::Webhook(request),
            Body::Watch { watch_id: "w1".into(), paths: BTreeSet::from([text()]) },
            Body::Exited { exit_code: 0, result: Some(json!([text()])), reason: text(), awaited: Vec::new() },
            Body::Compacted { upto: Lsn(1), summary: text(), tokens: (1, 1) },
        ]
    }

    #[test]
    fn nothing_that_is_shown_is_left_out() {
        for body in bodies() {
            let entry = Entry { lsn: Lsn(7), at: Timestamp(0), pid: Pid(5), cause: None, body };
            let written = with_texts(&entry, &mut |_, text| text.contains(SECRET).then(|| text.replace(SECRET, "[T]")));
            let written = written.expect("each has the value");
            for encoding in [Encoding::Native, Encoding::Text, Encoding::Constrained] {
                let shown = |entry: Entry| format!("{:?}", crate::render(&[Arc::new(entry)], encoding));
                let (before, after) = (shown(entry.clone()), shown(written.clone()));
                assert!(!after.contains(SECRET), "{after}");
                // In a header the brackets are no brackets.
                let tokens = after.matches("[T]").count() + after.matches("_T_").count();
                assert_eq!(before.matches(SECRET).count(), tokens, "{before}");
            }
            assert_eq!(with_texts(&entry, &mut |_, _| None), None);
        }
        // A prompt is made of nothing but these.
        let _: fn(Message) -> Option<Vec<Part>> = |message| match message {
            Message::User(parts) => Some(parts),
            Message::Assistant { .. } | Message::Result { .. } => None,
        };
    }

    #[test]
    fn what_a_model_calls_its_calls_is_looked_at() {
        let card = "4111111111111111";
        let (id, name) = (format!("c-{card}"), format!("pay_{card}"));
        let call = NativeCall { id: id.clone(), name: name.clone(), arguments: "{}".into() };
        let (text, stop, usage, model) = (String::new(), Stop::End, Usage::default(), "m".into());
        let outcome = InferenceOutcome::Answered(Reply { text, calls: vec![call], stop, usage, model });
        let effect = EffectId { cause: Lsn(1), nth: 0 };
        let result = Outcome::Error { error: CallError::new(Code::NoSys, "there is no such call") };
        let entries = [
            Body::InferenceCompleted { effect, latency_ms: 1, personal: None, outcome },
            Body::Result { call_id: id, name, effect: None, outcome: result },
        ];
        let written = entries.map(|body| {
            let entry = Entry { lsn: Lsn(7), at: Timestamp(0), pid: Pid(5), cause: None, body };
            let each = &mut |_: &str, text: &str| text.contains(card).then(|| text.replace(card, "[CARD_1]"));
            Arc::new(with_texts(&entry, each).expect("both have it"))
        });
        for encoding in [Encoding::Native, Encoding::Text] {
            let shown = format!("{:?}", crate::render(&written, encoding));
            assert!(!shown.contains(card) && shown.contains("pay__CARD_1_"), "{shown}");
        }
        let shown = crate::render(&written, Encoding::Native);
        let paired = shown.iter().any(|message| matches!(message, Message::Result { .. }));
        assert!(paired && !format!("{shown:?}").contains("EINTR"), "{shown:?}");
    }

    #[test]
    fn a_value_is_given_with_its_field_and_numbers_are_values() {
        let body = Body::Result {
            call_id: "c1".into(),
            name: "X".into(),
            effect: None,
            outcome: Outcome::Success { result: json!({"phone": [5550143], "n": 1.5, "on": true}) },
        };
        let entry = Entry { lsn: Lsn(7), at: Timestamp(0), pid: Pid(5), cause: None, body };
        let mut seen = Vec::new();
        with_texts(&entry, &mut |field, text| {
            seen.push(format!("{field}={text}"));
            None
        });
        assert_eq!(seen, ["=phone", "phone=5550143", "=n", "n=1.5", "=on", "=X", "=c1"]);
    }

    /// One letter of another encoding than UTF-8 took the whole body past the look.
    #[test]
    fn the_body_of_a_webhook_that_is_no_text_is_looked_at_as_what_it_is() {
        let shown = |bytes: &[u8]| {
            let request = WebhookRequest {
                id: "r1".into(),
                method: "POST".into(),
                path: "x".into(),
                headers: BTreeMap::new(),
                body: BASE64.encode(bytes),
                encoding: Some("base64".into()),
                reply_by: None,
            };
            let body = Body::Webhook(request);
            let entry = Entry { lsn: Lsn(7), at: Timestamp(0), pid: Pid(5), cause: None, body };
            let written = with_texts(&entry, &mut |_, text| text.contains(SECRET).then(|| text.replace(SECRET, "[T]")));
            written.map(|entry| match entry.body {
                Body::Webhook(request) => (request.body, request.encoding),
                _ => unreachable!(),
            })
        };
        assert_eq!(shown(format!("M\u{fc}ller;{SECRET}").as_bytes()), Some((WITHHELD.to_owned(), None)));
        let latin = [b"M\xfcller;", SECRET.as_bytes()].concat();
        assert_eq!(shown(&latin), Some((WITHHELD.to_owned(), None)));
        assert_eq!(shown(b"M\xfcller"), None);
    }

    #[test]
    fn bytes_of_a_driver_are_looked_at_as_what_they_are() {
        let shown = |bytes: &[u8], media_type: &str| {
            let result = json!({"encoding": "base64", "media_type": media_type, "content": BASE64.encode(bytes)});
            let (outcome, name) = (Outcome::Success { result }, "FS_READ".to_owned());
            let body = Body::Result { call_id: "c1".into(), name, effect: None, outcome };
            let entry = Entry { lsn: Lsn(7), at: Timestamp(0), pid: Pid(5), cause: None, body };
            let written = with_texts(&entry, &mut |_, text| text.contains(SECRET).then(|| text.replace(SECRET, "[T]")));
            written.map(|entry| match entry.body {
                Body::Result { outcome: Outcome::Success { result }, .. } => result["content"].clone(),
                _ => unreachable!(),
            })
        };
        let wide: Vec<u8> = format!("from {SECRET} to").encode_utf16().flat_map(u16::to_le_bytes).collect();
        for bytes in [format!("\0\u{1}{SECRET}\0x").as_bytes(), &wide] {
            assert_eq!(shown(bytes, "application/octet-stream"), Some(json!(WITHHELD)));
            assert_eq!(shown(bytes, "image/png"), None);
        }
        assert_eq!(shown(b"\0nobody's", "application/octet-stream"), None);
    }

    #[test]
    fn what_says_that_it_is_base64_is_a_text_but_for_what_a_driver_brings() {
        let seen = |body| {
            let entry = Entry { lsn: Lsn(7), at: Timestamp(0), pid: Pid(5), cause: None, body };
            let mut seen = false;
            with_texts(&entry, &mut |_, text| {
                seen |= text == "4111111111111111";
                None
            });
            seen
        };
        // The bytes of these sixteen characters of base64 are others.
        let packed = |field: &str| json!({"encoding": "base64", field: "4111111111111111"});
        let result = |name: &str, result| Body::Result {
            call_id: "c1".into(),
            name: name.into(),
            effect: None,
            outcome: Outcome::Success { result },
        };
        let bytes = [("FS_READ", "content"), ("NET_FETCH", "body"), ("NET_SEND", "body")];
        for (name, field) in bytes {
            assert!(!seen(result(name, packed(field))), "{name}");
            assert!(seen(result(name, json!({field: packed(field)}))), "{name}: what a file or a server says");
            assert!(seen(result(name, json!({"encoding": "base64", "x": "4111111111111111"}))), "{name}");
        }
        for name in ["SYS_WAIT", "TOOL_CALL", "EXEC_CMD"] {
            assert!(seen(result(name, packed("content"))) && seen(result(name, packed("body"))), "{name}");
        }
        assert!(seen(Body::Exited {
            exit_code: 0,
            result: Some(packed("content")),
            reason: String::new(),
            awaited: Vec::new()
        }));
        let reply = Reply {
            text: String::new(),
            calls: vec![NativeCall {
                id: "c1".into(),
                name: "SEND_MSG".into(),
                arguments: packed("content").to_string(),
            }],
            stop: Stop::End,
            usage: Usage::default(),
            model: "m".into(),
        };
        let effect = EffectId { cause: Lsn(1), nth: 0 };
        let outcome = InferenceOutcome::Answered(reply);
        assert!(seen(Body::InferenceCompleted { effect, latency_ms: 1, personal: None, outcome }));
    }
}
