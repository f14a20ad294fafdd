//! Packages: names in `programs` that stand for several programs.
//!
//! Start at [`programs`]. What always holds: the policy, which reads the first word of a command, and the sandbox, which
//! looks the programs up on the host, take a name for the same programs.

use crate::settings::OWN_PROGRAMS;

/// What `coreutils` stands for: the programs of that package that work on files, texts and times.
const COREUTILS: &str = "[ arch b2sum base32 base64 basename basenc cat chgrp chmod chown cksum comm cp csplit cut date dd df dir \
    dircolors dirname du echo env expand expr factor false fmt fold groups head id install join link ln logname ls \
    md5sum mkdir mkfifo mktemp mv nice nl nohup nproc numfmt od paste pathchk pr printenv printf ptx pwd readlink \
    realpath rm rmdir seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split stat stdbuf \
    stty sum sync tac tail tee test timeout touch tr true truncate tsort tty uname unexpand uniq unlink vdir wc \
    whoami yes";
/// What `diffutils` stands for.
const DIFFUTILS: &str = "cmp diff diff3 sdiff";

/// The programs that a name of `programs` stands for; itself, where it is no package.
pub fn programs(name: &str) -> std::str::SplitWhitespace<'_> {
    match name {
        "coreutils" => COREUTILS.split_whitespace(),
        "diffutils" => DIFFUTILS.split_whitespace(),
        name => name.split_whitespace(),
    }
}

/// The first word of a command.
pub(crate) fn first_word(line: &str) -> &str {
    line.split(' ').find(|word| !word.is_empty()).unwrap_or("")
}

/// Whether a command is nothing but words: each character that the shell could understand as more than part of one is none
/// of them, so that `sh -c` of the line runs one program with these arguments and nothing else.
pub(crate) fn is_words(line: &str) -> bool {
    let harmless =
        |c: char| c.is_alphanumeric() || matches!(c, ' ' | '_' | '.' | '/' | ':' | '@' | '%' | '+' | ',' | '-' | '=');
    line.chars().all(harmless)
}

/// The name by which `programs` grants what a command's first word names.
pub(crate) fn named(first: &str) -> &str {
    if is_own(first) { OWN_PROGRAMS } else { first }
}

/// What to write into `programs` for a command with this first word; `None` where it is no name of a program.
pub(crate) fn grantable(first: &str) -> Option<&str> {
    /// Longer ones are no names.
    const BYTES_MAX: usize = 100;
    let name = named(first);
    let plain = !first.is_empty() && first.len() <= BYTES_MAX && is_words(first) && !first.contains('=');
    (plain && (name == OWN_PROGRAMS || first.starts_with('/') || !first.contains('/'))).then_some(name)
}

/// Whether a first word names what lies in the workspace.
pub(crate) fn is_own(first: &str) -> bool {
    first.starts_with("./") && first.split('/').all(|part| part != "..")
}
