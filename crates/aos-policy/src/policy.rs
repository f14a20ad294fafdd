//! The policy: a compiled file, and the questions asked of it.
//!
//! Start at [`Policy::authorize`]. What always holds: what the file does not grant is denied; a file with a fault is
//! refused whole; the same policy, subject and call give the same ruling for ever. No I/O, clock or chance here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aos_abi::entry::Verdict;
use aos_abi::syscall::{CallSet, Handler};
use aos_abi::{Name, Syscall};
use aos_personal::Detector;

use crate::address::Listens;
use crate::child::{self, Exceeds};
use crate::decide::{Allowed, Explanation, Lift, Subject, decide, decide_lifted, decide_past};
use crate::fault::Fault;
use crate::given::Lacking;
use crate::grant::Grant;
use crate::label::Labels;
use crate::permit::Permit;
use crate::role::Role;
use crate::scope::{Hit, Scope};
use crate::settings::{Limits, PersonalData, Proposals};
use crate::standing::Standing;
use crate::target::{Action, Kind, Reach, Target, kind};
use crate::terms::{Obligations, Terms};

/// A compiled policy. Cheap to clone and share.
#[derive(Clone, Debug)]
pub struct Policy {
    tables: Arc<Tables>,
}

/// Everything that a file says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    pub(crate) generation: String,
    pub(crate) default_role: String,
    pub(crate) roles: BTreeMap<String, Role>,
    pub(crate) labels: Vec<LabelRule>,
    pub(crate) flows: Vec<LabelRule>,
    pub(crate) limits: Limits,
    pub(crate) proposals: Proposals,
    pub(crate) personal_data: PersonalData,
    pub(crate) detector: Arc<Detector>,
    /// Where the daemon listens. It is no part of the file: whoever runs it says so.
    pub(crate) listens: Option<Listens>,
}

impl Tables {
    /// The role of this name; the default one where it is empty.
    pub(crate) fn role(&self, name: &str) -> Option<&Role> {
        self.roles.get(if name.is_empty() { self.default_role.as_str() } else { name })
    }
}

/// A rule about what may not flow where.
#[derive(Clone, Debug)]
pub(crate) struct LabelRule {
    /// Such as `label: labels[0] untrusted`.
    pub(crate) name: Arc<str>,
    /// As the file has it, such as `when: secret, to: any, do: deny`; a long list is cut short.
    pub(crate) words: Arc<str>,
    pub(crate) when: Labels,
    pub(crate) calls: CallSet,
    pub(crate) terms: Terms,
}

/// What came of a call.
#[derive(Debug)]
#[must_use]
pub struct Ruling {
    /// The verdict.
    pub verdict: Verdict,
    /// The deciding rule, with its layer.
    pub rule: String,
    /// The narrowest grant that would pass, where it is denied for want of one; else what to do instead.
    pub hint: Option<String>,
    /// The permit, where the verdict is `allow`.
    pub permit: Option<Permit>,
    /// The call back, where there is no permit.
    pub refused: Option<Syscall>,
    /// What must happen with the call, once it is made.
    pub obligations: Obligations,
    /// The rule about untrusted content that would have asked, had the call's arguments not been given.
    pub lifted: Option<String>,
    /// Why the call counts as one that untrusted content may have led to; where that decided.
    pub lacking: Option<Lacking>,
    /// The standing approval that took the place of a question, such as `p3`.
    pub standing: Option<String>,
}

/// A person's yes to one call: these arguments, under this policy.
#[derive(Clone, Copy, Debug)]
pub struct Approval<'a> {
    /// The proposal, such as `p3`.
    pub id: &'a str,
    /// The call they saw.
    pub name: Name,
    /// Its arguments as they saw them.
    pub args: &'a serde_json::Value,
    /// The policy's generation when they were asked; `None` where it was not kept.
    pub generation: Option<&'a str>,
    /// The call had been denied for want of a grant, and the yes stands in for that.
    pub lifts: bool,
}

