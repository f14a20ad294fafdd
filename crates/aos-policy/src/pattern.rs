//! Patterns: what a rule or grant says about paths, hosts, names and receivers.
//!
//! Start at [`Pattern::parse`] and [`Pattern::matches_text`]. A pattern is a row of segments: a literal, `*` for one
//! segment (also inside one, such as `*.md`, once), and `**` as the last one for any rest, the empty one included.
//! What separates segments is the [`Domain`]'s. Published test vectors: `patterns.txt` beside this crate.
//! What always holds: `*` never crosses a separator; a prefix without a separator never matches; overlap and
//! inclusion are decided exactly over an unbounded alphabet, each with a witness.
//! Deliberately absent: regular expressions and negation, which would make inclusion undecidable or slow.

use std::fmt;

/// What kind of thing a pattern is about: it says what separates segments and what `*` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Domain {
    /// Files, memory namespaces, webhook paths, paths of addresses: segments between `/`.
    Path,
    /// Host names in lower case: labels between `.`; `*` only as the whole first label.
    Host,
    /// Names of tools, peers, channels and entities: segments begin at each `.` and `/`, which they keep.
    Word,
    /// Receivers on channels: one segment, in which `*` stands for nothing that could begin a second receiver.
    Address,
}

impl Domain {
    /// The segments of a value or pattern.
    pub(crate) fn split(self, text: &str) -> Vec<&str> {
        match self {
            Domain::Path if text.is_empty() => Vec::new(),
            Domain::Path => text.split('/').collect(),
            Domain::Host => text.split('.').collect(),
            Domain::Word => {
                let mut parts = Vec::new();
                let mut start = 0;
                for (at, _) in text.char_indices().skip(1).filter(|(_, c)| matches!(c, '.' | '/')) {
                    parts.push(&text[start..at]);
                    start = at;
                }
                parts.push(&text[start..]);
                parts
            }
            Domain::Address => vec![text],
        }
    }

    fn joint(self) -> &'static str {
        match self {
            Domain::Path => "/",
            Domain::Host => ".",
            Domain::Word | Domain::Address => "",
        }
    }

    /// Whether `*` may stand for this character.
    fn star(self, c: char) -> bool {
        match self {
            Domain::Path => c != '/',
            Domain::Host => c != '.',
            Domain::Word => !matches!(c, '.' | '/'),
            // A comma, a second `@` or a bracket could name a second receiver.
            Domain::Address => {
                !matches!(c, '@' | ',' | ';' | ':' | '<' | '>' | '"' | '(' | ')' | '/' | '\\' | '%' | '!')
                    && !c.is_whitespace()
                    && !c.is_control()
            }
        }
    }
}

/// One segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Segment {
    /// Exactly this.
    Literal(Box<str>),
    /// Anything that begins and ends so, with what [`Domain::star`] allows between.
    Wild { prefix: Box<str>, suffix: Box<str> },
}

impl Segment {
    pub(crate) fn matches(&self, domain: Domain, word: &str) -> bool {
        match self {
            Segment::Literal(literal) => **literal == *word,
            Segment::Wild { prefix, suffix } => {
                word.len() >= (prefix.len() + suffix.len()).max(1)
                    && word.starts_with(&**prefix)
                    && word.ends_with(&**suffix)
                    && word[prefix.len()..word.len() - suffix.len()].chars().all(|c| domain.star(c))
            }
        }
    }

    /// A word that it matches, with `filler` where it says `*`.
    fn example(&self, filler: &str) -> String {
        match self {
            Segment::Literal(literal) => literal.to_string(),
            Segment::Wild { prefix, suffix } => format!("{prefix}{filler}{suffix}"),
        }
    }

    /// A word that both match.
    ///
    /// Such a word begins with the longer prefix and ends with the longer suffix. Either the two stand side by side in
    /// it, and then it can be shortened to just them, or they share some characters; all those ways are tried.
    fn overlap(&self, other: &Segment, domain: Domain) -> Option<String> {
        match (self, other) {
            (Segment::Literal(word), segment) | (segment, Segment::Literal(word)) => {
                segment.matches(domain, word).then(|| word.to_string())
            }
            (Segment::Wild { prefix: p1, suffix: s1 }, Segment::Wild { prefix: p2, suffix: s2 }) => {
                let prefix = if p1.len() >= p2.len() { p1 } else { p2 };
                let suffix = if s1.len() >= s2.len() { s1 } else { s2 };
                let both = |word: &String| self.matches(domain, word) && other.matches(domain, word);
                (0..=suffix.len())
                    .filter(|shared| suffix.is_char_boundary(*shared) && prefix.ends_with(&suffix[..*shared]))
                    .map(|shared| format!("{prefix}{}", &suffix[shared..]))
                    .find(both)
                    .or_else(|| Some(format!("{prefix}x{suffix}")).filter(both))
            }
        }
    }

