//! `SPAWN_AGENT`, `WAIT`, `KILL`.

use aos_abi::process::{BudgetSpec, Mode, SpawnSpec, Workspace};
use aos_abi::syscall::{Kill, SpawnAgent, Wait as WaitArgs, WorkspaceArg};
use aos_abi::{Body, CallError, Code, Pid, Signal, limits};
use aos_policy::{Grants, Subject};
use serde_json::{Value, json};

use super::invalid;
use crate::process::Wait;
use crate::step::Done;
use crate::table::PageStore;
use crate::{Kernel, no_process};

impl<P: PageStore> Kernel<P> {
    pub(super) fn spawn_agent(&mut self, pid: Pid, args: SpawnAgent) -> Result<Value, CallError> {
        let spec = self.child_spec(pid, args)?;
        self.check_spawn(&spec)?;
        let child = self.next_pid();
        self.fact(child, Body::Spawned(Box::new(spec.clone())));
        self.born(child, &spec);
        Ok(json!({ "pid": child }))
    }

    fn child_spec(&mut self, pid: Pid, args: SpawnAgent) -> Result<SpawnSpec, CallError> {
        let Some(parent) = self.table.get(pid) else { return Err(no_process(pid)) };
        let quarantine = args.quarantine.unwrap_or(false);
        if quarantine && args.permissions.as_ref().is_some_and(|list| !list.is_empty()) {
            return Err(invalid("a quarantined child has no permissions").hint("leave `permissions` out"));
        }
        let workspace = match args.workspace.unwrap_or_default() {
            WorkspaceArg::Shared => parent.workspace.clone(),
            WorkspaceArg::Own => Workspace::Home(Pid(self.globals.last_pid + 1)),
        };
        let Some(parent) = self.table.get(pid) else { return Err(no_process(pid)) };
        Ok(SpawnSpec {
            parent: pid,
            name: args.name,
            role: args.role,
            mode: if args.task.is_some() { Mode::OneShot } else { Mode::Resident },
            task: args.task,
            model: args.model.unwrap_or_else(|| parent.model.clone()),
            priority: parent.priority,
            // No permissions given: none but those nobody can take away.
            grants: Some(args.permissions.unwrap_or_default()),
            budget: args.budget.map_or_else(BudgetSpec::default, |budget| BudgetSpec {
                usd: budget.usd,
                tokens: budget.tokens,
                calls: budget.calls,
                wall_s: budget.wall_s,
            }),
            pipe_to: args.pipe_to,
            workspace,
            quarantine,
        })
    }

    /// Whether a process of this kind may be made now. Changes nothing.
    pub(crate) fn check_spawn(&mut self, spec: &SpawnSpec) -> Result<(), CallError> {
        self.check_text("role", &spec.role)?;
        self.check_text("task", spec.task.as_deref().unwrap_or_default())?;
        if let Some(name) = &spec.name {
            self.check_name(name)?;
        }
        if !self.config.models.contains_key(&spec.model) {
            let known: Vec<&str> = self.config.models.keys().map(String::as_str).collect();
            return Err(CallError::new(Code::NoEnt, format!("no model `{}`", spec.model))
                .hint(format!("configured are: {}", known.join(", "))));
        }
        if let Some(to) = spec.pipe_to
            && self.table.get(to).is_none_or(crate::process::Process::exited)
        {
            return Err(no_process(to));
        }
        let grants = match &spec.grants {
            Some(list) => Some(Grants::parse(list).map_err(|fault| invalid(fault.to_string()).hint(fault.hint))?),
            None => None,
        };
        if spec.parent == Pid::INIT {
            return Ok(());
        }
        let role = self.policy.default_role().to_owned();
        let parent = self.table.get(spec.parent).filter(|parent| !parent.exited());
        let Some(parent) = parent else { return Err(no_process(spec.parent)) };
        let live = parent.children.len() - parent.zombies.len().min(parent.children.len());
        if live >= limits::CHILDREN_MAX {
            return Err(CallError::new(
                Code::Again,
                format!("{live} children live already, the most is {}", limits::CHILDREN_MAX),
            )
            .hint("WAIT for one of them first"));
        }
        if parent.depth as usize >= limits::SPAWN_DEPTH_MAX {
            return Err(CallError::new(
                Code::Again,
                format!("the process tree is {} deep, the most is {}", parent.depth, limits::SPAWN_DEPTH_MAX),
            ));
        }
        if let Some(grants) = &grants {
            let subject = Subject { pid: spec.parent, role: &role, chain: &parent.chain, labels: Default::default() };
            self.policy.check_child(&subject, grants.as_slice()).map_err(|exceeds| {
                CallError::new(Code::Perm, exceeds.to_string())
                    .hint("a child can never do what its parent cannot: give it less")
            })?;
        }
        self.check_carve(spec)
    }

