//! Requests and answers of the HTTP interface that are not simply the views of [`crate::process`].

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::entry::{BoundFile, FileChange, ProposalState, Verdict};
use crate::model::{Ability, ModelLimits, Price};
use crate::process::{BudgetSpec, DayView, Mode, Priority};
use crate::{Lsn, Pid, Signal, Timestamp, Usd};

/// `POST /v1/keys`: a key for a program outside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyRequest {
    /// The program's name; unique among live processes.
    pub name: String,
    /// Whose it is, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The role of `policy.yaml` that it runs under; left out: the file's `default_role`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_role: Option<String>,
    /// What it may use.
    #[serde(default)]
    pub budget: BudgetSpec,
    /// Most requests a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpm: Option<u32>,
    /// The tiers of models that it may ask; left out: all that its role may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<String>,
}

/// A program and its key, which is shown this once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyMade {
    /// The program's place in the process table; its end is the end of the key.
    pub pid: Pid,
    /// The key.
    pub key: String,
}

/// `POST /v1/processes`: what a person wants run. What is left out follows the configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpawnRequest {
    /// What it should do first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Who it is and how it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// A name others can send to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The group it belongs to, and its children unless they are told otherwise; a signal to the group reaches all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Whether it ends with its first answer.
    #[serde(default = "SpawnRequest::default_mode")]
    pub mode: Mode,
    /// A configured model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its class; `interactive` for one-shot processes, else `normal`, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// The role of `policy.yaml` that it runs under; left out: the file's `default_role`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_role: Option<String>,
    /// What it may do, each `CALL` or `CALL PATTERN`; left out: what the policy's role grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<String>>,
    /// Its limits.
    #[serde(default)]
    pub budget: BudgetSpec,
    /// Whose standard input gets its standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipe_to: Option<Pid>,
    /// A person's own folder to work on, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Work on a copy of that folder, so that what it would change can be looked at; what would reach beyond the copy is
    /// denied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Files to put into its workspace before it starts: one of its own, or the copy of a dry run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileArg>,
    /// Others wrote those files: its workspace is labelled `untrusted.file`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// You have looked at what lies in `workspace`: what agents left there under untrusted content counts as yours.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trusted: bool,
}

impl SpawnRequest {
    fn default_mode() -> Mode {
        Mode::Resident
    }
}

/// A file to put into a workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileArg {
    /// Where, relative to the workspace.
    pub path: String,
    /// Its bytes in base64.
    pub base64: String,
    /// The real path that they were read from, absolute: what is known of that file goes with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The symbolic links that they were read through, each by its real path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
}

/// What a request that changed something came to; durable when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Accepted {
    /// The process it is about.
    pub pid: Pid,
    /// The entry it became.
    pub lsn: Lsn,
    /// The process is stopped, and reads what was sent to it once a person lets it go on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
}

/// What `POST /v1/processes` came to; durable when it is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Started {
    /// The process.
    pub pid: Pid,
    /// The entry it became.
    pub lsn: Lsn,
    /// Why commands will be refused in the folder that it works on, where they will be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// Of its grants, those that go beyond its policy role: they have an effect only as far as that goes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beyond_role: Vec<String>,
    /// Models elsewhere that may serve it and whose price is not known, where its budget, or else the day's, is in dollars:
    /// that does not hold for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpriced: Vec<String>,
}

/// `POST /v1/processes/{pid}/stdin`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputRequest {
    /// The text.
    #[serde(default)]
    pub text: String,
    /// No more will come.
    #[serde(default)]
    pub eof: bool,
    /// Others wrote the text: it is labelled `untrusted.file`, answers no question, and none of it counts as your words.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
}

/// `POST /v1/processes/{pid}/signal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// Which.
    pub signal: Signal,
    /// To all its descendants too.
    #[serde(default)]
    pub tree: bool,
}

/// What a signal to a group came to; durable when it is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupSignalled {
    /// The entry it became.
    pub lsn: Lsn,
    /// The processes that got it.
    pub pids: Vec<Pid>,
}

/// `POST /v1/processes/{pid}/fork`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkRequest {
    /// The last entry the new process has lived through; the newest if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Lsn>,
    /// The new process's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// `GET /v1/processes/{pid}/replay`: the decisions of a process, made again offline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayView {
    /// The entry after which decisions are made again: before it another version of aos decided, or entries were pruned.
    pub after: Lsn,
    /// Inputs that were fed in again.
    pub inputs: u64,
    /// Facts that came out the same.
    pub facts: u64,
    /// The first difference, if any: where, what the journal holds, what came out now.
    pub difference: Option<ReplayDifference>,
}

