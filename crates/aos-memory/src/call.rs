//! `MEM_WRITE`, `MEM_READ` and `MEM_FORGET`: from an allowed call to a store.
//!
//! Like a driver it takes a permit, and the call alone does not compile:
//!
//! ```compile_fail,E0308
//! use aos_memory::{MemoryStore, Occasion};
//! fn round(store: &dyn MemoryStore, call: aos_abi::Syscall, occasion: Occasion) {
//!     let _ = aos_memory::call(store, call, occasion);
//! }
//! ```
//! ```
//! use aos_memory::{MemoryStore, Occasion};
//! fn allowed(store: &dyn MemoryStore, permit: aos_policy::Permit, occasion: Occasion) {
//!     let _ = aos_memory::call(store, permit, occasion);
//! }
//! ```

use std::collections::BTreeSet;

use aos_abi::{CallError, Code, EffectId, Pid, Syscall, Timestamp};
use aos_policy::Permit;
use serde_json::{Value, json};

use crate::{Forget, MemoryStore, Note, Search, Source, What};

/// Hits of `MEM_READ` where the call does not say how many (syscalls.md).
const HITS: u32 = 6;

/// What the daemon knows about a call beside its arguments.
#[derive(Clone, Debug)]
pub struct Occasion {
    /// The namespace that the call's own resolves to: `self` and nothing are the caller's, such as `self/7`.
    pub namespace: String,
    /// Labels of the caller's window; they stay with what is written.
    pub labels: BTreeSet<String>,
    /// The effect that carries the call out.
    pub effect: EffectId,
    /// The time of the entry that caused it.
    pub now: Timestamp,
}

/// Carries out an allowed call. Blocking. Memories go by the namespace of the `occasion` alone, which must be the one
/// that the policy judged.
///
/// # Errors
/// As the contract has them: `EINVAL`, `ENOENT`, `ENOSPC`, `EIO`; `ENOSYS` for a call that is none of the three.
pub fn call(store: &dyn MemoryStore, permit: Permit, occasion: Occasion) -> Result<Value, CallError> {
    perform(store, permit.pid(), permit.into_call(), occasion)
}

fn perform(store: &dyn MemoryStore, pid: Pid, call: Syscall, occasion: Occasion) -> Result<Value, CallError> {
    let Occasion { namespace, labels, effect, now } = occasion;
    match call {
        Syscall::MemWrite(args) => {
            let note = Note {
                namespace,
                key: args.key,
                value: args.value,
                tags: args.tags.unwrap_or_default().into_iter().collect(),
                labels,
                ttl_s: args.ttl_s,
                source: Source { pid, lsn: effect.cause },
                effect,
            };
            Ok(json!({ "id": store.write(&note, now)? }))
        }
        Syscall::MemRead(args) => {
            let since = args.since.as_deref().map(str::parse::<Timestamp>).transpose().map_err(|_| {
                CallError::new(Code::Inval, "`since` is no RFC 3339 time").hint("such as 2026-11-22T09:00:00Z")
            })?;
            let search = Search {
                namespace,
                query: args.query,
                tags: args.tags.unwrap_or_default().into_iter().collect(),
                since,
                limit: usize::try_from(args.limit.unwrap_or(HITS)).unwrap_or(usize::MAX),
            };
            Ok(json!({ "hits": store.search(&search, now)? }))
        }
        Syscall::MemForget(args) => {
            let what = match (args.id, args.key) {
                (Some(id), None) => What::Id(id),
                (None, Some(key)) => What::Key(key),
                (Some(_), Some(_)) | (None, None) => {
                    return Err(CallError::new(Code::Inval, "exactly one of `id` and `key` must be given")
                        .hint(r#"a correct call: MEM_FORGET {"key":"favourite colour"}"#));
                }
            };
            Ok(json!({ "forgotten": store.forget(&Forget { namespace, what, effect })? }))
        }
        other => Err(CallError::new(Code::NoSys, format!("{} is no memory call", other.name()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WordStore;
    use aos_abi::Lsn;

    fn run(store: &WordStore, lsn: u64, name: &str, args: Value) -> Result<Value, CallError> {
        let occasion = Occasion {
            namespace: "self/7".into(),
            labels: BTreeSet::new(),
            effect: EffectId { cause: Lsn(lsn), nth: 0 },
            now: Timestamp(1_795_305_600_000),
        };
        perform(store, Pid(7), Syscall::parse(name, &args.to_string()).unwrap(), occasion)
    }

    #[test]
    fn the_three_calls_speak_the_contract() {
        let folder = tempfile::tempdir().unwrap();
        let store = WordStore::open(&folder.path().join("memory.db")).unwrap();
        let written = run(&store, 1, "MEM_WRITE", json!({ "key": "colour", "value": "green", "tags": ["person"] }));
        assert_eq!(written.unwrap(), json!({ "id": "m1" }));
        let read = run(&store, 2, "MEM_READ", json!({ "query": "green", "since": "2026-11-22T00:00:00Z" })).unwrap();
        assert_eq!(read["hits"].as_array().unwrap().len(), 1);
        for (field, value) in [("id", json!("m1")), ("key", json!("colour")), ("value", json!("green"))] {
            assert_eq!(read["hits"][0][field], value);
        }
        assert_eq!(read["hits"][0]["source"], json!({ "pid": 7, "lsn": 1 }));
        let error = |lsn, name: &str, args| run(&store, lsn, name, args).unwrap_err().code;
        assert_eq!(error(3, "MEM_READ", json!({ "query": "x", "since": "yesterday" })), Code::Inval);
        assert_eq!(error(4, "MEM_FORGET", json!({})), Code::Inval);
        assert_eq!(error(5, "MEM_FORGET", json!({ "id": "m1", "key": "colour" })), Code::Inval);
        assert_eq!(error(6, "MEM_FORGET", json!({ "id": "m99" })), Code::NoEnt);
        assert_eq!(error(7, "MEM_WRITE", json!({ "key": "", "value": "x" })), Code::Inval);
        assert_eq!(error(8, "FS_READ", json!({ "path": "x" })), Code::NoSys);
        assert_eq!(run(&store, 9, "MEM_FORGET", json!({ "key": "colour" })).unwrap(), json!({ "forgotten": 1 }));
    }
}
