//! Roles: the rights and settings of a kind of process.
//!
//! Start at [`Role::table`]. What always holds: there is a table for every action, and an empty one denies.

use std::sync::Arc;

use aos_abi::entry::Verdict;
use aos_abi::syscall::Risk;

use crate::label::Labels;
use crate::scope::Scope;
use crate::settings::{Exec, Models, Mount, RoleBudget, Secret};
use crate::table::{Rule, Table};
use crate::target::{Action, counterpart};
use crate::terms::Terms;

/// A role of the policy.
#[derive(Clone, Debug)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// How its commands run; `None`: they do not.
    pub exec: Option<Exec>,
    /// Folders of the host that it sees.
    pub mounts: Vec<Mount>,
    /// The models it may use.
    pub models: Models,
    /// What each of its processes may spend.
    pub budget: RoleBudget,
    /// What the edge puts into its requests.
    pub secrets: Vec<Secret>,
    tables: Vec<Table>,
}

/// What one rule of a file comes to: the same for each action it is about.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) name: Arc<str>,
    pub(crate) terms: Terms,
    pub(crate) private: bool,
}

impl Role {
    pub(crate) fn new(name: &str) -> Role {
        Role {
            name: name.to_owned(),
            exec: None,
            mounts: Vec::new(),
            models: Models::default(),
            budget: RoleBudget::default(),
            secrets: Vec::new(),
            tables: (0..Action::COUNT).map(|_| Table::default()).collect(),
        }
    }

    pub(crate) fn table(&self, action: Action) -> &Table {
        &self.tables[action.index()]
    }

    /// Adds a rule that grants, or denies, an action.
    pub(crate) fn add(&mut self, action: Action, scope: Scope, draft: &Draft) {
        self.push(action, scope, draft);
        let end = counterpart(action.name()).filter(|_| draft.terms.verdict > Verdict::Deny);
        if let Some(end) = end {
            let draft = Draft { terms: Terms::unbounded(), ..draft.clone() };
            self.push(Action::of(end), Scope::Any, &draft);
        }
    }

    fn push(&mut self, action: Action, scope: Scope, draft: &Draft) {
        let mut terms = draft.terms.clone();
        if action.is_reading() || action.name().spec().risk != Risk::Undoable {
            terms.obligations.undo_ms = None;
        }
        // Nothing of it is shown; where it goes is labelled with it (`labels_leave` of the kernel).
        if action == Action::MOVE_READ {
            terms.obligations.labels = Labels::NONE;
        }
        let grants = terms.verdict > Verdict::Deny;
        let rule = Rule { name: draft.name.clone(), scope, terms, grants, private: draft.private };
        self.tables[action.index()].push(rule);
    }
}