    fn text(&self) -> String {
        self.example("*")
    }
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no pattern: {why}")]
pub struct PatternFault {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
    /// The way out.
    pub hint: &'static str,
}

/// A pattern, valid because it exists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern {
    domain: Domain,
    segments: Box<[Segment]>,
    rest: bool,
}

impl Pattern {
    /// The pattern that everything in the domain matches: `**`.
    #[must_use]
    pub fn everything(domain: Domain) -> Pattern {
        Pattern { domain, segments: Box::new([]), rest: true }
    }

    /// Reads a pattern.
    ///
    /// # Errors
    /// Where the text is empty, absolute, escapes with `..`, or says something that patterns cannot say.
    pub fn parse(domain: Domain, text: &str) -> Result<Pattern, PatternFault> {
        let fault = |why, hint| Err(PatternFault { text: text.to_owned(), why, hint });
        if text.is_empty() {
            return fault("it is empty", "write `**` for everything");
        }
        if domain == Domain::Path && text == "." {
            return Ok(Pattern { domain, segments: Box::new([]), rest: false });
        }
        if text.chars().any(|c| c.is_control()) {
            return fault("it holds control characters", "write it on one line, without them");
        }
        let bracketed = domain == Domain::Host && text.starts_with('[');
        if text.starts_with('!') || (!bracketed && text.contains(['?', '[', ']', '{', '}'])) {
            return fault(
                "there is no `?`, `[…]`, `{…}` or `!`",
                "use literals, `*` for one segment, `**` for any rest",
            );
        }
        if bracketed && text.contains('*') {
            return fault("a numeric address has no `*`", "name each address");
        }
        let lower = if domain == Domain::Host { text.to_ascii_lowercase() } else { text.to_owned() };
        let mut words = if bracketed { vec![lower.as_str()] } else { domain.split(&lower) };
        let rest = words.last() == Some(&"**");
        if rest {
            words.pop();
        }
        if domain != Domain::Path && rest && !words.is_empty() {
            return fault(
                "only paths have a rest below a beginning",
                "write `**` alone for everything, or `*` for one segment",
            );
        }
        if domain == Domain::Host && !rest && words == ["*"] {
            return fault("`*` is one label of a host", "write `**` for every host, `*.example.com` for one domain");
        }
        let mut segments = Vec::with_capacity(words.len());
        for (at, word) in words.iter().enumerate() {
            match Self::segment(domain, at, word) {
                Ok(segment) => segments.push(segment),
                Err((why, hint)) => return fault(why, hint),
            }
        }
        Ok(Pattern { domain, segments: segments.into(), rest })
    }

    fn segment(domain: Domain, at: usize, word: &str) -> Result<Segment, (&'static str, &'static str)> {
        if domain == Domain::Path {
            match word {
                "" if at == 0 => return Err(("it is absolute", "write it relative, without the leading `/`")),
                "" => return Err(("it has an empty segment", "write `folder/**` for a folder and what is in it")),
                "." | ".." => return Err(("it has a `.` or `..`", "write the path without them")),
                _ => {}
            }
        }
        if word.is_empty() {
            return Err(("it has an empty segment", "leave the extra separator out"));
        }
        let Some((prefix, suffix)) = word.split_once('*') else {
            return Ok(Segment::Literal(word.into()));
        };
        if suffix.contains('*') {
            return Err(("one segment has several `*`", "use one `*` a segment, and `**` alone as the last segment"));
        }
        if domain == Domain::Host && !(at == 0 && word == "*") {
            return Err(("`*` stands for the whole first label of a host", "write `*.example.com`"));
        }
        Ok(Segment::Wild { prefix: prefix.into(), suffix: suffix.into() })
    }

    /// A pattern that these words alone match.
    pub(crate) fn exactly<S: AsRef<str>>(domain: Domain, words: &[S]) -> Pattern {
        let segments = words.iter().map(|word| Segment::Literal(word.as_ref().into())).collect();
        Pattern { domain, segments, rest: false }
    }

    /// The segments before the rest.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether it ends with `**`.
    pub(crate) fn has_rest(&self) -> bool {
        self.rest
    }

    /// What it is about.
    #[must_use]
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// Whether a value of its domain matches, the value as text. Paths must be normalised.
    #[must_use]
    pub fn matches_text(&self, value: &str) -> bool {
        self.matches(&self.domain.split(value))
    }

    /// Whether a value of its domain matches, the value as its segments.
    pub(crate) fn matches<S: AsRef<str>>(&self, words: &[S]) -> bool {
        (words.len() == self.segments.len() || (self.rest && words.len() > self.segments.len())) && self.fits(words)
    }

    /// Whether the value and everything below it match.
    pub(crate) fn covers_tree<S: AsRef<str>>(&self, words: &[S]) -> bool {
        self.rest && self.matches(words)
    }

