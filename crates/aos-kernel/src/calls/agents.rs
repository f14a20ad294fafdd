//! `SPAWN_AGENT`, `WAIT`.

use aos_abi::entry::Verdict;
use aos_abi::process::{BudgetSpec, Mode, SpawnSpec, Workspace};
use aos_abi::syscall::SendMsg;
use aos_abi::syscall::{BudgetArgs, SpawnAgent, Wait as WaitArgs, WorkspaceArg};
use aos_abi::{Body, CallError, Code, Name, Pid, Syscall, Usd, limits};
use aos_policy::{Grants, Labels, Permit};
use serde_json::{Value, json};

use super::invalid;
use crate::check::check_plain;
use crate::effect::Effect;
use crate::labels::Reads;
use crate::process::{CallState, Phase, Process, StepCall, Wait};
use crate::route::Asked;
use crate::step::Done;
use crate::table::PageStore;
use crate::{InFlight, Kernel, no_peer, no_process};

/// The limit with which a child could not be asked anything. Without calls it can be: it answers in words.
fn nothing(budget: &BudgetArgs) -> Option<&'static str> {
    let zero = [
        ("usd", budget.usd == Some(Usd::ZERO)),
        ("tokens", budget.tokens == Some(0)),
        ("wall_s", budget.wall_s == Some(0)),
    ];
    zero.into_iter().find_map(|(field, zero)| zero.then_some(field))
}

impl<P: PageStore> Kernel<P> {
    /// `attached`: the calls that bring what the child is to be shown.
    pub(super) fn spawn_agent(
        &mut self,
        pid: Pid,
        index: usize,
        args: SpawnAgent,
        attached: Vec<Permit>,
    ) -> Result<Value, CallError> {
        let labels = self.labels_of_call(pid, &Syscall::SpawnAgent(args.clone()));
        let spec = self.child_spec(pid, args)?;
        self.check_spawn(&spec)?;
        let child = self.next_pid();
        self.fact(child, Body::Spawned(Box::new(spec.clone())));
        self.born(child, &spec, !labels.any_of(Labels::UNTRUSTED));
        // Its role and task were written by a model that had seen this.
        self.learns(child, labels);
        self.attach(pid, index, child, attached);
        Ok(json!({ "pid": child }))
    }

    /// What is attached is brought by the child's first calls, which its parent's rights allow: only the child sees what
    /// comes, and its first turn waits for it.
    fn attach(&mut self, pid: Pid, index: usize, child: Pid, attached: Vec<Permit>) {
        if attached.is_empty() {
            return;
        }
        let Some(parent) = self.table.get(pid) else { return };
        let workspace = parent.workspace.clone();
        // A handle may name what its parent has not been shown yet, such as the result of the call beside it.
        let coming = parent.labels_to_come();
        let files = self.labels_read(pid, Reads::Files).and(coming);
        // One that no model may serve has ended by now.
        if self.table.get(child).is_none_or(Process::exited) {
            return;
        }
        self.unqueue(child);
        self.with(child, |process| process.phase = Phase::Calling);
        for (nth, permit) in attached.into_iter().enumerate() {
            let (name, args) = (permit.call().name(), permit.call().args());
            // It is here because nobody vouches for it, whatever rules say of the place it comes from.
            let origin = if name == Name::NetFetch { Labels::WEB } else { files.and(Labels::FILE) };
            let labels = permit.obligations().labels.and(origin);
            let call_id = format!("attached{}", nth + 1);
            self.fact(child, Body::Syscall { call_id: call_id.clone(), name: name.to_string(), args: args.clone() });
            self.decided(child, call_id.clone(), Verdict::Allow, permit.rule().to_owned(), None);
            let id = self.effect_id();
            self.with(child, |process| {
                process.step.push(StepCall {
                    call_id: call_id.clone(),
                    name: name.to_string(),
                    args: args.to_string(),
                    fault: None,
                    state: CallState::Running(id),
                    approved: None,
                });
            });
            let reads = Reads::Nothing;
            self.globals
                .in_flight
                .insert(id, InFlight::Call { pid: child, by: pid, call: nth, labels, reads, vouched: false });
            let (authority, workspace) = (self.authority(pid, Some(index), permit.call()), workspace.clone());
            let approved = self.is_approved(pid, index);
            let (bound, proposed) = (None, None);
            self.perform(Effect::Call {
                id,
                pid: child,
                call_id,
                permit,
                workspace,
                authority,
                bound,
                approved,
                proposed,
            });
        }
    }

