//! Deciding: what every layer says to one call, and the least of it.
//!
//! Start at [`decide`]. `effective = floor ∧ role ∧ grants of the process and its ancestors ∧ labels`, where ∧ is the
//! least. What always holds: each layer can only lower the verdict; no rule is a denial; the always-allowed calls are
//! allowed whatever the file says, so that a child may always exit.

use aos_abi::entry::Verdict;
use aos_abi::{Name, Pid, Syscall};

use crate::address::{Class, DAEMON_CLOSED, DAEMON_HINT};
use crate::given::{Given, Lacking};
use crate::grant::Grants;
use crate::label::Labels;
use crate::packages;
use crate::policy::{LabelRule, Tables};
use crate::role::Role;
use crate::scope::host_words;
use crate::standing::Standing;
use crate::target::{self, Action, Kind, Reach, Target};
use crate::terms::Obligations;

/// Who makes a call.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The process.
    pub pid: Pid,
    /// The policy's role it runs under; empty for the file's `default_role`.
    pub role: &'a str,
    /// The grants of itself and of each ancestor that was spawned with some, nearest first. An ancestor without a
    /// list of its own is left out: it has what the role gives.
    pub chain: &'a [Grants],
    /// What its window holds.
    pub labels: Labels,
    /// What it was given without a label.
    pub given: Given<'a>,
    /// Whom its `KILL` would reach that is not below it: the name of each, or its pid where it has none. None of these: the
    /// call is always allowed. `None`: nobody has looked, and whoever the call names counts as such a one.
    pub reaches: Option<&'a [String]>,
}

/// What may be done without asking anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// The deciding rule with its layer; of several that it takes together, each.
    pub rule: String,
    /// The policy it stands in.
    pub generation: String,
    /// What must happen with it.
    pub obligations: Obligations,
}

impl Allowed {
    /// The same where a later policy has to allow it too: by its rule, and under the obligations of both.
    #[must_use]
    pub fn and(self, mut later: Allowed) -> Allowed {
        later.obligations.join(&self.obligations);
        later
    }
}

/// What the policy says to a call, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Explanation {
    /// The verdict.
    pub verdict: Verdict,
    /// The deciding rule with its layer, such as `role assistant: fs[0] **`, `grant: FS_READ docs/**`, `floor: …`.
    pub rule: String,
    /// What would let it pass, where it is denied for want of that: the narrowest grants, or a rule of the role; else that
    /// nothing would.
    pub hint: Option<String>,
    /// What must happen with the call, if it is made.
    pub obligations: Obligations,
    /// The rule about untrusted content that would have asked, had the call's arguments not been given.
    pub lifted: Option<String>,
    /// Why the call counts as one that untrusted content may have led to; where that decided.
    pub lacking: Option<Lacking>,
    /// The standing approval that took the place of a question, such as `p3`.
    pub standing: Option<String>,
    /// The grants that were wanting, where a person's yes stood in for them.
    pub wanting: Vec<String>,
}

/// What a person's yes to a denied call stands in for. Never for the floor, for a rule that denies, for a process that was
/// given nothing at all, or for what labels say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lift {
    /// Nothing.
    Nothing,
    /// A rule that the role has not.
    Role,
    /// That, and a grant that the process or an ancestor was not given.
    Grants,
    /// Whatever could be granted, also to a process that was given nothing, and what takes more than a grant. No yes does:
    /// hints are made by it.
    Every,
}

impl Explanation {
    pub(crate) fn open() -> Explanation {
        Explanation {
            verdict: Verdict::Allow,
            rule: String::new(),
            hint: None,
            obligations: Obligations::default(),
            lifted: None,
            lacking: None,
            standing: None,
            wanting: Vec::new(),
        }
    }

    fn floor(why: &str, hint: Option<String>) -> Explanation {
        Explanation { verdict: Verdict::Deny, rule: format!("{FLOOR}{why}"), hint, ..Explanation::open() }
    }

