//! A person attached to a process: what it does is told, what it asks is answered, and its end is this program's.
//!
//! Start at [`Session::until_the_end`]; what an entry means for the person is [`Talk`]'s, which is pure. What always holds:
//! standard output gets the result alone (or, attached to a resident process, what it writes there); only a person at a
//! terminal approves anything.

use std::io::Write as _;
use std::time::Duration;

use aos_abi::api::{Accepted, ApproveRequest, InputRequest, ProposalView, RejectRequest};
use aos_abi::process::{Mode, ProcessView, State};
use aos_abi::{Body, Lsn, Pid, Signal};
use tokio::signal::unix::{Signal as Listener, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::super::keyboard::{Keyboard, Typed};
use super::super::proposals::whole;
use super::super::talk::{Action, Kind, Prompt, Talk};
use super::super::{Context, Exit, Failure, Narrator, clean_json, clean_line, cut, duration, view};
use crate::client::{Address, Client, Event, Line};

/// How often the line at the bottom is drawn anew.
const DRAW_EVERY: Duration = Duration::from_millis(120);
const SPINNER: [char; 8] = ['⠋', '⠙', '⠹', '⠸', '⠴', '⠦', '⠧', '⠇'];

/// Ctrl-C and TERM, which are kept from the moment that this exists until they are asked for.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Listener,
    terminate: Listener,
}

impl Interrupts {
    /// Begins to listen: from now on these signals do not end this program.
    pub(crate) fn listen() -> Result<Interrupts, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::new("cannot listen for signals").why(error.to_string()));
        Ok(Interrupts { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// The next one.
    ///
    /// # Cancel safety
    /// None is lost where the future is dropped.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A person attached to a process.
#[derive(Debug)]
pub(crate) struct Session<'c> {
    cx: &'c Context,
    client: Client,
    pid: Pid,
    kind: Kind,
    talk: Talk,
    keyboard: Keyboard,
    signals: Interrupts,
    interrupts: u32,
    live: bool,
    drawn: bool,
    frame: usize,
    since: Instant,
    after: Lsn,
    input: Input,
    shown: Option<Shown>,
    /// The last line of JSON, which nothing comes after.
    last: Option<String>,
}

/// A proposal that was shown whole.
#[derive(Debug)]
struct Shown {
    id: String,
    /// What the daemon names that by.
    name: String,
    since: Instant,
}

/// What is left of the input of somebody attached by a pipe or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    /// There may be more; nothing was sent yet.
    Silent,
    /// There may be more; something was sent.
    Sent,
    /// It has ended and the process was told: it ends with its task, and so does this.
    Closed,
    /// It has ended; once the process has answered, this ends.
    Leaving,
}