    /// What the policy's role says to a model, or to a tier. A model without a tier is one that no role with `models`
    /// names; `auto` leaves the choice to the router, which asks about each. A role that the policy has not may use none:
    /// where no policy holds, nobody spends anything.
    pub(crate) fn model_verdict(&self, role: &str, asked: &str) -> Verdict {
        let tier = match self.config.models.get(asked) {
            Some(model) => model.tier.as_deref().unwrap_or_default(),
            None if asked == crate::route::AUTO => {
                return self.policy.role(role).map_or(Verdict::Deny, |_| Verdict::Allow);
            }
            None => asked,
        };
        self.policy.role(role).map_or(Verdict::Deny, |role| role.models.verdict(tier))
    }

    /// What is said to a child on this model, or tier, beside the role's word: who has read untrusted content may have
    /// been told by it to buy a better one.
    pub(crate) fn model_trust(&mut self, pid: Pid, asked: &str) -> Verdict {
        let rank = |asked: &str| match Asked::read(asked, &self.config.models) {
            Some(Asked::Model(name)) => self.config.models.get(&name).map_or(0, aos_abi::model::ModelSpec::rank),
            Some(Asked::Tier(rank)) => rank,
            Some(Asked::Auto) | None => 0,
        };
        let wanted = rank(asked);
        let Some(own) = self.table.get(pid).map(|process| (process.model.clone(), process.labels)) else {
            return Verdict::Allow;
        };
        let rank = |asked: &str| self.config.models.get(asked).map_or(0, aos_abi::model::ModelSpec::rank);
        if own.1.any_of(Labels::UNTRUSTED) && wanted > rank(&own.0) { Verdict::Ask } else { Verdict::Allow }
    }

    /// Whether a process may go on with a model that it was made with or that the router chose for it.
    pub(crate) fn may_use(&mut self, pid: Pid, model: &str) -> bool {
        let hold = self.answers_hold(pid);
        let Some(process) = self.table.get(pid) else { return true };
        let (role, by_name) = (process.policy_role.clone(), process.course.asked == model);
        match self.model_verdict(&role, model) {
            Verdict::Allow => true,
            Verdict::Ask | Verdict::Hold => by_name || hold,
            Verdict::Deny => false,
        }
    }

    /// Whether the policy has changed so that a process may not use its model any more; then it goes on with another one
    /// that the router knows of, or stops or ends and says so. A model that was asked for by name and that its role would
    /// ask about stays: whoever made the process was asked.
    pub(crate) fn withdrawn_model(&mut self, pid: Pid, model: &str) -> bool {
        if self.may_use(pid, model) {
            return false;
        }
        let Some(role) = self.table.get(pid).map(|process| process.policy_role.clone()) else { return false };
        // The router may know of another one that may serve.
        if self.route_of(pid).order.first().is_some_and(|first| first.model != model) {
            self.want_turn_again(pid);
            return true;
        }
        let message = match self.policy.role(&role) {
            Some(_) => format!("the policy was changed, and the role may not use `{model}` any more"),
            None => "the policy has no role for this process any more, so it may use no model".to_owned(),
        };
        self.give_up(pid, &message, Some("change `models` of the role in policy.yaml"));
        true
    }

    fn child_spec(&mut self, pid: Pid, args: SpawnAgent) -> Result<SpawnSpec, CallError> {
        let Some(parent) = self.table.get(pid) else { return Err(no_process(pid)) };
        let quarantine = args.quarantine.unwrap_or(false);
        if quarantine && args.permissions.as_ref().is_some_and(|list| !list.is_empty()) {
            return Err(invalid("a quarantined child has no permissions").hint("leave `permissions` out"));
        }
        if let Some(field) = args.budget.as_ref().and_then(nothing) {
            return Err(invalid(format!("`budget.{field}` is 0, so the child could not even answer"))
                .hint("give more than 0, or leave it out: the child is then bound by what its parent has left"));
        }
        let attached = args.attachments.as_ref().map_or(0, Vec::len);
        if attached > 0 && !quarantine {
            return Err(invalid("only a quarantined child is shown attachments")
                .hint("give `quarantine: true`, or let the child read for itself"));
        }
        if attached > limits::ATTACHMENTS_MAX {
            let message = format!("{attached} attachments, the most is {}", limits::ATTACHMENTS_MAX);
            return Err(invalid(message).hint("attach fewer, or spawn one child for each part"));
        }
        let workspace = match args.workspace.unwrap_or_default() {
            WorkspaceArg::Shared => parent.workspace.clone(),
            WorkspaceArg::Own => Workspace::Home(Pid(self.globals.last_pid + 1)),
        };
        let Some(parent) = self.table.get(pid) else { return Err(no_process(pid)) };
        Ok(SpawnSpec {
            parent: pid,
            name: args.name,
            // One without a name is none.
            group: args.group.or_else(|| parent.group.clone()).filter(|group| !group.is_empty()),
            role: args.role,
            mode: if args.task.is_some() { Mode::OneShot } else { Mode::Resident },
            task: args.task,
            model: args.model.unwrap_or_else(|| parent.course.asked.clone()),
            priority: parent.priority,
            policy_role: Some(parent.policy_role.clone()).filter(|role| !role.is_empty()),
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
            copy_of: None,
            brought: Vec::new(),
            untrusted: false,
            trusted: false,
        })
    }

