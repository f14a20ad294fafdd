//! Requests that are decided while their call runs, on their way to the journal.
//!
//! Start at [`Requests::decided`]. What always holds: whatever a call asked for is journaled before the call's result, in
//! the order in which it was decided. No request waits for that: they are gathered, and a power cut takes those of the
//! last moment, which are in the log.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aos_abi::entry::{Inner, NetRequest, Requested, Took, Verdict};
use aos_abi::{Body, CallId, Pid, Syscall, limits};
use aos_kernel::effect::Authority;
use aos_policy::Allowed;
use tokio::sync::mpsc;

use super::heart::Completion;

/// How many are gathered into one entry.
const GATHERED_MAX: usize = 64;
/// Longest method that is shown whole; those that a rule can name are shorter.
const METHOD_CHARS_MAX: usize = 32;
/// Of what was denied to one call and nobody can lift, so much is told.
const CLOSED_MAX: usize = 4;
/// How long they are gathered, where somebody looks to it.
pub(crate) const GATHERED_FOR: Duration = Duration::from_millis(250);

/// What one call asks for beyond what it was allowed for.
#[derive(Debug)]
pub(crate) struct Requests {
    pid: Pid,
    call_id: CallId,
    labels: Vec<String>,
    journal: mpsc::UnboundedSender<Completion>,
    gathered: Mutex<Gathered>,
}

#[derive(Debug, Default)]
struct Gathered {
    generation: String,
    deciding: Duration,
    requests: Vec<NetRequest>,
    more: u64,
    /// Of the whole call, as the next one, and with so many bytes of text.
    listed: usize,
    listed_bytes: usize,
    /// Those that were only counted.
    beyond: u64,
    /// What was denied and a person may be able to lift, for the end of the call: changes to files, and requests.
    changes: Vec<Inner>,
    denied: Vec<Inner>,
    /// And the first of what nobody can.
    closed: Vec<Inner>,
}

impl Requests {
    /// None yet, of a call of the process whose authority this is.
    pub(crate) fn new(authority: &Authority, call_id: &str, journal: mpsc::UnboundedSender<Completion>) -> Requests {
        let labels = authority.sending().labels.held().map(str::to_owned).collect();
        let generation = authority.policy.generation().to_owned();
        let gathered = Mutex::new(Gathered { generation, ..Gathered::default() });
        Requests { pid: authority.pid, call_id: call_id.to_owned(), labels, journal, gathered }
    }

    /// Decides one, and counts the time that it takes.
    pub(crate) fn timed<T>(&self, decide: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let said = decide();
        self.gathered().deciding += began.elapsed();
        said
    }

    /// One was decided by the policy of this generation; whether it is journaled as such, and not only counted.
    pub(crate) fn decided(&self, generation: &str, request: NetRequest) -> bool {
        let mut gathered = self.gathered();
        if gathered.generation != generation {
            self.hand_over(&mut gathered);
            generation.clone_into(&mut gathered.generation);
        }
        let bytes = gathered.listed_bytes + text_bytes(&request);
        let within = gathered.listed < limits::EGRESS_JOURNALED_MAX && bytes <= limits::EGRESS_JOURNALED_BYTES;
        // From the first that is only counted on, all are: what is listed is what came first.
        let listed = within && gathered.beyond == 0;
        if listed {
            (gathered.listed, gathered.listed_bytes) = (gathered.listed + 1, bytes);
            gathered.requests.push(request);
        } else {
            gathered.more += 1;
            gathered.beyond += 1;
        }
        if gathered.requests.len() >= GATHERED_MAX {
            self.hand_over(&mut gathered);
        }
        listed
    }

    /// A request was denied, which this call would have made. The first are told with the end of the call, each once; one that
    /// is very long is not.
    pub(crate) fn denied(&self, call: &Syscall) {
        let (denied, inner) = (&mut self.gathered().denied, Inner::of(call));
        if is_short(&inner) && denied.len() < limits::DENIED_INSIDE_MAX && !denied.contains(&inner) {
            denied.push(inner);
        }
    }

    /// Something was denied that nobody can lift. The first few are told, each once.
    pub(crate) fn closed(&self, call: &Syscall) {
        let (closed, inner) = (&mut self.gathered().closed, Inner::of(call));
        if is_short(&inner) && closed.len() < CLOSED_MAX && !closed.contains(&inner) {
            closed.push(inner);
        }
    }

    /// Changes to files were denied, all that were. Of some of them alone nobody could let the call have its way.
    pub(crate) fn denied_changes(&self, calls: &[Syscall]) {
        let changes: Vec<Inner> = calls.iter().map(Inner::of).collect();
        if changes.iter().all(is_short) {
            self.gathered().changes = changes;
        }
    }

    /// The call has ended: all of it is journaled, and what was denied to it.
    pub(crate) fn end(&self) {
        let mut gathered = self.gathered();
        let (mut denied, requests) = (std::mem::take(&mut gathered.changes), std::mem::take(&mut gathered.denied));
        denied.extend(requests);
        denied.truncate(limits::DENIED_INSIDE_MAX);
        let closed = std::mem::take(&mut gathered.closed);
        self.hand_over_with(&mut gathered, denied, closed);
    }

    /// How many of the whole call were only counted.
    pub(crate) fn beyond(&self) -> u64 {
        self.gathered().beyond
    }

