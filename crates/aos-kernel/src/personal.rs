//! Personal data: what the edge looks for before a model is asked, which model may be asked then, and where the tokens
//! that a model wrote stay tokens (docs/decisions/0006).
//!
//! Start at [`Kernel::guard`]. What always holds: what was found in a prompt is a fact that came with the inference, so
//! nothing is looked for again at a replay; a prompt that must stay on this machine is never given to a model elsewhere;
//! a call that leaves this machine is made with tokens, never with what they stand for.

use std::collections::BTreeMap;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use aos_abi::decode::Decoded;
use aos_abi::entry::{Personal, ProposalState, Verdict};
use aos_abi::model::ModelSpec;
use aos_abi::syscall::Handler;
use aos_abi::{Body, CallError, Code, Name, Pid};
use aos_policy::settings::ExecNet;
use aos_policy::{Labels, Permit, Terms};
use serde_json::{Value, json};

use crate::Kernel;
use crate::effect::{Guard, Then};
use crate::process::{CallState, Leave, StepCall};
use crate::proposals::Question;
use crate::table::PageStore;

/// Names the question whether a process may show a model elsewhere what it holds.
pub(crate) const LEAVE: &str = aos_abi::decode::ASKED_BY_KERNEL;

impl<P: PageStore> Kernel<P> {
    /// What the edge looks for in a prompt to this model; `None` where nothing could come of it.
    pub(crate) fn guard(&mut self, pid: Pid, spec: &ModelSpec) -> Option<Guard> {
        let (labels, leave) = (self.labels_of(pid), self.leave(pid));
        let detector = self.policy.detector();
        if detector.is_off() {
            return None;
        }
        let then = if spec.local {
            Then::Tell
        } else {
            let flow = self.policy.model_flow(labels.and(Labels::PERSONAL));
            match (flow.verdict, flow.obligations.local_only, flow.obligations.redact) {
                (Verdict::Allow, true, _) if leave == Leave::Given => Then::Replace,
                (Verdict::Allow, false, true) => Then::Replace,
                (Verdict::Allow, false, false) => Then::Tell,
                _ => Then::Withhold,
            }
        };
        // It is known already, and a label never goes.
        if then == Then::Tell && labels.any_of(Labels::PERSONAL) {
            return None;
        }
        let rule =
            (then != Then::Tell).then(|| self.policy.model_rule(labels.and(Labels::PERSONAL)).cloned()).flatten();
        Some(Guard { detector: Arc::clone(detector), then, rule })
    }

    /// What a prompt held is in the window of its process.
    pub(crate) fn was_shown(&mut self, pid: Pid, personal: Option<&Personal>) {
        if personal.is_some_and(|personal| !personal.classes.is_empty()) {
            self.learns(pid, Labels::PERSONAL);
        }
    }

    /// Whether the policy keeps what a process holds from a model that is not on this machine; then it goes no further,
    /// or on with one that is, where the policy says `local_only`.
    pub(crate) fn must_stay_here(&mut self, pid: Pid, model: &str) -> bool {
        let labels = self.labels_of(pid);
        let flow = self.policy.model_flow(labels);
        let blind = self.is_blind(&flow);
        if flow.verdict == Verdict::Allow && !flow.obligations.local_only && !blind {
            return false;
        }
        // The router knows of it, and names models of this machine alone.
        if self.stays_here_by_policy(pid) && !self.route_of(pid).order.is_empty() {
            self.want_turn_again(pid);
            return true;
        }
        if flow.verdict == Verdict::Allow && !blind && self.asks_to_leave(pid, model, labels) {
            // Either it waits for an answer, or it has one.
            return self.leave(pid) != Leave::Given;
        }
        let hint = if blind {
            "`redact` needs `personal_data: {detect: [...]}` in policy.yaml, or run it on a model of this machine"
        } else {
            "run it on a model of this machine (`local = true`)"
        };
        let rule = self.policy.model_rule(labels).map(|rule| format!(", by {rule}")).unwrap_or_default();
        let message = format!(
            "the policy keeps what this process holds ({labels}) from model `{model}`, which is elsewhere{rule}"
        );
        self.give_up(pid, &message, Some(hint));
        true
    }

    /// Whether the policy lets a model elsewhere see what a process holds, as it is or with tokens; asks nobody.
    pub(crate) fn may_go_elsewhere(&mut self, pid: Pid) -> bool {
        let (labels, leave) = (self.labels_of(pid), self.leave(pid));
        let flow = self.policy.model_flow(labels);
        flow.verdict == Verdict::Allow
            && !self.is_blind(&flow)
            && (!flow.obligations.local_only || leave == Leave::Given)
    }

