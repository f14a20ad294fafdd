//! What stands after `?`, as one type per route that takes something there.
//!
//! What always holds: unknown keys are refused. The types' own documentation is what `/openapi.json` shows.

use schemars::JsonSchema;
use serde::Deserialize;

use aos_abi::{Lsn, Pid, Timestamp};

/// `?all=`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    /// Also what is over (false).
    #[serde(default)]
    pub all: bool,
}

/// Which processes a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessesQuery {
    /// Also those that have ended (false).
    #[serde(default)]
    pub all: bool,
    /// Only those of this group.
    #[serde(default)]
    pub group: Option<String>,
}

/// `?pid=`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimersQuery {
    /// Only those of this process.
    #[serde(default)]
    pub pid: Option<Pid>,
}

/// `?id=`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnscheduleQuery {
    /// The timer, such as `t1`.
    pub id: String,
}

/// `?tree=`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KillQuery {
    /// To all its descendants too (false).
    #[serde(default)]
    pub tree: bool,
}

/// `?at=`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayQuery {
    /// The last entry to replay; the newest if left out.
    #[serde(default)]
    pub at: Option<Lsn>,
}

/// `?timeout_s=`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitQuery {
    /// How long to wait, in seconds (30), at most 3600.
    #[serde(default)]
    pub timeout_s: Option<f64>,
}

/// How a stream of events starts and ends.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Only entries after this one (0: from the first); the header `Last-Event-ID` goes before it.
    #[serde(default)]
    pub after: Option<Lsn>,
    /// Go on with what happens from now on (true).
    #[serde(default)]
    pub follow: Option<bool>,
    /// Also pieces of answers while they are written, as `progress` without an id (false).
    #[serde(default)]
    pub progress: bool,
}

/// `?after=`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportQuery {
    /// Only entries after this one (0: from the first).
    #[serde(default)]
    pub after: Option<Lsn>,
    /// Only entries of this moment and later.
    #[serde(default)]
    pub since: Option<Timestamp>,
}

/// `?by=`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostQuery {
    /// What to group by (day).
    #[serde(default)]
    pub by: CostBy,
}

/// What costs are grouped by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CostBy {
    /// Days in UTC.
    #[default]
    Day,
    /// Configured models.
    Model,
    /// Processes.
    Pid,
    /// Processes of the same name, or without one of the same role.
    Agent,
    /// Whom they work for: the owner of a program's key, `owner` for agents.
    Entity,
}

/// A search in memory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySearchQuery {
    /// What to look for, in words.
    pub q: String,
    /// Whose memory; every one's if left out.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The most hits (6), at most 1000.
    #[serde(default)]
    pub limit: Option<u32>,
}

/// A list of memories.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryListQuery {
    /// Whose memory; every one's if left out.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The most memories (100), at most 1000.
    #[serde(default)]
    pub limit: Option<u32>,
}

/// An export of memories.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryExportQuery {
    /// Whose memory; every one's if left out.
    #[serde(default)]
    pub namespace: Option<String>,
}
