//! One inference: the window's entries into a prompt, the prompt to the model pool, the answer back.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aos_abi::entry::{InferenceOutcome, Personal, Purpose};
use aos_abi::inference::{Encoding, Failure, FailureKind, Message, Part, Prompt, Reply, Stop, Usage};
use aos_abi::syscall::CallSet;
use aos_abi::{Entry, Lsn, Pid};
use aos_context::{Fit, Rendered};
use aos_gateway::{Live, Progress};
use aos_kernel::effect::Infer;
use aos_models::engine::Asker;
use aos_models::{Delta, Pool, Tries, Written};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::history::{History, Sent};
use super::privacy::{Looked, Replaced};

/// Most bytes of the images of a prompt, in base64: Anthropic takes requests of 32 MB, Gemini of 20.
const IMAGES_BYTES_MAX: usize = 16 << 20;
/// Below so many bytes what there is of a summary that was cut off says nothing.
const SUMMARY_BYTES_MIN: usize = 200;

/// The model pool as effects use it.
pub(crate) struct Models {
    pool: Arc<Pool>,
    /// Whose images a server may have refused, where no request was left in that minute to see.
    refused: Mutex<BTreeSet<Pid>>,
}

/// Who is told of an answer while it comes in.
#[derive(Clone, Copy)]
struct Watched<'a> {
    live: &'a broadcast::Sender<Live>,
    heard: &'a Heard,
    /// How often its server may be asked again.
    tries: &'a Tries,
}

/// What has come of an answer.
#[derive(Default)]
struct Heard {
    /// It was asked for.
    asked: AtomicBool,
    /// A part of it has come.
    spoken: AtomicBool,
    /// Bytes of its text and its calls.
    bytes: AtomicUsize,
}

impl Heard {
    fn part(&self, delta: &Delta) {
        self.spoken.store(true, Ordering::Relaxed);
        let (Delta::Text(text) | Delta::Call { name: text, .. } | Delta::Arguments { text, .. }) = delta;
        self.bytes.fetch_add(text.len(), Ordering::Relaxed);
    }

    /// What was used where it is given up now; `None` where that cannot be known.
    fn used(&self) -> Option<Usage> {
        match (self.asked.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed)) {
            (false, _) => Some(Usage::default()),
            (true, 0) => None,
            (true, bytes) => {
                let output_tokens = aos_context::estimate(bytes);
                Some(Usage { output_tokens, estimated: true, ..Usage::default() })
            }
        }
    }
}

impl Models {
    /// Over a pool.
    pub(crate) fn new(pool: Arc<Pool>) -> Models {
        Models { pool, refused: Mutex::default() }
    }

    /// A process has ended: what a model inside this program has read for it may go.
    pub(crate) fn ended(&self, pid: Pid) {
        self.pool.ended(pid);
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
    }

    /// Asks a model what the kernel wants asked, and says what personal data there was in it. A summary that says nothing
    /// becomes a plain digest. `silent` is told where no word of an answer has come for as long as the kernel waits.
    pub(crate) async fn infer(
        &self,
        infer: &Infer,
        history: &Arc<History>,
        live: &broadcast::Sender<Live>,
        token: CancellationToken,
        silent: impl FnOnce() + Send,
    ) -> (InferenceOutcome, Option<Box<Personal>>) {
        let heard = Heard::default();
        let tries = if infer.once { Tries::none(infer.pid) } else { Tries::uncounted() };
        let answer = self.answer(infer, history, Watched { live, heard: &heard, tries: &tries }, token);
        listened(infer.hedge_after_ms, &heard.spoken, silent, answer).await
    }