    /// Whether what leaves should be redacted, and nothing looks for it.
    fn is_blind(&self, flow: &Terms) -> bool {
        flow.obligations.redact && self.policy.detector().is_off()
    }

    fn leave(&mut self, pid: Pid) -> Leave {
        if self.answers_hold(pid) {
            self.table.get(pid).map(|process| process.leave).unwrap_or_default()
        } else {
            Leave::Unasked
        }
    }

    /// Whether a person decides if a process may go on with a model elsewhere, with tokens in the place of personal data:
    /// `local_only` found no model of this machine. Asked once; whoever comes back without a yes goes no further.
    fn asks_to_leave(&mut self, pid: Pid, model: &str, labels: Labels) -> bool {
        let others = self.policy.model_flow(labels.without(Labels::PERSONAL));
        if others.obligations.local_only || self.policy.detector().is_off() {
            return false;
        }
        match self.leave(pid) {
            Leave::Given => return true,
            Leave::Asked => {
                // A resident process that is resumed is asked about again.
                self.with(pid, |process| process.leave = Leave::Unasked);
                return false;
            }
            Leave::Unasked if self.over_asks(pid).is_some() => return false,
            Leave::Unasked => {}
        }
        let name = Name::Propose;
        let args = json!({ "model": model, "shown": "tokens in the place of personal data" });
        self.fact(pid, Body::Syscall { call_id: LEAVE.to_owned(), name: name.to_string(), args: args.clone() });
        self.answered(pid, |process| {
            process.leave = Leave::Asked;
            process.step = vec![StepCall {
                call_id: LEAVE.to_owned(),
                name: name.to_string(),
                args: args.to_string(),
                fault: None,
                state: CallState::Waiting,
                approved: None,
            }];
        });
        let question = Question {
            name,
            args,
            hold_ms: None,
            rule: "label: personal stays on this machine (local_only)".to_owned(),
            why: Some("no model of this machine can take what this process holds".to_owned()),
            risk: Some(format!("`{model}` is elsewhere; what is not found as personal data goes there as it is")),
        };
        self.propose(pid, 0, question);
        true
    }

    /// A person lets a process go on with its model, which sees tokens.
    pub(crate) fn may_leave(&mut self, pid: Pid, index: usize, id: &str) {
        self.fact(pid, Body::Proposal { id: id.to_owned(), state: ProposalState::Executed, proposal: None, why: None });
        self.answered(pid, |process| process.leave = Leave::Given);
        self.finish_call(pid, index, Ok(json!({ "shown": "tokens in the place of personal data" })));
    }

    /// The rule by which [`Kernel::stays_here_by_policy`] holds, where it does.
    pub(crate) fn kept_here_by(&mut self, pid: Pid) -> Option<Arc<str>> {
        if !self.stays_here_by_policy(pid) {
            return None;
        }
        let labels = self.labels_of(pid);
        self.policy.model_rule(labels).cloned()
    }

    /// Whether what a process holds may go to models of this machine and to no others, and there is one that its role may use
    /// unasked. Where there is none, [`Kernel::must_stay_here`] has the last word.
    pub(crate) fn stays_here_by_policy(&mut self, pid: Pid) -> bool {
        let labels = self.labels_of(pid);
        if labels == Labels::NONE || self.leave(pid) == Leave::Given {
            return false;
        }
        let flow = self.policy.model_flow(labels);
        let blind = flow.obligations.redact && self.policy.detector().is_off();
        if flow.verdict != Verdict::Allow || !(flow.obligations.local_only || blind) {
            return false;
        }
        let role = self.table.get(pid).map(|process| process.policy_role.clone()).unwrap_or_default();
        let mut models = self.config.models.iter();
        models.any(|(name, spec)| spec.local && self.model_verdict(&role, name) == Verdict::Allow)
    }

    /// The edge has filled in the tokens of a reply: in calls that leave this machine they stand again.
    pub(crate) fn keep_tokens(&mut self, pid: Pid, personal: Option<&Personal>, calls: &mut [Decoded]) {
        let Some(tokens) = personal.map(|personal| &personal.tokens).filter(|tokens| !tokens.is_empty()) else {
            return;
        };
        let tokens = ByValue::new(tokens);
        // What did not decode is not made; so what is gone through here is no longer than arguments may be.
        for call in calls.iter_mut().filter(|call| call.call.is_ok()) {
            if self.stays_here(pid, &call.name, &call.args) {
                // What a child is shown of the network is asked for there, whatever of the call stays.
                addresses(&call.name, &mut call.args).for_each(|address| tokens.put(address));
            } else {
                tokens.put(&mut call.args);
            }
        }
    }

