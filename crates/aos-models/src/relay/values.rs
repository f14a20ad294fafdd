//! Every text, number and name in JSON: looked at while it is read, or put another in its place.
//!
//! Start at [`look`] for a request's bytes and at [`hide`] for a text that is sent. What always holds: what `look` sees of
//! what is sent, `hide` sees; of two fields of one name both are seen, since nobody knows which one a server takes; the
//! arguments of a call, which are JSON in a text, are seen by their values too, so that no escape hides anything.
//! Deliberately absent: JSON in any other text, which is what it says, as in an agent's prompt.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::peek::Misfit;

/// The field in which a text is opened.
const ARGUMENTS: &str = "arguments";
/// How many such texts inside one another are opened. The depth of each is bounded by `serde_json`, and so the stack by this.
const INSIDE_MAX: u32 = 2;

/// What is told of everything seen: the field that it stands in, and itself.
type See<'s> = &'s mut dyn FnMut(&str, &str);
/// What stands in the place of something, given its field; `None`: it stays.
type Put<'p> = &'p mut dyn FnMut(&str, &str) -> Option<String>;

/// Sees everything in a request. Numbers at its top are settings, such as the most tokens of the answer, and say nothing.
///
/// # Errors
/// Where it is no JSON.
pub(super) fn look(body: &[u8], see: See<'_>) -> Result<(), Misfit> {
    // One less than in a text: arguments that come as an object are hidden as the text of it.
    read(serde_json::Deserializer::from_slice(body), Look { field: "", top: true, inside: INSIDE_MAX - 1, see })?;
    Ok(())
}

/// Puts another text in the place of what is hidden in this one.
pub(super) fn hide(text: &mut String, put: Put<'_>) {
    in_text("", text, INSIDE_MAX, put);
}

/// The same for the arguments of a call, by their values.
pub(super) fn hide_arguments(text: &mut String, put: Put<'_>) {
    in_text(ARGUMENTS, text, INSIDE_MAX, put);
}

/// The same for all that a value in a field of this name holds, names of fields included.
pub(super) fn hide_in(field: &str, value: &mut Value, put: Put<'_>) {
    in_value(field, value, INSIDE_MAX - 1, put);
}

fn in_text(field: &str, text: &mut String, inside: u32, put: Put<'_>) -> bool {
    let mut any = false;
    if inside > 0
        && field == ARGUMENTS
        && let Ok(mut value) = serde_json::from_str::<Value>(text)
        && in_value(field, &mut value, inside - 1, put)
    {
        *text = value.to_string();
        any = true;
    }
    if let Some(other) = put(field, text) {
        *text = other;
        any = true;
    }
    any
}

/// Whether anything was put in. Recursion is bounded by the depth to which `serde_json` parses.
fn in_value(field: &str, value: &mut Value, inside: u32, put: Put<'_>) -> bool {
    match value {
        Value::String(text) => in_text(field, text, inside, put),
        Value::Number(number) => match put(field, &number.to_string()) {
            Some(other) => {
                *value = Value::String(other);
                true
            }
            None => false,
        },
        Value::Array(items) => items.iter_mut().fold(false, |any, item| in_value(field, item, inside, put) | any),
        Value::Object(fields) => {
            let mut any = false;
            for (name, mut item) in std::mem::take(fields) {
                any |= in_value(&name, &mut item, inside, put);
                let other = put("", &name);
                any |= other.is_some();
                fields.insert(other.unwrap_or(name), item);
            }
            any
        }
        Value::Null | Value::Bool(_) => false,
    }
}

fn read<'de, R: serde_json::de::Read<'de>>(
    mut from: serde_json::Deserializer<R>,
    look: Look<'_>,
) -> Result<(), serde_json::Error> {
    look.deserialize(&mut from)?;
    from.end()
}

/// Sees what is read, as it is read: a value made of it first would have only one of two fields of the same name.
struct Look<'l> {
    field: &'l str,
    /// Directly in the request.
    top: bool,
    inside: u32,
    see: See<'l>,
}

