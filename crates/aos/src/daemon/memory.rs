//! Memory calls, and memory as people see it, over whichever store there is.
//!
//! What always holds: `self` is the calling process's own namespace and nobody else's.

use std::collections::BTreeSet;

use aos_abi::{CallError, EffectId, Pid, Syscall};
use aos_gateway::ApiError;
use aos_memory::{Error, Forget, Hit, MemoryStore, Occasion, Record, Search, What};
use aos_policy::Permit;
use serde_json::{Value, json};

use super::heart::now;

/// Hits where nobody says how many.
const HITS: usize = 6;
/// Most hits and rows at once.
const ROWS_MAX: usize = 1000;

/// The namespace in the store: `self`, or none, belongs to the process that says it. Read as the policy and the kernel do.
fn namespace(pid: Pid, given: Option<&str>) -> String {
    let words = aos_policy::namespace(given);
    match words.split_first() {
        Some((&"self", below)) => [&["self", &pid.to_string()], below].concat().join("/"),
        _ => words.join("/"),
    }
}

/// Carries out a memory call.
pub(crate) fn call(store: &dyn MemoryStore, effect: EffectId, permit: Permit) -> Result<Value, CallError> {
    let given = match permit.call() {
        Syscall::MemWrite(args) => args.namespace.as_deref(),
        Syscall::MemRead(args) => args.namespace.as_deref(),
        Syscall::MemForget(args) => args.namespace.as_deref(),
        _ => None,
    };
    let namespace = namespace(permit.pid(), given);
    aos_memory::call(store, permit, Occasion { namespace, labels: BTreeSet::new(), effect, now: now() })
}

/// What people are told: system calls are no way out for them.
fn failed(error: Error) -> CallError {
    let is_unknown = matches!(error, Error::NotFound { .. });
    let told = CallError::from(error);
    if is_unknown { told.hint("`aos memory list` shows what is remembered, with ids") } else { told }
}

fn hit(hit: &Hit) -> Value {
    let mut value = row(&hit.record);
    value["score"] = json!(hit.score);
    value
}

fn row(record: &Record) -> Value {
    json!({
        "id": record.id, "key": record.key, "value": record.value, "at": record.at,
        "source": { "pid": record.source.pid, "lsn": record.source.lsn }, "namespace": record.namespace,
        "tags": record.tags, "version": record.version, "expires_at": record.expires_at,
    })
}

/// Memory as people see it: every namespace.
pub(crate) struct People<'a>(pub(crate) &'a dyn MemoryStore);

impl People<'_> {
    /// The best hits, over one namespace or over all.
    pub(crate) fn search(&self, query: &str, namespace: Option<&str>, limit: Option<u32>) -> Result<Value, ApiError> {
        let limit = limit.map_or(HITS, |limit| limit as usize).clamp(1, ROWS_MAX);
        let namespaces = match namespace {
            Some(namespace) => vec![namespace.to_owned()],
            None => self.0.stats().map_err(failed)?.namespaces.into_keys().collect(),
        };
        let mut hits = Vec::new();
        for namespace in namespaces {
            let search = Search { namespace, query: query.to_owned(), tags: BTreeSet::new(), since: None, limit };
            hits.extend(self.0.search(&search, now()).map_err(failed)?);
            // After each: there are as many namespaces as there were processes that remembered something.
            hits.sort_by(|a, b| b.score.total_cmp(&a.score));
            hits.truncate(limit);
        }
        Ok(json!({ "hits": hits.iter().map(hit).collect::<Vec<_>>() }))
    }

    /// What is remembered, newest first.
    pub(crate) fn list(&self, namespace: Option<&str>, limit: Option<u32>) -> Result<Value, ApiError> {
        let limit = limit.map_or(100, |limit| limit as usize).clamp(1, ROWS_MAX);
        let rows = self.0.list(namespace, None, limit, now()).map_err(failed)?;
        Ok(json!({ "memories": rows.iter().map(row).collect::<Vec<_>>() }))
    }

    /// Every kept version of one memory.
    pub(crate) fn show(&self, id: &str) -> Result<Value, ApiError> {
        let versions = self.0.show(id, now()).map_err(failed)?;
        Ok(json!({ "versions": versions.iter().map(row).collect::<Vec<_>>() }))
    }

    /// Forgets one memory for good.
    pub(crate) fn forget(&self, id: &str) -> Result<Value, ApiError> {
        let namespace = match self.0.show(id, now()).map_err(failed)?.first() {
            Some(record) => record.namespace.clone(),
            None => return Err(failed(Error::NotFound { what: format!("`{id}`") }).into()),
        };
        // A person's word has no effect id of its own; forgetting twice is forgetting once.
        let effect = EffectId { cause: aos_abi::Lsn::ZERO, nth: 0 };
        let forget = Forget { namespace, what: What::Id(id.to_owned()), effect };
        let forgotten = self.0.forget(&forget).map_err(failed)?;
        Ok(json!({ "forgotten": forgotten }))
    }

    /// One page of everything, oldest first.
    pub(crate) fn export(
        &self,
        namespace: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Value>, ApiError> {
        let page = self.0.export(namespace, after, limit, now()).map_err(failed)?;
        Ok(page.iter().map(row).collect())
    }

    /// Forgets for good what has expired, and what processes remembered for themselves that are no more: those below `next`
    /// that are not `known`.
    pub(crate) fn sweep(&self, known: &BTreeSet<Pid>, next: Pid) -> Result<(), ApiError> {
        let is_gone = |pid: Pid| pid < next && !known.contains(&pid);
        self.0.expire(now()).map_err(failed)?;
        self.0.clear(&|namespace| owner(namespace).is_some_and(is_gone)).map_err(failed)?;
        Ok(())
    }
}

/// The process whose own namespace it is.
fn owner(namespace: &str) -> Option<Pid> {
    let pid = namespace.strip_prefix("self/")?.split('/').next()?;
    pid.parse().ok().map(Pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_remembered_for_itself_is_its_own() {
        for own in [None, Some("self"), Some("self/notes"), Some("./self//notes"), Some("self/9")] {
            assert_eq!(owner(&namespace(Pid(7), own)), Some(Pid(7)), "{own:?}");
        }
        for shared in ["team", "team/7", "selfless/7", "7"] {
            assert_eq!(owner(&namespace(Pid(7), Some(shared))), None, "{shared}");
        }
    }

    #[test]
    fn self_is_ones_own_namespace() {
        assert_eq!(namespace(Pid(7), None), "self/7");
        assert_eq!(namespace(Pid(7), Some("self")), "self/7");
        assert_eq!(namespace(Pid(7), Some("self/notes")), "self/7/notes");
        assert_eq!(namespace(Pid(7), Some("team")), "team");
        // However it is written: another one would be shared, and nobody would know what it carries.
        for own in ["", "/", ".", "./self", "self/", "/self/."] {
            assert_eq!(namespace(Pid(7), Some(own)), "self/7", "{own}");
        }
        assert_eq!(namespace(Pid(7), Some("./self//notes")), "self/7/notes");
        assert_eq!(namespace(Pid(7), Some("./team/")), "team");
    }
}