    /// Has all that are gathered journaled.
    pub(crate) fn send(&self) {
        self.hand_over(&mut self.gathered());
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_over(&self, gathered: &mut Gathered) {
        self.hand_over_with(gathered, Vec::new(), Vec::new());
    }

    fn hand_over_with(&self, gathered: &mut Gathered, denied: Vec<Inner>, closed: Vec<Inner>) {
        if gathered.requests.is_empty() && gathered.more == 0 && denied.is_empty() && closed.is_empty() {
            return;
        }
        let took = std::mem::take(&mut gathered.deciding).as_micros();
        let requested = Requested {
            call_id: self.call_id.clone(),
            generation: gathered.generation.clone(),
            labels: self.labels.clone(),
            took_us: Took(u64::try_from(took).ok()),
            requests: std::mem::take(&mut gathered.requests),
            more: std::mem::take(&mut gathered.more),
            denied,
            closed,
        };
        // The loop is gone only when the daemon stops.
        let _ = self.journal.send((self.pid, Body::Requested(Box::new(requested))));
    }
}

/// A request and what was said to it.
pub(crate) fn net_request<E: AsRef<str>>(method: &str, to: &str, said: Result<&Allowed, E>) -> NetRequest {
    let (verdict, rule, why) = match said {
        Ok(allowed) => (Verdict::Allow, Some(allowed.rule.clone()), None),
        Err(why) => (Verdict::Deny, None, Some(cut(why.as_ref(), limits::EGRESS_ADDRESS_CHARS_MAX))),
    };
    let (method, to) = (cut(method, METHOD_CHARS_MAX), cut(to, limits::EGRESS_ADDRESS_CHARS_MAX));
    NetRequest { method, to, verdict, rule, why }
}

fn is_short(inner: &Inner) -> bool {
    aos_context::json_bytes(&inner.args) <= limits::DENIED_INSIDE_BYTES
}

fn text_bytes(request: &NetRequest) -> usize {
    let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    request.method.len() + request.to.len() + of(&request.rule) + of(&request.why)
}

/// A text of whoever asks, of which no more than so many characters are kept.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each of so many requests for this address was listed, and how many were only counted.
    fn ask(to: &str, count: usize) -> (Vec<bool>, u64) {
        let (journal, mut journaled) = mpsc::unbounded_channel();
        let (pid, call_id, labels) = (Pid(2), "c1".into(), Vec::new());
        let requests = Requests { pid, call_id, labels, journal, gathered: Mutex::default() };
        let asked = || requests.decided("1", net_request("GET", to, Err("no rule")));
        let said: Vec<bool> = (0..count).map(|_| asked()).collect();
        requests.send();
        let (mut listed, mut more) = (0, 0);
        while let Ok((_, Body::Requested(requested))) = journaled.try_recv() {
            (listed, more) = (listed + requested.requests.len(), more + requested.more);
        }
        assert_eq!((listed, more), (said.iter().filter(|listed| **listed).count(), requests.beyond()));
        (said, more)
    }

    #[test]
    fn beyond_the_bound_requests_are_only_counted() {
        let (said, more) = ask("http://a.test/", limits::EGRESS_JOURNALED_MAX + 2);
        assert_eq!(more, 2);
        assert!(said[..limits::EGRESS_JOURNALED_MAX].iter().all(|listed| *listed));
    }

    /// What comes of the end of a call to which these were denied, with so many changes to files.
    fn end(requests: &[String], changes: &[String]) -> Vec<Inner> {
        let (journal, mut journaled) = mpsc::unbounded_channel();
        let (pid, call_id, labels) = (Pid(2), "c1".into(), Vec::new());
        let told = Requests { pid, call_id, labels, journal, gathered: Mutex::default() };
        let parse = |name: &str, key: &str, text: &String| {
            Syscall::parse(name, &serde_json::json!({ key: text }).to_string()).unwrap()
        };
        requests.iter().for_each(|url| told.denied(&parse("NET_FETCH", "url", url)));
        told.denied_changes(&changes.iter().map(|path| parse("FS_DELETE", "path", path)).collect::<Vec<_>>());
        told.send();
        assert!(journaled.try_recv().is_err(), "it is told at the end alone");
        told.end();
        match journaled.try_recv() {
            Ok((_, Body::Requested(requested))) => requested.denied,
            _ => Vec::new(),
        }
    }

    #[test]
    fn what_was_denied_is_told_once_at_the_end_and_within_bounds() {
        let many = |what: &str| (0..20).map(|nth| format!("{what}{nth}")).collect::<Vec<_>>();
        assert_eq!(end(&[], &[]), []);
        let twice = [many("https://a.test/")[..2].to_vec(), many("https://a.test/")[..2].to_vec()].concat();
        assert_eq!(end(&twice, &[]).len(), 2);
        let both = end(&many("https://a.test/"), &many("f")[..3]);
        assert_eq!(both.len(), limits::DENIED_INSIDE_MAX);
        assert!(both[..3].iter().all(|one| one.name == aos_abi::Name::FsDelete), "all changes: {both:?}");
        let long = "x".repeat(limits::DENIED_INSIDE_BYTES);
        assert_eq!(end(&[format!("https://a.test/{long}")], &[]), []);
        assert_eq!(end(&[], &["a".to_owned(), long]), [], "of some changes alone nothing is told");
    }

    #[test]
    fn long_addresses_do_not_fill_the_journal() {
        let to = format!("http://a.test/{}", "x".repeat(980));
        let (said, more) = ask(&to, 5000);
        let listed = said.iter().filter(|listed| **listed).count();
        assert!(
            listed * 1000 <= limits::EGRESS_JOURNALED_BYTES && (listed + 2) * 1010 > limits::EGRESS_JOURNALED_BYTES
        );
        assert_eq!(more as usize, 5000 - listed);
        assert!(said[..listed].iter().all(|listed| *listed), "those that came first");
    }
}