impl Look<'_> {
    fn number(self, number: impl fmt::Display) {
        if !self.top {
            (self.see)(self.field, &number.to_string());
        }
    }
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        (self.see)(self.field, text);
        // Only what is JSON as a whole, since only that is hidden by its values.
        if self.inside > 0 && self.field == ARGUMENTS && serde_json::from_str::<IgnoredAny>(text).is_ok() {
            let look = Look { field: self.field, top: false, inside: self.inside - 1, see: self.see };
            let _ = read(serde_json::Deserializer::from_str(text), look);
        }
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.number(number);
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.number(number);
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.number(number);
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Look { field, inside, see, .. } = self;
        while items.next_element_seed(Look { field, top: false, inside, see: &mut *see })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let Look { top, inside, see, .. } = self;
        while let Some(name) = fields.next_key::<String>()? {
            see("", &name);
            fields.next_value_seed(Look { field: &name, top, inside, see: &mut *see })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seen(body: &str) -> Vec<String> {
        let mut seen = Vec::new();
        look(body.as_bytes(), &mut |field, text| seen.push(format!("{field}={text}"))).unwrap();
        seen
    }

    fn put(_: &str, text: &str) -> Option<String> {
        text.contains("41").then(|| text.replace("41", "[N]"))
    }

    fn hidden(text: &str) -> String {
        let mut text = text.to_owned();
        hide_arguments(&mut text, &mut put);
        text
    }

    #[test]
    fn everything_is_seen_with_its_field_but_numbers_at_the_top() {
        let body = r#"{"max":41,"a":{"n":[1,-2,0.5,true,null],"t":"x"},"t":"one","t":"two"}"#;
        assert_eq!(seen(body), ["=max", "=a", "=n", "n=1", "n=-2", "n=0.5", "=t", "t=x", "=t", "t=one", "=t", "t=two"]);
        assert!(look(b"{\"a\":1}{", &mut |_, _| ()).is_err());
    }

    #[test]
    fn arguments_are_seen_by_their_values_too() {
        let inside = r#"{"mail":"a\u0040b","mail":"c"}"#;
        let whole = format!("arguments={inside}");
        assert_eq!(
            seen(&json!({"arguments": inside}).to_string()),
            ["=arguments", whole.as_str(), "=mail", "mail=a@b", "=mail", "mail=c"]
        );
        assert_eq!(seen(r#"{"arguments":"{\"x\": \"y"}"#).len(), 2, "what is no JSON is a text");
        assert_eq!(seen(&json!({"content": inside}).to_string()).len(), 2, "as is JSON elsewhere");
    }

    #[test]
    fn what_is_hidden_is_json_afterwards_where_it_was() {
        assert_eq!(hidden("at 41"), "at [N]");
        assert_eq!(hidden(r#"{"n":1.50,"a":"x"}"#), r#"{"n":1.50,"a":"x"}"#, "as it was written");
        assert_eq!(hidden(r#"{"n":41,"41":["\u00341"],"on":true}"#), r#"{"n":"[N]","[N]":["[N]"],"on":true}"#);
        assert_eq!(hidden(r#"{"n":41"#), r#"{"n":[N]"#, "what is none is hidden as it stands");
        let mut text = r#"{"n":41}"#.to_owned();
        hide(&mut text, &mut put);
        assert_eq!(text, r#"{"n":[N]}"#, "as is what is no call's");
        let mut schema = json!({"enum": ["41", 41, 1], "41": {}});
        hide_in("", &mut schema, &mut put);
        assert_eq!(schema, json!({"enum": ["[N]", "[N]", 1], "[N]": {}}));
    }

    /// Arguments in arguments cost a bounded stack, however much of them there is.
    #[test]
    fn arguments_in_arguments_are_opened_to_a_depth() {
        let mut text = "41".to_owned();
        for _ in 0..6 {
            text = format!("{}{}{}", "[".repeat(100), json!({"arguments": text}), "]".repeat(100));
        }
        assert_eq!(seen(&text).len(), 4, "two names, what stands there, and what stands in it");
        assert!(!hidden(&text).contains("41"));
    }
}
