//! The tools array of a request, written once per wire format and set of calls.
//!
//! Start at [`Tools::get`]. What always holds: the same set gives the same bytes, in table order, so that providers'
//! prompt caches hit. Schemas and descriptions come from `aos_abi::syscall`; here they only take each provider's shape.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use aos_abi::syscall::{CallSet, Name, schema};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// Most sets kept. Sets follow from roles, so there are few; beyond this something makes them up and all are dropped.
const SETS_MAX: usize = 256;

/// Whose shape the tools take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    Openai,
    /// The response format that allows nothing but the constrained encoding, for servers with OpenAI's wire format.
    OpenaiConstrained,
    Anthropic,
    Gemini,
}

/// Tools arrays already written.
#[derive(Debug, Default)]
pub(crate) struct Tools(Mutex<HashMap<(Shape, CallSet), Arc<RawValue>>>);

impl Tools {
    pub(crate) fn get(&self, shape: Shape, set: CallSet) -> Arc<RawValue> {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if written.len() >= SETS_MAX && !written.contains_key(&(shape, set)) {
            written.clear();
        }
        Arc::clone(written.entry((shape, set)).or_insert_with(|| write(shape, set)))
    }
}

fn write(shape: Shape, set: CallSet) -> Arc<RawValue> {
    let each = |one: fn(Name) -> Value| -> Vec<Value> { set.iter().map(one).collect() };
    let value = match shape {
        Shape::Openai => Value::Array(each(|name| {
            json!({"type": "function", "function": {
                "name": name.as_str(), "description": name.spec().summary, "parameters": schema(name)}})
        })),
        Shape::OpenaiConstrained => json!({"type": "json_schema", "json_schema": {"name": "reply", "schema": {
            "type": "object",
            "properties": {
                "calls": {"type": "array", "items": {"anyOf": each(|name| json!({
                    "type": "object",
                    "properties": {"name": {"const": name.as_str()}, "args": schema(name)},
                    "required": ["name", "args"],
                    "additionalProperties": false}))}},
                "say": {"type": "string"}},
            "required": ["calls"],
            "additionalProperties": false}}}),
        Shape::Anthropic => Value::Array(each(
            |name| json!({"name": name.as_str(), "description": name.spec().summary, "input_schema": schema(name)}),
        )),
        Shape::Gemini => json!([{"functionDeclarations": each(gemini_declaration)}]),
    };
    Arc::from(to_raw_value(&value).expect("a JSON value can be written"))
}

/// Gemini refuses an object without properties at the top, so a call without arguments declares none.
fn gemini_declaration(name: Name) -> Value {
    let mut declaration = json!({"name": name.as_str(), "description": name.spec().summary});
    let parameters = gemini_schema(&schema(name));
    if parameters.get("properties").is_some() {
        declaration["parameters"] = parameters;
    }
    declaration
}

