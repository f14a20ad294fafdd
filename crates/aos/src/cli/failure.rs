//! What a command failed with, as people and as programs see it, and the exit code that goes with it.
//!
//! Start at [`Failure`]. What always holds: it is shown as `error: WHAT`, `  why: …`, `  try: …` on standard error, and
//! with `--json` also as the error object on standard output; control characters in it are shown, not sent.

use std::fmt::Write as _;
use std::process::ExitCode;

use aos_abi::api::{ErrorBody, ErrorView};

use super::clean::{clean, clean_line};
use crate::client;
use crate::config::ConfigError;
use crate::home;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It did what was asked.
    Success,
    /// It did not.
    Failed,
    /// It was called wrongly.
    Usage,
    /// The daemon cannot be reached.
    Unreachable,
    /// The policy denies it.
    Denied,
    /// A budget is spent.
    Spent,
    /// It took too long.
    TimedOut,
    /// The agent's own code.
    Agent(i32),
}

impl Exit {
    /// The number. Agents' codes keep their lowest eight bits, as with any program; one whose bits are zero is 1.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Unreachable => 3,
            Exit::Denied => 4,
            Exit::Spent => 5,
            Exit::TimedOut => 124,
            Exit::Agent(0) => 0,
            Exit::Agent(code) => u8::try_from(code & 0xff).unwrap_or(1).max(1),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Why a command did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// The code for programs: one of `aos_abi::Code`, or `usage`, `unavailable`, `config`, `failed` and the daemon's own.
    pub code: String,
    /// What went wrong.
    pub what: String,
    /// Why, in one or more lines.
    pub why: Vec<String>,
    /// The ways out.
    pub hints: Vec<String>,
}

impl Failure {
    /// A failure of the command.
    #[must_use]
    pub fn new(what: impl Into<String>) -> Failure {
        Failure { exit: Exit::Failed, code: "failed".into(), what: what.into(), why: vec![], hints: vec![] }
    }

    /// The command was called wrongly.
    #[must_use]
    pub fn usage(what: impl Into<String>) -> Failure {
        Failure { exit: Exit::Usage, code: "usage".into(), ..Failure::new(what) }
    }

    /// The same with its reason.
    #[must_use]
    pub fn why(mut self, why: impl Into<String>) -> Failure {
        self.why.push(why.into());
        self
    }

    /// The same with a way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hints.push(hint.into());
        self
    }

    /// As people see it.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut text = format!("error: {}\n", clean_line(&self.what));
        for (label, lines) in [("why", &self.why), ("try", &self.hints)] {
            for line in lines.iter().flat_map(|lines| lines.lines()) {
                let _ = writeln!(text, "  {label}: {}", clean(line));
            }
        }
        text
    }

    /// As programs see it.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        let message = match self.why.as_slice() {
            [] => self.what.clone(),
            why => format!("{}: {}", self.what, why.join("; ")),
        };
        let hint = (!self.hints.is_empty()).then(|| self.hints.join("; "));
        ErrorBody { error: ErrorView { code: self.code.clone(), message, hint } }
    }
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Failure {
        let what = error.to_string();
        let unreachable = || Failure { exit: Exit::Unreachable, code: "unavailable".into(), ..Failure::new(&what) };
        match error {
            client::Error::NoDaemon { .. } => {
                unreachable().why("nobody listens on its socket, and none was to be started").hint("aos up")
            }
            client::Error::NotStarted { reason, hint, log } => {
                unreachable().why(reason).hint(hint.unwrap_or_else(|| format!("read {}", log.display())))
            }
            client::Error::Closed { .. } => unreachable().hint("aos doctor"),
            client::Error::Gone { .. } => {
                unreachable().why("what ran goes on when the daemon runs again").hint("aos up, then aos ps")
            }
            client::Error::Late { .. } => unreachable().why("it may be overloaded").hint("aos status"),
            client::Error::Lost { .. } => {
                unreachable().why("whether it was done is not known").hint("look with aos ps, then repeat it")
            }
            client::Error::Broken { .. } => {
                unreachable().hint("aos version and aos status should name the same version; then aos down, aos up")
            }
            client::Error::Refused { error, .. } => Failure::from(error),
        }
    }
}

impl From<ErrorView> for Failure {
    fn from(error: ErrorView) -> Failure {
        let exit = match error.code.as_str() {
            "EPERM" => Exit::Denied,
            "EDQUOT" => Exit::Spent,
            "ETIMEDOUT" => Exit::TimedOut,
            "unavailable" => Exit::Unreachable,
            "usage" | "EINVAL" => Exit::Usage,
            _ => Exit::Failed,
        };
        let why = match error.code.as_str() {
            "ESRCH"
                if error
                    .message
                    .strip_prefix("no process ")
                    .is_some_and(|of| !of.is_empty() && of.bytes().all(|c| c.is_ascii_digit())) =>
            {
                vec!["none has that pid, or it was pruned".to_owned()]
            }
            _ => Vec::new(),
        };
        Failure { exit, code: error.code, what: error.message, why, hints: error.hint.into_iter().collect() }
    }
}

impl From<home::Error> for Failure {
    fn from(error: home::Error) -> Failure {
        Failure::new(error.to_string()).hint(error.hint())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        let hints = error.hints();
        let failure = Failure { code: "config".into(), hints, ..Failure::new("the configuration cannot be used") };
        error.to_string().lines().fold(failure, Failure::why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_as_people_and_programs_see_it() {
        let failure = Failure::new("no \x1b[31mfile\nhere").why("one\ntwo").hint("look\u{9b}2J again");
        insta::assert_snapshot!(failure.shown(), @"
        error: no ␛[31mfile here
          why: one
          why: two
          try: look�2J again
        ");
        insta::assert_snapshot!(serde_json::to_string(&failure.body()).unwrap(), @r#"{"error":{"code":"failed","message":"no \u001b[31mfile\nhere: one\ntwo","hint":"look2J again"}}"#);
    }

    #[test]
    fn exit_codes_are_those_of_the_contract() {
        let refused = |code: &str| {
            let error = ErrorView { code: code.into(), message: "m".into(), hint: None };
            Failure::from(client::Error::Refused { status: 400, error }).exit.code()
        };
        assert_eq!(
            ["EPERM", "EDQUOT", "ETIMEDOUT", "ESRCH", "usage", "unavailable", "internal"].map(refused),
            [4, 5, 124, 1, 2, 3, 1]
        );
        assert_eq!(Failure::from(client::Error::NoDaemon { home: "/h".into() }).exit.code(), 3);
        assert_eq!([0, 1, 5, 124, 137, 256, -1].map(|code| Exit::Agent(code).code()), [0, 1, 5, 124, 137, 1, 255]);
    }
}
