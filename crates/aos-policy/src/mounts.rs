//! Mounts: folders of the host that a role sees in its workspace.
//!
//! Start at [`Policy::mounts`]. What always holds: a mount gives nothing that its role's rules, or the grants of a process
//! and its ancestors, take away again: a command is shown one only where all that is in it may be read. Deliberately
//! absent: where a host folder is, and whether it is there; the daemon knows that.

use aos_abi::entry::Verdict;
use aos_abi::syscall::FsRead;
use aos_abi::{Name, Syscall};

use crate::decide::{Explanation, Lift, Subject, by_grants, by_role};
use crate::fault::Fault;
use crate::policy::Policy;
use crate::settings::Mount;
use crate::target::{self, Action};

impl Policy {
    /// The mounts of a role, whoever may read them; the default role's where the name is empty.
    #[must_use]
    pub fn mounts_of(&self, role: &str) -> &[Mount] {
        self.role(role).map_or(&[], |role| &role.mounts)
    }

    /// The mounts of which a process may read everything, without being asked: what its commands are shown.
    #[must_use]
    pub fn mounts(&self, subject: &Subject<'_>) -> Vec<&Mount> {
        self.mounts_of(subject.role).iter().filter(|mount| self.reads_all(subject, &mount.at)).collect()
    }

    /// Whether a process may read all that is in a folder without being asked; `.` is its workspace.
    #[must_use]
    pub fn reads_all(&self, subject: &Subject<'_>, folder: &str) -> bool {
        let Some(all) = target::below(folder) else { return false };
        // What a rule about labels would ask about or deny of a file is not read unasked, whatever it leaves of others.
        let read = Syscall::FsRead(FsRead { path: folder.to_owned(), offset: None, limit: None });
        let mut rules = self.tables().labels.iter().filter(|rule| rule.concerns(subject.labels, &read));
        if rules.any(|rule| rule.terms.verdict < Verdict::Allow) {
            return false;
        }
        let mut said = Explanation::open();
        let read = Action::of(Name::FsRead);
        by_role(self.tables(), subject, (read, &all), Lift::Nothing, &mut said);
        for (depth, grants) in subject.chain.iter().enumerate() {
            by_grants(grants, depth, (read, &all), Lift::Nothing, &mut said);
        }
        said.verdict == Verdict::Allow
    }

    /// Faults of mounts that only the machine knows of: `refuse` says why a host folder may not be mounted, and the way out.
    #[must_use]
    pub fn mount_faults(&self, refuse: impl Fn(&Mount) -> Option<(String, String)>) -> Vec<Fault> {
        let mounts = self.tables().roles.values().flat_map(|role| &role.mounts);
        let fault = |mount: &Mount| {
            let (message, hint) = refuse(mount)?;
            Some(Fault { line: mount.line, column: mount.column, message, hint: Some(hint) })
        };
        let mut faults: Vec<Fault> = mounts.filter_map(fault).collect();
        faults.sort_by_key(|fault| (fault.line, fault.column));
        faults
    }
}
