//! The published vectors, and exactness of inclusion and overlap against brute force.

mod rig;

use aos_policy::pattern::{Domain, Pattern};
use proptest::prelude::*;

fn parse(domain: Domain, text: &str) -> Pattern {
    Pattern::parse(domain, text).unwrap_or_else(|fault| panic!("{fault}"))
}

/// A value as text, as the vectors write it.
fn text(domain: Domain, words: &[String]) -> String {
    words.join(match domain {
        Domain::Path => "/",
        Domain::Host => ".",
        Domain::Word | Domain::Address => "",
    })
}

#[test]
fn vectors() {
    let mut count = 0;
    for line in include_str!("../patterns.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        count += 1;
        let words: Vec<&str> = line.split_whitespace().collect();
        let (head, rest) = words.split_at(3);
        let domain = match head[0] {
            "path" => Domain::Path,
            "host" => Domain::Host,
            "word" => Domain::Word,
            "address" => Domain::Address,
            other => panic!("no domain {other}"),
        };
        let parsed = Pattern::parse(domain, head[1]);
        if head[2] == "refuse" {
            assert!(parsed.is_err(), "{line}");
            continue;
        }
        let pattern = parsed.unwrap_or_else(|fault| panic!("{line}: {fault}"));
        assert_eq!(parse(domain, &pattern.to_string()), pattern, "{line}: it reads back");
        let end = rest.iter().position(|word| *word == ";").unwrap_or(rest.len());
        let expected = rest.get(end + 1).map(|word| (*word).to_owned());
        let others: Vec<Pattern> = match head[2] {
            "match" | "miss" => Vec::new(),
            _ => rest[..end].iter().map(|text| parse(domain, text)).collect(),
        };
        let refs: Vec<&Pattern> = others.iter().collect();
        match head[2] {
            "match" => assert!(pattern.matches_text(rest[0]), "{line}"),
            "miss" => assert!(!pattern.matches_text(rest[0]), "{line}"),
            "within" => assert_eq!(pattern.included_in(&refs), Ok(()), "{line}"),
            "beyond" => {
                assert_eq!(pattern.included_in(&refs).err().map(|words| text(domain, &words)), expected, "{line}");
            }
            "meet" => assert_eq!(pattern.overlap(refs[0]).map(|words| text(domain, &words)), expected, "{line}"),
            "apart" => assert_eq!(pattern.overlap(refs[0]), None, "{line}"),
            other => panic!("no word {other}"),
        }
    }
    assert!(count > 90, "only {count} vectors were read");
}

/// Words over a small alphabet that tell all patterns below apart; `c` occurs in no pattern.
fn words() -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for first in ["a", "b", "c"] {
        words.push(first.to_owned());
        for second in ["a", "b", "c"] {
            words.push(format!("{first}{second}"));
        }
    }
    words.extend(["aca", "acb", "bca", "bcb", "aab", "abb", "aba"].map(str::to_owned));
    words
}

/// Every path of up to three of these words: one more than the longest pattern below.
fn universe() -> Vec<Vec<String>> {
    let words = words();
    let mut all: Vec<Vec<String>> = vec![Vec::new()];
    let mut level = all.clone();
    for _ in 0..3 {
        level = level
            .iter()
            .flat_map(|path| words.iter().map(|w| [path.as_slice(), std::slice::from_ref(w)].concat()))
            .collect();
        all.extend(level.iter().cloned());
    }
    all
}

/// What a pattern means, told as simply as possible and without the crate's code.
fn naive(pattern: &str, path: &[String]) -> bool {
    fn segment(pattern: &[u8], word: &[u8]) -> bool {
        match (pattern.split_first(), word.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => segment(rest, word) || (!word.is_empty() && segment(pattern, &word[1..])),
            (Some((p, rest)), Some((w, more))) => p == w && segment(rest, more),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
    fn walk(pattern: &[&str], path: &[String]) -> bool {
        match (pattern.split_first(), path.split_first()) {
            (None, None) => true,
            (Some((&"**", _)), _) => true,
            (Some((p, rest)), Some((w, more))) => segment(p.as_bytes(), w.as_bytes()) && walk(rest, more),
            _ => false,
        }
    }
    walk(&pattern.split('/').collect::<Vec<_>>(), path)
}

fn patterns() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "ab", "*", "a*", "b*", "*b", "*a", "a*b", "b*a", "a*a"]);
    (prop::collection::vec(segment, 0..=2), any::<bool>()).prop_map(|(mut segments, rest)| {
        if rest || segments.is_empty() {
            segments.push("**");
        }
        segments.join("/")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn matching_is_as_a_naive_reading_says(pattern in patterns()) {
        let parsed = parse(Domain::Path, &pattern);
        for path in universe() {
            prop_assert_eq!(parsed.matches_text(&path.join("/")), naive(&pattern, &path), "{} {:?}", pattern, path);
        }
    }

    #[test]
    fn inclusion_is_exact(pattern in patterns(), others in prop::collection::vec(patterns(), 0..4)) {
        let all: Vec<Pattern> = others.iter().map(|text| parse(Domain::Path, text)).collect();
        let counter = universe().into_iter().find(|path| naive(&pattern, path) && !others.iter().any(|o| naive(o, path)));
        match parse(Domain::Path, &pattern).included_in(&all.iter().collect::<Vec<_>>()) {
            Ok(()) => prop_assert_eq!(counter, None, "{} ⊆ {:?}", pattern, others),
            Err(witness) => {
                prop_assert!(counter.is_some(), "{} ⊆ {:?}, yet {:?}", pattern, others, witness);
                prop_assert!(naive(&pattern, &witness), "{:?} is in {}", witness, pattern);
                prop_assert!(!others.iter().any(|other| naive(other, &witness)), "{:?} is in none of {:?}", witness, others);
            }
        }
    }

    #[test]
    fn overlap_is_exact(one in patterns(), other in patterns()) {
        let both = universe().into_iter().find(|path| naive(&one, path) && naive(&other, path));
        match parse(Domain::Path, &one).overlap(&parse(Domain::Path, &other)) {
            None => prop_assert_eq!(both, None, "{} {}", one, other),
            Some(witness) => prop_assert!(naive(&one, &witness) && naive(&other, &witness), "{} {} {:?}", one, other, witness),
        }
    }
}