    /// Whether a person can take a workspace for theirs.
    fn check_trusted(&self, workspace: &Workspace) -> Result<(), CallError> {
        let Workspace::Folder(path) = workspace else {
            return Err(CallError::new(
                Code::Inval,
                "`trusted` is about a folder of yours, and it works on one of its own",
            )
            .hint("name the folder: -w DIR"));
        };
        match self.marked_above(path) {
            None => Ok(()),
            Some(above) => Err(CallError::new(
                Code::Inval,
                format!("{path} is a part of {above}, in which agents left something under untrusted content"),
            )
            .hint(format!("look at all of it, and run there once: -w {above}"))),
        }
    }

    /// Whether a process of this kind may be made now. Changes nothing.
    pub(crate) fn check_spawn(&mut self, spec: &SpawnSpec) -> Result<(), CallError> {
        self.check_text("role", &spec.role)?;
        self.check_text("task", spec.task.as_deref().unwrap_or_default())?;
        if let Some(name) = &spec.name {
            self.check_name(name)?;
        }
        if let Some(group) = &spec.group {
            check_plain("a group", group)?;
        }
        if spec.trusted {
            self.check_trusted(&spec.workspace)?;
        }
        let asked = self.check_asked(&spec.model)?;
        if let Some(to) = spec.pipe_to
            && self.table.get(to).is_none_or(|reader| reader.exited() || reader.mode == Mode::Program)
        {
            return Err(if spec.parent == Pid::INIT { no_process(to) } else { no_peer(to) });
        }
        if let Some(role) = &spec.policy_role
            && self.policy.role(role).is_none()
        {
            let roles: Vec<&str> = self.policy.roles().collect();
            return Err(CallError::new(Code::NoEnt, format!("the policy has no role `{role}`"))
                .hint(format!("it has: {}", roles.join(", "))));
        }
        let role = spec.policy_role.as_deref().unwrap_or_default();
        if self.policy.role(role).is_none() {
            return Err(CallError::new(Code::Perm, "there is no policy, so no model may be used and nothing done")
                .hint("`aos init` writes one; `aos policy check` shows what is wrong with one that is there"));
        }
        if let Asked::Tier(rank) = asked
            && self.model_verdict(role, &spec.model) == Verdict::Deny
        {
            let tier = aos_abi::model::TIERS[rank];
            return Err(CallError::new(Code::Perm, format!("the role may not use models of the tier `{tier}`"))
                .hint(format!("ask for another tier or `auto`, or name `{tier}` in the role's `models`")));
        }
        if self.model_verdict(role, &spec.model) == Verdict::Deny {
            let tier = self.config.models.get(&spec.model).and_then(|model| model.tier.clone());
            let (what, hint) = match tier {
                Some(tier) => (format!("of the tier `{tier}`"), format!("name `{tier}` in the role's `models`")),
                None => ("of no tier".to_owned(), format!("give [models.{}] of aos.toml a `tier`", spec.model)),
            };
            return Err(CallError::new(Code::Perm, format!("the role may not use `{}`, a model {what}", spec.model))
                .hint(format!("use another model, or {hint}")));
        }
        let grants = match &spec.grants {
            Some(list) => Some(Grants::parse(list).map_err(|fault| invalid(fault.to_string()).hint(fault.hint))?),
            None => None,
        };
        if spec.parent == Pid::INIT {
            return Ok(());
        }
        // First what holds for good: whoever asks what would be said of the child of one that has ended is told that, too.
        let Some(parent) = self.table.get(spec.parent) else { return Err(no_process(spec.parent)) };
        if let Some(grants) = &grants {
            self.policy.check_child(&parent.subject(), grants.as_slice()).map_err(|exceeds| {
                CallError::new(Code::Perm, exceeds.to_string())
                    .hint("a child can never do what its parent cannot: give it less")
            })?;
        }
        self.check_family(spec.parent)?;
        self.check_pipe(spec)?;
        self.check_carve(spec)
    }