    async fn answer(
        &self,
        infer: &Infer,
        history: &Arc<History>,
        live: Watched<'_>,
        token: CancellationToken,
    ) -> (InferenceOutcome, Option<Box<Personal>>) {
        let entries = match entries(history, infer.pid, &infer.items).await {
            Ok(entries) => entries,
            Err(failure) => return (InferenceOutcome::Failed { failure }, None),
        };
        if infer.purpose == Purpose::Digest {
            let (text, usage) = (aos_context::digest(&entries), Usage::default());
            let reply = Reply { text, calls: Vec::new(), stop: Stop::End, usage, model: infer.model.clone() };
            return (InferenceOutcome::Answered(reply), None);
        }
        let looked = match looked(infer, history, &entries) {
            Ok(looked) => looked,
            Err(failure) => return (InferenceOutcome::Failed { failure }, None),
        };
        let rule = || infer.guard.as_ref().and_then(|guard| guard.rule.as_deref()).map(str::to_owned);
        let told = |classes| Some(Box::new(Personal { classes, rule: rule(), ..Personal::default() }));
        match looked {
            Looked::Clean => (self.asked(infer, None, &entries, history, live, token).await, None),
            Looked::Found(classes) => (self.asked(infer, None, &entries, history, live, token).await, told(classes)),
            Looked::Withheld(classes) => (InferenceOutcome::Failed { failure: withheld(&classes) }, told(classes)),
            Looked::Replaced(replaced) => {
                let mut outcome = self.asked(infer, Some(&replaced), &entries, history, live, token).await;
                let told = match &mut outcome {
                    InferenceOutcome::Answered(reply) => replaced.fill(reply),
                    InferenceOutcome::Failed { .. } => replaced.told(),
                };
                (outcome, Some(Box::new(Personal { rule: rule(), ..told })))
            }
        }
    }

    /// Asks; `replaced` is what the model sees in the place of `entries`.
    async fn asked(
        &self,
        infer: &Infer,
        replaced: Option<&Replaced>,
        entries: &[Arc<Entry>],
        history: &Arc<History>,
        Watched { live, heard, tries }: Watched<'_>,
        token: CancellationToken,
    ) -> InferenceOutcome {
        let Sent { rendered: before, mut written } = match replaced {
            None => history.sent(infer.pid),
            // What was sent before may have been sent to another model.
            Some(_) => Sent::default(),
        };
        let shown = replaced.map_or(entries, |replaced| &replaced.entries);
        let (mut prompt, mut rendered) = prompt(infer, before, shown);
        let bounded = bound_images(&mut prompt.messages, IMAGES_BYTES_MAX);
        written.keep(rendered.as_ref().map_or(0, |rendered| rendered.same.min(bounded)));
        if let Some(replaced) = replaced {
            rendered = None;
            if infer.purpose == Purpose::Turn {
                prompt.system.clone_from(&replaced.system);
            }
        }
        let deltas = |delta: Delta| {
            heard.part(&delta);
            if let Delta::Text(text) = delta
                && live.receiver_count() > 0
            {
                // Progress is for whoever happens to watch; it is never journaled.
                let _ = live.send(Live::Progress(Arc::new(Progress { pid: infer.pid, effect: infer.id, text })));
            }
        };
        let answered = tokio::select! {
            biased;
            () = token.cancelled() => {
                return InferenceOutcome::Failed { failure: Failure { usage: heard.used(), ..cancelled() } };
            }
            answered = async {
                heard.asked.store(true, Ordering::Relaxed);
                self.ask(infer, &prompt, &mut written, tries, deltas).await
            } => answered,
        };
        if let Some(mut rendered) = rendered {
            rendered.messages = std::mem::take(&mut prompt.messages);
            history.keep_sent(infer.pid, Sent { rendered, written });
        }
        match answered {
            Ok(reply) if infer.purpose == Purpose::Summary => InferenceOutcome::Answered(whole(reply, entries)),
            Ok(reply) => InferenceOutcome::Answered(reply),
            Err(failure) => InferenceOutcome::Failed { failure },
        }
    }

