//! Memory of this very program: which of its code is mapped, and letting go of what only its start used.
//!
//! Start at [`release_code`]. It is here because it takes `unsafe`, which no other crate may have.

use std::io::{Error, Result};

/// A mapping of this process, as `/proc/self/smaps` tells it.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    /// Where it begins, and how long it is.
    at: usize,
    bytes: usize,
    /// Bytes of it that are in memory.
    resident: usize,
    /// It shows a file as that is: nobody can write to it, and no page of it is this process's own.
    of_file: bool,
}

/// Lets go of the program's code and constants, its libraries' too: they stay where the system keeps files, and what is used
/// again is mapped again when it is, sixteen pages at a time and about a microsecond each. What only the start needed is not
/// this process's memory any more. The bytes that were mapped and are let go.
///
/// # Errors
/// What reading `/proc/self/smaps` gives; nothing is let go then.
pub fn release_code() -> Result<usize> {
    let text = std::fs::read_to_string("/proc/self/smaps")?;
    let mut released = 0;
    for mapping in mappings(&text).filter(|mapping| mapping.of_file) {
        // SAFETY: the range is one mapping of this process, page by page as the kernel told it, and nothing unmaps code or
        // constants of the program while it runs (no library is closed). It is private, cannot be written to, and no page of
        // it differs from its file, so whoever reads it after this reads the same bytes: the kernel maps the file's page anew.
        // The file is the running program or a library of it, which a new version replaces by a new file.
        let done = unsafe { libc::madvise(mapping.at as *mut libc::c_void, mapping.bytes, libc::MADV_DONTNEED) };
        if done != 0 {
            return Err(Error::last_os_error());
        }
        released += mapping.resident;
    }
    Ok(released)
}

/// The mappings in the text of a `smaps` file.
fn mappings(text: &str) -> impl Iterator<Item = Mapping> {
    let begins = |line: &str| line.split(' ').next().is_some_and(|range| range.contains('-') && !range.contains(':'));
    let lines: Vec<&str> = text.lines().collect();
    let heads: Vec<usize> = (0..lines.len()).filter(|at| begins(lines[*at])).collect();
    let ends = heads.iter().skip(1).copied().chain([lines.len()]).collect::<Vec<_>>();
    let found = heads.into_iter().zip(ends).filter_map(|(head, end)| mapping(&lines[head..end])).collect::<Vec<_>>();
    found.into_iter()
}

fn mapping(lines: &[&str]) -> Option<Mapping> {
    let (head, fields) = lines.split_first()?;
    let mut words = head.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let (at, end) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
    let rights = words.next()?;
    let is_code = ["r-xp", "r--p"].contains(&rights) && words.nth(3).is_some_and(|path| path.starts_with('/'));
    let kib = |name: &str| {
        let field = fields.iter().find_map(|field| field.strip_prefix(name)?.strip_prefix(':'))?;
        field.split_whitespace().next()?.parse::<usize>().ok()
    };
    // Relocated constants and a debugger's breakpoints are the process's own, and would be lost.
    let of_file = is_code && kib("Anonymous") == Some(0);
    Some(Mapping { at, bytes: end.checked_sub(at)?, resident: kib("Rss")? << 10, of_file })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d0-65d0 r--p 00000000 fe:00 12 /usr/bin/a program
Size:                 64 kB
Rss:                  12 kB
Anonymous:             0 kB
65d000-66d000 r-xp 00001000 fe:00 12 /usr/bin/a program
Rss:                  40 kB
Anonymous:             4 kB
66d000-67d000 rw-p 00001000 fe:00 12 /usr/bin/a program
Rss:                   4 kB
Anonymous:             0 kB
67d000-68d000 r-xp 00000000 00:00 0 [vdso]
Rss:                   4 kB
Anonymous:             0 kB
68d000-69d000 r--s 00000000 fe:00 13 /shared
Rss:                   4 kB
Anonymous:             0 kB
";

    #[test]
    fn only_what_shows_a_file_as_it_is_can_be_let_go() {
        let found: Vec<Mapping> = mappings(TEXT).collect();
        assert_eq!(found[0], Mapping { at: 0x55d0, bytes: 0x1000, resident: 12 << 10, of_file: true });
        assert_eq!(found.iter().map(|one| one.of_file).collect::<Vec<_>>(), [true, false, false, false, false]);
    }

    #[test]
    fn code_that_was_let_go_is_there_when_it_is_used() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
            mappings(&text).filter(|mapping| mapping.of_file).map(|mapping| mapping.resident).sum::<usize>()
        };
        let before = resident();
        let released = release_code().unwrap();
        let after = resident();
        assert!(released > 0 && after < before, "{before} {released} {after}");
        assert_eq!(mappings(TEXT).count(), 5, "and goes on");
    }
}
