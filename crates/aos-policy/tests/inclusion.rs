//! Whether a child's grants lie within its parent's, against brute force: in a world that is small enough to try every
//! call, a child is accepted exactly where it can make no call that its parent may not.
//!
//! Start at [`FAMILIES`]: each is a call, patterns for it, and every value there is. Words with `z` occur in no pattern, so
//! they stand for whatever nobody named.

mod rig;

use std::sync::LazyLock;

use aos_abi::Syscall;
use aos_abi::entry::Verdict;
use aos_policy::{Grants, Policy, Subject};
use proptest::prelude::*;
use rig::{role, subject};
use serde_json::{Value, json};

/// A call whose grants take patterns; the first of them holds everything.
struct Family {
    call: &'static str,
    patterns: &'static [&'static str],
    /// The arguments of every call.
    world: fn() -> Vec<Value>,
}

const FAMILIES: [Family; 8] = [
    Family {
        call: "NET_FETCH",
        patterns: &[
            "**:*",
            "**",
            "a.com",
            "a.com:*",
            "a.com/a",
            "a.com/a/**",
            "a.com:8443/*",
            "http://a.com",
            "http://a.com/a/*",
            "*.a.com",
            "*.a.com:*/a/**",
            "x.a.com",
            "x.a.com:8443",
            "b.com/",
            "**:8443/a*",
        ],
        world: || addresses(&[]),
    },
    Family {
        call: "NET_SEND",
        patterns: &[
            "**:*",
            "a.com",
            "POST a.com",
            "PUT a.com/a/**",
            "POST **:*",
            "DELETE *.a.com/a",
            "POST x.a.com/*",
            "x.a.com:8443/**",
            "PATCH a.com:*/a",
        ],
        world: || addresses(&["POST", "PUT", "PATCH", "DELETE"]),
    },
    Family {
        call: "SEND_MSG",
        patterns: WORDS,
        world: || words().map(|to| json!({ "to": to, "content": "" })).collect(),
    },
    // Whom it names has no arguments: see `allowed`.
    Family { call: "KILL", patterns: WORDS, world: || words().map(|group| json!({ "group": group })).collect() },
    Family {
        call: "TOOL_CALL",
        patterns: WORDS,
        world: || words().map(|name| json!({ "name": name, "args": {} })).collect(),
    },
    Family {
        call: "CHANNEL_SEND",
        patterns: &[
            "**",
            "*",
            "mail",
            "mail/*@a.com",
            "mail/ann@a.com",
            "mail/ann@*",
            "chat/@me",
            "chat/*",
            "*/ann@*",
            "chat.a/**",
            "*/*",
        ],
        world: || {
            let to = ["@me", "@z", "ann@a.com", "z@a.com", "ann@z", "z@z", "ann", "z"];
            let channels = ["mail", "chat", "chat.a", "z", "z.z"];
            let pairs = channels.iter().flat_map(|channel| to.iter().map(move |to| (channel, to)));
            pairs.map(|(channel, to)| json!({ "channel": channel, "to": to, "content": "" })).collect()
        },
    },
    Family {
        call: "MEM_READ",
        patterns: PATHS,
        world: || paths().map(|path| json!({ "query": "q", "namespace": path })).collect(),
    },
    Family { call: "FS_READ", patterns: PATHS, world: || paths().map(|path| json!({ "path": path })).collect() },
];

const WORDS: &[&str] = &["**", "a", "b", "a.*", "a/*", "*.b", "a*", "*b", "a.b", "*/b", "*.*", "a.b*", "a*.a"];
const PATHS: &[&str] = &["**", "a", "b", "a/**", "*", "*/a", "a*", "*b", "a/*b", "*/b/**", "ab/a*", "a*/**", "b/*"];

/// Words that tell the patterns apart, and one that stands for all others.
const PIECES: [&str; 7] = ["a", "b", "z", "az", "bz", "zb", "ab"];

/// Every row of up to three pieces, joined in each of these ways.
fn rows(joints: &'static [&'static str]) -> impl Iterator<Item = String> {
    let longer = move |row: &String| -> Vec<String> {
        joints.iter().flat_map(|joint| PIECES.map(|piece| format!("{row}{joint}{piece}"))).collect()
    };
    let one: Vec<String> = PIECES.map(str::to_owned).into();
    let two: Vec<String> = one.iter().flat_map(longer).collect();
    let three: Vec<String> = two.iter().flat_map(longer).collect();
    one.into_iter().chain(two).chain(three)
}

fn words() -> impl Iterator<Item = String> {
    rows(&[".", "/"])
}

fn paths() -> impl Iterator<Item = String> {
    rows(&["/"])
}

