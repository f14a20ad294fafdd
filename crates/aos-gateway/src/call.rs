//! A request, understood: from bytes to the one typed call that it makes, without I/O.
//!
//! Start at [`Call::parse`], which is also what the fuzz target calls. What always holds: unknown fields and unknown
//! query keys are refused, so that a misspelt one is never silently ignored; a body fault is answered with its JSON
//! pointer; texts are within [`limits`].

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use aos_abi::api::{
    ApproveRequest, AuditRequest, BackupRequest, ExpectedEntry, ExplainRequest, ForkRequest, InputRequest, KeyRequest,
    PruneRequest, RejectRequest, RouteRequest, SignalRequest, SpawnRequest, UndoRequest,
};
use aos_abi::inference::Format;
use aos_abi::process::BudgetSpec;
use aos_abi::{Code, Lsn, Pid, Signal, Timestamp, Usd, limits};

use crate::error::ApiError;
use crate::query::{
    CostBy, CostQuery, EventsQuery, ExportQuery, KillQuery, ListQuery, MemoryExportQuery, MemoryListQuery,
    MemorySearchQuery, ProcessesQuery, ReplayQuery, TimersQuery, UnscheduleQuery, WaitQuery,
};
use crate::route::Operation;

/// Longest time that `wait` keeps a caller, in seconds.
pub const WAIT_S_MAX: f64 = 3600.0;
/// Most hits or memories in one answer.
pub const MEMORY_LIMIT_MAX: u32 = 1000;

/// What a request holds, raw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Incoming<'a> {
    /// The variable part of the path, percent-decoded: a pid, a proposal, a memory, a group or a webhook path.
    pub subject: &'a str,
    /// What follows `?`, as sent.
    pub query: &'a str,
    /// The header `Last-Event-ID`.
    pub last_event_id: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
}

/// A request, valid because it exists.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "one per operation, described in the route table")]
pub enum Call {
    Health,
    Metrics,
    OpenApi,
    Syscalls,
    Status,
    Processes(ProcessesQuery),
    Spawn(Box<SpawnRequest>),
    MakeKey(KeyRequest),
    Process(Pid),
    Input(Pid, InputRequest),
    Signal(Pid, SignalRequest),
    SignalGroup(String, SignalRequest),
    Timers(Option<Pid>),
    Unschedule(Pid, String),
    Fork(Pid, ForkRequest),
    Replay(Pid, Option<Lsn>),
    Budget(Pid, BudgetSpec),
    Wait(Pid, std::time::Duration),
    Events { pid: Option<Pid>, after: Lsn, follow: bool, progress: bool },
    Proposals { all: bool },
    Approve(String, ApproveRequest),
    Reject(String, RejectRequest),
    Undo(String, UndoRequest),
    Explain(ExplainRequest),
    PolicyReload,
    Models,
    Model(String),
    ModelRoute(RouteRequest),
    Cost(CostBy),
    MemorySearch(MemorySearchQuery),
    MemoryList(MemoryListQuery),
    MemoryShow(String),
    MemoryForget(String),
    MemoryExport(MemoryExportQuery),
    AuditVerify(AuditRequest),
    AuditExport { after: Lsn, since: Option<Timestamp> },
    Backup(BackupRequest),
    Prune(PruneRequest),
    Shutdown,
    Hook(String),
    Relay(Format),
}