/// Where a replay left the recorded path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayDifference {
    /// The entry.
    pub lsn: Lsn,
    /// As recorded.
    pub recorded: Option<serde_json::Value>,
    /// As decided now.
    pub now: Option<serde_json::Value>,
}

/// A proposal as people see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProposalView {
    /// Its id, such as `p3`.
    pub id: String,
    /// Whose.
    pub pid: Pid,
    /// The call.
    pub call: CallView,
    /// `ask` or `hold`; `deny` of a call that was denied, and `allow` of a change that can be undone.
    pub verdict: Verdict,
    /// The rule that asks, or denies.
    pub rule: String,
    /// What a denied call wants: the narrowest grants that would let it pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
    /// What was denied to a command while it ran, as the calls that would have done it: the call is the command then. What it
    /// would send, or write into a file, is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner: Vec<CallView>,
    /// What led to a denied call that its process has not made, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub led: Option<String>,
    /// Why no yes lifts a denial, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// Why the process wants it.
    pub why: Option<String>,
    /// What could go wrong.
    pub risk: Option<String>,
    /// What would happen: a command line, a request, or the change to a file as a unified diff.
    pub preview: String,
    /// The files that an approval binds: it holds only while they are the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<BoundFile>,
    /// What the call concerns and what could not be bound, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unbound: Option<String>,
    /// Names what is shown here; a yes that gives it back counts to nothing else. Empty of one that is over.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub shown: String,
    /// What became of it.
    pub state: ProposalState,
    /// Why it is over, where that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Of a change that can be undone: the proposal under which it was made. Either id takes it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
    /// When it is over.
    pub expires_at: Timestamp,
}

/// `POST /v1/proposals/{id}/approve`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveRequest {
    /// How far the yes reaches.
    #[serde(default, rename = "for")]
    pub reach: Reach,
    /// What was seen: `shown` of the proposal as it was read. A yes to a denial needs it; one to a question counts without it
    /// while nothing has become known of that since it was put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
}

/// How far a yes reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// To this call, once.
    #[default]
    Once,
    /// To the same call of this process for as long as it lives and the policy stays.
    Process,
}

/// `POST /v1/proposals/{id}/undo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoRequest {
    /// Only show what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// What taking something back does, or would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UndoView {
    /// What is taken back.
    #[serde(flatten)]
    pub proposal: ProposalView,
    /// What happens to each path: from what is there now to what will be there.
    pub changes: Vec<FileChange>,
    /// Where those of the paths lead that will be symbolic links, or are links that will be gone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, LinkView>,
    /// Paths beyond those that are listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
    /// The same as a unified diff, as far as it is text; cut where it is long.
    pub diff: String,
    /// Paths that somebody changed since, for which nothing is taken back.
    pub conflicts: Vec<String>,
    /// Whether it was done.
    pub done: bool,
    /// What `aos undo` then brings it back by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<String>,
}

/// Where a symbolic link leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkView {
    /// As it is written in it.
    pub to: String,
    /// Whether that is outside of the folder that is worked on, as far as the words tell.
    pub out: bool,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A call as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallView {
    /// Its name.
    pub name: String,
    /// Its arguments; none if left out.
    #[serde(default = "CallView::no_args")]
    pub args: serde_json::Value,
}

impl CallView {
    fn no_args() -> serde_json::Value {
        serde_json::json!({})
    }
}

/// `POST /v1/proposals/{id}/reject`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RejectRequest {
    /// What the agent is told.
    #[serde(default)]
    pub why: String,
}

/// `POST /v1/policy/explain`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// Whose call it would be.
    pub pid: Pid,
    /// The call.
    pub call: CallView,
}

/// What the policy would say, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainView {
    /// The verdict.
    pub verdict: Verdict,
    /// The process has ended: it makes no call any more, and this is what one like it would be told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// The deciding rule, with its layer.
    pub rule: String,
    /// The narrowest grant that would pass, where it is denied.
    pub hint: Option<String>,
    /// The rule about untrusted content that would have asked, had people not given all that steers the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<String>,
    /// Which argument made the call one that untrusted content may have led to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacking: Option<String>,
    /// Required arguments that were left out of the call; they were taken from its example.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<String>,
    /// Why the network driver refuses it whatever the policy says, as far as its address tells: this machine has it, or
    /// the configuration closes it. Where a name leads is seen when the call is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A model as `/v1/models` and `aos models` show it; `id` and `object` are what OpenAI clients read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelView {
    /// Its configured name.
    pub id: String,
    /// Always `model`.
    pub object: String,
    /// When the daemon began to serve it, in seconds since the Unix epoch. OpenAI's clients expect it.
    #[serde(default)]
    pub created: u64,
    /// Whose it is: the provider. OpenAI's clients expect it.
    #[serde(default)]
    pub owned_by: String,
    /// The provider.
    pub provider: String,
    /// What the provider calls it.
    pub model: String,
    /// Its tier.
    pub tier: Option<String>,
    /// Most tokens of prompt and answer together.
    pub context_window: u32,
    /// Most tokens of one answer.
    #[serde(default)]
    pub max_output: u32,
    /// US dollars for a million tokens; `null` where nobody has said.
    #[serde(default)]
    pub price: Option<Price>,
    /// What it can do, as far as `aos.toml` says.
    #[serde(default)]
    pub can: Vec<Ability>,
    /// How many numbers a vector has, of a model that makes vectors of texts and no answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimension: Option<u32>,
    /// What its server allows.
    #[serde(default)]
    pub limits: ModelLimits,
    /// What is sent there stays on this machine.
    pub local: bool,
    /// It serves processes that name no model.
    pub default: bool,
}

