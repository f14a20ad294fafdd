//! The route table: every route of the HTTP interface once.
//!
//! Start at [`ROUTES`]. The router, the access checks, the body limits, the OpenAPI document and the labels of the
//! metrics are all built from it, so they cannot disagree. Deliberately absent: what belongs to later versions, which
//! [`ABSENT`] names so that it is refused in plain words.

use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use aos_abi::api::{
    Accepted, ApproveRequest, AuditRequest, AuditView, BackupRequest, CostView, ExplainRequest, ExplainView,
    ForkRequest, GroupSignalled, InputRequest, KeyMade, KeyRequest, ModelView, ProposalView, PruneRequest, PruneView,
    RejectRequest, ReplayView, RouteRequest, RouteView, SignalRequest, SpawnRequest, Started, TokenCount, UndoRequest,
    UndoView,
};
use aos_abi::inference::Format;
use aos_abi::process::{BudgetSpec, HeldTimer, PolicyView, ProcessDetail, ProcessView, StatusView};

use crate::openapi::{Forgotten, Health, Hits, Memories, ModelList, SyscallView, Versions};
use crate::query::{
    CostQuery, EventsQuery, ExportQuery, KillQuery, ListQuery, MemoryExportQuery, MemoryListQuery, MemorySearchQuery,
    ProcessesQuery, ReplayQuery, TimersQuery, UnscheduleQuery, WaitQuery,
};

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is described by its route's summary")]
pub enum Operation {
    Health,
    Metrics,
    OpenApi,
    Syscalls,
    Status,
    Processes,
    Spawn,
    Process,
    Kill,
    Input,
    Signal,
    Fork,
    ProcessEvents,
    Wait,
    Replay,
    Budget,
    Events,
    Proposals,
    Approve,
    Reject,
    Undo,
    Explain,
    PolicyReload,
    Models,
    Model,
    ModelRoute,
    Cost,
    MemorySearch,
    MemoryList,
    MemoryShow,
    MemoryForget,
    MemoryExport,
    AuditVerify,
    AuditExport,
    Backup,
    Prune,
    Shutdown,
    Hook,
    ChatCompletions,
    Responses,
    Messages,
    CountTokens,
    MakeKey,
    Embeddings,
    SignalGroup,
    Timers,
    Unschedule,
}

/// The method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `GET`, and `HEAD` for the same without a body.
    Get,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `DELETE`.
    Delete,
    /// Every method.
    Any,
}

impl Verb {
    /// The name on the wire; `ANY` for every method.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Post => "POST",
            Verb::Put => "PUT",
            Verb::Delete => "DELETE",
            Verb::Any => "ANY",
        }
    }

    /// Whether a request with this method is for the route.
    #[must_use]
    pub fn takes(self, method: &str) -> bool {
        self == Verb::Any || self.as_str() == method || (self == Verb::Get && method == "HEAD")
    }
}

/// Who may use a route over TCP. The socket is open to its own user for everything but what is for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anybody: what it answers says nothing of the system.
    Open,
    /// Whoever holds the token.
    Token,
    /// Whoever holds the token, and programs.
    TokenOrKey,
    /// Programs that speak this format, each with its key, on the socket too: a key says who pays, the token does not.
    Program(Format),
    /// Anybody, from anywhere: the agent that owns the path decides by a signature.
    Hook,
}

/// A type's schema, as a place in the generated document.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// How large a body may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodySize {
    /// `Options::body_bytes_max`.
    Usual,
    /// `Options::files_bytes_max`, since files come with it.
    Files,
    /// `Options::program_bytes_max`, since a whole conversation comes with it, pictures included.
    Program,
}

/// The body that a route takes.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Its type.
    pub schema: SchemaOf,
    /// It may be left out.
    pub optional: bool,
    /// How large it may be.
    pub size: BodySize,
}

/// What a route answers when all is well.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// One JSON document.
    Json(SchemaOf),
    /// One JSON document per line.
    JsonLines,
    /// Server-sent events.
    Events,
    /// Text in the format of Prometheus.
    Metrics,
    /// Whatever the agent answers.
    Agent,
    /// What a model answers in the program's format: a document, or server-sent events where a stream was asked for.
    Model,
    /// No body.
    Nothing,
}

/// One route.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// What it does.
    pub operation: Operation,
    /// Its method.
    pub verb: Verb,
    /// Its path, with at most one variable part in braces.
    pub path: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// Who may use it.
    pub access: Access,
    /// The keys of its query, as the properties of a type.
    pub query: Option<SchemaOf>,
    /// Its body.
    pub body: Option<Taken>,
    /// Its status when all is well.
    pub status: u16,
    /// Its answer when all is well.
    pub content: Content,
    /// How long the system may take to begin the answer; `None` where the route has deadlines of its own.
    pub deadline: Option<Duration>,
}