impl Call {
    /// Reads a request for one operation.
    ///
    /// # Errors
    /// 400 that says where the fault is and what was expected there.
    pub fn parse(operation: Operation, from: Incoming<'_>) -> Result<Call, ApiError> {
        let call = match operation {
            Operation::Health => Call::Health,
            Operation::Metrics => Call::Metrics,
            Operation::OpenApi => Call::OpenApi,
            Operation::Syscalls => Call::Syscalls,
            Operation::Status => Call::Status,
            Operation::Processes => Call::Processes(query(from.query)?),
            Operation::Spawn => Call::Spawn(Box::new(check_spawn(body(from.body)?)?)),
            Operation::Process => Call::Process(pid(from.subject)?),
            Operation::Kill => {
                let KillQuery { tree } = query(from.query)?;
                Call::Signal(pid(from.subject)?, SignalRequest { signal: Signal::Kill, tree })
            }
            Operation::Input => {
                let request: InputRequest = body(from.body)?;
                check_text("/text", &request.text, limits::TEXT_BYTES_MAX)?;
                Call::Input(pid(from.subject)?, request)
            }
            Operation::Signal => Call::Signal(pid(from.subject)?, body(from.body)?),
            Operation::SignalGroup => Call::SignalGroup(from.subject.to_owned(), body(from.body)?),
            Operation::Timers => Call::Timers(query::<TimersQuery>(from.query)?.pid),
            Operation::Unschedule => Call::Unschedule(pid(from.subject)?, query::<UnscheduleQuery>(from.query)?.id),
            Operation::Fork => {
                let request: ForkRequest = body_or_default(from.body)?;
                check_name(request.name.as_deref())?;
                Call::Fork(pid(from.subject)?, request)
            }
            Operation::Replay => Call::Replay(pid(from.subject)?, query::<ReplayQuery>(from.query)?.at),
            Operation::Budget => {
                let budget: BudgetSpec = body(from.body)?;
                check_budget("", &budget)?;
                Call::Budget(pid(from.subject)?, budget)
            }
            Operation::Wait => Call::Wait(pid(from.subject)?, wait_timeout(query(from.query)?)?),
            Operation::ProcessEvents => events(Some(pid(from.subject)?), from)?,
            Operation::Events => events(None, from)?,
            Operation::Proposals => Call::Proposals { all: query::<ListQuery>(from.query)?.all },
            Operation::Approve => Call::Approve(from.subject.to_owned(), body_or_default(from.body)?),
            Operation::Reject => {
                let request: RejectRequest = body_or_default(from.body)?;
                check_text("/why", &request.why, limits::TEXT_BYTES_MAX)?;
                Call::Reject(from.subject.to_owned(), request)
            }
            Operation::Undo => Call::Undo(from.subject.to_owned(), body_or_default(from.body)?),
            Operation::Explain => Call::Explain(body(from.body)?),
            Operation::PolicyReload => Call::PolicyReload,
            Operation::Models => Call::Models,
            Operation::Model => Call::Model(from.subject.to_owned()),
            Operation::ModelRoute => {
                let request: RouteRequest = body(from.body)?;
                check_text("/task", &request.task, limits::TEXT_BYTES_MAX)?;
                Call::ModelRoute(request)
            }
            Operation::Cost => Call::Cost(query::<CostQuery>(from.query)?.by),
            Operation::MemorySearch => {
                let query: MemorySearchQuery = query(from.query)?;
                check_limit(query.limit)?;
                Call::MemorySearch(query)
            }
            Operation::MemoryList => {
                let query: MemoryListQuery = query(from.query)?;
                check_limit(query.limit)?;
                Call::MemoryList(query)
            }
            Operation::MemoryShow => Call::MemoryShow(from.subject.to_owned()),
            Operation::MemoryForget => Call::MemoryForget(from.subject.to_owned()),
            Operation::MemoryExport => Call::MemoryExport(query(from.query)?),
            Operation::AuditVerify => {
                let request: AuditRequest = body_or_default(from.body)?;
                if let Some(expected) = &request.expect {
                    check_expected(expected)?;
                }
                Call::AuditVerify(request)
            }
            Operation::AuditExport => {
                let ExportQuery { after, since } = query(from.query)?;
                Call::AuditExport { after: after.unwrap_or(Lsn::ZERO), since }
            }
            Operation::Backup => {
                let request: BackupRequest = body(from.body)?;
                check_absolute("/file", &request.file)?;
                Call::Backup(request)
            }
            Operation::Prune => Call::Prune(body_or_default(from.body)?),
            Operation::Shutdown => Call::Shutdown,
            Operation::Hook => Call::Hook(from.subject.to_owned()),
            // The body is read by whoever knows the format.
            Operation::MakeKey => Call::MakeKey(check_key(body(from.body)?)?),
            Operation::ChatCompletions => Call::Relay(Format::Chat),
            Operation::Responses => Call::Relay(Format::Responses),
            Operation::Messages | Operation::CountTokens => Call::Relay(Format::Messages),
            Operation::Embeddings => Call::Relay(Format::Embeddings),
        };
        Ok(call)
    }
}

fn pid(text: &str) -> Result<Pid, ApiError> {
    // `+7` would parse too, and one process should have one address.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ApiError::usage(format!("`{}` is no pid", shown(text))).hint("a pid is a number, such as 7"));
    }
    text.parse().map_err(|_| ApiError::usage(format!("`{}` is no pid: the number is too large", shown(text))))
}

