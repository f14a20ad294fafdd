//! URLs as people write them: the same address in other letters is the same address, and nothing else is.
//!
//! Start at [`Url::read`]. What always holds: scheme and host count in any case, the port that is the usual one may be left
//! out, and so may `https://`; path and query stay as they are written, since who encodes them otherwise may mean something
//! else. Nothing is copied: each word of each request is held against one.

/// A URL that is looked for.
#[derive(Debug)]
pub(crate) struct Url<'a> {
    scheme: &'a str,
    /// With its port, where that is not the usual one.
    host: &'a str,
    /// Path and query without the first slash.
    tail: &'a str,
}

impl<'a> Url<'a> {
    /// Reads a word; `None` where it can mean no URL.
    pub(crate) fn read(text: &'a str) -> Option<Url<'a>> {
        // Of three bytes the plain way is quicker than a prepared search.
        let colon = text.as_bytes().windows(3).position(|window| window == b"://");
        let (scheme, rest) = colon.map_or(("https", text), |colon| (&text[..colon], &text[colon + 3..]));
        let end = rest.bytes().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        let usual = if scheme.eq_ignore_ascii_case("http") { ":80" } else { ":443" };
        let host = authority.strip_suffix(usual).unwrap_or(authority);
        let plain =
            host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':' | b'[' | b']'));
        // Without a scheme, only what has a dot can be meant as a host, and no name that a file has.
        let meant = colon.is_some() || (host.contains('.') && !is_file_name(rest));
        let tail = tail.strip_prefix('/').unwrap_or(tail);
        (!host.is_empty() && plain && meant).then_some(Url { scheme, host, tail })
    }

    /// Whether a text holds its host, in any case; where it does not, no word of it is this URL.
    pub(crate) fn host_stands_in(&self, text: &str) -> bool {
        let (text, host) = (text.as_bytes(), self.host.as_bytes());
        // What stands round its last dot tells most texts.
        let at = host.iter().rposition(|byte| *byte == b'.').unwrap_or(0);
        let pair = host.get(at..at + 2).is_none_or(|pair| holds_pair(text, pair));
        pair && text.windows(host.len()).any(|window| window.eq_ignore_ascii_case(host))
    }

    /// Path and query without the first slash, which are never written otherwise.
    pub(crate) fn tail(&self) -> &'a str {
        self.tail
    }

    /// Whether a word is this URL. Most words are not, and are told by their ends.
    pub(crate) fn is_written(&self, word: &str) -> bool {
        let (bytes, tail) = (word.as_bytes(), self.tail.as_bytes());
        // At most it is written with all that may be left out.
        let least = self.host.len() + tail.len();
        let most = least + self.scheme.len() + "://".len() + ":443/".len();
        // The last byte alone tells most of them.
        (tail.is_empty() || bytes.last() == tail.last())
            && (least..=most).contains(&bytes.len())
            && bytes.ends_with(tail)
            && Url::read(word).is_some_and(|word| self.is(&word))
    }

    fn is(&self, other: &Url<'_>) -> bool {
        self.tail == other.tail
            && self.host.eq_ignore_ascii_case(other.host)
            && self.scheme.eq_ignore_ascii_case(other.scheme)
    }
}

/// Whether these two bytes stand in a text, in any case. There is no way out of the loop, so that many bytes are compared at
/// once.
fn holds_pair(text: &[u8], pair: &[u8]) -> bool {
    let (first, second) = (pair[0].to_ascii_lowercase(), pair[1].to_ascii_lowercase());
    let pairs = text.iter().zip(text.get(1..).unwrap_or_default());
    pairs.fold(false, |found, (one, next)| {
        found | ((one.to_ascii_lowercase() == first) & (next.to_ascii_lowercase() == second))
    })
}