/// A JSON Schema in the subset of OpenAPI 3.0 that Gemini's `Schema` has: an unknown field is refused with 400.
/// What the subset cannot say is left out; the arguments are checked when they come back anyway.
pub(crate) fn gemini_schema(schema: &Value) -> Value {
    let Some(from) = schema.as_object() else {
        // The schema `true`: anything.
        return json!({"type": "object"});
    };
    let mut to = Map::new();
    let mut nullable = false;
    match from.get("type") {
        Some(Value::Array(types)) => {
            nullable = types.iter().any(|of| of == "null");
            if let Some(of) = types.iter().find(|of| *of != "null") {
                to.insert("type".to_owned(), of.clone());
            }
        }
        Some(of) => drop(to.insert("type".to_owned(), of.clone())),
        None => {}
    }
    for (key, value) in from {
        match (key.as_str(), value) {
            ("description" | "required" | "minItems" | "maxItems" | "minimum" | "maximum", value) => {
                to.insert(key.clone(), value.clone());
            }
            ("const", value) => drop(to.insert("enum".to_owned(), json!([value]))),
            ("enum", Value::Array(values)) => {
                nullable |= values.contains(&Value::Null);
                let values: Vec<&Value> = values.iter().filter(|value| !value.is_null()).collect();
                to.insert("enum".to_owned(), json!(values));
            }
            ("items", value) => drop(to.insert("items".to_owned(), gemini_schema(value))),
            ("properties", Value::Object(properties)) if !properties.is_empty() => {
                let of = properties.iter().map(|(name, value)| (name.clone(), gemini_schema(value))).collect();
                to.insert("properties".to_owned(), Value::Object(of));
            }
            ("anyOf" | "oneOf", Value::Array(options)) => {
                let null = |option: &&Value| option.get("type").is_some_and(|of| of == "null");
                nullable |= options.iter().any(|option| null(&option));
                let options: Vec<Value> = options.iter().filter(|o| !null(o)).map(gemini_schema).collect();
                match <[Value; 1]>::try_from(options) {
                    Ok([Value::Object(only)]) => to.extend(only.into_iter().filter(|(key, _)| key != "description")),
                    Ok([only]) => drop(to.insert("anyOf".to_owned(), json!([only]))),
                    Err(options) => drop(to.insert("anyOf".to_owned(), Value::Array(options))),
                }
            }
            _ => {}
        }
    }
    if !to.contains_key("type") && !to.contains_key("anyOf") {
        let of = if to.contains_key("enum") { "string" } else { "object" };
        to.insert("type".to_owned(), Value::from(of));
    }
    if nullable {
        to.insert("nullable".to_owned(), Value::Bool(true));
    }
    Value::Object(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of Gemini's `Schema` message that we use (ai.google.dev/api/caching#Schema).
    const GEMINI: &[&str] = &[
        "type",
        "description",
        "nullable",
        "enum",
        "items",
        "properties",
        "required",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "anyOf",
    ];

    fn check_gemini(name: Name, schema: &Value) {
        let object = schema.as_object().unwrap_or_else(|| panic!("{name}: {schema}"));
        for (key, value) in object {
            assert!(GEMINI.contains(&key.as_str()), "{name}: {key} in {schema}");
            match key.as_str() {
                "type" => assert!(value.is_string(), "{name}: {schema}"),
                "items" => check_gemini(name, value),
                "properties" => {
                    assert!(!value.as_object().unwrap().is_empty(), "{name}: {schema}");
                    value.as_object().unwrap().values().for_each(|of| check_gemini(name, of));
                }
                "anyOf" => value.as_array().unwrap().iter().for_each(|of| check_gemini(name, of)),
                _ => {}
            }
        }
        assert!(object.contains_key("type") || object.contains_key("anyOf"), "{name}: {schema}");
    }

    #[test]
    fn gemini_is_sent_nothing_outside_its_subset() {
        for name in Name::ALL {
            if let Some(parameters) = gemini_declaration(*name).get("parameters") {
                check_gemini(*name, parameters);
            }
        }
    }

    #[test]
    fn an_optional_field_is_nullable_for_gemini() {
        let of = gemini_schema(&json!({"type": ["integer", "null"], "format": "uint64", "minimum": 0}));
        assert_eq!(of, json!({"type": "integer", "minimum": 0, "nullable": true}));
        let of =
            gemini_schema(&json!({"description": "d", "anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}));
        assert_eq!(of, json!({"description": "d", "type": "string", "enum": ["a"], "nullable": true}));
    }

    #[test]
    fn a_set_is_written_once_in_table_order() {
        let tools = Tools::default();
        let set: CallSet = [Name::FsWrite, Name::FsRead].into_iter().collect();
        let first = tools.get(Shape::Openai, set);
        assert!(Arc::ptr_eq(&first, &tools.get(Shape::Openai, set)));
        let names: Vec<Value> = serde_json::from_str::<Vec<Value>>(first.get()).unwrap();
        let names: Vec<&str> = names.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["FS_READ", "FS_WRITE"]);
    }
}
