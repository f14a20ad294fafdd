//! Properties: the compiled policy against the reference evaluator, and what may never happen whatever a file says.

mod rig;

use aos_abi::entry::Verdict;
use aos_abi::syscall::{FsMove, FsRead, FsWrite, NetFetch, SendMsg};
use aos_abi::{Name, Pid, Syscall};
use aos_policy::address::Listens;
use aos_policy::{Given, Grants, Labels, Named, Obligations, Policy, Rate, Subject, Terms};
use proptest::prelude::*;
use rig::oracle::{Duties, LISTENS, LabelRule, Model, RESULT, Rule};
use rig::request::{requests, sends};
use rig::universe::{calls, labels, models, path_patterns};
use rig::{file, role, subject};

fn chain(model: &Model) -> Vec<Grants> {
    let parse = |grants: &Vec<(&str, String)>| {
        let texts: Vec<String> =
            grants.iter().map(|(name, pattern)| format!("{name} {pattern}").trim().to_owned()).collect();
        Grants::parse(&texts).unwrap_or_else(|fault| panic!("{fault}"))
    };
    model.chain.iter().map(parse).collect()
}

fn terms() -> impl Strategy<Value = Terms> {
    let verdict = prop::sample::select(vec![Verdict::Deny, Verdict::Ask, Verdict::Hold, Verdict::Allow]);
    let window = || prop::option::of(0u64..4);
    let rates = prop::collection::btree_set((0u64..3, 1u64..3), 0..3);
    (verdict, window(), window(), any::<[bool; 2]>(), rates, 0usize..4).prop_map(
        |(verdict, undo_ms, hold_ms, [redact, local_only], rates, label)| {
            let rates = rates.into_iter().map(|(count, per_s)| Rate { rule: "r".into(), count, per_s }).collect();
            let labels = [Labels::NONE, Labels::WEB, Labels::SECRET, Labels::UNTRUSTED][label];
            Terms { verdict, obligations: Obligations { undo_ms, hold_ms, redact, local_only, rates, labels } }
        },
    )
}

/// A role that grants every call on everything.
const OPEN: &str = "{calls: ['FS_* **', 'MEM_* **', 'NET_* **:*', 'SEND_MSG *', 'TOOL_CALL *', 'CHANNEL_SEND **', \
    'THREAD_ATTACH *', 'KILL **', 'SYS_REGISTER_WEBHOOK **', SPAWN_AGENT, SYS_SCHEDULE, TOOL_SEARCH, ASK_USER, PROPOSE], \
    exec: {shell: true, programs: [sh]}}";

