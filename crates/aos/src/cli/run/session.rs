//! A person attached to a process: what it does is told, what it asks is answered, and its end is this program's.
//!
//! Start at [`Session::until_the_end`]; what an entry means for the person is [`Talk`]'s, which is pure. What always holds:
//! standard output gets the result alone (or, attached to a resident process, what it writes there); only a person at a
//! terminal approves anything.

use std::io::Write as _;
use std::time::Duration;

use aos_abi::api::{Accepted, InputRequest, ProposalView, RejectRequest};
use aos_abi::{Lsn, Pid, Signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::super::keyboard::Keyboard;
use super::super::talk::{Action, Kind, Prompt, Talk};
use super::super::{Context, Exit, Failure, Narrator, clean_line, cut, duration, view};
use crate::client::{Address, Client, Event, Line};

/// How often the line at the bottom is drawn anew.
const DRAW_EVERY: Duration = Duration::from_millis(120);
const SPINNER: [char; 8] = ['⠋', '⠙', '⠹', '⠸', '⠴', '⠦', '⠧', '⠇'];

/// A person attached to a process.
#[derive(Debug)]
pub(crate) struct Session<'c> {
    cx: &'c Context,
    client: Client,
    pid: Pid,
    kind: Kind,
    talk: Talk,
    keyboard: Keyboard,
    interrupts: u32,
    live: bool,
    drawn: bool,
    frame: usize,
    since: Instant,
    after: Lsn,
}

impl<'c> Session<'c> {
    /// With a process that was just started for its one task.
    pub(crate) fn of_run(cx: &'c Context, client: Client, pid: Pid, keyboard: Keyboard) -> Result<Self, Failure> {
        Ok(Session::new(cx, client, pid, keyboard, Kind::Run))
    }

    /// With a process that lives; what it did so far is read and not told.
    pub(crate) async fn of_attach(cx: &'c Context, client: Client, pid: Pid) -> Result<Self, Failure> {
        let mut session = Session::new(cx, client, pid, Keyboard::default(), Kind::Attach);
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

    fn new(cx: &'c Context, client: Client, pid: Pid, keyboard: Keyboard, kind: Kind) -> Self {
        let dumb = cx.env.text("TERM") == Some("dumb");
        let width = crossterm::terminal::size().map_or(100, |(columns, _)| usize::from(columns));
        let width = if cx.err_terminal { width } else { 160 };
        Session {
            talk: Talk::new(kind, Narrator::new(cx.err, width, false)),
            cx,
            client,
            pid,
            kind,
            keyboard,
            interrupts: 0,
            live: cx.err_terminal && !dumb && !cx.quiet && !cx.json,
            drawn: false,
            frame: 0,
            since: Instant::now(),
            after: Lsn::ZERO,
        }
    }

    fn address(&self) -> Address {
        view::process(self.pid).then("events")
    }

    /// Until the process has ended, or the person goes away.
    pub(crate) async fn until_the_end(mut self) -> Result<Exit, Failure> {
        let mut events = self.client.events(self.address(), self.after, true);
        let unheard = |error: std::io::Error| Failure::new("cannot listen for signals").why(error.to_string());
        let mut interrupt = signal(SignalKind::interrupt()).map_err(unheard)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(unheard)?;
        let mut tick = interval(DRAW_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        self.show_prompt();
        loop {
            let listens = self.listens();
            let done = tokio::select! {
                event = events.next() => match event? {
                    Some(event) => self.event(event).await?,
                    None => return Err(Failure::new("the stream of events ended early").hint(format!("aos logs {}", self.pid))),
                },
                line = self.keyboard.line(), if listens => self.typed(line).await?,
                _ = interrupt.recv() => self.interrupted().await?,
                _ = terminate.recv() => self.interrupted().await?,
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
        if self.cx.json || self.keyboard.is_ended() {
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
            self.cx.print(&format!("{}\n", line.json))?;
        }
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
            self.show_prompt();
            return Ok(());
        }
        match prompt {
            Prompt::Stdin { .. } if self.kind == Kind::Run && self.keyboard.is_ended() => {
                self.send(InputRequest { text: String::new(), eof: true }).await
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

    fn show_prompt(&mut self) {
        if !self.cx.in_terminal || !self.cx.err_terminal || self.cx.json {
            return;
        }
        let words = match self.talk.prompt() {
            None => return,
            Some(Prompt::Question { .. } | Prompt::Stdin { .. }) => "> ".to_owned(),
            Some(Prompt::Approval { id, .. }) => format!("approve {}? y, or n and why > ", clean_line(id)),
        };
        self.erase();
        let _ = write!(std::io::stderr(), "{words}").and_then(|()| std::io::stderr().flush());
    }

    async fn typed(&mut self, line: Option<String>) -> Result<Option<Exit>, Failure> {
        let prompt = self.talk.answered();
        match (prompt, line) {
            (Some(Prompt::Approval { id, .. }), Some(line)) => self.decide(&id, line.trim()).await?,
            (Some(Prompt::Question { .. } | Prompt::Stdin { .. }) | None, Some(text)) => {
                self.send(InputRequest { text, eof: false }).await?;
            }
            (_, None) if self.kind == Kind::Attach => {
                if self.cx.in_terminal {
                    return Ok(Some(self.detach()));
                }
            }
            (Some(Prompt::Stdin { .. }), None) => self.send(InputRequest { text: String::new(), eof: true }).await?,
            (Some(Prompt::Question { .. }), None) => {
                self.tell(&format!("  no more input here; answer it with: aos send {} TEXT", self.pid));
            }
            (Some(Prompt::Approval { id, .. }), None) => {
                self.tell(&format!("  no more input here; answer it with: aos approve {id}, or aos reject {id}"));
            }
            (None, None) => {}
        }
        self.show_prompt();
        Ok(None)
    }

    async fn send(&mut self, request: InputRequest) -> Result<(), Failure> {
        let sent = self.client.post::<Accepted>(&view::process(self.pid).then("stdin"), &request).await;
        if let Err(error) = sent {
            self.tell(&Failure::from(error).shown());
        }
        Ok(())
    }

    async fn decide(&mut self, id: &str, answer: &str) -> Result<(), Failure> {
        let address = Address::of("/v1/proposals").then(id);
        let yes = matches!(answer.to_lowercase().as_str(), "y" | "yes");
        let decided = if yes {
            self.client.post::<ProposalView>(&address.then("approve"), &serde_json::json!({})).await
        } else {
            let why = answer.strip_prefix("no").or_else(|| answer.strip_prefix('n')).unwrap_or(answer);
            let why = why.trim_start_matches([',', ':', ' ']).to_owned();
            self.client.post(&address.then("reject"), &RejectRequest { why }).await
        };
        if let Err(error) = decided {
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