/// What a denied call wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanting {
    /// The narrowest grants that would let it pass, or have a person asked.
    pub grants: Vec<String>,
    /// Whether its role lacks a rule; else its own grants, or an ancestor's, lack one.
    pub of_role: bool,
}

/// Names a call by its name and canonical arguments, or a result: two have the same only if they are the same to the byte.
#[must_use]
pub fn fingerprint(name: &str, value: &serde_json::Value) -> u128 {
    use sha2::Digest as _;
    let digest = sha2::Sha256::new().chain_update(name).chain_update(b"\0").chain_update(value.to_string());
    digest.finalize().iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
}

impl Policy {
    /// Compiles a file's text.
    ///
    /// # Errors
    /// Every fault found, in the order of the file. Nothing of a file with a fault holds; keep the old policy, or
    /// [`Policy::deny_all`] where there is none.
    pub fn parse(text: &str) -> Result<Policy, Vec<Fault>> {
        crate::file::compile(text).map(|tables| Policy { tables: Arc::new(tables) })
    }

    /// The same of a daemon that listens there: nothing that an agent does goes to it, whatever the file says.
    #[must_use]
    pub fn away_from(self, listens: Option<Listens>) -> Policy {
        let tables = Arc::unwrap_or_clone(self.tables);
        Policy { tables: Arc::new(Tables { listens, ..tables }) }
    }