fn events(pid: Option<Pid>, from: Incoming<'_>) -> Result<Call, ApiError> {
    let EventsQuery { after, follow, progress } = query(from.query)?;
    // A browser that reconnects repeats the address with its old `after` and adds the header, so the header is newer.
    let after = match from.last_event_id {
        None => after.unwrap_or(Lsn::ZERO),
        Some(text) => Lsn(text.trim().parse().map_err(|_| {
            ApiError::usage(format!("Last-Event-ID `{}` is no journal position", shown(text)))
                .hint("send back the `id:` of the last event you have, a number")
        })?),
    };
    Ok(Call::Events { pid, after, follow: follow.unwrap_or(true), progress })
}

fn wait_timeout(query: WaitQuery) -> Result<std::time::Duration, ApiError> {
    let seconds = query.timeout_s.unwrap_or(30.0);
    if !(0.0..=WAIT_S_MAX).contains(&seconds) {
        return Err(ApiError::usage(format!("timeout_s is {seconds}, it must be from 0 to {WAIT_S_MAX}"))
            .hint("ask again when it is over; a process that has ended answers at once"));
    }
    Ok(std::time::Duration::from_secs_f64(seconds))
}

fn query<T: DeserializeOwned>(text: &str) -> Result<T, ApiError> {
    // The extractor's own parser, which wants a whole address.
    let uri = axum::http::Uri::builder()
        .path_and_query(format!("/?{text}"))
        .build()
        .map_err(|error| ApiError::usage(format!("the query is not well-formed: {error}")))?;
    axum::extract::Query::<T>::try_from_uri(&uri)
        .map(|query| query.0)
        .map_err(|rejection| ApiError::usage(format!("in the query: {}", deepest(&rejection))))
}

/// The message of the error at the root, without the library's words around it.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

fn body_or_default<T: DeserializeOwned + Default>(bytes: &[u8]) -> Result<T, ApiError> {
    if bytes.iter().all(u8::is_ascii_whitespace) { Ok(T::default()) } else { body(bytes) }
}

fn body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    // The library reads an array as the fields of a struct in their order, and `[]` would be a budget without limits.
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => {}
        Some(_) => return Err(fault("", "a JSON object was expected")),
        None => return Err(fault("", "a JSON object was expected and the body is empty")),
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| fault(&pointer(error.path()), &error.inner().to_string()))?;
    deserializer.end().map_err(|error| fault("", &error.to_string()))?;
    Ok(value)
}

/// RFC 6901.
fn pointer(path: &serde_path_to_error::Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } => pointer.push_str(&format!("/{}", key.replace('~', "~0").replace('/', "~1"))),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    pointer
}

fn fault(pointer: &str, expected: &str) -> ApiError {
    ApiError::new(400, Code::Inval.as_str(), aos_abi::syscall::at(&shown(pointer), expected))
        .hint("the shape of every body is in /openapi.json")
}

fn check_spawn(request: SpawnRequest) -> Result<SpawnRequest, ApiError> {
    check_text("/task", request.task.as_deref().unwrap_or(""), limits::TEXT_BYTES_MAX)?;
    check_text("/role", request.role.as_deref().unwrap_or(""), limits::TEXT_BYTES_MAX)?;
    check_name(request.name.as_deref())?;
    check_text("/group", request.group.as_deref().unwrap_or(""), limits::NAME_BYTES_MAX)?;
    check_budget("/budget", &request.budget)?;
    if let Some(folder) = &request.workspace {
        check_absolute("/workspace", folder)?;
    }
    Ok(request)
}

fn check_key(request: KeyRequest) -> Result<KeyRequest, ApiError> {
    check_name(Some(&request.name))?;
    check_text("/owner", request.owner.as_deref().unwrap_or(""), limits::NAME_BYTES_MAX)?;
    check_budget("/budget", &request.budget)?;
    if request.rpm == Some(0) {
        return Err(fault("/rpm", "a rate above 0 was expected").hint("leave it out for no limit"));
    }
    Ok(request)
}