    /// Whether what a call is given stays on this machine, with its label: files, memory, other processes, the person.
    fn stays_here(&mut self, pid: Pid, name: &str, args: &Value) -> bool {
        let Ok(name) = name.parse::<Name>() else { return false };
        match name.spec().handler {
            Handler::Files | Handler::Memory => true,
            Handler::Kernel if name == Name::SysWebhookReply => false,
            Handler::Kernel if name == Name::Propose => {
                let action = args["action"]["name"].as_str().unwrap_or_default().to_owned();
                action != Name::Propose.as_str() && self.stays_here(pid, &action, &Value::Null)
            }
            Handler::Kernel => true,
            Handler::Exec => {
                let role = self.table.get(pid).map(|process| process.policy_role.clone()).unwrap_or_default();
                let exec = self.policy.role(&role).and_then(|role| role.exec.as_ref());
                exec.is_some_and(|exec| exec.net == ExecNet::Closed)
            }
            Handler::Net | Handler::Absent(_) => false,
        }
    }

    /// A rule says `redact` of a call that leaves: one that holds personal data is not made.
    ///
    /// # Errors
    /// `EPERM` with the kinds of data found, or why that cannot be known.
    pub(crate) fn leaves_clean(&self, permit: &Permit) -> Result<(), CallError> {
        if !permit.obligations().redact {
            return Ok(());
        }
        let (mut kinds, mut unknown) = (Vec::new(), None);
        look(&permit.call().args(), "", &mut |field, text| match self.policy.detector().find_after(field, text) {
            Ok(found) => kinds.extend(found.into_iter().map(|found| found.class.to_string())),
            Err(why) => unknown = Some(why),
        });
        kinds.sort_unstable();
        kinds.dedup();
        let what = match unknown {
            Some(why) => format!("it may hold personal data ({why})"),
            None if !kinds.is_empty() => format!("it holds personal data ({})", kinds.join(", ")),
            None if self.policy.detector().is_off() => "it may hold personal data".to_owned(),
            None => return Ok(()),
        };
        let message =
            format!("the policy denies {}: {what}, which a rule of `labels` keeps here", permit.call().name());
        Err(CallError::new(Code::Perm, message).hint("leave it out, or ask the person to send it"))
    }
}

/// Every text and number of a value with the field it stands in. Recursion is bounded by the depth of parsing.
fn look(value: &Value, field: &str, each: &mut dyn FnMut(&str, &str)) {
    match value {
        Value::String(text) => each(field, text),
        Value::Number(number) => each(field, &number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| look(item, field, each)),
        Value::Object(fields) => fields.iter().for_each(|(name, item)| {
            each("", name);
            look(item, name, each);
        }),
        Value::Null | Value::Bool(_) => {}
    }
}

/// The addresses in a call that makes a child, or proposes to.
fn addresses<'v>(name: &str, args: &'v mut Value) -> impl Iterator<Item = &'v mut Value> {
    let spawn = match name.parse() {
        Ok(Name::SpawnAgent) => Some(args),
        Ok(Name::Propose) if args["action"]["name"] == Name::SpawnAgent.as_str() => args.pointer_mut("/action/args"),
        _ => None,
    };
    let attached = spawn.and_then(|spawn| spawn.get_mut("attachments")?.as_array_mut());
    attached.into_iter().flatten().filter(|one| one.as_str().is_some_and(|one| one.contains("://")))
}

/// Tokens by the values they stand for, which are looked for together: one pass over a text, however many they are.
struct ByValue<'t> {
    values: AhoCorasick,
    /// In the order of `values`.
    tokens: Vec<&'t str>,
}