impl<'c> Session<'c> {
    /// With a process that was just started for its one task.
    pub(crate) fn of_run(
        cx: &'c Context,
        client: Client,
        pid: Pid,
        keyboard: Keyboard,
        signals: Interrupts,
    ) -> Session<'c> {
        Session::new(cx, client, pid, keyboard, Kind::Run, signals)
    }

    /// With a process that lives; what it did so far is read and not told.
    pub(crate) async fn of_attach(cx: &'c Context, client: Client, pid: Pid) -> Result<Self, Failure> {
        let mut session = Session::new(cx, client, pid, Keyboard::default(), Kind::Attach, Interrupts::listen()?);
        let mut past = session.client.events(session.address(), Lsn::ZERO, false);
        while let Some(event) = past.next().await? {
            if let Event::Entry(Line { lsn, entry: Some(entry), .. }) = event {
                session.after = lsn;
                // A process that has ended is told like one that ends now.
                let end = session.talk.hear(&entry).into_iter().find(|action| matches!(action, Action::End { .. }));
                if end.is_some() {
                    session.after = Lsn(lsn.0 - 1);
                }
            }
        }
        Ok(session)
    }

    fn new(cx: &'c Context, client: Client, pid: Pid, keyboard: Keyboard, kind: Kind, signals: Interrupts) -> Self {
        let dumb = cx.env.text("TERM") == Some("dumb");
        let width = crossterm::terminal::size().map_or(100, |(columns, _)| usize::from(columns));
        let width = if cx.err_terminal { width } else { 160 };
        Session {
            talk: Talk::new(kind, Narrator::new(cx.err, width, None)),
            cx,
            client,
            pid,
            kind,
            keyboard,
            signals,
            interrupts: 0,
            live: cx.err_terminal && !dumb && !cx.quiet && !cx.json,
            drawn: false,
            frame: 0,
            since: Instant::now(),
            after: Lsn::ZERO,
            input: Input::Silent,
            shown: None,
            last: None,
        }
    }

    fn address(&self) -> Address {
        view::process(self.pid).then("events")
    }

    /// Until the process has ended, or the person goes away.
    pub(crate) async fn until_the_end(self) -> Result<Exit, Failure> {
        self.until_the_end_and(|| Ok(())).await
    }

    /// The same, and what is to be said then, however it came to that; of JSON the end of the process is the last line.
    pub(crate) async fn until_the_end_and(
        mut self,
        then: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Exit, Failure> {
        let exit = self.follow().await;
        then()?;
        if let Some(last) = &self.last {
            self.cx.print(last)?;
        }
        exit
    }

    async fn follow(&mut self) -> Result<Exit, Failure> {
        let mut events = self.client.events(self.address(), self.after, true);
        let mut tick = interval(DRAW_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        // What was asked before this began was told to whoever was there.
        for line in self.talk.questions() {
            self.tell(&line);
        }
        self.show_prompt().await?;
        loop {
            let listens = self.listens();
            let done = tokio::select! {
                event = events.next() => match event? {
                    Some(event) => match self.event(event).await? {
                        None if self.input == Input::Leaving => self.leave_if_answered().await?,
                        done => done,
                    },
                    None => return Err(Failure::new("the stream of events ended early").hint(format!("aos logs {}", self.pid))),
                },
                line = self.keyboard.line(), if listens => self.typed(line).await?,
                () = self.signals.next() => self.interrupted().await?,
                _ = tick.tick(), if self.live => { self.draw(); None }
            };
            if let Some(exit) = done {
                self.erase();
                return Ok(exit);
            }
        }
    }

    /// Whether a line from the keyboard has a meaning now.
    fn listens(&self) -> bool {
        // Programs that read JSON answer nothing, unless they attached with a pipe to send through.
        let reads = !self.cx.json || (self.kind == Kind::Attach && !self.cx.in_terminal);
        if !reads || self.keyboard.is_ended() {
            return false;
        }
        match (self.kind, self.talk.prompt()) {
            (_, Some(Prompt::Approval { .. })) => self.cx.in_terminal,
            (_, Some(Prompt::Question { .. } | Prompt::Stdin { .. })) | (Kind::Attach, None) => true,
            (Kind::Run, None) => false,
        }
    }

    async fn event(&mut self, event: Event) -> Result<Option<Exit>, Failure> {
        match event {
            Event::Progress(_) => {}
            Event::Lost => self.tell(&self.cx.err.yellow("! the daemon went away; waiting for it").clone()),
            Event::Back => self.tell(&self.cx.err.dim("the daemon is back").clone()),
            Event::Entry(line) => return self.entry(&line).await,
        }
        Ok(None)
    }

    async fn entry(&mut self, line: &Line) -> Result<Option<Exit>, Failure> {
        if self.cx.json {
            let text = format!("{}\n", clean_json(&line.json));
            match line.entry.as_ref().map(|entry| &entry.body) {
                Some(Body::Exited { .. }) => self.last = Some(text),
                _ => self.cx.print(&text)?,
            }
        }
        self.after = line.lsn;
        let Some(entry) = &line.entry else { return Ok(None) };
        self.since = Instant::now();
        for action in self.talk.hear(entry) {
            match action {
                Action::Tell(text) => self.tell(&text),
                Action::Write(text) => {
                    self.erase();
                    if !self.cx.json {
                        self.cx.line(&text)?;
                    }
                }
                Action::Ask => self.ask().await?,
                // What was shown whole had it.
                Action::Looked { id, .. } if self.is_shown(&id) => {}
                Action::Looked { text, .. } => {
                    if !text.is_empty() {
                        self.tell(&text);
                    }
                    // Who is elsewhere was told how to answer when it was asked.
                    if self.listens() {
                        self.show_prompt().await?;
                    }
                }
                Action::Stopped(reason) => {
                    self.erase();
                    return Err(Failure::new(format!("process {} stopped", self.pid))
                        .why(reason)
                        .hint(format!("mend it, then aos resume {0}; or aos kill {0}", self.pid)));
                }
                Action::End { code, result, reason } => return self.end(code, result, &reason).map(Some),
            }
        }
        Ok(None)
    }

    fn end(&mut self, code: i32, result: Option<String>, reason: &str) -> Result<Exit, Failure> {
        self.erase();
        if !self.cx.json {
            if let Some(result) = result {
                self.cx.line(&result)?;
            }
            if code != 0 {
                let failure = Failure::new(format!("process {} ended with exit code {code}", self.pid))
                    .why(reason)
                    .hint(format!("aos logs {}", self.pid));
                let _ = std::io::stderr().write_all(failure.shown().as_bytes());
            }
        }
        Ok(Exit::Agent(code))
    }

    /// The process asks something: show it, or say how it can be answered where nobody is here.
    async fn ask(&mut self) -> Result<(), Failure> {
        let Some(prompt) = self.talk.prompt().cloned() else { return Ok(()) };
        if self.listens() {
            return self.show_prompt().await;
        }
        match prompt {
            // The end of the input is on its way.
            Prompt::Stdin { .. } if self.input == Input::Closed => Ok(()),
            Prompt::Stdin { .. } if self.kind == Kind::Run && self.keyboard.is_ended() => {
                self.send(InputRequest { text: String::new(), eof: true, untrusted: false }).await
            }
            Prompt::Stdin { .. } | Prompt::Question { .. } => {
                self.tell(&format!("  answer it from another terminal: aos send {} TEXT", self.pid));
                Ok(())
            }
            Prompt::Approval { id, .. } => {
                self.tell(&format!(
                    "  answer it from another terminal: aos approve {id}, or aos reject {id} --why TEXT"
                ));
                Ok(())
            }
        }
    }

    fn is_shown(&self, id: &str) -> bool {
        self.shown.as_ref().is_some_and(|shown| shown.id == id)
    }

    /// Shows a proposal whole, its files looked at: nothing is said yes to that was not. What was typed before that is no
    /// answer to it.
    async fn show_whole(&mut self, id: &str) -> Result<(), Failure> {
        let waiting: Vec<ProposalView> = self.client.get(&Address::of("/v1/proposals")).await?;
        let proposal = waiting.into_iter().find(|proposal| proposal.id == id);
        if let Some(proposal) = &proposal {
            self.tell(&whole(proposal, self.cx.width));
        }
        self.keyboard.drop_begun();
        // While its files are looked at it is not listed, and there is nothing to say yes to.
        self.shown = proposal.map(|proposal| Shown { id: id.to_owned(), name: proposal.shown, since: Instant::now() });
        Ok(())
    }

    async fn show_prompt(&mut self) -> Result<(), Failure> {
        if !self.cx.in_terminal || !self.cx.err_terminal || self.cx.json {
            return Ok(());
        }
        if let Some(Prompt::Approval { id }) = self.talk.prompt().cloned()
            && !self.is_shown(&id)
        {
            self.show_whole(&id).await?;
            if !self.is_shown(&id) {
                return Ok(());
            }
        }
        let words = match self.talk.prompt() {
            None => return Ok(()),
            Some(Prompt::Question { .. } | Prompt::Stdin { .. }) => "> ".to_owned(),
            Some(Prompt::Approval { id, .. }) => format!("approve {}? y, or n and why > ", clean_line(id)),
        };
        self.erase();
        let _ = write!(std::io::stderr(), "{words}").and_then(|()| std::io::stderr().flush());
        Ok(())
    }

    async fn typed(&mut self, line: Option<Typed>) -> Result<Option<Exit>, Failure> {
        let prompt = self.talk.answered();
        let shown = |id: &str, at: std::time::Instant| {
            self.shown.as_ref().is_some_and(|shown| shown.id == id && shown.since.into_std() <= at)
        };
        let early = matches!((&prompt, &line), (Some(Prompt::Approval { id }), Some(line)) if !shown(id, line.at));
        match (prompt, line.map(|line| line.text)) {
            (Some(prompt @ Prompt::Approval { .. }), Some(_)) if early => {
                self.tell("  what was typed before this question stood here is no answer to it");
                self.talk.again(prompt);
            }
            // An empty line is no answer.
            (Some(prompt @ Prompt::Approval { .. }), Some(line)) if line.trim().is_empty() => self.talk.again(prompt),
            (Some(Prompt::Approval { id, .. }), Some(line)) => self.decide(&id, line.trim()).await?,
            (Some(Prompt::Question { .. } | Prompt::Stdin { .. }) | None, Some(text)) => {
                self.send(InputRequest { text, eof: false, untrusted: false }).await?;
            }
            (_, None) if self.kind == Kind::Attach => return self.input_ended().await,
            (Some(Prompt::Stdin { .. }), None) => {
                self.send(InputRequest { text: String::new(), eof: true, untrusted: false }).await?
            }
            (Some(Prompt::Question { .. }), None) => {
                self.tell(&format!("  no more input here; answer it with: aos send {} TEXT", self.pid));
            }
            (Some(Prompt::Approval { id, .. }), None) => {
                self.tell(&format!("  no more input here; answer it with: aos approve {id}, or aos reject {id}"));
            }
            (None, None) => {}
        }
        self.show_prompt().await?;
        Ok(None)
    }

    /// The input of somebody attached has ended. At a terminal that is the way to leave. In a pipe, a process with one
    /// task is told, and shown to its end; a resident one, whose input others share, is shown until it has answered.
    async fn input_ended(&mut self) -> Result<Option<Exit>, Failure> {
        if self.cx.in_terminal {
            return Ok(Some(self.detach()));
        }
        let process: ProcessView = self.client.get(&view::process(self.pid)).await?;
        match (process.mode, self.input) {
            // Its end is on its way, and there is nobody to tell.
            _ if process.state == State::Exited => Ok(None),
            (Mode::OneShot, _) => {
                self.input = Input::Closed;
                self.send(InputRequest { text: String::new(), eof: true, untrusted: false }).await?;
                Ok(None)
            }
            (Mode::Resident | Mode::Program, Input::Silent) => Ok(Some(self.detach())),
            (Mode::Resident | Mode::Program, _) => {
                self.input = Input::Leaving;
                self.leave_if_answered().await
            }
        }
    }

    /// Ends this where the process has nothing to do, or waits for somebody who is not here; all it said is shown.
    async fn leave_if_answered(&mut self) -> Result<Option<Exit>, Failure> {
        let process: ProcessView = self.client.get(&view::process(self.pid)).await?;
        let waits = matches!(process.waiting_for.as_deref(), Some("stdin" | "person" | "approval" | "budget"));
        if !waits && process.state != State::Stopped {
            return Ok(None);
        }
        let mut rest = self.client.events(self.address(), self.after, false);
        while let Some(event) = rest.next().await? {
            if let Event::Entry(line) = event
                && let Some(exit) = self.entry(&line).await?
            {
                return Ok(Some(exit));
            }
        }
        Ok(Some(self.detach()))
    }

    async fn send(&mut self, request: InputRequest) -> Result<(), Failure> {
        if !request.eof {
            self.input = Input::Sent;
        }
        let sent = self.client.post::<Accepted>(&view::process(self.pid).then("stdin"), &request).await;
        if let Err(error) = sent {
            self.tell(&Failure::from(error).shown());
        }
        Ok(())
    }

    async fn decide(&mut self, id: &str, answer: &str) -> Result<(), Failure> {
        let address = Address::of("/v1/proposals").then(id);
        let decided = if matches!(answer.to_lowercase().as_str(), "y" | "yes") {
            let shown = self.shown.take().map(|shown| shown.name);
            let yes = ApproveRequest { shown, ..ApproveRequest::default() };
            self.client.post::<ProposalView>(&address.then("approve"), &yes).await
        } else {
            self.client.post(&address.then("reject"), &RejectRequest { why: reason(answer) }).await
        };
        if let Err(error) = decided {
            if error.is_unseen() {
                self.talk.again(Prompt::Approval { id: id.to_owned() });
            }
            self.tell(&Failure::from(error).shown());
        }
        Ok(())
    }

    async fn interrupted(&mut self) -> Result<Option<Exit>, Failure> {
        if self.kind == Kind::Attach {
            return Ok(Some(self.detach()));
        }
        self.interrupts += 1;
        let which = match self.interrupts {
            1 => Signal::Term,
            2 => Signal::Kill,
            _ => {
                self.tell(&format!("left process {} to itself", self.pid));
                return Ok(Some(Exit::Agent(130)));
            }
        };
        if which == Signal::Term {
            self.tell("asked it to end; press Ctrl-C again to end it at once");
        }
        // It may have ended in the meantime; then its `exited` is on its way.
        let _ = view::signal(&self.client.without_start(), self.pid, which, true).await;
        Ok(None)
    }

    fn detach(&mut self) -> Exit {
        self.tell(&format!("detached; process {} goes on", self.pid));
        Exit::Success
    }

    fn tell(&mut self, text: &str) {
        if self.cx.quiet || self.cx.json {
            return;
        }
        self.erase();
        // The text was cleaned where it was made, and may hold colours of ours.
        let _ = writeln!(std::io::stderr(), "{}", text.trim_end_matches('\n'));
    }

    fn draw(&mut self) {
        if self.talk.prompt().is_some() || self.kind == Kind::Attach {
            return;
        }
        self.frame = (self.frame + 1) % SPINNER.len();
        let width = crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns));
        let text =
            format!("{} {}, {}", SPINNER[self.frame], self.talk.activity(), duration(self.since.elapsed().as_secs()));
        let line = self.cx.err.dim(&cut(&text, width.saturating_sub(1)));
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}").and_then(|()| std::io::stderr().flush());
        self.drawn = true;
    }

    fn erase(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(std::io::stderr(), "\r\x1b[K").and_then(|()| std::io::stderr().flush());
        }
    }
}

/// Why a person said no: what they typed, without the word for it.
fn reason(answer: &str) -> String {
    let (first, rest) = answer.split_once([',', ':', ' ']).unwrap_or((answer, ""));
    let no = matches!(first.to_lowercase().as_str(), "n" | "no");
    if no { rest } else { answer }.trim_start_matches([',', ':', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_what_follows_the_no() {
        for (typed, why) in [
            ("n", ""),
            ("no", ""),
            ("n, later", "later"),
            ("No: later", "later"),
            ("not now", "not now"),
            ("why?", "why?"),
        ] {
            assert_eq!(reason(typed), why, "{typed}");
        }
    }
}
