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

/// Lets go of the program's code and constants: they stay where the system keeps files, and what is used again is mapped again
/// when it is, sixteen pages at a time and about a microsecond each. What only the start needed is not this process's memory
/// any more. The bytes that were mapped and are let go.
///
/// # Errors
/// What reading `/proc/self/smaps` gives; nothing is let go then.
pub fn release_code() -> Result<usize> {
    let program = std::fs::read_link("/proc/self/exe")?;
    let text = std::fs::read_to_string("/proc/self/smaps")?;
    let mut released = 0;
    for mapping in mappings(&text, &program.to_string_lossy()).iter().filter(|mapping| mapping.of_file) {
        // SAFETY: the range is one mapping of the program's own file, page by page as the kernel told it. It was made before the
        // program began and is changed by nothing since: libraries, which can be loaded and moved into place at any time, are
        // left alone. It is private, cannot be written to, and no page of it differs from its file, so whoever reads it after
        // this reads the same bytes: the kernel maps the file's page anew. A new version of the program is a new file.
        let done = unsafe { libc::madvise(mapping.at as *mut libc::c_void, mapping.bytes, libc::MADV_DONTNEED) };
        if done != 0 {
            return Err(Error::last_os_error());
        }
        released += mapping.resident;
    }
    Ok(released)
}

/// The mappings in the text of a `smaps` file; of which file is asked.
fn mappings(text: &str, program: &str) -> Vec<Mapping> {
    // Fields begin with a capital letter, mappings with their address.
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &&str| line.starts_with(|c: char| c.is_ascii_digit() || c.is_ascii_lowercase());
    lines.chunk_by(|_, next| !begins(next)).filter_map(|lines| mapping(lines, program)).collect()
}

fn mapping(lines: &[&str], program: &str) -> Option<Mapping> {
    let (head, fields) = lines.split_first()?;
    let mut words = head.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let (at, end) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
    let rights = words.next()?;
    let is_code = ["r-xp", "r--p"].contains(&rights) && head.ends_with(program);
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
69d000-6ad000 r-xp 00000000 fe:00 14 /lib/loaded at any time
Rss:                   4 kB
Anonymous:             0 kB
";

    #[test]
    fn only_what_shows_a_file_as_it_is_can_be_let_go() {
        let found = mappings(TEXT, "/usr/bin/a program");
        assert_eq!(found[0], Mapping { at: 0x55d0, bytes: 0x1000, resident: 12 << 10, of_file: true });
        assert_eq!(found.iter().map(|one| one.of_file).collect::<Vec<_>>(), [true, false, false, false, false, false]);
    }

    #[test]
    fn code_that_was_let_go_is_there_when_it_is_used() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let program = std::fs::read_link("/proc/self/exe").unwrap();
            let all = mappings(&text, &program.to_string_lossy());
            all.iter().filter(|mapping| mapping.of_file).map(|mapping| mapping.resident).sum::<usize>()
        };
        let before = resident();
        let released = release_code().unwrap();
        let after = resident();
        assert!(released > 0 && after < before, "{before} {released} {after}");
        assert_eq!(mappings(TEXT, "x").len(), 6, "and goes on");
    }
}