const fn route(operation: Operation, verb: Verb, path: &'static str, summary: &'static str, content: Content) -> Route {
    Route {
        operation,
        verb,
        path,
        summary,
        access: Access::Token,
        query: None,
        body: None,
        status: 200,
        content,
        deadline: Some(Duration::from_secs(30)),
    }
}

impl Route {
    /// The format that its programs speak, where it is for programs.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        match self.access {
            Access::Program(format) => Some(format),
            Access::Open | Access::Token | Access::TokenOrKey | Access::Hook => None,
        }
    }
    const fn open(mut self, access: Access) -> Route {
        self.access = access;
        self
    }
    const fn query(mut self, schema: SchemaOf) -> Route {
        self.query = Some(schema);
        self
    }
    const fn body(mut self, schema: SchemaOf) -> Route {
        self.body = Some(Taken { schema, optional: false, size: BodySize::Usual });
        self
    }
    const fn files_body(mut self, schema: SchemaOf) -> Route {
        self.body = Some(Taken { schema, optional: false, size: BodySize::Files });
        self
    }
    /// For a program: the body is the business of whoever answers it, and so are the deadlines.
    const fn program(mut self, format: Format) -> Route {
        self.access = Access::Program(format);
        self.body = Some(Taken { schema: of::<FreeObject>, optional: false, size: BodySize::Program });
        self.deadline = None;
        self
    }
    const fn optional_body(mut self, schema: SchemaOf) -> Route {
        self.body = Some(Taken { schema, optional: true, size: BodySize::Usual });
        self
    }
    const fn status(mut self, status: u16) -> Route {
        self.status = status;
        self
    }
    /// For what reads or writes the whole journal, or waits for calls that run.
    const fn long(mut self) -> Route {
        self.deadline = Some(Duration::from_secs(3600));
        self
    }
    const fn own_deadlines(mut self) -> Route {
        self.deadline = None;
        self
    }
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const fn json<T: JsonSchema>() -> Content {
    Content::Json(of::<T>)
}

/// Any JSON: the OpenAPI document.
type Json = serde_json::Value;
/// An object of a format that is defined elsewhere.
type FreeObject = serde_json::Map<String, serde_json::Value>;

use Operation as Op;
use Verb::{Delete, Get, Post, Put};

