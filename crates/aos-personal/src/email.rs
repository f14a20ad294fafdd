//! Addresses for mail: what stands on both sides of an `@`.

use crate::normal::{is_word, looked, word_after};

/// Longest local part (RFC 5321, 4.5.3.1.1) and longest domain (4.5.3.1.2), in bytes.
const LOCAL_MAX: usize = 64;
const DOMAIN_MAX: usize = 255;
/// How far back the `//` of an address with a name and a password is looked for, in bytes.
const SCHEME_REACH: usize = 96;
/// Last labels that are the ends of file names: `logo@2x.png`.
const FILES: &[&str] = &[
    "png", "jpg", "jpeg", "gif", "svg", "webp", "avif", "css", "js", "mjs", "ts", "tsx", "json", "map", "lock", "ico",
];

/// The address around the `@` at this place. Of RFC 5322 only what people use: no quotes, no comments.
pub(crate) fn around(text: &str, at: usize) -> Option<(usize, usize)> {
    let start = local(text, at)?;
    let end = domain(text, at + 1)?;
    // `git@host:path` is how repositories are named, and `user@host:/path` how files elsewhere are.
    let after = &text.as_bytes()[end..];
    let is_git = &text[start..at] == "git" && matches!(after, [b':' | b'/', ..]);
    if is_git || matches!(after, [b':', b'/' | b'~', ..]) {
        return None;
    }
    if word_after(text, end) || is_login(text, start) || is_message_id(text, start) {
        return None;
    }
    Some((start, end))
}

/// How people write an `@` and a dot that programs are not to find.
const AT: &[&str] = &["(at)", "[at]", "{at}", "( at )", "[ at ]"];
const DOT: &[&str] = &["(dot)", "[dot]", "{dot}", "( dot )", "[ dot ]"];

/// The address around a spelled `(at)` at this place: `name (at) example.com`, `name[at]example[dot]com`.
pub(crate) fn spelled(text: &str, at: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let after = at + mark(&bytes[at..], AT)?;
    let name_end = at - usize::from(at > 0 && bytes[at - 1] == b' ');
    let start = local(text, name_end)?;
    let begin = after + usize::from(bytes.get(after) == Some(&b' '));
    let (mut place, mut last, mut dots) = (begin, begin, 0);
    while place - begin < DOMAIN_MAX {
        let rest = &bytes[place..];
        let gap = usize::from(rest.first() == Some(&b' '));
        if let Some(dot) = mark(&rest[gap..], DOT) {
            place += gap + dot;
            place += usize::from(bytes.get(place) == Some(&b' '));
        } else if rest.first() == Some(&b'.') && rest.get(1).is_some_and(u8::is_ascii_alphanumeric) {
            place += 1;
        } else if place > begin {
            break;
        }
        last = place;
        let length = bytes[place..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-').count();
        if length == 0 {
            return None;
        }
        place += length;
        dots += 1;
    }
    looked(place - at);
    (dots > 1 && is_top_level(&text[last..place]) && !word_after(text, place)).then_some((start, place))
}

/// How long the sign is that stands here, in any case.
fn mark(bytes: &[u8], signs: &[&str]) -> Option<usize> {
    let fits = |sign: &&&str| bytes.get(..sign.len()).is_some_and(|head| head.eq_ignore_ascii_case(sign.as_bytes()));
    signs.iter().find(fits).map(|sign| sign.len())
}

fn local(text: &str, at: usize) -> Option<usize> {
    let mut start = at;
    for (place, c) in text[..at].char_indices().rev() {
        let fits = is_word(c) || matches!(c, '.' | '%' | '+' | '\'' | '-' | '&' | '~');
        if !fits || (c == '.' && text.as_bytes().get(place + 1) == Some(&b'.')) {
            break;
        }
        if at - place > LOCAL_MAX {
            return None;
        }
        start = place;
    }
    looked(at - start);
    let written = &text[start..at];
    let led = written.trim_start_matches(['.', '%', '\'', '-', '&', '~', '+']);
    let fine = !led.is_empty() && !led.ends_with('.');
    fine.then_some(at - led.len())
}

/// The end of the domain that begins here: the last label that can be a top-level one.
fn domain(text: &str, start: usize) -> Option<usize> {
    let most = text.floor_char_boundary((start + DOMAIN_MAX).min(text.len()));
    let fits = |c: char| c != '_' && is_word(c) || c == '-' || c == '.';
    let length = text[start..most].find(|c| !fits(c)).unwrap_or(most - start);
    looked(length);
    let whole = &text[start..start + length];
    let (mut end, mut place) = (None, start);
    let mut version = true;
    for (nth, label) in whole.split('.').enumerate() {
        if label.is_empty() || label.starts_with('-') || label.len() > 63 {
            break;
        }
        if nth < 2 {
            // `name@18.2.0-beta.rc` is a release of a package.
            version &= label.starts_with(|c: char| c.is_ascii_digit());
        }
        let label_end = place + label.len();
        if nth > 0 && is_top_level(label) {
            end = Some(label_end);
        } else if nth > 0
            && let Some((head, tail)) = label.split_once('-')
            && tail.starts_with(|c: char| c.is_ascii_digit())
            && is_top_level(head)
        {
            // `name@example.com-2026-11-22`, as logs and keys have it.
            end = Some(place + head.len());
        }
        place = label_end + 1;
    }
    let end = end?;
    let last = text[start..end].rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    (!version && !FILES.contains(&last.as_str())).then_some(end)
}

fn is_top_level(label: &str) -> bool {
    let letters = label.chars().all(char::is_alphabetic) && label.chars().nth(1).is_some();
    letters || label.get(..4).is_some_and(|head| head.eq_ignore_ascii_case("xn--"))
}

/// Whether this is the password or the name in `scheme://name:password@host`.
fn is_login(text: &str, start: usize) -> bool {
    let reach = text.floor_char_boundary(start.saturating_sub(SCHEME_REACH));
    let before = &text[reach..start];
    let piece = before.rsplit(|c: char| c.is_whitespace() || matches!(c, '"' | '<' | ',' | ';')).next().unwrap_or("");
    piece.rsplit_once("://").is_some_and(|(_, name)| !name.contains('/'))
}

/// Whether a header says that this names a message.
fn is_message_id(text: &str, start: usize) -> bool {
    let reach = text.floor_char_boundary(start.saturating_sub(16));
    let before = text[reach..start].trim_end_matches(['<', ' ', '"', '\'', ':', '=']);
    let before = before.to_ascii_lowercase();
    ["message-id", "message_id", "messageid"].iter().any(|name| before.ends_with(name))
}