/// A limit of nothing would end a process before it did anything, which nobody means.
fn check_budget(at: &str, budget: &BudgetSpec) -> Result<(), ApiError> {
    let BudgetSpec { usd, tokens, calls, wall_s } = *budget;
    let zero = [
        ("usd", usd == Some(Usd::ZERO)),
        ("tokens", tokens == Some(0)),
        ("calls", calls == Some(0)),
        ("wall_s", wall_s == Some(0)),
    ];
    match zero.into_iter().find(|(_, zero)| *zero) {
        None => Ok(()),
        Some((field, _)) => Err(fault(&format!("{at}/{field}"), "a budget above 0 was expected")
            .hint("leave it out for no limit; `aos pause` stops a process, `aos kill` ends it")),
    }
}

fn check_expected(expected: &ExpectedEntry) -> Result<(), ApiError> {
    let hint = "`aos audit verify` prints both, as LSN:HASH";
    if expected.lsn == Lsn::ZERO {
        return Err(fault("/expect/lsn", "the number of an entry was expected, from 1").hint(hint));
    }
    if expected.hash.len() != 64 || !expected.hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(fault("/expect/hash", "64 hex digits were expected").hint(hint));
    }
    Ok(())
}

fn check_name(name: Option<&str>) -> Result<(), ApiError> {
    let Some(name) = name else { return Ok(()) };
    if name.is_empty() {
        return Err(fault("/name", "a name was expected, this one is empty"));
    }
    check_text("/name", name, limits::NAME_BYTES_MAX)
        .map_err(|error| error.hint(format!("a name has at most {} bytes", limits::NAME_BYTES_MAX)))
}

fn check_text(pointer: &str, text: &str, bytes_max: usize) -> Result<(), ApiError> {
    if text.len() <= bytes_max {
        return Ok(());
    }
    let bytes = text.len();
    Err(fault(pointer, &format!("{bytes} bytes, the most is {bytes_max}")).hint("put what is long into a file"))
}

fn check_absolute(pointer: &str, path: &str) -> Result<(), ApiError> {
    if std::path::Path::new(path).is_absolute() {
        return Ok(());
    }
    Err(fault(pointer, &format!("an absolute path was expected, `{}` is relative", shown(path)))
        .hint("the daemon does not know the folder you are in"))
}

fn check_limit(limit: Option<u32>) -> Result<(), ApiError> {
    match limit {
        Some(limit) if limit == 0 || limit > MEMORY_LIMIT_MAX => {
            Err(ApiError::usage(format!("limit is {limit}, it must be from 1 to {MEMORY_LIMIT_MAX}")))
        }
        _ => Ok(()),
    }
}

