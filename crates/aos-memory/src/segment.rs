//! Words of any language: how text is cut into what is indexed and what is looked for.
//!
//! Start at [`indexed`] and [`terms`], which cut alike. Scripts that put spaces between words are cut there. Runs of
//! scripts that do not (Chinese, Japanese, Thai, …), and Korean, whose words carry endings, are cut into overlapping
//! pairs of characters, as search engines do for them; a pair index finds words of any length from one character.

use std::collections::BTreeSet;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Most different terms of one query; the rest is not looked for.
const TERMS_MAX: usize = 32;

/// Something to look for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Term {
    /// A word of a spaced script.
    Word(String),
    /// Two neighbouring characters of an unspaced run.
    Pair(String),
    /// One character that stands alone.
    Single(String),
}

/// Text in one form: lower case, compatibility characters replaced, and without the marks that writers leave out: accents
/// (U+0300 to U+036F, so й is и and ё is е), Arabic and Hebrew vowel points, the Arabic stretching line. Marks of other
/// scripts stay, as they are letters there.
pub(crate) fn fold(text: &str) -> String {
    text.chars()
        .flat_map(char::to_lowercase)
        .nfkd()
        .filter(|c| {
            !matches!(c, '\u{300}'..='\u{36f}' | '\u{640}' | '\u{64b}'..='\u{65f}' | '\u{670}' | '\u{591}'..='\u{5c7}')
        })
        .nfc()
        .flat_map(char::to_lowercase)
        // The small sigma at the end of a word, which the capital one does not become.
        .map(|c| if c == 'ς' { 'σ' } else { c })
        .collect()
}

/// Text as the word index takes it: tokens with spaces between.
pub(crate) fn indexed(text: &str) -> String {
    let mut tokens = String::with_capacity(text.len() * 2);
    let mut add = |token: &mut dyn Iterator<Item = char>| {
        tokens.extend(token);
        tokens.push(' ');
    };
    for run in runs(&fold(text)) {
        match run {
            Run::Spaced(word) => add(&mut word.chars()),
            Run::Unspaced(chars) => {
                chars.windows(2).for_each(|pair| add(&mut pair.iter().copied()));
                // So that every character begins a token, and one alone is found as a beginning.
                chars.last().into_iter().for_each(|last| add(&mut std::iter::once(*last)));
            }
        }
    }
    tokens
}

/// What a query looks for, each once.
pub(crate) fn terms(query: &str) -> BTreeSet<Term> {
    let mut terms = BTreeSet::new();
    for run in runs(&fold(query)) {
        match run {
            Run::Spaced(word) => {
                terms.insert(Term::Word(word));
            }
            Run::Unspaced(chars) if chars.len() == 1 => {
                terms.insert(Term::Single(chars.iter().collect()));
            }
            Run::Unspaced(chars) => {
                terms.extend(chars.windows(2).map(|pair| Term::Pair(pair.iter().collect())));
            }
        }
        if terms.len() >= TERMS_MAX {
            break;
        }
    }
    while terms.len() > TERMS_MAX {
        terms.pop_last();
    }
    terms
}

enum Run {
    Spaced(String),
    Unspaced(Vec<char>),
}

fn runs(folded: &str) -> Vec<Run> {
    let mut runs = Vec::new();
    for word in folded.split(|c: char| !c.is_alphanumeric() && !is_combining_mark(c)) {
        let mut rest = word;
        while let Some(first) = rest.chars().next() {
            let unspaced = is_unspaced(first);
            let end = rest.find(|c| is_unspaced(c) != unspaced).unwrap_or(rest.len());
            let (run, after) = rest.split_at(end);
            runs.push(if unspaced { Run::Unspaced(run.chars().collect()) } else { Run::Spaced(run.to_owned()) });
            rest = after;
        }
    }
    runs
}

/// Whether a character belongs to a script that is cut into pairs. Blocks of the Unicode Character Database.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{e00}'..='\u{fff}'          // Thai, Lao, Tibetan
        | '\u{1000}'..='\u{109f}'      // Myanmar
        | '\u{1100}'..='\u{11ff}'      // Hangul letters
        | '\u{1780}'..='\u{17ff}'      // Khmer
        | '\u{2e80}'..='\u{2fdf}'      // Han radicals
        | '\u{3005}'..='\u{3007}'      // 々〆〇
        | '\u{3040}'..='\u{318f}'      // Hiragana, Katakana, Bopomofo, Hangul letters
        | '\u{31a0}'..='\u{31ff}'      // Bopomofo and Katakana, extended
        | '\u{3400}'..='\u{9fff}'      // Han
        | '\u{a960}'..='\u{a97f}'      // Hangul letters
        | '\u{ac00}'..='\u{d7ff}'      // Hangul
        | '\u{f900}'..='\u{faff}'      // Han
        | '\u{20000}'..='\u{3ffff}'    // Han
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_by_its_script() {
        assert_eq!(indexed("Hello, wörld-42!"), "hello world 42 ");
        assert_eq!(indexed("喜欢green色"), "喜欢 欢 green 色 ");
        assert_eq!(indexed("ＡＢＣ ﾃｽﾄ"), "abc テス スト ト ");
        assert_eq!(indexed("\"a\" OR b*"), "a or b ");
    }

    #[test]
    fn marks_that_writers_leave_out_do_not_count() {
        assert_eq!(fold("كِتَاب"), fold("كتاب"));
        assert_eq!(fold("שָׁלוֹם"), fold("שלום"));
        assert_eq!(fold("Ёлка ΠΌΛΕΙΣ İstanbul e\u{301}"), "елка πολεισ istanbul e");
        assert_eq!(fold("がガ 각"), "がガ 각", "marks that make another letter stay");
    }

    #[test]
    fn a_query_has_bounded_terms() {
        let many: String = (0..1000).map(|nth| format!("w{nth} ")).collect();
        assert_eq!(terms(&many).len(), TERMS_MAX);
        let long: String = ('\u{4e00}'..'\u{5e00}').collect();
        assert_eq!(terms(&long).len(), TERMS_MAX);
        assert_eq!(terms(" ?! \"\" * ").len(), 0);
    }
}