/// Every request: of these methods, or without one.
fn addresses(methods: &[&str]) -> Vec<Value> {
    let mut all = Vec::new();
    for host in ["a.com", "b.com", "x.a.com", "z.a.com", "z.x.a.com", "z.com"] {
        for root in [
            format!("https://{host}"),
            format!("http://{host}"),
            format!("https://{host}:8443"),
            format!("https://{host}:9"),
        ] {
            for path in ["", "a", "z", "az", "a/a", "a/z", "z/z", "a/z/z"] {
                let url = format!("{root}/{path}");
                all.extend(methods.iter().map(|method| json!({ "url": url, "method": method })));
                if methods.is_empty() {
                    all.push(json!({ "url": url }));
                }
            }
        }
    }
    all
}

/// Every call of each family.
static WORLDS: LazyLock<Vec<Vec<Syscall>>> = LazyLock::new(|| {
    let of =
        |family: &Family| (family.world)().iter().map(|args| rig::call(&format!("{} {args}", family.call))).collect();
    FAMILIES.iter().map(of).collect()
});

impl Family {
    fn grants(&self, patterns: &[&str]) -> Grants {
        let texts: Vec<String> = patterns.iter().map(|pattern| format!("{} {pattern}", self.call)).collect();
        rig::grants(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// A role that may make the call on what these patterns hold.
    fn role(&self, patterns: &[&str]) -> Policy {
        let given: Vec<String> = patterns.iter().map(|pattern| format!("'{} {pattern}'", self.call)).collect();
        role(&format!("{{calls: [{}]}}", given.join(", ")))
    }

    /// A role that may make every such call.
    fn everything(&self) -> Policy {
        self.role(&self.patterns[..1])
    }
}

/// The calls of a world that a role's rules and the grants of a process and its ancestors allow.
fn allowed(policy: &Policy, chain: &[Grants], world: &[Syscall]) -> Vec<bool> {
    let said = |call: &Syscall| {
        // The process that a signal reaches, under the name that stands here for it.
        let reaches = match call {
            Syscall::Kill(kill) => Some([kill.group.clone().unwrap_or_default()]),
            _ => None,
        };
        let reaches = reaches.as_ref().map(<[String; 1]>::as_slice);
        policy.explain(&Subject { reaches, ..subject(chain) }, call).verdict
    };
    world.iter().map(|call| said(call) == Verdict::Allow).collect()
}

/// A call, and patterns for a role, for a parent where it has grants, and for a child.
fn cases() -> impl Strategy<Value = (usize, Vec<&'static str>, Option<Vec<&'static str>>, Vec<&'static str>)> {
    (0..FAMILIES.len()).prop_flat_map(|at| {
        let some = move |most| prop::collection::vec(prop::sample::select(FAMILIES[at].patterns), 1..=most);
        (Just(at), some(4), prop::option::of(some(3)), some(2))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_agrees_with_brute_force((at, of_role, of_parent, of_child) in cases()) {
        let (family, world) = (&FAMILIES[at], &WORLDS[at]);
        let policy = family.role(&of_role);
        let parents: Vec<Grants> = of_parent.iter().map(|patterns| family.grants(patterns)).collect();
        let child = family.grants(&of_child);
        let wants = allowed(&family.everything(), std::slice::from_ref(&child), world);
        let may = allowed(&policy, &parents, world);
        let counter = (0..world.len()).find(|nth| wants[*nth] && !may[*nth]).map(|nth| world[nth].args().to_string());
        let said = policy.check_child(&subject(&parents), child.as_slice());
        let case = format!("{}: {of_child:?} of {of_parent:?} of {of_role:?}", family.call);
        match said {
            Ok(()) => prop_assert_eq!(counter, None, "{}", case),
            Err(exceeds) => prop_assert!(counter.is_some(), "{}: {}", case, exceeds),
        }
    }
}

/// Without this the property would hold of a world in which nothing is ever accepted or refused.
#[test]
fn the_worlds_tell_patterns_apart() {
    for (family, world) in FAMILIES.iter().zip(&*WORLDS) {
        let Family { call, patterns, .. } = family;
        let everything = family.everything();
        let mut seen: Vec<(&str, Vec<bool>)> = Vec::new();
        for pattern in *patterns {
            let held = allowed(&everything, &[family.grants(&[pattern])], world);
            assert!(held.contains(&true), "{call} {pattern} holds nothing");
            assert!(*pattern == patterns[0] || held.contains(&false), "{call} {pattern} holds all");
            for (other, same) in &seen {
                assert!(*same != held, "{call}: {pattern} and {other} hold the same");
            }
            seen.push((pattern, held));
        }
    }
}