/// The start of a text that a stranger wrote, for a message.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::ROUTES;

    fn with_body(operation: Operation, body: &str) -> Result<Call, ApiError> {
        Call::parse(operation, Incoming { subject: "7", body: body.as_bytes(), ..Incoming::default() })
    }

    fn with_query(operation: Operation, query: &str) -> Result<Call, ApiError> {
        Call::parse(operation, Incoming { subject: "7", query, ..Incoming::default() })
    }

    #[test]
    fn a_body_fault_names_its_place() {
        let table = [
            (Operation::Spawn, r#"{"task":1}"#, "at `/task`: invalid type: integer `1`"),
            (
                Operation::Spawn,
                r#"{"files":[{"path":"a","base64":"x"},{"path":2}]}"#,
                "at `/files/1/path`: invalid type",
            ),
            (Operation::Spawn, r#"{"tsak":"x"}"#, "at `/tsak`: unknown field `tsak`, expected one of `task`"),
            (Operation::Spawn, r#"{"task":"a","task":"b"}"#, "duplicate field `task`"),
            (Operation::Spawn, "", "the body is empty"),
            (Operation::Spawn, r#"{"task":"x"} y"#, "trailing characters"),
            (Operation::Spawn, "{\"task\":\"\u{0}\"}", "control character"),
            (Operation::Spawn, r#"{"workspace":"here"}"#, "at `/workspace`: an absolute path was expected"),
            (Operation::Spawn, r#"{"name":""}"#, "at `/name`: a name was expected"),
            (Operation::Signal, r#"{"signal":"HUP"}"#, "unknown variant `HUP`"),
            (Operation::Budget, r#"{"usd":-1}"#, "at `/usd`: expected an amount of dollars"),
            (Operation::Budget, r#"{"tokens":0}"#, "at `/tokens`: a budget above 0 was expected"),
            (Operation::Spawn, r#"{"budget":{"usd":0}}"#, "at `/budget/usd`: a budget above 0 was expected"),
            (Operation::Budget, "[]", "a JSON object was expected"),
            (Operation::Backup, r#"{"file":"a.tar"}"#, "at `/file`: an absolute path was expected"),
            (Operation::Explain, r#"{"pid":7,"call":{"args":{}}}"#, "at `/call`: missing field `name`"),
            (Operation::AuditVerify, r#"{"expect":{"lsn":9,"hash":"0g"}}"#, "at `/expect/hash`: 64 hex digits"),
        ];
        for (operation, body, expected) in table {
            let error = with_body(operation, body).unwrap_err();
            assert_eq!((error.status, error.code.as_str()), (400, "EINVAL"), "{body}");
            assert!(error.message.contains(expected), "{body}: {error}");
        }
        let error = with_body(Operation::Spawn, &format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)));
        assert_eq!(error.unwrap_err().status, 400, "deep nesting is refused and does not overflow the stack");
    }

    #[test]
    fn texts_are_within_their_limits() {
        let long = "x".repeat(limits::TEXT_BYTES_MAX + 1);
        let error = with_body(Operation::Input, &format!(r#"{{"text":"{long}"}}"#)).unwrap_err();
        assert!(error.message.contains("at `/text`: 1048577 bytes, the most is 1048576"), "{error}");
        assert!(with_body(Operation::Input, &format!(r#"{{"text":"{}"}}"#, &long[1..])).is_ok());
        let name = "n".repeat(limits::NAME_BYTES_MAX + 1);
        assert!(with_body(Operation::Fork, &format!(r#"{{"name":"{name}"}}"#)).is_err());
    }

    #[test]
    fn a_query_fault_says_what_is_wrong() {
        let table = [
            (Operation::Processes, "all=yes", "provided string was not `true` or `false`"),
            (Operation::Processes, "al=true", "unknown field `al`, expected `all`"),
            (Operation::Cost, "by=week", "unknown variant `week`, expected one of `day`, `model`, `pid`"),
            (Operation::Wait, "timeout_s=-1", "it must be from 0 to 3600"),
            (Operation::Wait, "timeout_s=NaN", "it must be from 0 to 3600"),
            (Operation::MemorySearch, "limit=3", "missing field `q`"),
            (Operation::MemorySearch, "q=a&limit=0", "it must be from 1 to 1000"),
            (Operation::Events, "after=x", "invalid digit found in string"),
        ];
        for (operation, query, expected) in table {
            let error = with_query(operation, query).unwrap_err();
            assert_eq!(error.status, 400);
            assert!(error.message.contains(expected), "{query}: {error}");
        }
        assert_eq!(with_query(Operation::Cost, "by=pid").unwrap(), Call::Cost(CostBy::Pid));
    }

    #[test]
    fn the_newest_event_id_wins() {
        let from = Incoming { query: "after=3", last_event_id: Some("9"), ..Incoming::default() };
        let call = Call::parse(Operation::Events, from).unwrap();
        assert_eq!(call, Call::Events { pid: None, after: Lsn(9), follow: true, progress: false });
        assert!(Call::parse(Operation::Events, Incoming { last_event_id: Some("x"), ..from }).is_err());
    }

    #[test]
    fn a_pid_is_digits() {
        for subject in ["", "+7", "-1", "7a", "99999999999999999999999"] {
            assert_eq!(
                Call::parse(Operation::Process, Incoming { subject, ..Incoming::default() }).unwrap_err().status,
                400
            );
        }
    }

    proptest::proptest! {
        /// Whatever strangers send is a call or a 400, never a panic.
        #[test]
        fn nothing_panics(
            route in 0..ROUTES.len(), subject in ".{0,20}", query in ".{0,40}", id in ".{0,10}",
            body in proptest::prop_oneof![
                proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60),
                r#"\{"(task|text|signal|at|why|usd|pid|file|name)":("a"|-?[0-9]{1,30}|null|\[\]|\{\})\}"#.prop_map(String::into_bytes),
            ],
        ) {
            let from = Incoming { subject: &subject, query: &query, last_event_id: Some(&id), body: &body };
            if let Err(error) = Call::parse(ROUTES[route].operation, from) {
                proptest::prop_assert_eq!(error.status, 400);
            }
        }
    }
    use proptest::strategy::Strategy as _;
}
