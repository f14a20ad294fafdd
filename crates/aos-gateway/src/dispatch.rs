//! From a request to its answer: the router, built from the route table, and the one place where calls are made.
//!
//! Start at [`router`], then [`answer`] for the order of the checks, then [`perform`]. What always holds: a request is
//! admitted before its path, query or body are looked at; its body is read within a size and a time; every await on
//! the system has a deadline; every answer, good or bad, is counted and marked `no-store` and `nosniff`.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::Serialize;
use serde_json::json;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use aos_abi::Pid;
use aos_abi::api::ModelView;

use crate::call::{Call, Incoming, shown};
use crate::door::{Comer, Door, admit};
use crate::error::ApiError;
use crate::events::{self, Wanted};
use crate::metrics::{self, Requests};
use crate::openapi::{self, ModelList};
use crate::options::Options;
use crate::rate::Rates;
use crate::room::Room;
use crate::route::{ABSENT, Access, BodySize, Operation, ROUTES, Route, nearest};
use crate::seats::Seats;
use crate::signature::Seen;
use crate::system::{Answer, System};
use crate::{hook, lines, relay};

/// The status of what had no answer in time: whether it is done is not known.
pub(crate) const LATE: u16 = 504;

/// What every request needs.
pub(crate) struct Shared<S> {
    pub(crate) system: Arc<S>,
    pub(crate) options: Options,
    pub(crate) shutdown: CancellationToken,
    /// Seats for the requests to webhooks.
    pub(crate) seats: Seats,
    /// Room for the requests of programs.
    pub(crate) programs: Arc<Room>,
    /// How often those that anybody may send came.
    pub(crate) rates: Rates,
    /// Signatures of webhooks that were taken.
    pub(crate) seen: Mutex<Seen>,
    /// Whether `seen` has what was taken before this start, too.
    pub(crate) recalled: OnceCell<()>,
    requests: Requests,
    /// The generated documents, written when somebody first asks: writing them takes more memory than serving does.
    openapi: OnceLock<Bytes>,
    syscalls: OnceLock<Bytes>,
}

impl<S: System> Shared<S> {
    pub(crate) fn new(system: Arc<S>, options: Options, shutdown: CancellationToken) -> Shared<S> {
        Shared {
            seats: Seats::new(options.webhooks_max),
            programs: Room::new(options.programs_bytes_max, options.program_bytes_max),
            rates: Rates::new(options.webhook_unsigned_per_minute),
            seen: Mutex::default(),
            recalled: OnceCell::new(),
            requests: Requests::new(),
            openapi: OnceLock::new(),
            syscalls: OnceLock::new(),
            system,
            options,
            shutdown,
        }
    }

    /// The system's answer, or 504 where it takes longer than `deadline`.
    pub(crate) async fn within<T>(&self, deadline: Duration, answer: impl Future<Output = Answer<T>>) -> Answer<T> {
        tokio::time::timeout(deadline, answer).await.unwrap_or_else(|_| {
            let message = format!("no answer within {} s", deadline.as_secs());
            Err(ApiError::new(LATE, "ETIMEDOUT", message).hint("the daemon is overloaded; see `aos top`"))
        })
    }
}

