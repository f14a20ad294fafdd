//! Permits: the proof that a call passed the policy, which every driver's entry point takes.
//!
//! Start at [`Permit`]. Its fields are private and nothing outside this crate makes one, so a path round the policy
//! does not compile:
//!
//! ```compile_fail,E0451
//! use aos_policy::Permit;
//! let call = aos_abi::Syscall::parse("FS_READ", r#"{"path":"a"}"#).unwrap();
//! let forged = Permit { pid: aos_abi::Pid(7), call, rule: "mine".into(), obligations: Default::default() };
//! ```
//! It is not copied either; one permit is one call:
//! ```compile_fail,E0599
//! fn twice(permit: aos_policy::Permit) -> (aos_policy::Permit, aos_policy::Permit) {
//!     (permit.clone(), permit)
//! }
//! ```

use aos_abi::{Pid, Syscall};

use crate::terms::Obligations;

/// A call that the policy allows, once.
#[derive(Debug, PartialEq)]
#[must_use = "a permit that is dropped is a call that is not made"]
pub struct Permit {
    pid: Pid,
    call: Syscall,
    rule: String,
    obligations: Obligations,
}

impl Permit {
    pub(crate) fn new(pid: Pid, call: Syscall, rule: String, obligations: Obligations) -> Permit {
        Permit { pid, call, rule, obligations }
    }

    /// Whose call it is.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The call.
    #[must_use]
    pub fn call(&self) -> &Syscall {
        &self.call
    }

    /// The rule that allowed it.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// What must happen with it.
    #[must_use]
    pub fn obligations(&self) -> &Obligations {
        &self.obligations
    }

    /// The calls that bring what a child is to be shown: they were judged together with the one that makes it.
    #[must_use]
    pub fn attached(&self) -> Vec<Permit> {
        let Syscall::SpawnAgent(spawn) = &self.call else { return Vec::new() };
        let with = |call| Permit::new(self.pid, call, self.rule.clone(), self.obligations.clone());
        spawn.attached().into_iter().map(with).collect()
    }

    /// The call, to be made now.
    #[must_use]
    pub fn into_call(self) -> Syscall {
        self.call
    }
}