impl<'t> ByValue<'t> {
    fn new(tokens: &'t BTreeMap<String, String>) -> ByValue<'t> {
        // Nothing would be found everywhere.
        let tokens = tokens.iter().filter(|(value, _)| !value.is_empty());
        let (values, tokens): (Vec<&str>, Vec<&str>) =
            tokens.map(|(value, token)| (value.as_str(), token.as_str())).unzip();
        // Of values that begin at one place the longest counts: a value may hold another one.
        let built = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(values);
        ByValue { values: built.expect("the values of one prompt hold less than 2 GiB"), tokens }
    }

    /// A text with tokens in the place of values; `None` where it holds none. In what was put nothing is looked for.
    fn put_in(&self, text: &str) -> Option<String> {
        self.values.is_match(text).then(|| self.values.replace_all(text, &self.tokens))
    }

    /// The same for every text, number and name of a field. Recursion is bounded by the depth of parsing.
    fn put(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(put) = self.put_in(text) {
                    *text = put;
                }
            }
            Value::Number(number) => {
                if let Some(put) = self.put_in(&number.to_string()) {
                    *value = Value::String(put);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.put(item)),
            Value::Object(fields) => {
                for (name, mut item) in std::mem::take(fields) {
                    self.put(&mut item);
                    fields.insert(self.put_in(&name).unwrap_or(name), item);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tokens(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(value, token)| ((*value).to_owned(), (*token).to_owned())).collect()
    }

    /// As it was done before: every value through the whole text, the longest first.
    fn one_by_one(tokens: &BTreeMap<String, String>, text: &str) -> String {
        let mut tokens: Vec<_> = tokens.iter().collect();
        tokens.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        tokens.iter().fold(text.to_owned(), |text, (value, token)| text.replace(value.as_str(), token))
    }

    #[test]
    fn tokens_are_put_once_and_of_values_in_one_another_for_the_longest() {
        let put = |of: &[(&str, &str)], text: &str| ByValue::new(&tokens(of)).put_in(text);
        let mail = [("a@x.com", "[EMAIL_1]"), ("ba@x.com.au", "[EMAIL_2]"), ("a@x.com.au", "[EMAIL_3]")];
        assert_eq!(
            put(&mail, "a@x.com, ba@x.com.au; a@x.com.au! ba@x.com").as_deref(),
            Some("[EMAIL_1], [EMAIL_2]; [EMAIL_3]! b[EMAIL_1]")
        );
        assert_eq!(put(&mail, "[EMAIL_1] and nothing else"), None);
        // A value that stands in a token, or comes to be by putting one, is not put a second time.
        let in_token =
            [("a@x.com", "[EMAIL_1]"), ("EMAIL", "[WORD_1]"), ("1", "[NUMBER_1]"), ("[EMAIL_1]!", "[WORD_2]")];
        assert_eq!(put(&in_token, "a@x.com! EMAIL 1").as_deref(), Some("[EMAIL_1]! [WORD_1] [NUMBER_1]"));
        // Of two that overlap the first; no value is left whole.
        assert_eq!(put(&[("abc", "[A_1]"), ("bcde", "[B_1]")], "abcde bcde").as_deref(), Some("[A_1]de [B_1]"));
        assert_eq!(put(&[("", "[A_1]")], "abc"), None);
    }

    #[test]
    fn tokens_are_put_into_texts_numbers_and_names_of_fields() {
        let tokens = tokens(&[("4111", "[CARD_1]"), ("a@x.com", "[EMAIL_1]")]);
        let mut args = json!({"z a@x.com": [4111, -4111.5, 7, true, null], "a": {"b": "to a@x.com"}});
        ByValue::new(&tokens).put(&mut args);
        let put = r#"{"z [EMAIL_1]":["[CARD_1]","-[CARD_1].5",7,true,null],"a":{"b":"to [EMAIL_1]"}}"#;
        assert_eq!(args.to_string(), put);
    }

    /// 20,000 values in 2 MB: one by one these are 40 GB to look through.
    #[test]
    fn many_values_take_one_pass() {
        let values: BTreeMap<String, String> =
            (0..20_000).map(|nth| (format!("n{nth}@example.com"), format!("[EMAIL_{nth}]"))).collect();
        let text: String = (0..100_000).map(|nth| format!("n{}@example.com ", nth % 20_000)).collect();
        let put = ByValue::new(&values).put_in(&text).unwrap();
        assert!(!put.contains('@') && put.ends_with("[EMAIL_19999] "));
    }

    proptest! {
        /// Values as they are found: whole words, of which one may hold another, and none begins with the end of one.
        #[test]
        fn one_pass_puts_what_one_after_the_other_put(
            values in prop::collection::btree_set("[abé]{1,3}@[xy]", 0..6),
            text in "([abé]{0,3}(@[xy]{0,1})?[ .]?){0,12}",
        ) {
            let tokens: BTreeMap<String, String> =
                values.into_iter().zip(1..).map(|(value, nth)| (value, format!("[MAIL_{nth}]"))).collect();
            let put = ByValue::new(&tokens).put_in(&text).unwrap_or_else(|| text.clone());
            prop_assert_eq!(put, one_by_one(&tokens, &text));
        }

        /// However values overlap.
        #[test]
        fn no_value_is_left(values in prop::collection::btree_set("[ab]{1,4}", 1..6), text in "[ab]{0,40}") {
            let tokens: BTreeMap<String, String> = values.iter().map(|value| (value.clone(), "[]".to_owned())).collect();
            let put = ByValue::new(&tokens).put_in(&text).unwrap_or_else(|| text.clone());
            prop_assert!(put.split("[]").all(|piece| values.iter().all(|value| !piece.contains(value))), "{put}");
        }
    }
}
