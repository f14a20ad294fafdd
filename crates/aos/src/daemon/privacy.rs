//! Personal data at the way out to a model: found, replaced by tokens, filled in again in the answer.
//!
//! Start at [`look`]. What always holds: nothing is sent before the whole prompt was looked at; where looking fails,
//! nothing is sent; the journal holds what people and files say, tokens stand in prompts alone.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use aos_abi::Entry;
use aos_abi::entry::Personal;
use aos_abi::inference::{Failure, FailureKind, Reply};
use aos_kernel::effect::{Guard, Then};
use aos_personal::{Tokens, Unknown};
use serde_json::Value;

use super::history::Clean;

/// What looking at a prompt came to.
pub(crate) enum Looked {
    /// There is nothing in it.
    Clean,
    /// There is, and it goes as it is.
    Found(BTreeSet<String>),
    /// There is, and this goes in its place.
    Replaced(Box<Replaced>),
    /// There is, and nothing goes.
    Withheld(BTreeSet<String>),
}

/// A prompt with tokens in the place of personal data.
pub(crate) struct Replaced {
    pub(crate) system: String,
    pub(crate) entries: Vec<Arc<Entry>>,
    pub(crate) tokens: Tokens,
}

/// Looks at what a prompt is made of, but for what is known to be clean.
///
/// # Errors
/// Where the detector itself fails: nothing may be sent then.
pub(crate) fn look(guard: &Guard, system: &str, entries: &[Arc<Entry>], known: &Clean) -> Result<Looked, Failure> {
    unbroken(|| {
        let (mut classes, mut unknown) = (BTreeSet::new(), None);
        let mut seen = |field: &str, text: &str| match guard.detector.find_after(field, text) {
            Ok(found) => classes.extend(found.into_iter().map(|found| found.class.to_string())),
            Err(why) => unknown = Some(why),
        };
        if !known.has_system(system) {
            seen("", system);
        }
        for entry in entries.iter().filter(|entry| !known.has(entry.lsn)) {
            aos_context::with_texts(entry, &mut |field, text| {
                seen(field, text);
                None
            });
        }
        match (unknown, guard.then) {
            (Some(why), _) => Err(not_known(why)),
            _ if classes.is_empty() => Ok(Looked::Clean),
            (None, Then::Tell) => Ok(Looked::Found(classes)),
            (None, Then::Withhold) => Ok(Looked::Withheld(classes)),
            (None, Then::Replace) => {
                replaced(guard, system, entries).map(|replaced| Looked::Replaced(Box::new(replaced))).map_err(not_known)
            }
        }
    })
}

/// What looking comes to, or a failure where it panics: then nobody knows what is in there.
pub(crate) fn unbroken<T>(look: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // It owns whatever it changes.
    std::panic::catch_unwind(AssertUnwindSafe(look)).unwrap_or_else(|_| Err(not_known(Unknown::Broke)))
}

/// That nobody knows what is in a prompt.
pub(crate) fn not_known(why: Unknown) -> Failure {
    let hint = match why {
        Unknown::Everywhere => "make the pattern narrower: `aos policy check` after a change, then `aos policy reload`",
        Unknown::Broke => "the daemon's log says more; without `personal_data` in policy.yaml nothing is looked for",
    };
    Failure {
        kind: FailureKind::Permanent,
        message: format!("the detector of personal data failed, so nothing was sent: {why}"),
        hint: Some(hint.into()),
        retry_after_ms: None,
        usage: None,
        unreachable: false,
    }
}

fn replaced(guard: &Guard, system: &str, entries: &[Arc<Entry>]) -> Result<Replaced, Unknown> {
    let mut tokens = Tokens::default();
    tokens.avoid(system);
    for entry in entries {
        aos_context::with_texts(entry, &mut |_, text| {
            tokens.avoid(text);
            None
        });
    }
    let mut unknown = None;
    let mut replace = |field: &str, text: &str| {
        tokens.replace(&guard.detector, field, text).unwrap_or_else(|why| {
            unknown = Some(why);
            None
        })
    };
    let shown_system = replace("", system).unwrap_or_else(|| system.to_owned());
    let entries = entries
        .iter()
        .map(|entry| aos_context::with_texts(entry, &mut replace).map_or_else(|| Arc::clone(entry), Arc::new))
        .collect();
    unknown.map_or(Ok(Replaced { system: shown_system, entries, tokens }), Err)
}

impl Replaced {
    /// The answer with its tokens filled in, and what the kernel is told of it.
    pub(crate) fn fill(&self, reply: &mut Reply) -> Personal {
        let mut told = self.told();
        told.tokens = fill(&self.tokens, reply);
        told
    }

    /// What the kernel is told where there is no answer.
    pub(crate) fn told(&self) -> Personal {
        let classes = self.tokens.classes().map(ToString::to_string).collect();
        Personal { classes, ..Personal::default() }
    }
}

/// Fills the tokens of an answer in; says which were there, by what they stand for.
pub(crate) fn fill(tokens: &Tokens, reply: &mut Reply) -> BTreeMap<String, String> {
    let mut told = BTreeMap::new();
    let mut used = |text: &str| {
        told.extend(tokens.in_text(text).map(|(token, value)| (value.to_owned(), token.to_owned())));
    };
    used(&reply.text);
    // A call may stand in the text as JSON: what would have to be escaped there stays a token.
    let plain = |value: &str| {
        let fits = !value.contains(|c: char| c.is_control() || matches!(c, '"' | '\\'));
        fits.then(|| value.to_owned())
    };
    if let Some(text) = tokens.fill(&reply.text, plain) {
        reply.text = text;
    }
    for call in &mut reply.calls {
        // What is no JSON is no call, and stays as it was written.
        if let Ok(mut arguments) = serde_json::from_str::<Value>(&call.arguments)
            && fill_value(tokens, &mut arguments, &mut used)
        {
            call.arguments = arguments.to_string();
        }
    }
    told
}

