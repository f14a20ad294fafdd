//! Long answers, page by page, so that what is of any length passes through little memory: exports with one JSON
//! document per line, and the process table as one array.
//!
//! Start at [`audit`], [`memory`] and [`processes`]. What always holds: the first page is read before the status is sent; a fault
//! after that cuts the transfer short, so that half an export is never taken for a whole one.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use aos_abi::{Lsn, Pid, Timestamp};

use crate::dispatch::Shared;
use crate::error::ApiError;
use crate::query::MemoryExportQuery;
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
pub(crate) async fn processes<S: System>(shared: &Arc<Shared<S>>, all: bool) -> Result<Response, ApiError> {
    respond(shared, Source::Processes { all, after: Some(Pid::SYSTEM), head: "[" }).await
}

/// Where a long answer stands.
enum Source {
    /// After this entry.
    Audit(Lsn),
    /// After the memory with this id.
    Memory { query: MemoryExportQuery, after: Option<String> },
    /// After this process; `head` is what stands before the next one.
    Processes { all: bool, after: Option<Pid>, head: &'static str },
}

impl Source {
    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Source::Audit(_) | Source::Memory { .. } => "application/x-ndjson",
            Source::Processes { .. } => "application/json",
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
            Source::Processes { all, after, head } => {
                let Some(from) = *after else { return Ok(None) };
                let (views, next) = shared.system.processes(*all, from).await?;
                let mut text = Vec::new();
                for view in views {
                    text.extend_from_slice(std::mem::replace(head, ",").as_bytes());
                    write(&mut text, &view)?;
                }
                if next.is_none() {
                    text.extend_from_slice(if *head == "[" { b"[]" } else { b"]" });
                }
                *after = next;
                Ok(Some(text.into()))
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