    /// What is said to two calls that are made together.
    fn join(&mut self, other: Explanation) {
        for grant in other.wanting {
            self.want(grant);
        }
        self.lower(other.verdict, || other.rule, || other.hint);
        self.obligations.join(&other.obligations);
        self.lifted = self.lifted.take().or(other.lifted);
        self.lacking = self.lacking.take().or(other.lacking);
    }

    /// A person's yes stands in for this grant.
    fn lift(&mut self, grant: String, rule: impl FnOnce() -> String) {
        if self.rule.is_empty() {
            self.rule = rule();
        }
        self.want(grant);
    }

    fn want(&mut self, grant: String) {
        if !self.wanting.contains(&grant) {
            self.wanting.push(grant);
        }
    }

    /// Takes another layer's verdict where it is stricter.
    fn lower(&mut self, verdict: Verdict, rule: impl FnOnce() -> String, hint: impl FnOnce() -> Option<String>) {
        if verdict < self.verdict || self.rule.is_empty() {
            self.verdict = verdict;
            self.rule = rule();
            self.hint = hint();
        }
    }
}

/// How the rules of the floor begin.
const FLOOR: &str = "floor: ";
/// How the denials of a dry run begin, which whoever began it asked for.
pub const OF_A_DRY_RUN: &str = "dry run: ";
/// How it is said that a process was not given something.
const OF_GRANTS: &str = "grant: ";
/// How hints begin of calls that no grant lets pass.
const NO_GRANT: &str = "no grant lets it pass";

/// What a call lacks to be given; `None`: nothing.
type Lacks<'a> = &'a dyn Fn(&Syscall) -> Option<Lacking>;

pub(crate) fn decide(tables: &Tables, subject: &Subject<'_>, standing: &[Standing], call: &Syscall) -> Explanation {
    let lacks: Lacks<'_> = &|call| subject.given.lacks(call);
    let said = decide_whole(tables, subject, (standing, Lift::Nothing), call, lacks);
    if said.verdict > Verdict::Deny || (said.hint.is_some() && said.rule.starts_with(FLOOR)) {
        return said;
    }
    let lifted = decide_whole(tables, subject, (standing, Lift::Every), call, lacks);
    Explanation { hint: way_out(call.name(), said.hint, lifted), ..said }
}

/// What would let a denied call pass: all that it wants, not what was first found wanting. Where more than that stands
/// against it, that nothing would.
fn way_out(name: Name, found: Option<String>, lifted: Explanation) -> Option<String> {
    if lifted.verdict > Verdict::Deny {
        return Some(lifted.wanting.join(", ")).filter(|wanting| !wanting.is_empty());
    }
    // A rule about signals names processes that the one who sends it may not know of.
    let rule = if name == Name::Kill { String::new() } else { format!(": {}", lifted.rule) };
    found.map(|_| format!("{NO_GRANT}{rule}"))
}

/// What would be said to a call if what it wants were granted, as far as a person can lift that.
pub(crate) fn decide_lifted(tables: &Tables, subject: &Subject<'_>, lift: Lift, call: &Syscall) -> Explanation {
    decide_whole(tables, subject, (&[], lift), call, &|call| subject.given.lacks(call))
}

/// Why no yes lifts that a call is denied: what is said to it once all that a yes stands in for is there.
pub(crate) fn closed(tables: &Tables, subject: &Subject<'_>, call: &Syscall) -> String {
    let hint = decide(tables, subject, &[], call).hint.filter(|hint| !hint.starts_with(NO_GRANT));
    let [given, changed] = [Lift::Grants, Lift::Every].map(|lift| decide_lifted(tables, subject, lift, call));
    match hint {
        _ if given.rule.starts_with(OF_GRANTS) => "its process was given nothing to do".to_owned(),
        Some(hint) if changed.verdict > Verdict::Deny => format!("it takes more than a grant: {hint}"),
        Some(hint) => format!("no yes lifts the floor: {hint}"),
        None => format!("no yes lifts {}", given.rule),
    }
}

/// What is said to a call of the past, of which it was recorded whether people had given all that steers it.
pub(crate) fn decide_past(tables: &Tables, subject: &Subject<'_>, given: bool, call: &Syscall) -> Explanation {
    decide_whole(tables, subject, (&[], Lift::Nothing), call, &|call| {
        if given { None } else { subject.given.lacks(call) }
    })
}