/// Every text in a call's arguments.
fn words(args: &serde_json::Value) -> Vec<String> {
    match args {
        serde_json::Value::String(text) => vec![text.clone()],
        serde_json::Value::Array(items) => items.iter().flat_map(words).collect(),
        serde_json::Value::Object(fields) => fields.values().flat_map(words).collect(),
        other => vec![other.to_string()],
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_compiled_policy_says_what_the_reference_says(
        model in models(),
        calls in prop::collection::vec(calls(), 12),
        carried in labels(),
    ) {
        let policy = file(&model.yaml()).away_from(Some(Listens(LISTENS.parse().expect("an address"))));
        let chain = chain(&model);
        let labels = carried.iter().filter_map(|name| Labels::named(name)).fold(Labels::NONE, Labels::and);
        let subject = Subject { labels, ..subject(&chain) };
        let possible = policy.calls(&subject);
        for call in calls {
            let said = policy.explain(&subject, &call);
            let (verdict, duties) = model.judge(&call, &carried);
            prop_assert_eq!(said.verdict, verdict, "{:?}: {}\n{}{:?}", call, said.rule, model.yaml(), model.chain);
            prop_assert_eq!(Duties::of(&said.obligations), duties, "{:?}\n{}", call, model.yaml());
            // Where it may read nothing else, it is not told that it may read on in a result.
            let past = matches!(&call, Syscall::FsRead(args) if args.path == RESULT);
            let denied = verdict == Verdict::Deny;
            prop_assert!(denied || past || possible.contains(call.name()), "{:?} is told about", call);
        }
    }

    #[test]
    fn what_people_gave_takes_away_the_questions_about_untrusted_content_alone(
        model in models(),
        calls in prop::collection::vec(calls(), 12),
        carried in labels(),
    ) {
        for (model, carried) in [(model.open(), vec!["untrusted.web"]), (model, carried)] {
            let labels = carried.iter().filter_map(|name| Labels::named(name)).fold(Labels::NONE, Labels::and);
            let policy = file(&model.yaml()).away_from(Some(Listens(LISTENS.parse().expect("an address"))));
            let chain = chain(&model);
            for call in calls.iter().filter(|call| is_given_by_its_words(call)) {
                let words = words(&call.args()).iter().map(|word| format!("`{word}`")).collect::<Vec<_>>();
                let texts = [words.join(" ")];
                let given = Given { texts: &texts, ..Given::default() };
                let said = policy.explain(&Subject { labels, given, ..subject(&chain) }, call);
                let (verdict, _) = model.judge_given(call, &carried, true);
                prop_assert_eq!(said.verdict, verdict, "{:?}: {}\n{}{:?}", call, said.rule, model.yaml(), model.chain);
            }
        }
    }

    #[test]
    fn what_is_sent_goes_unasked_where_people_gave_each_part_of_it_as_its_type_says(
        model in models(),
        drawn in prop::collection::vec((sends(), requests()), 12),
        carried in labels(),
    ) {
        for (model, carried) in [(asks_to_send(&model), vec!["untrusted.web"]), (model, carried)] {
            let labels = carried.iter().filter_map(|name| Labels::named(name)).fold(Labels::NONE, Labels::and);
            let (policy, chain) = (file(&model.yaml()), chain(&model));
            for (send, request) in &drawn {
                let (texts, named) = ([request.text(send)], request.named(send));
                let given = Given { texts: &texts, named: &named, ..Given::default() };
                let call = Syscall::NetSend(send.clone());
                let said = policy.explain(&Subject { labels, given, ..subject(&chain) }, &call);
                let (verdict, _) = model.judge_given(&call, &carried, request.gives(send));
                prop_assert_eq!(said.verdict, verdict, "{:?}: {}\n{:?}\n{}", call, said.rule, texts, model.yaml());
            }
        }
    }

    #[test]
    fn a_stricter_rule_never_raises_a_verdict(
        model in models(),
        pattern in path_patterns(),
        verdict in prop::sample::select(vec![Verdict::Deny, Verdict::Ask, Verdict::Hold]),
        call in calls(),
    ) {
        let mut stricter = model.clone();
        let mut add = |section, ops| {
            stricter.rules.entry(section).or_default().push(Rule::new(pattern.clone(), ops, verdict));
        };
        add("fs", vec!["read", "write", "delete"]);
        add("memory", vec!["read", "write", "forget"]);
        let about = vec!["MEM_READ", "NET_FETCH", "NET_SEND", "FS_DELETE", "EXEC_CMD", "SEND_MSG"];
        stricter.labels.push(LabelRule { when: "untrusted", about, verdict: Some(verdict) });
        let chain = chain(&model);
        let subject = Subject { labels: Labels::WEB, ..subject(&chain) };
        let before = file(&model.yaml()).explain(&subject, &call).verdict;
        let after = file(&stricter.yaml()).explain(&subject, &call).verdict;
        // A rule that asks grants asking where nothing was granted, and never more than asking; what began with a question ends
        // without one.
        let asks = after <= verdict || matches!(call, Syscall::FsUnwatch(_));
        prop_assert!(after <= before || (before == Verdict::Deny && asks), "{:?} {:?}", before, after);
    }

    #[test]
    fn a_label_or_a_grant_list_never_loosens(model in models(), call in calls()) {
        let policy = file(&model.yaml());
        let chain = chain(&model);
        let free = policy.explain(&subject(&[]), &call).verdict;
        for depth in 0..=chain.len() {
            let bound = subject(&chain[..depth]);
            let verdict = policy.explain(&bound, &call).verdict;
            prop_assert!(verdict <= free);
            let labels = Labels::UNTRUSTED.and(Labels::SECRET);
            let labelled = policy.explain(&Subject { labels, ..bound }, &call).verdict;
            prop_assert!(labelled <= verdict);
            // Nor does any of them that is added to another.
            let message = Labels::named("untrusted.message").expect("it is one");
            let each = [Labels::NONE, Labels::WEB, message, Labels::PERSONAL, Labels::SECRET];
            let said = |labels: Labels| policy.explain(&Subject { labels, ..bound }, &call).verdict;
            for (one, more) in each.iter().flat_map(|one| each.iter().map(move |more| (*one, *more))) {
                prop_assert!(said(one.and(more)) <= said(one), "{:?}: {} and {}", call, one, more);
            }
            // Nor where people gave every word of the call; and what they gave only ever takes a question away.
            let words = words(&call.args()).iter().map(|word| format!("`{word}`")).collect::<Vec<_>>();
            let texts = [words.join(" ")];
            let given = Given { texts: &texts, ..Given::default() };
            // Nor where a clean file names each of them.
            let read = Syscall::parse("FS_READ", r#"{"path":"a.txt"}"#).unwrap_or_else(|error| panic!("{error}"));
            let named: Vec<Named> = Named::of(&read, &serde_json::json!({ "content": texts[0] })).into_iter().collect();
            for labels in [Labels::WEB, labels] {
                let asked = policy.explain(&Subject { labels, ..bound }, &call).verdict;
                let given = policy.explain(&Subject { labels, given, ..bound }, &call).verdict;
                prop_assert!(asked <= given && given <= verdict, "{:?}: {:?} {:?} {:?}", call, asked, given, verdict);
                let named = Given { named: &named, ..Given::default() };
                let named = policy.explain(&Subject { labels, given: named, ..bound }, &call).verdict;
                prop_assert!(asked <= named && named <= verdict, "{:?}: {:?} {:?} {:?}", call, asked, named, verdict);
            }
        }
    }

    #[test]
    fn what_a_checked_child_may_do_its_parent_may_do(model in models(), calls in prop::collection::vec(calls(), 12)) {
        // The first list is the child's, the rest the parent's.
        let chain = chain(&model);
        let Some((child, parents)) = chain.split_first() else { return Ok(()) };
        let policy = file(&model.yaml());
        let parent = subject(parents);
        match policy.check_child(&parent, child.as_slice()) {
            Ok(()) => {
                // Every call within the child's grants is granted by each layer of the parent: what is denied to the
                // parent is denied by a rule that denies.
                for call in calls {
                    let alone = std::slice::from_ref(child);
                    let open = role(OPEN);
                    let within = open.explain(&subject(alone), &call).verdict == Verdict::Allow;
                    let said = policy.explain(&parent, &call);
                    let lacks = said.rule.starts_with("grant") || (said.rule.ends_with("no rule") && !is_tree(&call));
                    prop_assert!(!(within && lacks), "{:?}: {}\n{:?}\n{}", call, said.rule, model.chain, model.yaml());
                }
            }
            Err(exceeds) => {
                // The counterexample is within the grant and beyond the parent.
                let example = Grants::parse(&[&exceeds.example]).unwrap_or_else(|fault| panic!("{fault}"));
                prop_assert!(policy.check_child(&parent, example.as_slice()).is_err(), "{}", exceeds);
                let alone = [child.clone()];
                let open = role(OPEN);
                prop_assert!(open.check_child(&subject(&alone), example.as_slice()).is_ok(), "{}", exceeds);
            }
        }
    }

    #[test]
    fn least_is_commutative_associative_and_idempotent(a in terms(), b in terms(), c in terms()) {
        prop_assert_eq!(a.clone().least(&b), b.clone().least(&a));
        prop_assert_eq!(a.clone().least(&b).least(&c), a.clone().least(&b.clone().least(&c)));
        prop_assert_eq!(a.clone().least(&a), a.clone());
        prop_assert_eq!(Terms::unbounded().least(&a), a);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-z:{}\\[\\],&*!|>'\"# \n-]{0,200}") {
        let _ = Policy::parse(&text);
        let _ = Policy::parse(&format!("version: 1\ndefault_role: r\nroles:\n  r: {text}"));
    }

    #[test]
    fn grants_read_back_as_written(model in models()) {
        for grants in chain(&model) {
            let json = serde_json::to_string(&grants).expect("grants are strings");
            prop_assert_eq!(serde_json::from_str::<Grants>(&json).expect("they read back"), grants.clone());
            prop_assert_eq!(Grants::parse(&grants.texts()).expect("they parse"), grants);
        }
    }
}

/// The reference once knew nine calls and one label, and whatever was wrong with the others nobody saw.
#[test]
fn the_reference_is_tried_on_every_call_and_on_all_three_kinds_of_labels() {
    use proptest::strategy::{Strategy as _, ValueTree as _};
    let mut chance = proptest::test_runner::TestRunner::deterministic();
    let mut drawn = |_| calls().new_tree(&mut chance).expect("there is one").current().name();
    let names: std::collections::BTreeSet<&str> = (0..2000).map(|nth| drawn(nth).as_str()).collect();
    assert_eq!(names, Name::ALL.iter().map(|name| name.as_str()).collect());
    let mut chance = proptest::test_runner::TestRunner::deterministic();
    let carried: Vec<&str> =
        (0..100).flat_map(|_| labels().new_tree(&mut chance).expect("there is one").current()).collect();
    assert!(["untrusted.web", "personal", "secret"].iter().all(|label| carried.contains(label)));
}

/// A property about questions that are taken away says nothing where none is.
#[test]
fn the_reference_is_tried_on_questions_that_what_people_gave_takes_away() {
    use proptest::strategy::{Strategy as _, ValueTree as _};
    let mut chance = proptest::test_runner::TestRunner::deterministic();
    let mut lifted = 0;
    for _ in 0..2000 {
        let (model, call) = (models(), calls()).new_tree(&mut chance).expect("there is one").current();
        let (model, web) = (model.open(), ["untrusted.web"]);
        let given = model.judge_given(&call, &web, true).0;
        lifted += usize::from(is_given_by_its_words(&call) && model.judge(&call, &web).0 != given);
    }
    assert!(lifted > 4, "{lifted}");
}

/// The same of what is sent, in each way in which a part of it can be said.
#[test]
fn the_reference_is_tried_on_requests_that_give_what_is_sent_and_on_others() {
    use proptest::strategy::{Strategy as _, ValueTree as _};
    let mut chance = proptest::test_runner::TestRunner::deterministic();
    let mut said: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    let mut lifted = 0;
    for _ in 0..4000 {
        let (model, send, request) =
            (models(), sends(), requests()).new_tree(&mut chance).expect("there is one").current();
        let (call, model, web) = (Syscall::NetSend(send.clone()), asks_to_send(&model), ["untrusted.web"]);
        let gives = request.gives(&send);
        lifted += usize::from(gives && model.judge(&call, &web).0 != model.judge_given(&call, &web, true).0);
        if gives {
            *said.entry(format!("{request:?}")).or_default() += 1;
        }
    }
    assert!(lifted > 400, "{lifted}");
    let parts = ["Whole", "Loud", "Bare", "InFile", "Capitals", "Small", "Marked", "Before", "Quoted", "Apart"];
    for part in parts {
        assert!(said.keys().any(|request| request.contains(part)), "{part}: {said:?}");
    }
}

/// What the floor closes was in no universe of it.
#[test]
fn the_reference_is_tried_on_what_the_floor_closes() {
    use proptest::strategy::{Strategy as _, ValueTree as _};
    let mut chance = proptest::test_runner::TestRunner::deterministic();
    let mut drawn = |_| calls().new_tree(&mut chance).expect("there is one").current();
    let open = role(OPEN).away_from(Some(Listens(LISTENS.parse().expect("an address"))));
    let rules: std::collections::BTreeSet<String> = (0..4000)
        .map(|nth| open.explain(&subject(&[]), &drawn(nth)).rule)
        .filter(|rule| rule.starts_with("floor: "))
        .collect();
    for why in
        ["absolute", "`..`", "the daemon's own files", "the daemon's own address", "metadata", "private", "credentials"]
    {
        assert!(rules.iter().any(|rule| rule.contains(why)), "{why}: {rules:#?}");
    }
}

/// The same where everything is allowed, and what is sent after untrusted content is asked about.
fn asks_to_send(model: &Model) -> Model {
    let mut open = model.open();
    open.labels.push(LabelRule { when: "untrusted", about: vec!["NET_SEND"], verdict: Some(Verdict::Ask) });
    open
}

/// Of the others more than the words of their arguments has to be known: how people say a method, whom a message reaches,
/// what a child is.
fn is_given_by_its_words(call: &Syscall) -> bool {
    let told = [Name::NetFetch, Name::ExecCmd, Name::FsDelete, Name::FsMove, Name::FsRead];
    told.contains(&call.name())
}

fn is_tree(call: &Syscall) -> bool {
    matches!(call, Syscall::FsSearch(_) | Syscall::FsMove(_))
}

/// A small generator with a fixed seed, so that a failure repeats (Steele and others, SplitMix64, 2014).
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).expect("it is below a usize")
    }
}

