//! What the interface says of itself: `/openapi.json` and `/v1/syscalls`, generated from the route table and the types.
//!
//! Start at [`document`] and [`syscalls`]. OpenAPI 3.1, whose schemas are JSON Schema 2020-12.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};

use aos_abi::api::{ErrorBody, ModelView};
use aos_abi::syscall::{self, Handler, Risk};
use aos_abi::{Lsn, Name, Pid, Timestamp};

use crate::route::{Access, Content, ROUTES, Route, SchemaOf, Verb};

/// A system call as `/v1/syscalls` shows it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SyscallView {
    /// Its name.
    pub name: String,
    /// One line about it.
    pub summary: String,
    /// `own`, `read`, `undoable` or `irreversible`.
    pub risk: String,
    /// The shape of its result.
    pub result: String,
    /// One correct set of arguments.
    pub example: Value,
    /// The JSON Schema of its arguments.
    pub schema: Value,
    /// Why it answers `ENOSYS` in this version, where it does.
    pub absent: Option<String>,
}

/// `/v1/models`, in the form that OpenAI clients read.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ModelList {
    /// Always `list`.
    pub object: &'static str,
    /// The models.
    pub data: Vec<ModelView>,
}

/// One entry of the journal; further fields depend on its type.
/// Never made: it describes `aos_abi::Entry`, which has no schema of its own.
#[derive(Serialize, JsonSchema)]
struct Event {
    /// Its position, the `id:` of the event.
    lsn: Lsn,
    /// When it happened.
    at: Timestamp,
    /// Whose; 0 for the system's own.
    pid: Pid,
    /// The entry it was decided from.
    cause: Option<Lsn>,
    /// What happened, the `event:` of the event.
    r#type: String,
}

/// `/healthz`. Never made, as those below, which describe what the memory store answers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Health {
    /// `ok`; anything else is an error.
    status: &'static str,
}

/// `/v1/memory`: newest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Memories {
    /// What is remembered.
    memories: Vec<Memory>,
}

/// `/v1/memory/search`: best first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Hits {
    /// What was found.
    hits: Vec<Hit>,
}

/// `GET /v1/memory/{id}`: newest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Versions {
    /// Every kept version of it.
    versions: Vec<Memory>,
}

/// `DELETE /v1/memory/{id}`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Forgotten {
    /// How many memories were forgotten.
    forgotten: u64,
}

/// Something remembered.
#[derive(Serialize, JsonSchema)]
struct Memory {
    /// Its id.
    id: String,
    /// What it is about.
    key: String,
    /// What is remembered.
    value: String,
    /// When it was written.
    at: Timestamp,
    /// Who wrote it.
    source: MemorySource,
    /// Where it is kept.
    namespace: String,
    /// Its tags.
    tags: Vec<String>,
    /// 1 for the first of its key.
    version: u32,
    /// When it is forgotten by itself.
    expires_at: Option<Timestamp>,
}

/// Who wrote a memory.
#[derive(Serialize, JsonSchema)]
struct MemorySource {
    /// The process.
    pid: Pid,
    /// The entry it was decided from.
    lsn: Lsn,
}

/// A memory that fits a search.
#[derive(Serialize, JsonSchema)]
struct Hit {
    /// How well it fits; more is better.
    score: f64,
    /// The memory.
    #[serde(flatten)]
    memory: Memory,
}

/// Every system call.
#[must_use]
pub fn syscalls() -> Vec<SyscallView> {
    Name::ALL
        .iter()
        .map(|name| {
            let spec = name.spec();
            let risk = match spec.risk {
                Risk::Own => "own",
                Risk::Read => "read",
                Risk::Undoable => "undoable",
                Risk::Irreversible => "irreversible",
            };
            let absent = match spec.handler {
                Handler::Absent(hint) => Some(hint.to_owned()),
                Handler::Kernel | Handler::Files | Handler::Exec | Handler::Net | Handler::Memory => None,
            };
            SyscallView {
                name: name.as_str().to_owned(),
                summary: spec.summary.to_owned(),
                risk: risk.to_owned(),
                result: spec.result.to_owned(),
                example: serde_json::from_str(spec.example).expect("every example parses, a test of the table says so"),
                schema: syscall::schema(*name),
                absent,
            }
        })
        .collect()
}

/// The OpenAPI document.
#[must_use]
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        for method in methods(route.verb) {
            path[*method] = operation(route, method, &mut generator);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "AOS",
            "summary": "An agent operating system: language-model agents as processes.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "The text of run/token in the home."},
                "key": {"type": "http", "scheme": "bearer", "description": "A program's key: `aos models key NAME`."},
                "x_api_key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same key."},
            },
        },
    })
}

fn methods(verb: Verb) -> &'static [&'static str] {
    match verb {
        Verb::Get => &["get"],
        Verb::Post => &["post"],
        Verb::Put => &["put"],
        Verb::Delete => &["delete"],
        Verb::Any => &["get", "put", "post", "delete", "patch"],
    }
}