/// Approvals that stand, and what a yes to this very call stands in for.
type Yes<'a> = (&'a [Standing], Lift);

fn decide_whole(tables: &Tables, subject: &Subject<'_>, yes: Yes<'_>, call: &Syscall, lacks: Lacks<'_>) -> Explanation {
    let mut said = decide_one(tables, subject, yes, call, lacks);
    // What a child is to be shown is fetched and read by the one who makes it. No approval of the making stands for that.
    if let Syscall::SpawnAgent(spawn) = call {
        let none: Yes<'_> = (&[], if yes.1 == Lift::Every { Lift::Every } else { Lift::Nothing });
        spawn.attached().iter().for_each(|attached| said.join(decide_one(tables, subject, none, attached, lacks)));
    }
    said
}

fn decide_one(
    tables: &Tables,
    subject: &Subject<'_>,
    (standing, lift): Yes<'_>,
    call: &Syscall,
    lacks: Lacks<'_>,
) -> Explanation {
    let mut said = Explanation::open();
    if reads_own_past(call) {
        said.rule = "always: one's own results and inputs".to_owned();
        return said;
    }
    let demands = match target::demands(call, subject.reaches) {
        Ok(demands) => demands,
        Err(floor) => return Explanation::floor(&floor.why, Some(floor.hint.to_owned())),
    };
    if demands.is_empty() {
        said.rule = format!("always: {}", call.name());
        return said;
    }
    if demands.iter().any(|(_, target)| asks_the_daemon(tables, target)) {
        return Explanation::floor(DAEMON_CLOSED, Some(DAEMON_HINT.to_owned()));
    }
    // A yes that stands reaches no further than what the role has not: what the grants keep from a process, and so from all
    // who could have it do their work, is lifted for one call alone, or for one run of a command.
    let lifting = standing.iter().filter(|one| one.lifts() > lift && one.covers(call)).map(Standing::lifts);
    let lift = lifting.fold(lift, Lift::max);
    for (action, target) in &demands {
        by_role(tables, subject, (*action, target), lift, &mut said);
        for (depth, grants) in subject.chain.iter().enumerate() {
            by_grants(grants, depth, (*action, target), lift, &mut said);
        }
    }
    by_standing(standing, call, &mut said);
    by_labels(tables, subject, call, lacks, &mut said);
    if matches!(call.name(), Name::NetFetch | Name::NetSend) {
        said.obligations.labels = said.obligations.labels.and(Labels::WEB);
    }
    said
}

/// Whether a request goes to where the daemon itself listens.
fn asks_the_daemon(tables: &Tables, target: &Target<'_>) -> bool {
    let Target::Net { address, .. } = target else { return false };
    tables.listens.is_some_and(|listens| listens.is_named(&address.host, address.port))
}

/// A person's yes that stands takes the place of what a role's rule would have asked, and of its wait, or of a rule that the
/// role has not; nothing else is lifted by it, and what comes after it may ask again.
fn by_standing(standing: &[Standing], call: &Syscall, said: &mut Explanation) {
    let lifted = !said.wanting.is_empty();
    let asks = matches!(said.verdict, Verdict::Ask | Verdict::Hold);
    if said.verdict == Verdict::Deny || !(asks || lifted) {
        return;
    }
    if let Some(one) = standing.iter().find(|one| one.covers(call) && (one.is_lifting() || !lifted)) {
        said.verdict = Verdict::Allow;
        said.rule = format!("standing approval {}: {}", one.id, said.rule);
        said.standing = Some(one.id.clone());
    }
}

/// What a call counts as carrying. A command does what the files say that it runs, whoever of those that share them has read
/// what they come from.
fn carried(subject: &Subject<'_>, name: Name) -> Labels {
    match name {
        Name::ExecCmd => subject.labels.and(subject.given.files.only(Labels::UNTRUSTED)),
        _ => subject.labels,
    }
}

