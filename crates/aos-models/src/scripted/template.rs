//! Fills what earlier results and matches said into an answer.

use serde_json::Value;

use super::conversation::Conversation;

/// What templates can name.
pub(super) struct Known<'c, 'b> {
    pub(super) conversation: &'c Conversation<'b>,
    /// The rule's regular expression and what it matched.
    pub(super) groups: Option<regex::Captures<'c>>,
}

impl Known<'_, '_> {
    /// `text` with its templates filled in. A template that names nothing stays as it is, so that it is seen.
    pub(super) fn fill(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, expression, after)) = next(rest) {
            out.push_str(before);
            match self.value(expression) {
                Some(Value::String(value)) => out.push_str(&value),
                Some(value) => out.push_str(&value.to_string()),
                None => out.push_str(&rest[before.len()..rest.len() - after.len()]),
            }
            rest = after;
        }
        out.push_str(rest);
        out
    }

    /// `value` with every string in it filled in.
    pub(super) fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => match next(text) {
                Some(("", expression, "")) => self.value(expression).unwrap_or_else(|| value.clone()),
                _ => Value::String(self.fill(text)),
            },
            Value::Array(values) => values.iter().map(|value| self.fill_value(value)).collect(),
            Value::Object(object) => {
                Value::Object(object.iter().map(|(key, value)| (key.clone(), self.fill_value(value))).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn value(&self, expression: &str) -> Option<Value> {
        let mut path = expression.split('.');
        let results = self.conversation.results();
        let result = match path.next()? {
            "last" => return Some(Value::String(self.conversation.last().to_owned())),
            "last_result" => results.last()?,
            "result" => results.get(path.next()?.parse::<usize>().ok()?)?,
            group => {
                let groups = self.groups.as_ref()?;
                let found = match group.parse::<usize>() {
                    Ok(number) => groups.get(number),
                    Err(_) => groups.name(group),
                };
                return found.map(|found| Value::String(found.as_str().to_owned()));
            }
        };
        let pointer: String = path.map(|key| format!("/{key}")).collect();
        // Mostly what lies in `{"status":"SUCCESS","result":…}` is meant.
        let inner = result.content.get("result").and_then(|inner| inner.pointer(&pointer));
        inner.or_else(|| result.content.pointer(&pointer)).cloned()
    }
}

/// What stands before the first template, in it, and behind it.
fn next(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("{{")?;
    let (expression, after) = rest.split_once("}}")?;
    Some((before, expression.trim(), after))
}
