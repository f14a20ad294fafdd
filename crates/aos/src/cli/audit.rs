//! `aos audit`.

use std::io::Write as _;

use aos_abi::Lsn;
use aos_abi::api::{AuditRequest, AuditView, ExpectedEntry};
use aos_journal::Reader;

use super::context::gone;
use super::fork::event;
use super::{Context, Exit, Failure, now, when};
use crate::client::{self, Address};
use crate::daemon::proof;

/// Prove that the journal was not altered, or export it
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  aos audit verify\n  aos audit verify --expect 93:9a23…\n  aos audit export --since 2h > entries.jsonl"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check the hash chain from the first entry to the last; exits 1 where it is broken. No daemon is started for it
    Verify {
        /// An entry and its hash as an earlier `aos audit verify` printed them: they must still stand there
        #[arg(long, value_name = "LSN:HASH", value_parser = expected)]
        expect: Option<ExpectedEntry>,
    },
    /// Print every entry as a JSON line
    Export {
        /// Only entries after this one
        #[arg(long, value_name = "EVENT", value_parser = event)]
        after: Option<Lsn>,
        /// Only what happened since then: 10m, 2h, a date, or a time
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
    },
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        match self.command {
            Command::Verify { expect } => verify(cx, AuditRequest { expect }).await,
            Command::Export { after, since } => {
                let since = since.map(|text| when::moment(&text, now())).transpose().map_err(when::wrong)?;
                let address = Address::of("/v1/admin/audit/export").with_some("after", after).with_some("since", since);
                copy(cx, &address).await
            }
        }
    }
}

/// Reads `LSN:HASH`.
fn expected(text: &str) -> Result<ExpectedEntry, String> {
    let read = || {
        let (lsn, hash) = text.trim().split_once(':')?;
        let lsn = lsn.parse().ok().filter(|lsn| *lsn > 0).map(Lsn)?;
        let whole = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        whole.then(|| ExpectedEntry { lsn, hash: hash.to_ascii_lowercase() })
    };
    read().ok_or_else(|| "an entry's number, a colon and 64 hex digits, as `aos audit verify` prints them".into())
}

/// Starts no daemon: it would add to what is to be proven, and its agents would go on.
async fn verify(cx: &Context, request: AuditRequest) -> Result<Exit, Failure> {
    let client = cx.client_without_start();
    let audit: AuditView = match client.post_long(&Address::of("/v1/admin/audit/verify"), &request).await {
        Err(client::Error::NoDaemon { .. }) => {
            let unread = |error: aos_journal::Error| {
                Failure::new("the journal cannot be read").why(error.to_string()).hint(error.hint())
            };
            let file = cx.home.journal_file();
            if let Ok(None) = aos_journal::look(&file) {
                let nothing = format!("there is nothing to prove: {} holds no journal yet", cx.home.root().display());
                return Err(Failure::new(nothing).hint("`aos run` begins one; --home names another home"));
            }
            let reader = Reader::open(&file).map_err(unread)?;
            cx.note("no daemon runs: the journal is read without it");
            proof::audit(&reader, &request).map_err(|error| {
                Failure::new("the journal cannot be read").why(error.to_string()).hint(error.hint_of_audit())
            })?
        }
        asked => asked?,
    };
    let exit = if audit.intact { Exit::Success } else { Exit::Failed };
    if cx.json {
        cx.document(&audit)?;
        return Ok(exit);
    }
    match &audit.fault {
        None => cx.line(&format!(
            "intact: {} entries, the last is {1}\nkeep this elsewhere, to prove the whole later with --expect: {1}:{2}",
            audit.entries, audit.last_lsn, audit.head
        ))?,
        Some(fault) => {
            let upto = audit.sound_upto.filter(|lsn| *lsn > Lsn::ZERO);
            let sound = upto.map_or("none is".into(), |lsn| format!("all up to {lsn} are"));
            cx.line(&format!("ALTERED: {fault}\nread {} entries, {sound} as they were written", audit.entries))?;
            cx.line(&format!("  try: {}", audit.hint.as_deref().unwrap_or("`aos restore FILE` from a backup")))?;
        }
    }
    Ok(exit)
}

/// Copies a long answer to standard output.
pub(super) async fn copy(cx: &Context, address: &Address) -> Result<Exit, Failure> {
    let mut stopped = None;
    let mut out = std::io::stdout();
    let copied =
        cx.client()?.copy(address, |bytes| out.write_all(bytes).inspect_err(|error| stopped = Some(gone(error)))).await;
    match (stopped, copied) {
        (Some(failure), _) => Err(failure),
        (None, Err(error)) => Err(error.into()),
        (None, Ok(())) => out.flush().map(|()| Exit::Success).map_err(|error| gone(&error)),
    }
}
