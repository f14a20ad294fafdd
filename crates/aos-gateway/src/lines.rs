//! Long answers, page by page, so that what is of any length passes through little memory: exports with one JSON
//! document per line, and the process table and the timers as one array.
//!
//! Start at [`audit`], [`memory`], [`processes`] and [`timers`]. What always holds: the first page is read before the status is sent; a fault
//! after that cuts the transfer short, so that half an export is never taken for a whole one.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use aos_abi::process::HeldTimer;
use aos_abi::{Lsn, Pid, Timestamp};

use crate::dispatch::Shared;
use crate::error::ApiError;
use crate::query::{MemoryExportQuery, ProcessesQuery};
use crate::system::System;

/// How long one page may take.
const PAGE_WITHIN: Duration = Duration::from_secs(30);

/// Every entry after `after` and since `since`.
pub(crate) async fn audit<S: System>(
    shared: &Arc<Shared<S>>,
    after: Lsn,
    since: Option<Timestamp>,
) -> Result<Response, ApiError> {
    let since = match since {
        Some(moment) => shared.system.entry_before(moment).await?,
        None => Lsn::ZERO,
    };
    respond(shared, Source::Audit(after.max(since))).await
}

/// Every memory.
pub(crate) async fn memory<S: System>(shared: &Arc<Shared<S>>, query: MemoryExportQuery) -> Result<Response, ApiError> {
    respond(shared, Source::Memory { query, after: None }).await
}

/// The process table.
pub(crate) async fn processes<S: System>(
    shared: &Arc<Shared<S>>,
    wanted: ProcessesQuery,
) -> Result<Response, ApiError> {
    respond(shared, Source::Processes { wanted, array: Array::default() }).await
}

/// The timers of one process, or of all.
pub(crate) async fn timers<S: System>(shared: &Arc<Shared<S>>, pid: Option<Pid>) -> Result<Response, ApiError> {
    respond(shared, Source::Timers { pid, array: Array::default() }).await
}

/// Where a long answer stands.
enum Source {
    /// After this entry.
    Audit(Lsn),
    /// After the memory with this id.
    Memory { query: MemoryExportQuery, after: Option<String> },
    /// Rows of processes.
    Processes { wanted: ProcessesQuery, array: Array },
    /// Rows of timers, of one process or of all.
    Timers { pid: Option<Pid>, array: Array },
}

/// Where an array stands that comes in pieces.
struct Array {
    /// After this process; `None` at the end.
    after: Option<Pid>,
    /// What stands before the next row.
    head: &'static str,
}

impl Default for Array {
    fn default() -> Array {
        Array { after: Some(Pid::SYSTEM), head: "[" }
    }
}

impl Array {
    /// One more piece, after which it goes on at `next`.
    fn piece<T: Serialize>(&mut self, rows: &[T], next: Option<Pid>) -> Result<Bytes, ApiError> {
        let mut text = Vec::new();
        for row in rows {
            text.extend_from_slice(std::mem::replace(&mut self.head, ",").as_bytes());
            write(&mut text, row)?;
        }
        if next.is_none() {
            text.extend_from_slice(if self.head == "[" { b"[]" } else { b"]" });
        }
        self.after = next;
        Ok(text.into())
    }
}

impl Source {
    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Source::Audit(_) | Source::Memory { .. } => "application/x-ndjson",
            Source::Processes { .. } | Source::Timers { .. } => "application/json",
        })
    }

    /// The next page as bytes; `None` at the end.
    async fn page<S: System>(&mut self, shared: &Shared<S>) -> Result<Option<Bytes>, ApiError> {
        let limit = shared.options.page_entries;
        match self {
            Source::Audit(after) => {
                let page = shared.system.audit_lines(*after, limit).await?;
                let Some((last, _)) = page.last() else { return Ok(None) };
                *after = *last;
                Ok(Some(page.into_iter().fold(String::new(), |text, (_, line)| text + &line + "\n").into()))
            }
            Source::Memory { query, after } => {
                let page: Vec<Value> = shared.system.memory_export(query.clone(), after.as_deref(), limit).await?;
                let Some(last) = page.last() else { return Ok(None) };
                let id = last["id"].as_str().map(str::to_owned);
                *after = Some(id.ok_or_else(|| ApiError::internal("a memory without an id"))?);
                lines(&page).map(Some)
            }
            Source::Processes { wanted, array } => {
                let Some(from) = array.after else { return Ok(None) };
                let (views, next) = shared.system.processes(wanted, from).await?;
                array.piece(&views, next).map(Some)
            }
            Source::Timers { pid, array } => {
                let Some(from) = array.after else { return Ok(None) };
                let (timers, next) = match *pid {
                    None => shared.system.timers(from).await?,
                    Some(pid) => {
                        let timers = shared.system.process(pid).await?.timers;
                        (timers.into_iter().map(|timer| HeldTimer { pid, timer }).collect(), None)
                    }
                };
                array.piece(&timers, next).map(Some)
            }
        }
    }

    async fn page_in_time<S: System>(&mut self, shared: &Shared<S>) -> Result<Option<Bytes>, ApiError> {
        tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => Err(ApiError::unavailable("the daemon is ending")),
            page = tokio::time::timeout(PAGE_WITHIN, self.page(shared)) => {
                page.unwrap_or_else(|_| Err(ApiError::new(504, "ETIMEDOUT", "the store does not answer")))
            }
        }
    }
}

async fn respond<S: System>(shared: &Arc<Shared<S>>, mut source: Source) -> Result<Response, ApiError> {
    let content_type = source.content_type();
    let first = source.page_in_time(shared).await?;
    let more = first.is_some();
    let state = (Arc::clone(shared), source, first, more);
    let stream = futures_util::stream::unfold(state, |(shared, mut source, first, more)| async move {
        if let Some(first) = first {
            return Some((Ok(first), (shared, source, None, more)));
        }
        if !more {
            return None;
        }
        match source.page_in_time(&shared).await {
            Ok(None) => None,
            Ok(Some(page)) => Some((Ok(page), (shared, source, None, true))),
            Err(error) => Some((Err(error), (shared, source, None, false))),
        }
    });
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    Ok(response)
}

fn lines<T: Serialize>(page: &[T]) -> Result<Bytes, ApiError> {
    let mut text = Vec::new();
    for value in page {
        write(&mut text, value)?;
        text.push(b'\n');
    }
    Ok(text.into())
}

fn write(text: &mut Vec<u8>, value: &impl Serialize) -> Result<(), ApiError> {
    serde_json::to_writer(text, value).map_err(|error| ApiError::internal(error.to_string()))
}