/// Every route. The requests that fuzzing begins with name routes by their place, so new ones stand at the end.
pub const ROUTES: &[Route] = &[
    route(Op::Health, Get, "/healthz", "Whether the daemon takes work.", json::<Health>()).open(Access::Open),
    route(Op::Metrics, Get, "/metrics", "Counters and gauges for Prometheus.", Content::Metrics),
    route(Op::OpenApi, Get, "/openapi.json", "This document.", json::<Json>()),
    route(Op::Syscalls, Get, "/v1/syscalls", "Every system call with its schema.", json::<Vec<SyscallView>>()),
    route(Op::Status, Get, "/v1/status", "The daemon and its processes in numbers.", json::<StatusView>()),
    route(Op::Processes, Get, "/v1/processes", "The process table.", json::<Vec<ProcessView>>())
        .query(of::<ProcessesQuery>),
    route(Op::Spawn, Post, "/v1/processes", "Start a process.", json::<Started>())
        .files_body(of::<SpawnRequest>)
        .status(201),
    route(Op::Process, Get, "/v1/processes/{pid}", "Everything about a process.", json::<ProcessDetail>()),
    route(Op::Kill, Delete, "/v1/processes/{pid}", "End a process now: the signal KILL.", json::<Accepted>())
        .query(of::<KillQuery>),
    route(Op::Input, Post, "/v1/processes/{pid}/stdin", "Text for its standard input.", json::<Accepted>())
        .body(of::<InputRequest>),
    route(Op::Signal, Post, "/v1/processes/{pid}/signal", "Send a signal.", json::<Accepted>())
        .body(of::<SignalRequest>),
    route(Op::Fork, Post, "/v1/processes/{pid}/fork", "A second process from its past.", json::<Accepted>())
        .optional_body(of::<ForkRequest>)
        .status(201),
    route(
        Op::ProcessEvents,
        Get,
        "/v1/processes/{pid}/events",
        "What it lived through, and goes on to.",
        Content::Events,
    )
    .query(of::<EventsQuery>),
    route(
        Op::Wait,
        Get,
        "/v1/processes/{pid}/wait",
        "Wait for its end; 204 where it still runs.",
        json::<ProcessView>(),
    )
    .query(of::<WaitQuery>)
    .own_deadlines(),
    route(Op::Replay, Get, "/v1/processes/{pid}/replay", "Make its decisions again, offline.", json::<ReplayView>())
        .query(of::<ReplayQuery>)
        .long(),
    route(Op::Budget, Put, "/v1/processes/{pid}/budget", "Set its limits.", json::<Accepted>()).body(of::<BudgetSpec>),
    route(Op::Events, Get, "/v1/events", "Everything that happens.", Content::Events).query(of::<EventsQuery>),
    route(Op::Proposals, Get, "/v1/proposals", "What waits for a person, and what was denied and one may lift (state `denied`).", json::<Vec<ProposalView>>())
        .query(of::<ListQuery>),
    route(Op::Approve, Post, "/v1/proposals/{id}/approve", "Say yes; 409 says what became of one that is over.", json::<ProposalView>())
        .optional_body(of::<ApproveRequest>),
    route(Op::Reject, Post, "/v1/proposals/{id}/reject", "Say no; 409 says what became of one that is over.", json::<ProposalView>())
        .optional_body(of::<RejectRequest>),
    route(Op::Undo, Post, "/v1/proposals/{id}/undo", "Take back what was done.", json::<UndoView>())
        .optional_body(of::<UndoRequest>)
        .long(),
    route(Op::Explain, Post, "/v1/policy/explain", "What the policy would say to a call.", json::<ExplainView>())
        .body(of::<ExplainRequest>),
    route(
        Op::PolicyReload,
        Post,
        "/v1/policy/reload",
        "Take policy.yaml as it is now; 409 with its faults where it cannot be used, and the old one stays.",
        json::<PolicyView>(),
    ),
    route(Op::Models, Get, "/v1/models", "The configured models.", json::<ModelList>()).open(Access::TokenOrKey),
    route(Op::Model, Get, "/v1/models/{id}", "One of them.", json::<ModelView>()).open(Access::TokenOrKey),
    route(Op::ModelRoute, Post, "/v1/models/route", "Which models would serve a task, and why.", json::<RouteView>())
        .body(of::<RouteRequest>),
    route(Op::Cost, Get, "/v1/cost", "What was spent.", json::<CostView>()).query(of::<CostQuery>).long(),
    route(Op::MemorySearch, Get, "/v1/memory/search", "Search memory.", json::<Hits>()).query(of::<MemorySearchQuery>),
    route(Op::MemoryList, Get, "/v1/memory", "What is remembered.", json::<Memories>()).query(of::<MemoryListQuery>),
    route(Op::MemoryShow, Get, "/v1/memory/{id}", "One memory.", json::<Versions>()),
    route(Op::MemoryForget, Delete, "/v1/memory/{id}", "Forget one memory.", json::<Forgotten>()),
    route(Op::MemoryExport, Get, "/v1/memory/export", "Every memory.", Content::JsonLines)
        .query(of::<MemoryExportQuery>),
    route(Op::AuditVerify, Post, "/v1/admin/audit/verify", "Prove that nothing was altered.", json::<AuditView>())
        .optional_body(of::<AuditRequest>)
        .long(),
    route(Op::AuditExport, Get, "/v1/admin/audit/export", "Every entry of the journal.", Content::JsonLines)
        .query(of::<ExportQuery>),
    route(Op::Backup, Post, "/v1/admin/backup", "Write a consistent copy of the home.", Content::Nothing)
        .body(of::<BackupRequest>)
        .status(204)
        .long(),
    route(Op::Prune, Post, "/v1/admin/prune", "Take exited processes out of the journal.", json::<PruneView>())
        .optional_body(of::<PruneRequest>)
        .long(),
    route(Op::Shutdown, Post, "/v1/admin/shutdown", "End the daemon in good order.", Content::Nothing).status(202),
    route(
        Op::Hook,
        Verb::Any,
        "/hooks/{path}",
        "A webhook of an agent; 202 where it gives no answer in time.",
        Content::Agent,
    )
    .open(Access::Hook)
    .own_deadlines(),
    route(
        Op::ChatCompletions,
        Post,
        "/v1/chat/completions",
        "Ask a model as OpenAI's clients do, with a program's key.",
        Content::Model,
    )
    .program(Format::Chat),
    route(
        Op::Responses,
        Post,
        "/v1/responses",
        "Ask a model as OpenAI's newer clients do, with a program's key.",
        Content::Model,
    )
    .program(Format::Responses),
    route(
        Op::Messages,
        Post,
        "/v1/messages",
        "Ask a model as Anthropic's clients do, with a program's key.",
        Content::Model,
    )
    .program(Format::Messages),
    route(
        Op::CountTokens,
        Post,
        "/v1/messages/count_tokens",
        "How many tokens a request has, estimated and rather too high; no model is asked.",
        json::<TokenCount>(),
    )
    .program(Format::Messages),
    route(
        Op::MakeKey,
        Post,
        "/v1/keys",
        "A key for a program outside, shown this once. The program stands in the process table; its end takes the key back.",
        json::<KeyMade>(),
    )
    .body(of::<KeyRequest>)
    .status(201),
    route(
        Op::Embeddings,
        Post,
        "/v1/embeddings",
        "Vectors for texts, by a model that makes them, with a program's key.",
        Content::Model,
    )
    .program(Format::Embeddings),
    route(
        Op::SignalGroup,
        Post,
        "/v1/groups/{group}/signal",
        "Send a signal to every living process of a group.",
        json::<GroupSignalled>(),
    )
    .body(of::<SignalRequest>),
    route(Op::Timers, Get, "/v1/timers", "The timers of processes.", json::<Vec<HeldTimer>>()).query(of::<TimersQuery>),
    route(Op::Unschedule, Delete, "/v1/processes/{pid}/timers", "Cancel a timer of a process.", json::<Accepted>())
        .query(of::<UnscheduleQuery>),
];