    fn check_carve(&mut self, spec: &SpawnSpec) -> Result<(), CallError> {
        let grant = crate::budget::Grant::from(&spec.budget);
        for dimension in crate::budget::Dimension::ALL {
            if let (Some(amount), Some(left)) = (grant.get(dimension), self.left(spec.parent, dimension))
                && amount > left
            {
                return Err(CallError::new(
                    Code::DQuot,
                    format!("{} asked for the child, {} left", dimension.show(amount), dimension.show(left)),
                )
                .hint("give it less, or leave the budget out so that it shares yours"));
            }
        }
        Ok(())
    }

    pub(super) fn wait(&mut self, pid: Pid, args: &WaitArgs) -> Done {
        let Some(process) = self.table.get(pid) else { return Done::Ended };
        if process.children.is_empty() {
            return Done::Now(Err(CallError::new(Code::Child, "no child to wait for")));
        }
        if let Some(child) = args.pid
            && !process.children.contains(&child)
        {
            return Done::Now(Err(CallError::new(Code::Child, format!("process {child} is no child of yours"))));
        }
        match self.reap(pid, args.pid) {
            Some(result) => Done::Now(Ok(result)),
            None => Done::Waits(Wait::Child(args.pid), self.until(args.timeout_s)),
        }
    }

    /// Takes the result of an ended child; any, oldest first, if `None`.
    pub(crate) fn reap(&mut self, pid: Pid, child: Option<Pid>) -> Option<Value> {
        let zombie = self.with(pid, |process| {
            let index = process.zombies.iter().position(|zombie| child.is_none_or(|child| zombie.pid == child))?;
            let zombie = process.zombies.remove(index)?;
            process.children.remove(&zombie.pid);
            Some(zombie)
        })??;
        let result: Value = serde_json::from_str(&zombie.result).unwrap_or(Value::Null);
        Some(json!({ "pid": zombie.pid, "exit_code": zombie.exit_code, "result": result }))
    }

    pub(super) fn kill(&mut self, pid: Pid, index: usize, args: &Kill) -> Done {
        let signal = args.signal.unwrap_or(Signal::Term);
        let Some(target) = self.table.get(args.pid) else { return Done::Now(Err(no_process(args.pid))) };
        if target.exited() {
            return Done::Now(Err(CallError::new(Code::Srch, format!("process {} has ended", args.pid))));
        }
        if !self.descends_from(args.pid, pid) {
            return Done::Now(Err(CallError::new(Code::Perm, format!("process {} is not below you", args.pid))
                .hint("you may signal yourself, your children and theirs")));
        }
        if args.pid == pid && signal != Signal::Kill {
            // The call itself is over before the signal takes hold, else it would wait for its own result.
            self.finish_call(pid, index, Ok(json!({})));
            let lsn = self.fact(pid, Body::Signal { signal, from_pid: pid, tree: false });
            self.signal(pid, signal, lsn);
            return Done::Ended;
        }
        let lsn = self.fact(args.pid, Body::Signal { signal, from_pid: pid, tree: false });
        self.signal(args.pid, signal, lsn);
        if self.table.get(pid).is_none_or(|process| process.exited()) { Done::Ended } else { Done::Now(Ok(json!({}))) }
    }

    fn descends_from(&mut self, pid: Pid, ancestor: Pid) -> bool {
        let mut at = pid;
        while at != ancestor {
            match self.table.get(at) {
                Some(process) if process.parent > Pid::INIT => at = process.parent,
                _ => return false,
            }
        }
        true
    }
}