/// The routes of the table, all for one method each or answering 405, and a fallback that names the nearest.
pub(crate) fn router<S: System>(shared: Arc<Shared<S>>) -> Router {
    let mut paths = BTreeMap::<&'static str, Vec<(usize, &'static Route)>>::new();
    for (row, route) in ROUTES.iter().enumerate() {
        paths.entry(route.path).or_default().push((row, route));
    }
    let mut router = Router::new();
    for (path, routes) in paths {
        let routes: Arc<[(usize, &'static Route)]> = routes.into();
        let shared = Arc::clone(&shared);
        // The path of a webhook may have several parts.
        let pattern = path.replace("{path}", "{*path}");
        let handler = move |params: Subject, request: Request| handle(shared, routes, params, request);
        router = router.route(&pattern, axum::routing::any(handler));
    }
    router.fallback(move |request: Request| async move {
        let (parts, _) = request.into_parts();
        let error = unknown(&shared, &parts).await;
        shared.requests.count(usize::MAX, error.status);
        finish(error.into_response())
    })
}

/// The variable part of a path, or why it cannot be read.
type Subject = Result<RawPathParams, RawPathParamsRejection>;

async fn handle<S: System>(
    shared: Arc<Shared<S>>,
    routes: Arc<[(usize, &'static Route)]>,
    params: Subject,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let method = parts.method.as_str();
    let (row, response) = match routes.iter().find(|(_, route)| route.verb.takes(method)) {
        None => (usize::MAX, wrong_method(&shared, &routes, &parts).await),
        Some((row, route)) => {
            let answered = answer(&shared, route, params, parts, body).await;
            (*row, answered.unwrap_or_else(|error| refused(route, error)))
        }
    };
    shared.requests.count(row, response.status().as_u16());
    finish(response)
}

/// A request to a route: admitted, read, understood, made.
async fn answer<S: System>(
    shared: &Arc<Shared<S>>,
    route: &'static Route,
    params: Subject,
    parts: Parts,
    body: Body,
) -> Result<Response, ApiError> {
    let program = enter(shared, route.access, &parts).await?;
    let params = params.map_err(|rejection| ApiError::usage(format!("in the path: {rejection}")))?;
    let subject = params.iter().next().map_or("", |(_, subject)| subject).to_owned();
    if route.operation == Operation::Hook {
        return hook::answer(shared, subject, parts, body).await;
    }
    if let (Some(format), Some(pid)) = (route.format(), program) {
        if route.operation == Operation::CountTokens {
            return relay::count(shared, pid, parts, body).await;
        }
        // A query is no concern of ours: Anthropic's clients name their betas in it.
        return relay::answer(shared, pid, format, parts, body).await;
    }
    let body = match route.body.map(|taken| taken.size) {
        None => Bytes::new(),
        Some(size) => {
            let bytes_max = match size {
                BodySize::Usual => shared.options.body_bytes_max,
                BodySize::Files => shared.options.files_bytes_max,
                BodySize::Program => shared.options.program_bytes_max,
            };
            read_body(&parts.headers, body, bytes_max, shared.options.body_within).await?
        }
    };
    let incoming = Incoming {
        subject: &subject,
        query: parts.uri.query().unwrap_or(""),
        last_event_id: parts.headers.get("last-event-id").map(|id| id.to_str().unwrap_or("?")),
        body: &body,
    };
    if route.query.is_none() && !incoming.query.is_empty() {
        return Err(ApiError::usage("this route takes no query").hint("its parameters are in /openapi.json"));
    }
    let call = Call::parse(route.operation, incoming)?;
    drop(body);
    match route.deadline {
        None => perform(shared, route, program, call).await,
        Some(deadline) => shared.within(deadline, perform(shared, route, program, call)).await,
    }
}

/// An error in the form that the clients of a route read.
fn refused(route: &Route, error: ApiError) -> Response {
    match route.format() {
        None => error.into_response(),
        Some(format) => relay::refused(format, error),
    }
}

/// The checks that come before everything else. The process of the program that asks, where it shows a key.
async fn enter<S: System>(shared: &Shared<S>, access: Access, parts: &Parts) -> Result<Option<Pid>, ApiError> {
    let comer = admit(&shared.options, Door::of(parts), access, parts)?;
    if shared.shutdown.is_cancelled() {
        return Err(ApiError::unavailable("the daemon is ending").hint("start it again with `aos up`"));
    }
    match comer {
        Comer::Admitted => Ok(None),
        Comer::Program(key) => relay::owner(shared, &key).await.map(Some),
    }
}

async fn unknown<S: System>(shared: &Shared<S>, parts: &Parts) -> ApiError {
    let path = parts.uri.path();
    if let Err(error) = enter(shared, Access::TokenOrKey, parts).await {
        return error;
    }
    match ABSENT.iter().find(|(absent, _)| *absent == path) {
        Some((_, what)) => {
            ApiError::not_found(format!("{what} is not in this version")).hint("what there is stands in /openapi.json")
        }
        None => {
            let nearest = nearest(path).map(|nearest| format!("the nearest is {nearest}; ")).unwrap_or_default();
            ApiError::not_found(format!("there is no route `{}`", shown(path)))
                .hint(format!("{nearest}all are in /openapi.json"))
        }
    }
}

async fn wrong_method<S: System>(shared: &Shared<S>, routes: &[(usize, &'static Route)], parts: &Parts) -> Response {
    // A path is for programs or it is not, whatever the method.
    let Some((_, route)) = routes.first() else { return unknown(shared, parts).await.into_response() };
    let access = match route.access {
        Access::Open | Access::Hook | Access::Token => Access::Token,
        Access::TokenOrKey | Access::Program(_) => route.access,
    };
    if let Err(error) = enter(shared, access, parts).await {
        return refused(route, error);
    }
    let allowed: Vec<&str> = routes.iter().map(|(_, route)| route.verb.as_str()).collect();
    let allowed = allowed.join(", ");
    let message = format!("this route does not take {}", shown(parts.method.as_str()));
    let mut response = refused(route, ApiError::new(405, "usage", message).hint(format!("it takes {allowed}")));
    if let Ok(allowed) = HeaderValue::try_from(allowed) {
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    response
}

/// The length that a request says its body has.
pub(crate) fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok())
}

/// Reads a body of at most `bytes_max` within `deadline`; a larger one is refused before it is read where it says so.
pub(crate) async fn read_body(
    headers: &HeaderMap,
    mut body: Body,
    bytes_max: usize,
    deadline: Duration,
) -> Result<Bytes, ApiError> {
    if declared_length(headers).is_some_and(|length| length > bytes_max as u64) {
        return Err(ApiError::too_large(bytes_max));
    }
    let read = async {
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| ApiError::usage(format!("the body broke off: {error}")))?;
            if let Ok(data) = frame.into_data() {
                if bytes.len() + data.len() > bytes_max {
                    return Err(ApiError::too_large(bytes_max));
                }
                bytes.extend_from_slice(&data);
            }
        }
        Ok(bytes.freeze())
    };
    let late = || ApiError::new(408, "ETIMEDOUT", format!("the body did not come within {} s", deadline.as_secs()));
    tokio::time::timeout(deadline, read).await.unwrap_or_else(|_| Err(late()))
}

/// The models that whoever asks may name.
async fn models<S: System>(system: &S, program: Option<Pid>) -> Result<Vec<ModelView>, ApiError> {
    match program {
        None => system.models().await,
        Some(pid) => system.program_models(pid).await,
    }
}

/// Makes a call; `program` is who asks, where it is a program.
async fn perform<S: System>(
    shared: &Arc<Shared<S>>,
    route: &Route,
    program: Option<Pid>,
    call: Call,
) -> Result<Response, ApiError> {
    let system = &*shared.system;
    match call {
        Call::Health => {
            system.health().await?;
            json_response(200, &json!({"status": "ok"}))
        }
        Call::Metrics => {
            let text = metrics::render(&system.metrics().await?, &shared.requests);
            Ok(typed("text/plain; version=0.0.4; charset=utf-8", text.into()))
        }
        Call::OpenApi => {
            Ok(typed("application/json", shared.openapi.get_or_init(|| document(&openapi::document())).clone()))
        }
        Call::Syscalls => {
            Ok(typed("application/json", shared.syscalls.get_or_init(|| document(&openapi::syscalls())).clone()))
        }
        Call::Status => json_response(200, &system.status().await?),
        Call::Processes(wanted) => lines::processes(shared, wanted).await,
        Call::MakeKey(request) => json_response(route.status, &system.make_key(request).await?),
        Call::Spawn(request) => json_response(route.status, &system.spawn(*request).await?),
        Call::Process(pid) => json_response(200, &system.process(pid).await?),
        Call::Input(pid, request) => json_response(200, &system.input(pid, request).await?),
        Call::Signal(pid, request) => json_response(200, &system.signal(pid, request).await?),
        Call::SignalGroup(group, request) => json_response(200, &system.signal_group(group, request).await?),
        Call::Timers(pid) => lines::timers(shared, pid).await,
        Call::Unschedule(pid, id) => json_response(200, &system.unschedule(pid, id).await?),
        Call::Fork(pid, request) => json_response(route.status, &system.fork(pid, request).await?),
        Call::Replay(pid, at) => json_response(200, &system.replay(pid, at).await?),
        Call::Budget(pid, budget) => json_response(200, &system.budget(pid, budget).await?),
        Call::Wait(pid, timeout) => wait(shared, pid, timeout).await,
        Call::Events { pid, after, follow, progress } => {
            if let Some(pid) = pid {
                system.process(pid).await?;
            }
            events::check_place(shared, after).await?;
            Ok(events::respond(shared, Wanted { pid, after, follow, progress }))
        }
        Call::Proposals { all } => json_response(200, &system.proposals(all).await?),
        Call::Approve(id, request) => json_response(200, &system.approve(&id, request).await?),
        Call::Reject(id, request) => json_response(200, &system.reject(&id, request).await?),
        Call::Undo(id, request) => json_response(200, &system.undo(&id, request).await?),
        Call::Explain(request) => json_response(200, &system.explain(request).await?),
        Call::PolicyReload => json_response(200, &system.policy_reload().await?),
        Call::Models => json_response(200, &ModelList { object: "list", data: models(system, program).await? }),
        Call::Model(id) => {
            let model = models(system, program).await?.into_iter().find(|model| model.id == id);
            let model = model.ok_or_else(|| {
                ApiError::new(404, "model_not_found", format!("there is no model `{}` here", shown(&id)))
                    .hint("GET /v1/models lists what there is")
            })?;
            json_response(200, &model)
        }
        Call::ModelRoute(request) => json_response(200, &system.model_route(request).await?),
        Call::Cost(by) => json_response(200, &system.cost(by).await?),
        Call::MemorySearch(query) => json_response(200, &system.memory_search(query).await?),
        Call::MemoryList(query) => json_response(200, &system.memory_list(query).await?),
        Call::MemoryShow(id) => json_response(200, &system.memory_show(&id).await?),
        Call::MemoryForget(id) => json_response(200, &system.memory_forget(&id).await?),
        Call::MemoryExport(query) => lines::memory(shared, query).await,
        Call::AuditVerify(request) => json_response(200, &system.audit_verify(request).await?),
        Call::AuditExport { after, since } => lines::audit(shared, after, since).await,
        Call::Backup(request) => system.backup(request).await.map(|()| empty(route.status)),
        Call::Prune(request) => json_response(200, &system.prune(request).await?),
        Call::Shutdown => system.shutdown().await.map(|()| empty(route.status)),
        Call::Hook(path) => Err(ApiError::internal(format!("the webhook `{path}` was not taken as one"))),
        Call::Relay(_) => Err(ApiError::internal("a program's request was not taken as one")),
    }
}

async fn wait<S: System>(shared: &Shared<S>, pid: Pid, timeout: Duration) -> Result<Response, ApiError> {
    // The system ends the wait itself; the deadline is for a system that does not.
    let waited = shared.within(timeout + Duration::from_secs(30), shared.system.wait(pid, timeout));
    let ended = tokio::select! {
        biased;
        ended = waited => ended?,
        () = shared.shutdown.cancelled() => return Err(ApiError::unavailable("the daemon is ending")),
    };
    match ended {
        None => Ok(empty(204)),
        Some(process) => json_response(200, &process),
    }
}

pub(crate) fn json_response<T: Serialize>(status: u16, value: &T) -> Result<Response, ApiError> {
    let bytes =
        serde_json::to_vec(value).map_err(|error| ApiError::internal(format!("the answer is no JSON: {error}")))?;
    let mut response = typed("application/json", bytes.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    Ok(response)
}

fn document(document: &impl Serialize) -> Bytes {
    Bytes::from(serde_json::to_vec(document).expect("generated documents have text keys only"))
}

fn typed(content_type: &'static str, bytes: Bytes) -> Response {
    let mut response = Response::new(Body::from(bytes));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn empty(status: u16) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::NO_CONTENT);
    response
}

/// What every answer says: do not keep it, and do not guess what it is.
fn finish(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