    /// Asks once more without the images where they may be what is refused: one that is damaged, or too large with the others,
    /// would otherwise be refused at every later turn, and its agent be stuck with it.
    async fn ask(
        &self,
        infer: &Infer,
        prompt: &Prompt,
        written: &mut Written,
        tries: &Tries,
        mut deltas: impl FnMut(Delta) + Send,
    ) -> Result<Reply, Failure> {
        let asker = Asker { pid: Some(infer.pid), effect: infer.id, tries: tries.clone() };
        let refused_before = self.refused.lock().unwrap_or_else(PoisonError::into_inner).remove(&infer.pid);
        if let Some(blind) = refused_before.then(|| without_images(prompt)).flatten() {
            return self.pool.infer(&infer.model, &blind, asker, deltas).await;
        }
        let answered = self.pool.go_on(&infer.model, prompt, asker.clone(), written, &mut deltas).await;
        let refused = [FailureKind::Permanent, FailureKind::Refused, FailureKind::TooLarge];
        if let Err(failure) = &answered
            && refused.contains(&failure.kind)
            && let Some(blind) = without_images(prompt)
        {
            let paid = failure.usage;
            if !tries.may() {
                self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(infer.pid);
                return answered.map_err(|failure| Failure { kind: FailureKind::Here, ..failure });
            }
            return match self.pool.infer(&infer.model, &blind, asker, deltas).await {
                Ok(reply) => Ok(Reply { usage: reply.usage.with(paid), ..reply }),
                Err(failure) => Err(Failure { usage: failure.usage.map(|usage| usage.with(paid)).or(paid), ..failure }),
            };
        }
        answered
    }
}

/// Waits for an answer, and tells once where nothing of it has come by then.
async fn listened<T>(
    after_ms: Option<u64>,
    spoken: &AtomicBool,
    silent: impl FnOnce(),
    answer: impl Future<Output = T>,
) -> T {
    let mut answer = std::pin::pin!(answer);
    if let Some(after_ms) = after_ms {
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            () = tokio::time::sleep(Duration::from_millis(after_ms)) => {}
        }
        if !spoken.load(Ordering::Relaxed) {
            silent();
        }
    }
    answer.await
}

/// A summary that can take the place of these entries: for what a model left out, having thought or spoken until it was cut
/// off, stands a digest.
fn whole(mut reply: Reply, entries: &[Arc<Entry>]) -> Reply {
    let said = spoken(&reply.text);
    let cut_off = reply.stop == Stop::Length;
    if said.is_empty() || cut_off && said.len() < SUMMARY_BYTES_MIN {
        reply.text = aos_context::digest(entries);
    } else if cut_off {
        // What people said stands first, so that it is kept where this is cut in turn.
        reply.text = format!("{}\n[and at length, cut off:]\n{said}", aos_context::digest(entries));
    } else {
        reply.text = said.to_owned();
    }
    reply
}

/// What a model has said, without the thoughts that some write before it; their beginning may stand in the prompt.
fn spoken(text: &str) -> &str {
    match text.rsplit_once("</think>") {
        Some((_, said)) => said.trim(),
        None if text.trim_start().starts_with("<think>") => "",
        None => text.trim(),
    }
}

/// Puts a word in the place of images beyond so many bytes, the oldest first. What had no room has none in later prompts, so
/// that these begin as this one does. Returns how many messages before the first such image stayed as they were.
fn bound_images(messages: &mut [Message], bytes_max: usize) -> usize {
    let mut room = bytes_max;
    let mut same = messages.len();
    for (nth, message) in messages.iter_mut().enumerate().rev() {
        let Message::User(parts) = message else { continue };
        for part in parts.iter_mut().rev() {
            let Part::Image { base64, .. } = part else { continue };
            if let Some(left) = room.checked_sub(base64.len()) {
                room = left;
            } else {
                (room, same) = (0, nth);
                *part = Part::Text("[an image: no room to show it]".to_owned());
            }
        }
    }
    same
}

/// The prompt with a word in the place of each image; `None` where there is none.
fn without_images(prompt: &Prompt) -> Option<Prompt> {
    let is_image = |part: &Part| matches!(part, Part::Image { .. });
    let has = |message: &Message| matches!(message, Message::User(parts) if parts.iter().any(is_image));
    if !prompt.messages.iter().any(has) {
        return None;
    }
    let mut blind = prompt.clone();
    for message in &mut blind.messages {
        let Message::User(parts) = message else { continue };
        for part in parts.iter_mut().filter(|part| is_image(part)) {
            *part = Part::Text("[an image that your model's server may have refused]".to_owned());
        }
    }
    Some(blind)
}