/// What this version does not have yet: the path and what it would be.
pub const ABSENT: &[(&str, &str)] = &[("/", "the dashboard"), ("/mcp", "the MCP server")];

/// How much alike a path and the nearest are at least; below it nobody meant that one.
const LIKENESS_MIN: f64 = 0.6;

/// The path of the table that is most like `path`, whose variable parts stand for whatever is in their place; `None` where
/// none is much like it.
#[must_use]
pub fn nearest(path: &str) -> Option<&'static str> {
    // Paths of strangers may be long, and the measure is quadratic.
    let path: String = path.chars().take(100).collect();
    let parts: Vec<&str> = path.split('/').collect();
    let likeness = |route: &Route| {
        let filled: Vec<&str> = route
            .path
            .split('/')
            .enumerate()
            .map(|(at, part)| if part.starts_with('{') { parts.get(at).copied().unwrap_or(part) } else { part })
            .collect();
        strsim::normalized_damerau_levenshtein(&path, &filled.join("/"))
    };
    ROUTES
        .iter()
        .map(|route| (likeness(route), route.path))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_route_stands_twice_and_each_has_one_variable_at_most() {
        for (at, route) in ROUTES.iter().enumerate() {
            assert!(route.path.matches('{').count() <= 1, "{}", route.path);
            for other in &ROUTES[at + 1..] {
                assert_ne!(route.operation, other.operation);
                assert!((route.verb, route.path) != (other.verb, other.path), "{}", route.path);
            }
            assert!(ABSENT.iter().all(|(path, _)| *path != route.path));
        }
    }

    #[test]
    fn only_health_and_hooks_are_open() {
        let with = |access: &[Access]| {
            ROUTES.iter().filter(|route| access.contains(&route.access)).map(|r| r.path).collect::<Vec<_>>()
        };
        assert_eq!(with(&[Access::Open, Access::Hook]), ["/healthz", "/hooks/{path}"]);
        assert_eq!(with(&[Access::TokenOrKey]), ["/v1/models", "/v1/models/{id}"]);
        let programs = ROUTES.iter().filter_map(|route| Some((route.path, route.format()?)));
        let (chat, responses) = (("/v1/chat/completions", Format::Chat), ("/v1/responses", Format::Responses));
        assert_eq!(
            programs.collect::<Vec<_>>(),
            [
                chat,
                responses,
                ("/v1/messages", Format::Messages),
                ("/v1/messages/count_tokens", Format::Messages),
                ("/v1/embeddings", Format::Embeddings)
            ]
        );
    }

    #[test]
    fn a_misspelt_path_is_answered_with_the_nearest() {
        assert_eq!(nearest("/v1/proceses"), Some("/v1/processes"));
        assert_eq!(nearest("/v1/processes/7/event"), Some("/v1/processes/{pid}/events"));
        assert_eq!(nearest("/v1/proposals/p3/aprove"), Some("/v1/proposals/{id}/approve"));
        assert_eq!(nearest("/health"), Some("/healthz"));
        assert_eq!(nearest("/metric"), Some("/metrics"));
        assert_eq!(nearest("/nope"), None, "nobody meant the nearest");
        assert_eq!(nearest(&"/ä".repeat(10_000)), None, "long paths are cut between characters");
    }
}