/// Whether a word is more likely the name of a file than that of a host: nothing but a name, whose end is one that both have.
/// Who means the host says so by a scheme, `www.`, a port or a path. Ends that no host has (`txt`) lead nowhere anyhow.
fn is_file_name(word: &str) -> bool {
    let bare =
        !word.contains(['/', '?', '#', ':']) && !word.get(..4).is_some_and(|www| www.eq_ignore_ascii_case("www."));
    let end = word.rsplit_once('.').map_or("", |(_, end)| end);
    bare && FILE_ENDS.iter().any(|known| known.eq_ignore_ascii_case(end))
}

/// Ends of files that people name which are domains too, so that somebody may own `readme.md` or `main.rs`.
const FILE_ENDS: [&str; 29] = [
    "bz", "cab", "cc", "cl", "cr", "gd", "gs", "java", "la", "md", "mk", "ml", "mm", "mo", "mov", "pl", "pm", "ps",
    "pub", "py", "re", "rs", "sc", "sh", "so", "sv", "tf", "ts", "zip",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The same told plainly: scheme and host in small letters, the port left out where it is the usual one, and a path.
    fn canonical(text: &str) -> Option<String> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
            None => ("https".to_owned(), text),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        let usual = if scheme == "http" { ":80" } else { ":443" };
        let host = authority.to_ascii_lowercase();
        let host = host.strip_suffix(usual).unwrap_or(&host);
        let plain =
            host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':' | b'[' | b']'));
        if host.is_empty() || !plain || (!text.contains("://") && (!host.contains('.') || is_file_name(rest))) {
            return None;
        }
        let tail = if tail.starts_with('/') { tail.to_owned() } else { format!("/{tail}") };
        Some(format!("{scheme}://{host}{tail}"))
    }

    #[test]
    fn a_url_is_told_by_its_parts_as_by_the_whole() {
        let words = [
            "https://a.example",
            "HTTPS://A.example/",
            "a.example",
            "a.example:443",
            "a.example:80",
            "http://a.example",
            "a.example/?q",
            "a.example?q",
            "http://a.example:80#x",
            "HTTP://a.example/#x",
            "a.example/x?y=/z",
            "https://a.example/x",
            "a.example/X",
            "http://[::1]:8080/a",
            "https://b.example/x",
            "x",
            "",
            "/",
            "?q",
            "://",
            "https:///x",
            "user@a.example/x",
            "a.example//x",
            "a:/://b",
            "x:://b",
            "x://://b",
            "https://a.example/https://b.example/x",
            "a.example/r?to=https://b.example/x",
            "readme.md",
            "README.md/",
            "www.readme.md",
            "éx.example",
            "https://a.example/é",
        ];
        let mut same = 0;
        for (url, plainly) in words.iter().filter_map(|word| Some((word, canonical(word)?))) {
            let read = Url::read(url).unwrap_or_else(|| panic!("{url}"));
            for word in words {
                let is = canonical(word).as_ref() == Some(&plainly);
                assert_eq!(read.is_written(word), is, "{word} {url}");
                assert!(!is || read.host_stands_in(&format!("go to ({word}).")), "{word} {url}");
                same += usize::from(is && word != *url);
            }
        }
        assert!(words.iter().all(|word| Url::read(word).is_some() == canonical(word).is_some()));
        assert!(same > 10, "{same}");
    }

    #[test]
    fn a_host_stands_in_a_text_in_any_case_and_nowhere_else() {
        for (url, text, stands) in [
            ("https://a.example/", "see https://A.EXAMPLE:443 now", true),
            ("https://A.example", "a.example", true),
            ("http://localhost/", "see http://LocalHost/", true),
            ("http://localhost/", "see localhos", false),
            ("https://1.a.example/", "11.a.exampl 1.A.example", true),
            ("https://a.example/", ".example b.example a.exampl", false),
            ("https://a.example/", "", false),
            ("http://x/", "see http://X/", true),
            ("http://x/", "see", false),
            ("https://a.example./", "see https://A.EXAMPLE./", true),
        ] {
            let read = Url::read(url).unwrap_or_else(|| panic!("{url}"));
            assert_eq!(read.host_stands_in(text), stands, "{url} {text}");
        }
    }
}