/// Arguments with other words in some of their places, and other numbers.
fn altered(args: &serde_json::Value, chance: &mut SplitMix, word: &str) -> serde_json::Value {
    use serde_json::Value;
    if chance.below(2) == 0 {
        match args {
            Value::String(_) => return word.into(),
            Value::Number(_) => return chance.below(1000).into(),
            _ => {}
        }
    }
    match args {
        Value::Array(items) => items.iter().map(|item| altered(item, chance, word)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), altered(value, chance, word)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

#[test]
fn a_million_requests_on_an_empty_policy_give_no_allow() {
    const PIECES: [&str; 12] = ["a", "..", ".", "/", "*", "**", "self", "\u{0}", "example.com", "https://", "@", " "];
    let examples: Vec<Syscall> =
        Name::ALL.iter().map(|name| rig::call(&format!("{name} {}", name.spec().example))).collect();
    // Nobody says here whom a signal reaches, so it is another's.
    let always = |name: Name| name != Name::Kill && Policy::deny_all().calls(&subject(&[])).contains(name);
    let policies = [Policy::deny_all(), role("{}"), role("{fs: [], net: [], memory: []}")];
    let mut chance = SplitMix(0x0A05);
    let mut others = 0;
    for _ in 0..1_000_000 {
        let text: String = (0..chance.below(5)).map(|_| PIECES[chance.below(PIECES.len())]).collect();
        let call = match chance.below(8) {
            0 => Syscall::FsRead(FsRead { path: text, offset: None, limit: None }),
            1 => Syscall::FsWrite(FsWrite { path: text, content: String::new(), mode: None }),
            2 => Syscall::FsMove(FsMove { from: text.clone(), to: text }),
            3 => Syscall::NetFetch(NetFetch { url: text, headers: None }),
            4 => Syscall::SendMsg(SendMsg { to_pid: None, to: Some(text), content: String::new(), attachments: None }),
            _ => {
                let example = &examples[chance.below(examples.len())];
                let args = altered(&example.args(), &mut chance, &text);
                // Where these are no arguments of it, the call is never asked for.
                Syscall::parse(example.name().as_str(), &args.to_string()).unwrap_or_else(|_| example.clone())
            }
        };
        let name = call.name();
        others += usize::from(!examples.contains(&call));
        let labels = if chance.below(2) == 0 { Labels::NONE } else { Labels::UNTRUSTED };
        let subject = Subject { pid: Pid(7), role: "", chain: &[], labels, given: Given::default(), reaches: None };
        let ruling = policies[chance.below(policies.len())].authorize(&subject, call);
        assert_eq!(ruling.verdict == Verdict::Allow, always(name), "{name}: {}", ruling.rule);
        assert_eq!(ruling.permit.is_some(), always(name), "{name}");
    }
    assert!(others > 700_000, "only {others} are no example");
}