fn operation(route: &Route, method: &str, generator: &mut SchemaGenerator) -> Value {
    let name = format!("{:?}", route.operation);
    let id = if route.verb == Verb::Any { format!("{name}_{method}") } else { name };
    // Programs' clients have forms of their own, for errors too.
    let error = match route.format() {
        None => generator.subschema_for::<ErrorBody>().to_value(),
        Some(_) => json!({"type": "object"}),
    };
    let mut responses = json!({
        route.status.to_string(): answer(route.content, generator),
        "default": {"description": "An error.", "content": {"application/json": {"schema": error}}},
    });
    if route.path.ends_with("/wait") {
        responses["204"] = json!({"description": "It still runs."});
    }
    let mut operation = json!({
        "operationId": id,
        "summary": route.summary,
        "parameters": parameters(route, generator),
        "responses": responses,
    });
    if let Some(body) = route.body {
        operation["requestBody"] = json!({
            "required": !body.optional,
            "content": {"application/json": {"schema": (body.schema)(generator)}},
        });
    }
    match route.access {
        Access::Token => {}
        Access::TokenOrKey => operation["security"] = json!([{"token": []}, {"key": []}, {"x_api_key": []}]),
        Access::Program(_) => operation["security"] = json!([{"key": []}, {"x_api_key": []}]),
        Access::Open | Access::Hook => operation["security"] = json!([]),
    }
    operation
}

fn answer(content: Content, generator: &mut SchemaGenerator) -> Value {
    match content {
        Content::Json(schema) => {
            json!({"description": "Done.", "content": {"application/json": {"schema": schema(generator)}}})
        }
        Content::JsonLines => {
            json!({"description": "One JSON document per line.", "content": {"application/x-ndjson": {}}})
        }
        Content::Events => {
            let event = generator.subschema_for::<Event>();
            json!({"description": "Server-sent events whose data is this.", "content": {"text/event-stream": {"schema": event}}})
        }
        Content::Metrics => json!({"description": "Done.", "content": {"text/plain": {}}}),
        Content::Agent => json!({"description": "Whatever the agent answers.", "content": {"*/*": {}}}),
        Content::Model => json!({
            "description": "In the program's format: a document, or events where a stream was asked for. `x-aos-model` names the configured model that served.",
            "content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}},
        }),
        Content::Nothing => json!({"description": "Done."}),
    }
}

fn parameters(route: &Route, generator: &mut SchemaGenerator) -> Vec<Value> {
    let mut parameters = Vec::new();
    if let Some((_, rest)) = route.path.split_once('{') {
        let name = rest.split('}').next().unwrap_or(rest);
        let schema = if name == "pid" { json!({"type": "integer", "minimum": 0}) } else { json!({"type": "string"}) };
        parameters.push(json!({"name": name, "in": "path", "required": true, "schema": schema}));
    }
    if let Some(query) = route.query {
        parameters.extend(query_parameters(query));
    }
    if matches!(route.content, Content::Events) {
        let schema = generator.subschema_for::<Lsn>();
        parameters.push(json!({
            "name": "Last-Event-ID", "in": "header", "schema": schema,
            "description": "The last event that the client has; goes before `after`.",
        }));
    }
    parameters
}

/// The properties of a query type, each as a parameter. They are inlined, since a query type is nobody's answer.
fn query_parameters(query: SchemaOf) -> Vec<Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = query(&mut settings.into_generator()).to_value();
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let Some(properties) = schema["properties"].as_object() else { return Vec::new() };
    properties
        .iter()
        .map(|(name, property)| {
            let mut property = property.clone();
            let description = property.as_object_mut().and_then(|property| property.remove("description"));
            json!({
                "name": name, "in": "query", "required": required.contains(&name.as_str()),
                "description": description, "schema": property,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                for (key, of) in object {
                    match of.as_str() {
                        Some(text) if key == "$ref" => found.push(text.to_owned()),
                        _ => references(of, found),
                    }
                }
            }
            Value::Array(array) => array.iter().for_each(|of| references(of, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 30, "only {} references", found.len());
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} leaves the document"));
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
        }
    }

    #[test]
    fn every_route_is_in_it_and_says_what_it_needs() {
        let document = document();
        let mut ids = std::collections::BTreeSet::new();
        for route in ROUTES {
            for method in methods(route.verb) {
                let operation = &document["paths"][route.path][*method];
                assert_eq!(operation["summary"], route.summary, "{method} {}", route.path);
                assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{}", route.path);
                assert!(operation["responses"]["default"].is_object());
                assert_eq!(operation["security"].is_array(), route.access != Access::Token, "{}", route.path);
                assert_eq!(operation["requestBody"].is_object(), route.body.is_some(), "{}", route.path);
                let variable = operation["parameters"].as_array().unwrap().iter().filter(|p| p["in"] == "path").count();
                assert_eq!(variable, route.path.matches('{').count(), "{}", route.path);
            }
        }
        let parameters = &document["paths"]["/v1/memory/search"]["get"]["parameters"];
        assert_eq!(parameters[0]["name"], "q");
        assert_eq!(parameters[0]["required"], true);
        assert!(parameters[2]["description"].as_str().unwrap().contains("at most 1000"), "{parameters}");
    }

    #[test]
    fn every_answer_but_the_document_itself_has_a_schema() {
        let document = document();
        for (path, of) in document["paths"].as_object().unwrap() {
            for (method, of) in of.as_object().unwrap() {
                let schema = of["responses"]
                    .as_object()
                    .unwrap()
                    .values()
                    .find_map(|answer| answer.pointer("/content/application~1json/schema"));
                assert!(schema != Some(&Value::Bool(true)) || path == "/openapi.json", "{method} {path}");
            }
        }
        assert!(document.pointer("/components/schemas/Hit/properties/namespace").is_some(), "{document}");
    }

    #[test]
    fn every_system_call_is_listed_with_an_example_that_fits() {
        let listed = syscalls();
        assert_eq!(listed.len(), Name::ALL.len());
        for call in &listed {
            let args = call.example.to_string();
            assert!(aos_abi::Syscall::parse(&call.name, &args).is_ok(), "{}", call.name);
            assert_eq!(call.schema["type"], "object");
        }
    }
}