/// `POST /v1/models/route`: a task that is not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteRequest {
    /// The task; only its length counts.
    #[serde(default)]
    pub task: String,
    /// The role of `policy.yaml`; left out: the file's `default_role`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// What is asked for: a model, a tier or `auto`; left out: the configuration's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What the model must be able to do, as where a program's request needs it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub needs: BTreeSet<Ability>,
}

/// What would serve a task, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouteView {
    /// What was asked for: a model's name, a tier's, or `auto`.
    pub asked: String,
    /// Models that may serve, the first choice first; the others where those before them fail.
    pub order: Vec<RoutedModel>,
    /// Models that may not.
    pub barred: Vec<RoutedModel>,
}

/// A model as the router sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoutedModel {
    /// Its configured name.
    pub model: String,
    /// Its tier; nobody has said.
    pub tier: Option<String>,
    /// Why it has this place, or none.
    pub why: String,
    /// The most that the first answer may cost, in US dollars; `null`: its price is not known.
    pub worst_usd: Option<Usd>,
}

/// `GET /v1/cost`: what was spent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostView {
    /// Each group: a day, a model, a process, an agent or an entity, as asked.
    pub groups: BTreeMap<String, CostGroup>,
    /// All together.
    pub total: CostGroup,
    /// Today and its budget.
    #[serde(default)]
    pub today: DayView,
}

/// `POST /v1/messages/count_tokens`: what a request would send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenCount {
    /// Its tokens, estimated from its size and rather too high: no model is asked.
    pub input_tokens: u64,
}

/// What one group spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostGroup {
    /// Inferences.
    pub inferences: u64,
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens answered.
    pub output_tokens: u64,
    /// What it cost, as far as prices are known.
    pub cost_usd: Usd,
    /// Inferences whose model has no price in the configuration.
    pub cost_unknown: u64,
    /// Of the cost, what is estimated: nobody said what was used.
    #[serde(default)]
    pub estimated_usd: Usd,
}

/// `POST /v1/admin/audit/verify`: what is to be proved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditRequest {
    /// An entry's hash as an earlier verification said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<ExpectedEntry>,
}

/// An entry and the hash that the chain had there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectedEntry {
    /// The entry.
    pub lsn: Lsn,
    /// Its hash, 64 hex digits.
    pub hash: String,
}

/// Whether the journal is what was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditView {
    /// Nothing was altered.
    pub intact: bool,
    /// Entries checked.
    pub entries: u64,
    /// The last entry.
    pub last_lsn: Lsn,
    /// The chain's hash at the last entry, in hex: keep it elsewhere to prove the whole later.
    pub head: String,
    /// The first fault: where and what.
    pub fault: Option<String>,
    /// Every entry up to here is as it was written; left out where nothing was altered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sound_upto: Option<Lsn>,
    /// What can be done about the fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// `POST /v1/admin/prune`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PruneRequest {
    /// Only processes that ended before then; every ended one if left out.
    #[serde(default)]
    pub before: Option<Timestamp>,
    /// Only say what would go.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a prune took out, or would.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PruneView {
    /// Whose entries.
    pub pids: Vec<Pid>,
    /// How many entries.
    pub entries: u64,
    /// Nothing was done yet.
    pub dry_run: bool,
}

/// `POST /v1/admin/backup`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupRequest {
    /// The archive to write, absolute; nothing may be there yet.
    pub file: String,
}

/// Every error of the HTTP interface and of `--json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorView,
}

/// An error as programs see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorView {
    /// A code of [`crate::Code`] such as `ESRCH`, or `usage`, `unauthorized`, `not_found`, `unavailable`, `internal`.
    pub code: String,
    /// What went wrong.
    pub message: String,
    /// The way out.
    pub hint: Option<String>,
}