    /// Whether the value or anything below it matches.
    pub(crate) fn touches_tree<S: AsRef<str>>(&self, words: &[S]) -> bool {
        (self.rest || words.len() <= self.segments.len()) && self.fits(words)
    }

    /// Whether something right below the value matches.
    pub(crate) fn touches_children<S: AsRef<str>>(&self, words: &[S]) -> bool {
        let child = words.len() + 1;
        (child == self.segments.len() || (self.rest && child > self.segments.len())) && self.fits(words)
    }

    /// Whether it is about names right below the value: a folder's own name, written out, is not the name of what is in it.
    pub(crate) fn names_children<S: AsRef<str>>(&self, words: &[S]) -> bool {
        let itself = self.rest && words.len() + 1 == self.segments.len();
        self.touches_children(words) && !(itself && matches!(self.segments.last(), Some(Segment::Literal(_))))
    }

    /// Whether words and segments agree as far as both go.
    fn fits<S: AsRef<str>>(&self, words: &[S]) -> bool {
        self.segments.iter().zip(words).all(|(segment, word)| segment.matches(self.domain, word.as_ref()))
    }

    /// A value that both patterns match, as its segments; `None` where there is none.
    #[must_use]
    pub fn overlap(&self, other: &Pattern) -> Option<Vec<String>> {
        let (long, short) = if self.segments.len() >= other.segments.len() { (self, other) } else { (other, self) };
        if self.domain != other.domain || (long.segments.len() > short.segments.len() && !short.rest) {
            return None;
        }
        let shared = long.segments.iter().zip(short.segments.iter()).map(|(a, b)| a.overlap(b, self.domain));
        let below = long.segments[short.segments.len()..].iter().map(|segment| Some(segment.example("x")));
        shared.chain(below).collect()
    }

    /// Values that decide inclusion: the pattern is covered by a union of others exactly when each of these is.
    ///
    /// Why these suffice: `filler` occurs in none of the others, so a word made with it is matched only by segments
    /// that match every word of this segment; no other word is matched by fewer of them. What is left open is the
    /// length of the rest, and beyond the longest of the others (`longest` segments) all lengths are alike. A receiver has no
    /// length, yet not every one is a word that `*` could stand for: there a word with a `@` in its middle is matched by
    /// `**` alone.
    pub(crate) fn witnesses(&self, filler: &str, longest: usize) -> Vec<Vec<String>> {
        if self.rest && self.domain == Domain::Address {
            return vec![vec![format!("{filler}@{filler}")]];
        }
        let base: Vec<String> = self.segments.iter().map(|segment| segment.example(filler)).collect();
        let extra = if self.rest { longest.saturating_sub(base.len()) + 1 } else { 0 };
        // The likelier counterexample, one segment below, stands before the folder itself.
        let mut lengths: Vec<usize> = (0..=extra).collect();
        if lengths.len() > 1 {
            lengths.swap(0, 1);
        }
        lengths
            .into_iter()
            .map(|more| base.iter().cloned().chain(std::iter::repeat_n(filler.to_owned(), more)).collect())
            .filter(|words: &Vec<String>| self.domain == Domain::Path || !words.is_empty())
            .collect()
    }

    /// Whether everything that it matches is matched by one of the others; else a value that is not.
    ///
    /// # Errors
    /// The counterexample, as its segments.
    pub fn included_in(&self, others: &[&Pattern]) -> Result<(), Vec<String>> {
        let filler = filler(others.iter().flat_map(|other| other.pieces()).chain(self.pieces()));
        let longest = others.iter().map(|other| other.segments.len()).max().unwrap_or(0);
        match self
            .witnesses(&filler, longest)
            .into_iter()
            .find(|words| !others.iter().any(|other| other.domain == self.domain && other.matches(words)))
        {
            None => Ok(()),
            Some(words) => Err(words),
        }
    }

    /// Its literal pieces.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().flat_map(|segment| match segment {
            Segment::Literal(literal) => [&**literal, ""],
            Segment::Wild { prefix, suffix } => [&**prefix, &**suffix],
        })
    }
}

/// A one-character word that occurs in none of the pieces.
pub(crate) fn filler<'a>(pieces: impl Iterator<Item = &'a str>) -> String {
    let used: std::collections::BTreeSet<char> = pieces.flat_map(str::chars).collect();
    // Letters first, since a counterexample is read by people; then the CJK block, which no policy uses up.
    let mut candidates = "xyzqwkjvabcdefghilmnoprstu0123456789".chars().chain('\u{4e00}'..='\u{9fff}');
    candidates.find(|c| !used.contains(c)).unwrap_or('x').to_string()
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.segments.is_empty() {
            return f.write_str(if self.rest { "**" } else { "." });
        }
        let words: Vec<String> = self.segments.iter().map(Segment::text).collect();
        f.write_str(&words.join(self.domain.joint()))?;
        if self.rest { f.write_str("/**") } else { Ok(()) }
    }
}