/// A rule about untrusted content asks only where that content can have led to the call: not where people gave everything
/// that steers it. What such a rule denies stays denied: whoever wrote that wanted no exception.
fn by_labels(tables: &Tables, subject: &Subject<'_>, call: &Syscall, lacks: Lacks<'_>, said: &mut Explanation) {
    let mut lacking: Option<Option<Lacking>> = None;
    let labels = carried(subject, call.name());
    for rule in tables.labels.iter().filter(|rule| rule.concerns(labels, call)) {
        let asks = matches!(rule.terms.verdict, Verdict::Ask | Verdict::Hold) && rule.when.within(Labels::UNTRUSTED);
        // Where something else asks as well, whoever is asked is told why this would.
        if asks && rule.terms.verdict <= said.verdict {
            match lacking.get_or_insert_with(|| lacks(call)) {
                None if rule.terms.verdict < said.verdict => {
                    said.lifted.get_or_insert_with(|| rule.name.to_string());
                    continue;
                }
                None => {}
                // Where the process itself carries nothing, it is what the files say that nobody has given.
                Some(_) if !rule.concerns(subject.labels, call) => said.lacking = Some(Lacking::Files),
                why => said.lacking.clone_from(why),
            }
        }
        said.lower(rule.terms.verdict, || rule.name.to_string(), || None);
        said.obligations.join(&rule.terms.obligations);
    }
}

