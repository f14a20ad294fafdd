//! Globs of listings, searches and watches.

use globset::{GlobBuilder, GlobMatcher};

use super::error::Error;

/// Longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1024;

/// A glob: `*` and `?` within a name, `**` across folders, `[a-z]`, `{a,b}`. Without a `/` it is matched against the
/// last name alone, so `*.rs` finds Rust files at every depth; with one, against the path below the folder named.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    matcher: GlobMatcher,
    whole: bool,
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Result<Pattern, Error> {
        let bad = |why: String| Error::Pattern { what: "glob", at: "/glob", why };
        if text.len() > PATTERN_BYTES_MAX {
            return Err(bad(format!("it is longer than {PATTERN_BYTES_MAX} bytes")));
        }
        let trimmed = text.strip_prefix("./").unwrap_or(text);
        let glob = GlobBuilder::new(trimmed).literal_separator(true).build();
        let glob = glob.map_err(|error| bad(error.kind().to_string()))?;
        Ok(Pattern { matcher: glob.compile_matcher(), whole: trimmed.contains('/') })
    }

    /// Whether a path, relative to the folder that was named, matches.
    pub(crate) fn matches(&self, path: &str) -> bool {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        self.matcher.is_match(if self.whole { path } else { name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matches() {
        let matches = |glob: &str, path: &str| Pattern::parse(glob).unwrap().matches(path);
        assert!(matches("*.rs", "src/a/b.rs"));
        assert!(!matches("src/*.rs", "src/a/b.rs"), "`*` does not cross a slash");
        assert!(matches("src/**/*.rs", "src/a/b.rs") && matches("src/**/*.rs", "src/b.rs"));
        assert!(matches("**/*.{md,txt}", "a.md") && matches("**/*.{md,txt}", "x/a.txt"));
        assert!(!matches("work/**", "work-evil/a"));
        assert!(Pattern::parse("a[").is_err() && Pattern::parse(&"x".repeat(2000)).is_err());
    }
}