/// What looking at a prompt came to. Texts in which nothing was are not looked at again by the same detector.
fn looked(infer: &Infer, history: &History, entries: &[Arc<Entry>]) -> Result<Looked, Failure> {
    let Some(guard) = &infer.guard else { return Ok(Looked::Clean) };
    let mut clean = history.clean(infer.pid, &guard.detector);
    let looked = super::privacy::look(guard, &infer.system, entries, &clean)?;
    if matches!(looked, Looked::Clean) {
        clean.note(&infer.system, entries);
    }
    history.keep_clean(infer.pid, clean);
    Ok(looked)
}

/// The entries of a window; read from the journal, off the async threads, where they are not at hand.
async fn entries(history: &Arc<History>, pid: Pid, items: &[Lsn]) -> Result<Vec<Arc<Entry>>, Failure> {
    if let Some(entries) = history.at_hand(pid, items) {
        return Ok(entries);
    }
    // Waits in line without a thread, as many others may.
    let _turn = history.turn().await;
    let (history, items) = (Arc::clone(history), items.to_vec());
    match tokio::task::spawn_blocking(move || history.get(pid, &items)).await {
        Ok(Ok(entries)) => Ok(entries),
        Ok(Err(error)) => Err(unreadable(&error.to_string())),
        Err(error) => Err(unreadable(&error.to_string())),
    }
}

/// What the model is sent; for a turn also how its window was rendered, without the messages, which the prompt has.
fn prompt(infer: &Infer, before: Rendered, entries: &[Arc<Entry>]) -> (Prompt, Option<Rendered>) {
    let fit = Fit::for_budget(infer.budget).with_images(infer.images);
    match infer.purpose {
        Purpose::Turn | Purpose::Request => {
            let mut rendered = before.render(entries, infer.encoding, fit);
            let prompt = Prompt {
                system: infer.system.clone(),
                messages: std::mem::take(&mut rendered.messages),
                status: infer.status.clone(),
                tools: infer.tools,
                encoding: infer.encoding,
                max_output: infer.max_output,
            };
            (prompt, Some(rendered))
        }
        Purpose::Summary | Purpose::Digest => {
            let (system, messages) = aos_context::summary_prompt_fitted(entries, fit);
            let prompt = Prompt {
                system,
                messages,
                status: String::new(),
                tools: CallSet::EMPTY,
                // Without a call there is nothing that another form could hold.
                encoding: Encoding::Text,
                max_output: infer.max_output,
            };
            (prompt, None)
        }
    }
}

pub(crate) fn withheld(classes: &BTreeSet<String>) -> Failure {
    let kinds: Vec<&str> = classes.iter().map(String::as_str).collect();
    Failure {
        kind: FailureKind::Withheld,
        message: format!(
            "nothing was sent: it holds personal data ({}), which the policy keeps here",
            kinds.join(", ")
        ),
        hint: None,
        retry_after_ms: None,
        usage: None,
        unreachable: false,
    }
}

pub(crate) fn cancelled() -> Failure {
    let (kind, message) = (FailureKind::Cancelled, "cancelled".into());
    Failure { kind, message, hint: None, retry_after_ms: None, usage: None, unreachable: false }
}

