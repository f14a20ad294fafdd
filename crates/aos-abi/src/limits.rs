//! Every limit of the system on one screen. Each is felt by an agent, an app or a person, and each error that
//! comes of one says its number.

/// Longest task, message, input or role text, in bytes. What is longer belongs into a file.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Longest process name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Most unread messages of one process; a sender beyond gets `EAGAIN`.
pub const INBOX_MAX: usize = 256;
/// Most unread chunks on one standard input; a writer beyond gets `EAGAIN`.
pub const STDIN_MAX: usize = 256;
/// Most requests of one program that wait for a model; one beyond gets `EAGAIN`.
pub const ASKS_MAX: usize = 1024;
/// Most refused requests of one program that are journaled in a minute; of those beyond, the next entry says how many.
pub const REFUSALS_PER_MINUTE: u64 = 10;
/// Most unread notices (timers, webhooks, watches) of one process.
pub const NOTICES_MAX: usize = 256;
/// Most calls in one reply; the next one returns `EAGAIN` and says how many were not run.
pub const CALLS_PER_REPLY_MAX: usize = 64;
/// Most calls that only read which run side by side for one process.
pub const PARALLEL_READS_MAX: usize = 8;
/// Longest arguments of one call, in bytes.
pub const ARGS_BYTES_MAX: usize = 4 << 20;
/// Longest model reply that is read, in bytes as JSON writes it; what is longer is cut and counts as cut off.
pub const REPLY_BYTES_MAX: usize = 8 << 20;
/// Largest part of one result that is put into a window, in bytes; the rest is read through its handle.
pub const RESULT_SHOWN_BYTES: usize = 16 << 10;
/// Largest result that is journaled, in bytes.
pub const RESULT_BYTES_MAX: usize = 8 << 20;
/// `FS_READ`'s default and largest piece, in bytes.
pub const FS_READ_BYTES_MAX: usize = 256 << 10;
/// Longest image that `FS_READ` gives whole, in bytes: in base64 it stays below the 5 MB that Anthropic takes ("Vision").
pub const IMAGE_BYTES_MAX: usize = 3 << 20;
/// `FS_LIST`'s most entries and `FS_SEARCH`'s most matches.
pub const LISTING_MAX: usize = 1000;
/// `NET_FETCH`'s largest body, in bytes.
pub const NET_BODY_BYTES_MAX: usize = 5 << 20;
/// `NET_FETCH`'s deadline, in seconds.
pub const NET_TIMEOUT_S: u64 = 10;
/// `NET_FETCH`'s most redirects.
pub const NET_REDIRECTS_MAX: usize = 5;
/// `EXEC_CMD`'s default deadline, in seconds.
pub const EXEC_TIMEOUT_S: u64 = 30;
/// `EXEC_CMD`'s longest deadline, in seconds.
pub const EXEC_TIMEOUT_S_MAX: u64 = 3600;
/// `EXEC_CMD`'s most output kept of each stream, in bytes.
pub const EXEC_OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Most bytes that one command sends and gets through its proxy, together.
pub const EGRESS_BYTES_MAX: u64 = 256 << 20;
/// Most requests of one command that are listed in its result.
pub const EGRESS_SHOWN_MAX: usize = 50;
/// Most requests of one command that are journaled with what decided them; those beyond are counted, there and in the log.
pub const EGRESS_JOURNALED_MAX: usize = 10_000;
/// Most bytes of their texts together, which only long addresses reach before their number does.
pub const EGRESS_JOURNALED_BYTES: usize = 2 << 20;
/// Longest address of a request, and longest reason, as they are shown and journaled, in characters.
pub const EGRESS_ADDRESS_CHARS_MAX: usize = 1_000;
/// Most calls that one call led to and that were denied, of which people hear; a command whose changes to files were denied in
/// more places is to people like one that nobody can let through.
pub const DENIED_INSIDE_MAX: usize = 16;
/// Most bytes of the arguments of one of them.
pub const DENIED_INSIDE_BYTES: usize = 4 << 10;
/// Most timers of one process.
pub const TIMERS_MAX: usize = 64;
/// Shortest period of a timer, in seconds: what fires faster is a loop, not a timer.
pub const TIMER_PERIOD_S_MIN: u64 = 1;
/// Longest period of a timer, and longest sleep, in seconds: a hundred years. What is due later is never due.
pub const TIMER_PERIOD_S_MAX: u64 = 100 * 365 * 24 * 3600;
/// Most missed firings of a cron line that are counted; of more it is told that there were more.
pub const MISSED_COUNTED_MAX: u64 = 100;
/// Most webhook paths of one process.
pub const WEBHOOKS_MAX: usize = 16;
/// Most requests a minute to one webhook that has no secret; one beyond is answered 429. Signed ones have no such bound.
pub const WEBHOOK_UNSIGNED_PER_MINUTE: u32 = 60;
/// Largest webhook body, in bytes.
pub const WEBHOOK_BODY_BYTES_MAX: usize = 1 << 20;
/// Longest time in which an agent may answer a webhook, in seconds.
pub const WEBHOOK_REPLY_S_MAX: u64 = 300;
/// Most watches of one process.
pub const WATCHES_MAX: usize = 16;
/// Time between `TERM` and `KILL`, in milliseconds.
pub const TERM_GRACE_MS: u64 = 5000;
/// Deepest process tree.
pub const SPAWN_DEPTH_MAX: usize = 16;
/// Most bytes that the files, commands, servers and webhooks of a process and of all below it bring in an hour: the journal
/// keeps them for as long as their process.
pub const BROUGHT_BYTES_PER_HOUR: u64 = 512 << 20;
/// The same as far as webhooks may fill it: the rest is left to what the processes do, which no stranger uses up.
pub const WEBHOOK_BYTES_PER_HOUR: u64 = BROUGHT_BYTES_PER_HOUR / 2;
/// Most live children of one process.
pub const CHILDREN_MAX: usize = 256;
/// Most live processes that descend from one that a person started: what depth and children allow together is their power.
pub const DESCENDANTS_MAX: usize = 512;
/// Most files and addresses that are attached to a quarantined child.
pub const ATTACHMENTS_MAX: usize = 8;
/// Most ended children of one process that it has not waited for; beyond, the oldest is put away, its parent is told, and
/// only people can look at its result.
pub const ZOMBIES_MAX: usize = 256;
/// Times a failed inference that may pass is tried again by the kernel before the process stops and says why.
/// (The model edge has its own, faster retries within each.)
pub const INFERENCE_RETRIES_MAX: u32 = 5;
/// Replies in a row that hold no decodable call and no text before a process stops and says why.
pub const EMPTY_REPLIES_MAX: u32 = 3;
/// Replies in a row that were of no use (empty, calls that cannot be understood, the same calls again and again) after which a
/// process is not asked any more: where nothing is paid, nothing else would end it.
pub const USELESS_REPLIES_MAX: u32 = 50;
/// Most bytes of what a process says why it proposes a call, and of the risk that it sees.
pub const REASON_BYTES_MAX: usize = 2 << 10;
/// Default life of a proposal, in seconds.
pub const PROPOSAL_TTL_S: u64 = 24 * 3600;
/// How long a change to files can be undone where the policy names no window, in seconds.
pub const UNDO_WINDOW_S: u64 = 15 * 60;
/// Most bytes kept of one process for undoing; beyond, its oldest changes can no longer be undone.
pub const UNDO_PROCESS_BYTES_MAX: u64 = 256 << 20;
/// Most bytes kept in a home for undoing; beyond, the oldest changes can no longer be undone.
pub const UNDO_BYTES_MAX: u64 = 1 << 30;
/// Most changes kept in a home for undoing.
pub const UNDO_CHANGES_MAX: usize = 10_000;
/// Largest file to which something is added so that it can be undone, in bytes; to a larger one it is added for good.
pub const UNDO_APPEND_BYTES_MAX: u64 = 64 << 20;
/// Most paths of one change that are journaled; how many more there were is journaled too.
pub const CHANGED_PATHS_MAX: usize = 1000;
/// Most bytes that the paths of one change take in the journal, and in what its call returns, as JSON: a thousand of a usual
/// length with what is told of each. A path may have 4 KiB, and JSON writes six bytes for some.
pub const CHANGED_BYTES_MAX: usize = 512 << 10;
/// Longest time a changing call waits for another one in the same workspace, in seconds; then it gets `EAGAIN`.
pub const WORKSPACE_WAIT_S: u64 = 120;