    /// Whether a process may have one more child: those who live are few enough, beside it and below the first of its
    /// tree, and it is not too deep.
    fn check_family(&mut self, pid: Pid) -> Result<(), CallError> {
        let most = self.policy.limits().clone();
        let parent = self.table.get(pid).filter(|parent| !parent.exited() && parent.mode != Mode::Program);
        let Some(parent) = parent else { return Err(no_process(pid)) };
        let (depth, root) = (parent.depth, parent.root);
        let live = parent.children.len() - parent.zombies.len().min(parent.children.len());
        if live >= most.spawn_children.min(limits::CHILDREN_MAX) {
            return Err(CallError::new(
                Code::Again,
                format!("{live} children live already, the most is {} (limits.spawn.children)", most.spawn_children),
            )
            .hint("WAIT for one of them first"));
        }
        // What a person started is at depth 1.
        if depth as usize > most.spawn_depth.min(limits::SPAWN_DEPTH_MAX) {
            return Err(CallError::new(
                Code::Perm,
                format!(
                    "the policy denies it: processes are {} deep below the first, the most is {} (limits.spawn.depth)",
                    depth - 1,
                    most.spawn_depth
                ),
            )
            .hint("do it yourself, or leave it to your parent"));
        }
        if self.globals.trees.get(&root).is_some_and(|living| *living as usize >= limits::DESCENDANTS_MAX) {
            let most = limits::DESCENDANTS_MAX;
            return Err(CallError::new(Code::Again, format!("{most} processes that descend from {root} live already"))
                .hint("do it yourself, or wait until some of them have ended"));
        }
        Ok(())
    }

    /// Why the policy lets a process have no such child, whatever it says to the call; what is in the way for now alone,
    /// such as a spent budget, is no such reason.
    pub(crate) fn child_denied(&mut self, pid: Pid, call: &Syscall) -> Option<CallError> {
        let Syscall::SpawnAgent(args) = call else { return None };
        let said = self.child_spec(pid, args.clone()).and_then(|spec| self.check_spawn(&spec));
        said.err().filter(|error| error.code == Code::Perm)
    }

    /// A child's words may go to its parent, to its siblings and to its parent's parent; to anybody else only if its parent
    /// may send messages there.
    fn check_pipe(&mut self, spec: &SpawnSpec) -> Result<(), CallError> {
        let Some(to) = spec.pipe_to else { return Ok(()) };
        let Some(parent) = self.table.get(spec.parent) else { return Err(no_process(spec.parent)) };
        if to == spec.parent || to == parent.parent || parent.children.contains(&to) {
            return Ok(());
        }
        let parent = parent.clone();
        let name = self.table.get(to).and_then(|reader| reader.name.clone());
        let message = |to_pid, to| {
            let message = SendMsg { to_pid, to, content: String::new(), attachments: None };
            self.policy.explain(&parent.subject(), &Syscall::SendMsg(message))
        };
        let said = message(Some(to), None);
        let named = name.map(|name| message(None, Some(name)));
        // One form that may is enough, but for a rule that is about the other.
        let (mut may, mut may_not) = (false, None);
        for said in [&said].into_iter().chain(&named) {
            may |= said.verdict == Verdict::Allow;
            may_not = may_not.or((said.verdict < Verdict::Allow && said.hint.is_none()).then_some(said));
        }
        if may && may_not.is_none() {
            return Ok(());
        }
        let said = may_not.unwrap_or(&said).clone();
        let mut error = CallError::new(
            Code::Perm,
            format!("the policy does not let you speak to process {to}, so neither may your child: {}", said.rule),
        );
        error.hint = said.hint.or_else(|| Some("pipe it to yourself and pass it on".into()));
        Err(error)
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
            let error = CallError::new(Code::Child, format!("process {child} is no child of yours"));
            let put_away = self.table.get(child).is_some_and(|child| child.exited() && child.parent == pid);
            return Done::Now(Err(if put_away {
                error.hint("it ended, and its result was taken already, or put away since nobody waited for it")
            } else {
                error
            }));
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
        self.will_see(pid, zombie.notice.labels);
        let result: Value = serde_json::from_str(&zombie.result).unwrap_or(Value::Null);
        Some(json!({ "pid": zombie.pid, "exit_code": zombie.exit_code, "result": result }))
    }
}
