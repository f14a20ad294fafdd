//! Error codes of system calls: what an agent is told when a call fails, numbered, append-only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Name;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $number:literal $name:literal,)*) => {
        /// Why a call failed. Names follow POSIX where POSIX has the case. Numbers never change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[repr(u16)]
        pub enum Code { $($(#[$doc])* #[serde(rename = $name)] $variant = $number,)* }

        impl Code {
            /// Every code.
            pub const ALL: &[Code] = &[$(Code::$variant),*];

            /// The name on the wire, such as `EPERM`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }
        }
    };
}

codes! {
    /// The policy denies it; the hint names the deciding rule and the narrowest grant that would pass.
    Perm = 1 "EPERM",
    /// The arguments do not fit the schema.
    Inval = 2 "EINVAL",
    /// No such system call or tool; the hint lists the nearest names.
    NoSys = 3 "ENOSYS",
    /// No such file, memory or timer.
    NoEnt = 4 "ENOENT",
    /// It exists already.
    Exist = 5 "EEXIST",
    /// A part of the path is no directory.
    NotDir = 6 "ENOTDIR",
    /// It is a directory.
    IsDir = 7 "EISDIR",
    /// No space is left.
    NoSpc = 8 "ENOSPC",
    /// No such process.
    Srch = 9 "ESRCH",
    /// No child to wait for.
    Child = 10 "ECHILD",
    /// It ran past its limit; what it had printed by then is in the result.
    TimedOut = 11 "ETIMEDOUT",
    /// A budget is spent: which, how much, when it renews.
    DQuot = 12 "EDQUOT",
    /// A queue is full or a rate limit holds; `retry_after_ms` says how long.
    Again = 13 "EAGAIN",
    /// The kernel stopped while it ran and its outcome is unknown; it was NOT run again.
    Intr = 14 "EINTR",
    /// A person rejected the proposal; the message is their reason.
    Rejected = 15 "EREJECTED",
    /// The driver failed; its message.
    Io = 16 "EIO",
    /// Waiting here would be for ever: every process that could end the wait is itself waiting.
    DeadLk = 17 "EDEADLK",
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed call as the agent sees it: what, why, and the way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallError {
    /// The kind of failure.
    pub code: Code,
    /// What went wrong, lower case, without a full stop.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// When trying again may help, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What there was of a result: what a command had printed before its deadline, for instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<serde_json::Value>,
}

impl CallError {
    /// An error without a hint.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        CallError { code, message: message.into(), hint: None, retry_after_ms: None, partial: None }
    }

    /// The same error of a request that has received nothing: whoever reads it reads no words of the other side.
    #[must_use]
    pub fn unheard(mut self) -> Self {
        self.partial = Some(serde_json::json!({ "received": false }));
        self
    }

    /// Whether nothing had been received.
    #[must_use]
    pub fn is_unheard(&self) -> bool {
        self.partial.as_ref().is_some_and(|partial| partial["received"] == false)
    }

    /// The same error with one correct call, where the arguments broke a rule and no other way out is known.
    #[must_use]
    pub fn or_example(self, name: Name) -> Self {
        if self.code != Code::Inval || self.hint.is_some() {
            return self;
        }
        self.hint(format!("a correct call: {name} {}", name.spec().example))
    }

    /// The same error with a way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for CallError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number or name that changed would change the meaning of journals already written.
    #[test]
    fn numbers_and_names_never_change() {
        let table: Vec<String> = Code::ALL.iter().map(|code| format!("{}={}", code, *code as u16)).collect();
        assert_eq!(
            table.join(" "),
            "EPERM=1 EINVAL=2 ENOSYS=3 ENOENT=4 EEXIST=5 ENOTDIR=6 EISDIR=7 ENOSPC=8 ESRCH=9 ECHILD=10 \
             ETIMEDOUT=11 EDQUOT=12 EAGAIN=13 EINTR=14 EREJECTED=15 EIO=16 EDEADLK=17"
        );
    }

    #[test]
    fn wrong_arguments_without_another_way_out_get_an_example() {
        let wrong = CallError::new(Code::Inval, "zero or more was expected");
        let example = r#"a correct call: SLEEP {"seconds":60}"#;
        assert_eq!(wrong.clone().or_example(Name::Sleep).hint.as_deref(), Some(example));
        assert_eq!(wrong.hint("wait less").or_example(Name::Sleep).hint.as_deref(), Some("wait less"));
        assert_eq!(CallError::new(Code::Io, "x").or_example(Name::Sleep).hint, None);
    }
}