/// `FS_READ` through a handle (`result:41`, `text:41`) touches no file: it shows more of what the process was given
/// already, and whoever serves it checks whose it is. No file can have such a path, since drivers are never asked.
fn reads_own_past(call: &Syscall) -> bool {
    let Syscall::FsRead(args) = call else { return false };
    let digits = args.path.strip_prefix("result:").or_else(|| args.path.strip_prefix("text:"));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What a role says to one target, without grants and labels.
pub(crate) fn by_role_alone(tables: &Tables, role: &str, action: Action, target: &Target<'_>) -> Explanation {
    let mut said = Explanation::open();
    if tables.roles.contains_key(role) {
        let (labels, given) = (Labels::NONE, Given::default());
        let subject = Subject { pid: Pid::SYSTEM, role, chain: &[], labels, given, reaches: None };
        by_role(tables, &subject, (action, target), Lift::Nothing, &mut said);
    } else {
        said.lower(Verdict::Deny, || format!("no role `{role}`"), || None);
    }
    said
}

pub(crate) fn by_role(
    tables: &Tables,
    subject: &Subject<'_>,
    (action, target): (Action, &Target<'_>),
    lift: Lift,
    said: &mut Explanation,
) {
    let narrowest = || Some(narrowest(action, target));
    let Some(role) = tables.role(subject.role) else {
        if tables.roles.is_empty() {
            let hint = "`aos init` writes a policy.yaml; without one everything is denied";
            said.lower(Verdict::Deny, || format!("{FLOOR}there is no policy.yaml"), || Some(hint.to_owned()));
            return;
        }
        let shown: String = subject.role.chars().take(64).collect();
        said.lower(Verdict::Deny, || format!("no role `{shown}` in the policy"), || None);
        return;
    };
    let finding = role.table(action).find(target);
    let Some(terms) = finding.terms else {
        let rule = || format!("role {}: no rule", role.name);
        // What asks about a part of it was not what somebody was shown who said yes for longer.
        let asks_within = lift == Lift::Role && finding.partly.verdict < Verdict::Allow;
        let more = if lift == Lift::Every { beyond_a_grant(role, target) } else { None };
        let closed = lift == Lift::Every && matches!(target, Target::Command(_));
        if more.is_none() && (lift == Lift::Nothing || asks_within || closed || !may_be_lifted(role, target)) {
            said.lower(Verdict::Deny, rule, narrowest);
            return;
        }
        said.lift(more.unwrap_or_else(|| self::narrowest(action, target)), rule);
        // What is said to a part of it holds all the same, labels above all.
        said.lower(
            finding.partly.verdict,
            || finding.rule.map(|rule| rule.name.to_string()).unwrap_or_default(),
            || None,
        );
        said.obligations.join(&finding.partly.obligations);
        return;
    };
    if let Target::Net { address, .. } = target
        && address.class == Class::Private
        && !finding.private
    {
        let why = || format!("{FLOOR}private addresses are closed unless a rule names them with `private: true`");
        match beyond_a_grant(role, target).filter(|_| lift == Lift::Every) {
            Some(more) => said.lift(more, why),
            None => said.lower(Verdict::Deny, why, || None),
        }
    }
    said.lower(terms.verdict, || finding.rule.map(|rule| rule.name.to_string()).unwrap_or_default(), || None);
    said.obligations.join(&terms.obligations);
}

/// Whether a person's yes can stand in for a rule: a private address takes one that names it, which is the floor's word, and
/// a command takes the programs that its role names: where no shell may read its line, the first word is none of them, or it
/// takes a shell for once.
fn may_be_lifted(role: &Role, target: &Target<'_>) -> bool {
    match target {
        Target::Net { address, .. } => address.class != Class::Private,
        Target::Command(line) => role.exec.as_ref().is_some_and(|exec| {
            exec.shell || (exec.needs_shell(line) && exec.programs.iter().any(|name| name == "sh"))
        }),
        Target::Bare | Target::Words { .. } | Target::Channel { .. } => true,
    }
}

/// What of the role a target takes that no grant in `calls` gives: a rule of `net` that names the private address, or what
/// `exec` says. `None`: a grant does.
fn beyond_a_grant(role: &Role, target: &Target<'_>) -> Option<String> {
    match target {
        Target::Net { method, address } if address.class == Class::Private => {
            let method = target::METHODS.iter().find(|(_, bit)| bit == method).map_or("GET", |(name, _)| name);
            let path: Vec<String> = address.path.iter().map(|word| plain_segment(word)).collect();
            let (host, port) = (&address.host, address.port);
            let request = quoted(&format!("{method} /{}", path.join("/")));
            Some(format!("a rule of the role's `net`: {{to: \"{host}:{port}\", allow: [{request}], private: true}}"))
        }
        // What its verdict denies, no program and no shell lets pass.
        Target::Command(_)
            if role.exec.is_some() && role.table(Action::of(Name::ExecCmd)).granting().next().is_none() =>
        {
            None
        }
        Target::Command(line) => Some(beyond_exec(role, line)),
        Target::Net { .. } | Target::Bare | Target::Words { .. } | Target::Channel { .. } => None,
    }
}

/// What `exec` of a role lacks for a command that a change of its programs lets pass.
#[derive(Debug)]
pub(crate) enum LackingExec {
    /// All of it: the section as it would stand in the role.
    Section(String),
    /// This program, as a value of the file.
    Program(String),
}

/// What it lacks so; `None` where the programs are not what is wanting.
pub(crate) fn lacking_exec(role: &Role, line: &str) -> Option<LackingExec> {
    let program = packages::grantable(packages::first_word(line));
    let plain = program.filter(|_| packages::is_words(line));
    match (&role.exec, plain) {
        (None, Some(program)) => {
            Some(LackingExec::Section(format!("exec: {{shell: false, programs: [{}]}}", quoted(program))))
        }
        (None, None) => {
            let others: Vec<String> = program.filter(|name| *name != "sh").map(quoted).into_iter().collect();
            let programs = [vec!["sh".to_owned()], others].concat().join(", ");
            Some(LackingExec::Section(format!("exec: {{shell: true, programs: [{programs}]}}")))
        }
        (Some(exec), Some(program)) => {
            let named = exec.programs.iter().any(|name| name == program);
            (!named).then(|| LackingExec::Program(quoted(program)))
        }
        (Some(_), None) => None,
    }
}

/// The same in words, and what else is wanting.
fn beyond_exec(role: &Role, line: &str) -> String {
    match lacking_exec(role, line) {
        Some(LackingExec::Section(section)) => format!("in the role: {section}"),
        Some(LackingExec::Program(program)) => format!("{program} in `programs` of the role's `exec`"),
        None => format!(
            "plain words alone, without quotes and signs of the shell, the first a program of [{}]; for more, `shell: true` \
             in the role's `exec`",
            shorten(&role.exec.as_ref().map(|exec| exec.programs.join(", ")).unwrap_or_default())
        ),
    }
}

/// A text as a value of the file.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

pub(crate) fn by_grants(
    grants: &Grants,
    depth: usize,
    (action, target): (Action, &Target<'_>),
    lift: Lift,
    said: &mut Explanation,
) {
    if grants.as_slice().iter().any(|grant| grant.covers(action, target)) {
        return;
    }
    if grants.are_of_a_dry_run() {
        let rule = || format!("{OF_A_DRY_RUN}{} would reach beyond the copy", action.name());
        said.lower(Verdict::Deny, rule, || None);
        return;
    }
    let whose = if depth == 0 { "this process" } else { "an ancestor" };
    let rule = || format!("{OF_GRANTS}none of {whose}, which has [{}]", shorten(&grants.to_string()));
    // Whoever was given nothing at all is to do nothing: so is a quarantined child, which reads what strangers wrote.
    if lift < Lift::Grants || (grants.give_nothing() && lift < Lift::Every) {
        said.lower(Verdict::Deny, rule, || Some(narrowest(action, target)));
    } else {
        said.lift(narrowest(action, target), rule);
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(160) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The narrowest grants that hold a call; none where it has no target that one could be about.
pub(crate) fn narrowest_of(call: &Syscall) -> Vec<String> {
    let demands = target::demands(call, None).unwrap_or_default();
    demands.iter().map(|(action, target)| narrowest(*action, target)).collect()
}

/// The narrowest grant that holds the target.
pub(crate) fn narrowest(action: Action, target: &Target<'_>) -> String {
    let name = action.name();
    match target {
        Target::Bare | Target::Command(_) => name.to_string(),
        Target::Words { words, reach } => {
            let in_words = matches!(target::kind(name), Kind::Word | Kind::Process);
            let mut path: Vec<String> = words.iter().map(|word| plain_segment(word)).collect();
            if *reach == Reach::Below {
                path.push("**".to_owned());
            }
            let text = path.join(if in_words { "" } else { "/" });
            format!("{name} {}", if text.is_empty() { "." } else { &text })
        }
        Target::Net { method, address } => {
            let method = match name {
                Name::NetSend => target::METHODS.iter().find(|(_, bit)| bit == method).map_or("", |(name, _)| name),
                _ => "",
            };
            let space = if method.is_empty() { "" } else { " " };
            let port = if address.port == 443 { String::new() } else { format!(":{}", address.port) };
            let path: Vec<String> = address.path.iter().map(|word| plain_segment(word)).collect();
            format!("{name} {method}{space}{}{port}/{}", host_words(&address.host).join("."), path.join("/"))
        }
        Target::Channel { channel, to } => {
            let channel: String = channel.iter().map(|word| plain_segment(word)).collect();
            format!("{name} {channel}/{}", plain_segment(to))
        }
    }
}

/// A segment as a pattern can write it: one that holds the signs of patterns becomes `*`, and so does one with whitespace at an
/// end, which is no part of a grant: without it the grant would be about something else, or about everything.
fn plain_segment(word: &str) -> String {
    let signs = |c: char| matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '!') || c.is_control();
    if word.is_empty() || word.trim() != word || word.contains(signs) { "*".to_owned() } else { word.to_owned() }
}

impl LabelRule {
    /// Whether it concerns this call of a process whose window carries these labels.
    pub(crate) fn concerns(&self, labels: Labels, call: &Syscall) -> bool {
        self.calls.contains(call.name()) && labels.any_of(self.when) && !is_quarantine(call)
    }
}

/// A quarantined child gets no grants, which is the way through for untrusted content (policy.md).
fn is_quarantine(call: &Syscall) -> bool {
    match call {
        Syscall::SpawnAgent(spawn) => {
            spawn.quarantine == Some(true) && spawn.permissions.as_ref().is_none_or(Vec::is_empty)
        }
        _ => false,
    }
}