fn unreadable(why: &str) -> Failure {
    Failure {
        kind: FailureKind::Here,
        message: format!("the journal could not be read: {why}"),
        hint: Some("`aos doctor` looks at the disk".into()),
        retry_after_ms: None,
        usage: None,
        unreachable: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it was told of silence by an answer whose first word comes after so long and whose last after so long.
    async fn told(after_ms: Option<u64>, first_ms: u64, last_ms: u64) -> bool {
        let (spoken, told) = (AtomicBool::new(false), AtomicBool::new(false));
        let answer = async {
            tokio::time::sleep(Duration::from_millis(first_ms)).await;
            spoken.store(true, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(last_ms - first_ms)).await;
        };
        listened(after_ms, &spoken, || told.store(true, Ordering::Relaxed), answer).await;
        told.load(Ordering::Relaxed)
    }

    #[test]
    fn what_was_given_up_is_counted_as_far_as_it_came() {
        let heard = Heard::default();
        assert_eq!(heard.used(), Some(Usage::default()), "nothing was sent");
        heard.asked.store(true, Ordering::Relaxed);
        assert_eq!(heard.used(), None, "what it thinks is not heard");
        heard.part(&Delta::Text("words ".repeat(100)));
        let words = heard.used().unwrap();
        assert!(words.estimated && words.input_tokens == 0 && (100..=300).contains(&words.output_tokens), "{words:?}");
        heard.part(&Delta::Call { id: String::new(), name: "FS_WRITE".into() });
        heard.part(&Delta::Arguments { call: 0, text: "{\"path\":\"a\"}".repeat(20) });
        assert!(heard.used().unwrap().output_tokens > words.output_tokens + 50);
    }

    #[test]
    fn images_beyond_their_bytes_give_way_the_oldest_first() {
        let image = |bytes: usize| Part::Image { media_type: "image/png".into(), base64: "i".repeat(bytes) };
        let message = |sizes: &[usize]| Message::User(sizes.iter().map(|bytes| image(*bytes)).collect());
        let answer = Message::Assistant { text: "seen".into(), calls: Vec::new() };
        let all = [message(&[1]), answer.clone(), message(&[3]), answer.clone(), message(&[4, 2]), answer];
        let bounded = |bytes_max| {
            let mut messages = all.to_vec();
            let same = bound_images(&mut messages, bytes_max);
            let sizes = messages.iter().map(|message| match message {
                Message::User(parts) => parts.iter().filter(|part| matches!(part, Part::Image { .. })).count(),
                _ => 0,
            });
            (same, sizes.sum::<usize>())
        };
        assert_eq!(bounded(10), (6, 4));
        assert_eq!(bounded(9), (0, 3));
        assert_eq!(bounded(8), (0, 2), "one that is smaller takes no place before a newer one");
        assert_eq!(bounded(5), (0, 1));
        assert_eq!(bounded(0), (0, 0));
    }

    #[test]
    fn a_summary_that_says_too_little_has_a_digest_in_its_place() {
        let (text, from_pid) = ("never touch /srv/a".to_owned(), Pid::INIT);
        let body = aos_abi::Body::Input { text, eof: false, from_pid, untrusted: false };
        let entry = Entry { lsn: Lsn(1), at: aos_abi::Timestamp(0), pid: Pid(2), cause: None, body };
        let usage = Usage { input_tokens: 100, output_tokens: 7, ..Usage::default() };
        let entries = [Arc::new(entry)];
        let whole = |text: &str, stop| {
            let (calls, model) = (Vec::new(), "m".to_owned());
            let reply = whole(Reply { text: text.to_owned(), calls, stop, usage, model }, &entries);
            assert_eq!(reply.usage, usage);
            reply.text
        };
        let digest = "A person said: never touch /srv/a";
        assert_eq!(whole("It did well.", Stop::End), "It did well.");
        assert_eq!(whole("<think>\nOkay, the user wants\n</think>\n\nIt did well.", Stop::End), "It did well.");
        assert_eq!(whole("Okay, so\n</think>\nIt did well.", Stop::End), "It did well.");
        assert_eq!(whole("<think>\nOkay, the user wants", Stop::End), digest);
        assert_eq!(whole(" \n", Stop::End), digest);
        assert_eq!(whole("", Stop::Length), digest, "it thought to the end");
        assert_eq!(whole("It did", Stop::Length), digest);
        let long = "It did well. ".repeat(20);
        assert_eq!(whole(&long, Stop::Length), format!("{digest}\n[and at length, cut off:]\n{}", long.trim()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_word_is_enough() {
        assert!(told(Some(1000), 1500, 2000).await);
        assert!(!told(Some(1000), 900, 60_000).await, "it has begun");
        assert!(!told(Some(1000), 900, 950).await);
        assert!(!told(None, 60_000, 60_000).await, "nobody wants to know");
    }
}