    /// The file that a new home begins with.
    #[must_use]
    pub fn default_text() -> &'static str {
        include_str!("default.yaml")
    }

    /// What holds where the file is missing or broken: nothing but the always-allowed calls.
    #[must_use]
    pub fn deny_all() -> Policy {
        let tables = Tables { generation: "deny-all".to_owned(), ..Tables::default() };
        Policy { tables: Arc::new(tables) }
    }

    /// Names this text of the policy: the first 16 hex digits of its SHA-256.
    #[must_use]
    pub fn generation(&self) -> &str {
        &self.tables.generation
    }

    /// Says what becomes of a call and, where it is allowed, gives the permit to make it.
    pub fn authorize(&self, subject: &Subject<'_>, call: Syscall) -> Ruling {
        self.authorize_with(subject, &[], call)
    }

    /// The same for a process for which approvals stand.
    pub fn authorize_with(&self, subject: &Subject<'_>, standing: &[Standing], call: Syscall) -> Ruling {
        let said = decide(&self.tables, subject, standing, &call);
        let allowed = said.verdict == Verdict::Allow;
        Self::rule(subject, call, said, allowed)
    }

    /// Gives the permit for a call that a person approved, or whose window of `hold` ended without a veto.
    ///
    /// The call is judged anew: what is denied by now stays denied, and so does a call that differs from the approved
    /// one in any argument, or an approval under another policy.
    pub fn authorize_approved(&self, subject: &Subject<'_>, call: Syscall, approval: &Approval<'_>) -> Ruling {
        let mut said = match approval.lifts {
            true => decide_lifted(&self.tables, subject, Lift::Grants, &call),
            false => decide(&self.tables, subject, &[], &call),
        };
        let refusal = if approval.name != call.name() || *approval.args != call.args() {
            Some("approval: it was given for other arguments")
        } else if approval.generation.is_some_and(|generation| generation != self.generation()) {
            Some("approval: the policy has changed since it was given")
        } else {
            None
        };
        if let Some(why) = refusal {
            said.verdict = Verdict::Deny;
            said.rule = why.to_owned();
            said.hint = Some("propose the call again".to_owned());
        }
        let allowed = said.verdict != Verdict::Deny;
        if allowed {
            said.verdict = Verdict::Allow;
            said.rule = format!("approval {}: {}", approval.id, said.rule);
        }
        Self::rule(subject, call, said, allowed)
    }

    fn rule(subject: &Subject<'_>, call: Syscall, said: Explanation, allowed: bool) -> Ruling {
        let Explanation { verdict, rule, hint, obligations, lifted, lacking, standing, wanting: _ } = said;
        let (permit, refused) = if allowed {
            (Some(Permit::new(subject.pid, call, rule.clone(), obligations.clone())), None)
        } else {
            (None, Some(call))
        };
        Ruling { verdict, rule, hint, permit, refused, obligations, lifted, lacking, standing }
    }

    /// What [`Policy::authorize`] would say, without a permit.
    pub fn explain(&self, subject: &Subject<'_>, call: &Syscall) -> Explanation {
        self.explain_with(subject, &[], call)
    }

    /// What [`Policy::authorize_with`] would say, without a permit.
    pub fn explain_with(&self, subject: &Subject<'_>, standing: &[Standing], call: &Syscall) -> Explanation {
        decide(&self.tables, subject, standing, call)
    }

    /// What a denied call wants, where a person's yes can stand in for it; `None` where it is not denied, or where the floor, a
    /// rule, a label or the lack of any grant denies it, which no yes lifts.
    #[must_use]
    pub fn wanting(&self, subject: &Subject<'_>, call: &Syscall) -> Option<Wanting> {
        if self.explain(subject, call).verdict != Verdict::Deny {
            return None;
        }
        let lifted = self.explain_lifted(subject, call);
        let of_role = !decide_lifted(&self.tables, subject, Lift::Role, call).wanting.is_empty();
        let grants = lifted.wanting;
        (lifted.verdict > Verdict::Deny && !grants.is_empty()).then_some(Wanting { grants, of_role })
    }

    /// Why no yes lifts that a call is denied, in words; of one that [`Policy::wanting`] has nothing for.
    #[must_use]
    pub fn closed(&self, subject: &Subject<'_>, call: &Syscall) -> String {
        crate::decide::closed(&self.tables, subject, call)
    }

    /// What a call wants that a command led to, where a person's yes to one more run of that command lets it happen: nobody is
    /// asked about it while that runs, nor is it looked through or counted. `None` as [`Policy::wanting`] has it, and where it
    /// is allowed under these approvals that stand. What a rule of its role asks about is let through by such a yes where it is
    /// a request, which is shown with its whole address; changes to files only where nothing asks, and nothing where a rule
    /// about labels does: what a command sends and writes nobody can be shown.
    #[must_use]
    pub fn wanting_inside(&self, subject: &Subject<'_>, standing: &[Standing], call: &Syscall) -> Option<Vec<String>> {
        let said = self.explain_with(subject, standing, call).verdict;
        let run = || decide(&self.tables, subject, &[Standing::for_one_run("", call)], call);
        let then = match (said, call.name()) {
            (Verdict::Allow, _) => return None,
            (_, Name::NetFetch | Name::NetSend) => run(),
            (Verdict::Deny, _) => self.explain_lifted(subject, call),
            (Verdict::Ask | Verdict::Hold, _) => return None,
        };
        let Explanation { verdict, wanting, obligations, .. } = then;
        let passes = verdict == Verdict::Allow && !obligations.redact && obligations.rates.is_empty();
        let wants = if said == Verdict::Deny { wanting } else { crate::decide::narrowest_of(call) };
        (passes && !wants.is_empty()).then_some(wants)
    }

    /// What a call wants that nobody can be asked about when it is due, such as the fetch to which a redirect leads: where it
    /// is denied, as [`Policy::wanting`] has it; where a rule asks about it, or holds it, the narrowest grant of it.
    #[must_use]
    pub fn wanting_unasked(&self, subject: &Subject<'_>, call: &Syscall) -> Option<Vec<String>> {
        match self.explain(subject, call).verdict {
            Verdict::Allow => None,
            Verdict::Deny => self.wanting(subject, call).map(|wanting| wanting.grants),
            Verdict::Ask | Verdict::Hold => Some(crate::decide::narrowest_of(call)).filter(|wants| !wants.is_empty()),
        }
    }

    /// What would be said to a denied call if it were granted what it wants, as far as a person's yes can stand in for that.
    pub fn explain_lifted(&self, subject: &Subject<'_>, call: &Syscall) -> Explanation {
        decide_lifted(&self.tables, subject, Lift::Grants, call)
    }

    /// What is said to a call that was decided once, maybe under another policy. `given` says whether people had given all
    /// that steers it, as the journal recorded it: their words themselves are not needed.
    pub fn explain_past(&self, subject: &Subject<'_>, given: bool, call: &Syscall) -> Explanation {
        decide_past(&self.tables, subject, given, call)
    }

    /// Whether a connection of which only host and port can be seen, such as TLS through a proxy, is allowed: that takes
    /// every method and every path there to be.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn opens(&self, subject: &Subject<'_>, host: &str, port: u16) -> Result<Allowed, String> {
        let (rule, obligations) = crate::tunnel::opens(&self.tables, subject, host, port)?;
        Ok(Allowed { rule, generation: self.generation().to_owned(), obligations })
    }

    /// Whether a role has a rule that allows anything at all to a host and port, on whatever terms.
    #[must_use]
    pub fn speaks_of(&self, role: &str, host: &str, port: u16) -> bool {
        crate::tunnel::speaks_of(&self.tables, role, host, port)
    }

    /// What a role's rules of `net` grant anything to: hosts as they are written, patterns too, and the port where one
    /// is named.
    #[must_use]
    pub fn places(&self, role: &str) -> Vec<(String, Option<u16>)> {
        crate::tunnel::places(&self.tables, role)
    }

    /// What rules of any role grant of the place where a daemon listens, as `role: HOST:PORT`. No rule opens that.
    #[must_use]
    pub fn granted_in_vain(&self, listens: Listens) -> Vec<String> {
        let of = |role: &'_ str| {
            let places = self.places(role).into_iter();
            let own = places.filter_map(|(host, port)| port.map(|port| (host, port)));
            let own = own.filter(|(host, port)| listens.is_named(host, *port));
            own.map(|(host, port)| format!("{role}: {host}:{port}")).collect::<Vec<_>>()
        };
        self.roles().flat_map(of).collect()
    }

    /// Rules for files with a label that is on nothing that is read: whoever writes or deletes there carries it, and no file
    /// does. Each as `role: fs[0] PATH`.
    #[must_use]
    pub fn labels_unread(&self) -> Vec<String> {
        let of = |role: &'_ str| {
            let rules = |name: Name| {
                let role = self.tables.role(role);
                role.into_iter().flat_map(move |role| role.table(Action::of(name)).rules())
            };
            let changing = [Name::FsWrite, Name::FsDelete].into_iter().flat_map(rules);
            let unread = changing.filter(|rule| {
                let labelled = !rule.terms.obligations.labels.is_empty();
                labelled && !rules(Name::FsRead).any(|reading| reading.name == rule.name)
            });
            let names: BTreeSet<&str> =
                unread.map(|rule| rule.name.strip_prefix("role ").unwrap_or(&rule.name)).collect();
            names.into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        self.roles().flat_map(of).collect()
    }

    /// The hosts that a role's rules name with `private: true`, each as `HOST:PORT`: they may be reached at private
    /// addresses, where the request itself is allowed.
    #[must_use]
    pub fn private_hosts(&self, role: &str) -> Vec<String> {
        crate::tunnel::private_hosts(&self.tables, role)
    }

    /// The calls that could ever be other than denied: what an agent is told about. An upper bound, since whether
    /// three patterns meet in one target is not decided here.
    #[must_use]
    pub fn calls(&self, subject: &Subject<'_>) -> CallSet {
        // Everybody may signal what is below it.
        let always = |name: Name| matches!(kind(name), Kind::Always | Kind::Process);
        let possible = |name: &Name| always(*name) || self.is_possible(subject, *name);
        Name::ALL.iter().copied().filter(possible).collect()
    }

    /// Whether a process could be allowed to signal any that is not below it.
    #[must_use]
    pub fn signals_others(&self, subject: &Subject<'_>) -> bool {
        self.is_possible(subject, Name::Kill)
    }

    fn is_possible(&self, subject: &Subject<'_>, name: Name) -> bool {
        let Some(role) = self.tables.role(subject.role) else { return false };
        let action = Action::of(name);
        let forbidden = self
            .tables
            .labels
            .iter()
            .filter(|rule| rule.terms.verdict == Verdict::Deny && subject.labels.any_of(rule.when))
            .any(|rule| rule.calls.contains(name));
        let granted = role.table(action).granting().any(|rule| {
            subject.chain.iter().all(|grants| {
                let scopes = grants.as_slice().iter().flat_map(|grant| &grant.scopes);
                scopes.filter(|(of, _)| *of == action).any(|(_, scope)| scope.overlaps(&rule.scope))
            })
        });
        granted && !forbidden
    }

    /// What a role grants, in lines for whoever runs under it: the calls, then on what. The same for every
    /// process of the role, and bounded.
    #[must_use]
    pub fn describe(&self, role: &str) -> Vec<String> {
        /// Lines at most: a prompt is no place for a long policy, and each refusal names its rule.
        const LINES_MAX: usize = 32;
        let Some(role) = self.tables.role(role) else { return Vec::new() };
        let mut by_rule: Vec<(&str, Verdict, Vec<&str>)> = Vec::new();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let told = |name: &&Name| kind(**name) != Kind::Always && !matches!(name.spec().handler, Handler::Absent(_));
        for name in Name::ALL.iter().filter(told) {
            for rule in role.table(Action::of(*name)).granting() {
                let place = *places.entry(&rule.name).or_insert(by_rule.len());
                match by_rule.get_mut(place) {
                    Some((.., calls)) if calls.last() != Some(&name.as_str()) => calls.push(name.as_str()),
                    Some(_) => {}
                    None => by_rule.push((&rule.name, rule.terms.verdict, vec![name.as_str()])),
                }
            }
        }
        let mut lines: Vec<String> = by_rule
            .iter()
            .take(LINES_MAX)
            .map(|(rule, verdict, calls)| {
                // Rules are named `role NAME: SECTION[N] PATTERN`; what concerns a process is the pattern.
                let pattern = rule.rsplit_once("] ").map_or("", |(_, pattern)| pattern);
                // Those of `calls` begin with the call's own name.
                let pattern =
                    calls.iter().find_map(|call| pattern.strip_prefix(call)?.strip_prefix(' ')).unwrap_or(pattern);
                let on = if pattern.is_empty() || calls.contains(&pattern) {
                    String::new()
                } else {
                    format!(" on {pattern}")
                };
                let asks = match verdict {
                    Verdict::Ask => "; a person is asked",
                    Verdict::Hold => "; it waits for a veto first",
                    Verdict::Allow | Verdict::Deny => "",
                };
                format!("{}{on}{asks}", calls.join(", "))
            })
            .collect();
        if by_rule.len() > LINES_MAX {
            lines.push(format!("and what {} more rules grant", by_rule.len() - LINES_MAX));
        }
        lines
    }

    /// Checks that a child's grants lie within what its parent may do.
    ///
    /// # Errors
    /// The first grant that exceeds, with a call that shows it.
    pub fn check_child(&self, parent: &Subject<'_>, child: &[Grant]) -> Result<(), Exceeds> {
        child::check(&self.tables, parent, child)
    }

    /// What a model's window with these labels means for sending it to a model. Models on this machine are not
    /// concerned; ask only for those that are not.
    pub fn model_flow(&self, labels: Labels) -> Terms {
        let rules = self.tables.flows.iter().filter(|rule| labels.any_of(rule.when));
        rules.fold(Terms::unbounded(), |terms, rule| terms.least(&rule.terms))
    }

    /// The rule by which [`Policy::model_flow`] says less than everything, such as `label: labels[0] personal`; of several
    /// the strictest, and of these the first of the file. `None`: no rule is about these labels.
    #[must_use]
    pub fn model_rule(&self, labels: Labels) -> Option<&Arc<str>> {
        let rules = self.tables.flows.iter().filter(|rule| labels.any_of(rule.when));
        let strictness = |rule: &&LabelRule| {
            let Obligations { local_only, redact, .. } = rule.terms.obligations;
            (rule.terms.verdict, !local_only, !redact)
        };
        rules.min_by_key(strictness).map(|rule| &rule.name)
    }

    /// What the files at and below a path carry by the rules of a role, whoever may read them. Of a path that cannot be
    /// read plainly: what any file carries.
    #[must_use]
    pub fn labels_of_files(&self, role: &str, path: &str) -> Labels {
        let Some(role) = self.tables.role(role) else { return Labels::NONE };
        let below = crate::target::below(path);
        let rules = role.table(Action::of(Name::FsRead)).rules().iter();
        let reached = rules.filter(|rule| below.as_ref().is_none_or(|target| rule.scope.hit(target) != Hit::Missed));
        reached.fold(Labels::NONE, |labels, rule| labels.and(rule.terms.obligations.labels))
    }

    /// What one thing at a path carries by the rules of a role for files. A folder carries what is said of what it is itself
    /// in: that a rule is about all below it says nothing of a folder without anything.
    #[must_use]
    pub fn labels_of_entry(&self, role: &str, path: &str, is_folder: bool) -> Labels {
        let Some(role) = self.tables.role(role) else { return Labels::NONE };
        let Some(words) = crate::target::plain(path) else { return Labels::NONE };
        let target = Target::Words { words, reach: Reach::Itself };
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        let within = Target::Words { words: crate::target::plain(above).unwrap_or_default(), reach: Reach::Itself };
        let hit = |scope: &Scope, target| scope.hit(target) != Hit::Missed;
        let rules = role.table(Action::of(Name::FsRead)).rules().iter();
        let about = rules.filter(|rule| hit(&rule.scope, &target) && (!is_folder || hit(&rule.scope, &within)));
        about.fold(Labels::NONE, |labels, rule| labels.and(rule.terms.obligations.labels))
    }

    /// What the names in a folder carry for a role, by its rules for what lies right below: whoever put it there named it. Of a
    /// rule such as `mail/**` that is what lies in `mail`, not that folder itself, whose name the rule has.
    #[must_use]
    pub fn labels_of_names(&self, role: &str, folder: &str) -> Labels {
        let Some(role) = self.tables.role(role) else { return Labels::NONE };
        let words = crate::target::plain(folder);
        let touches = |scope: &Scope| match (scope, &words) {
            (Scope::Words(pattern), Some(words)) => pattern.names_children(words),
            _ => true,
        };
        let rules = role.table(Action::of(Name::FsList)).rules().iter().filter(|rule| touches(&rule.scope));
        rules.fold(Labels::NONE, |labels, rule| labels.and(rule.terms.obligations.labels))
    }

    /// What may come back to a role from the network: what it is, and what rules say of any place.
    #[must_use]
    pub fn labels_of_answers(&self, role: &str) -> Labels {
        let Some(role) = self.tables.role(role) else { return Labels::NONE };
        let tables = [Name::NetFetch, Name::NetSend].map(|name| role.table(Action::of(name)));
        let rules = tables.into_iter().flat_map(|table| table.rules());
        rules.fold(Labels::WEB, |labels, rule| labels.and(rule.terms.obligations.labels))
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The role of processes that name none.
    #[must_use]
    pub fn default_role(&self) -> &str {
        &self.tables.default_role
    }

    /// The settings of a role; the default one where the name is empty.
    #[must_use]
    pub fn role(&self, name: &str) -> Option<&Role> {
        self.tables.role(name)
    }

    /// Every role's name, sorted.
    pub fn roles(&self) -> impl Iterator<Item = &str> {
        self.tables.roles.keys().map(String::as_str)
    }

    /// The ceiling for every process.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.tables.limits
    }

    /// How questions to people are kept.
    #[must_use]
    pub fn proposals(&self) -> &Proposals {
        &self.tables.proposals
    }

    /// What finds personal data.
    #[must_use]
    pub fn detector(&self) -> &Arc<Detector> {
        &self.tables.detector
    }

    /// What counts as personal data.
    #[must_use]
    pub fn personal_data(&self) -> &PersonalData {
        &self.tables.personal_data
    }
}