/// Whether anything was filled in; `used` is told each text before that, as it is meant and not as it was written (a token
/// may have an escape in it). Recursion is bounded by the depth to which `serde_json` parses.
fn fill_value(tokens: &Tokens, value: &mut Value, used: &mut dyn FnMut(&str)) -> bool {
    let fill = |text: &str, used: &mut dyn FnMut(&str)| {
        used(text);
        tokens.fill(text, |value| Some(value.to_owned()))
    };
    match value {
        Value::String(text) => match fill(text, used) {
            Some(filled) => {
                *text = filled;
                true
            }
            None => false,
        },
        Value::Array(items) => {
            let mut any = false;
            for item in items {
                any |= fill_value(tokens, item, used);
            }
            any
        }
        Value::Object(fields) => {
            let mut any = false;
            for (name, mut item) in std::mem::take(fields) {
                let filled = fill(&name, used);
                any |= fill_value(tokens, &mut item, used) || filled.is_some();
                fields.insert(filled.unwrap_or(name), item);
            }
            any
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use aos_abi::inference::{NativeCall, Stop, Usage};
    use aos_abi::{Body, Lsn, Pid, Timestamp};
    use aos_personal::Detector;

    use super::*;

    fn said(text: &str) -> Arc<Entry> {
        let body = Body::Input { text: text.into(), eof: false, from_pid: Pid::INIT, untrusted: false };
        Arc::new(Entry { lsn: Lsn(7), at: Timestamp(0), pid: Pid(5), cause: None, body })
    }

    fn guard(then: Then) -> Guard {
        Guard { detector: Arc::new(Detector::all()), then, rule: None }
    }

    #[test]
    fn tokens_go_out_and_values_come_back() {
        let entries =
            [said("mail a@example.com, card 4111 1111 1111 1111"), said("again a@example.com; [EMAIL_1] is literal")];
        let looked = look(&guard(Then::Replace), "you help b@example.com", &entries, &Clean::default()).unwrap();
        let Looked::Replaced(replaced) = looked else { panic!("it was found") };
        assert_eq!(replaced.system, "you help [EMAIL_2]");
        let shown = format!("{:?}", replaced.entries);
        assert!(
            shown.contains("mail [EMAIL_3], card [CARD_1]") && shown.contains("again [EMAIL_3]; [EMAIL_1] is literal"),
            "{shown}"
        );
        let call =
            |arguments: &str| NativeCall { id: "c".into(), name: "FS_WRITE".into(), arguments: arguments.into() };
        let mut reply = Reply {
            text: "to [EMAIL_3], not [EMAIL_1]".into(),
            calls: vec![
                call(r#"{"content":"\n[CARD_1]","n":1}"#),
                call("{[CARD_1]}"),
                call(r#"{"n": 1.50}"#),
                call(r#"{"to":"[EMAIL\u005f2]"}"#),
            ],
            stop: Stop::Calls,
            usage: Usage::default(),
            model: "m".into(),
        };
        let told = replaced.fill(&mut reply);
        assert_eq!(reply.text, "to a@example.com, not [EMAIL_1]");
        let arguments: Vec<&str> = reply.calls.iter().map(|call| call.arguments.as_str()).collect();
        let card = r#"{"content":"\n4111 1111 1111 1111","n":1}"#;
        assert_eq!(arguments, [card, "{[CARD_1]}", r#"{"n": 1.50}"#, r#"{"to":"b@example.com"}"#]);
        assert_eq!(told.classes, BTreeSet::from(["card".to_owned(), "email".to_owned()]));
        assert_eq!(told.tokens.get("a@example.com").map(String::as_str), Some("[EMAIL_3]"));
        // One with an escape in it is put back, too, in what leaves.
        assert_eq!(told.tokens.get("b@example.com").map(String::as_str), Some("[EMAIL_2]"));
    }

    #[test]
    fn what_is_found_is_told_or_withheld_and_what_is_known_is_not_looked_at() {
        let entries = [said("a@example.com")];
        let mut known = Clean::default();
        known.note("you help b@example.com", &entries);
        assert!(matches!(look(&guard(Then::Tell), "", &entries, &Clean::default()), Ok(Looked::Found(_))));
        assert!(matches!(look(&guard(Then::Withhold), "", &entries, &Clean::default()), Ok(Looked::Withheld(_))));
        assert!(matches!(look(&guard(Then::Withhold), "", &entries, &known), Ok(Looked::Clean)));
        assert!(matches!(look(&guard(Then::Withhold), "you help b@example.com", &entries, &known), Ok(Looked::Clean)));
        assert!(matches!(
            look(&guard(Then::Withhold), "you help c@example.com", &entries, &known),
            Ok(Looked::Withheld(_))
        ));
        assert!(matches!(look(&guard(Then::Replace), "", &[said("hi")], &Clean::default()), Ok(Looked::Clean)));
    }

    #[test]
    fn where_the_detector_breaks_nothing_is_sent() {
        let broke = unbroken(|| -> Result<Looked, Failure> { panic!("it broke") });
        let mut failing = Detector::of(["email"]);
        failing.add("mark", "Q").unwrap();
        let failing = Arc::new(failing);
        let flood = [said(&"Q".repeat(5000))];
        let of =
            |then| look(&Guard { detector: Arc::clone(&failing), then, rule: None }, "", &flood, &Clean::default());
        for looked in [broke, of(Then::Tell), of(Then::Withhold), of(Then::Replace)] {
            let failure = looked.err().unwrap();
            assert_eq!(failure.kind, FailureKind::Permanent);
            assert!(failure.message.contains("nothing was sent"));
        }
    }
}
