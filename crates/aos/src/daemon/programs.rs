//! Programs as the policy names them, found on this host.

use std::path::{Path, PathBuf};

use aos_sandbox::Programs;

/// Where programs are looked for, in this order.
const FOLDERS: [&str; 3] = ["/usr/bin", "/bin", "/usr/local/bin"];
/// What `coreutils` stands for: the programs of that package that work on files, texts and times.
const COREUTILS: &str = "[ b2sum base32 base64 basename cat chmod cksum comm cp csplit cut date dd df dir dirname du echo \
    env expand expr factor false fmt fold head id install join link ln ls md5sum mkdir mkfifo mktemp mv nl nproc numfmt \
    od paste printenv printf pwd readlink realpath rm rmdir seq sha1sum sha224sum sha256sum sha384sum sha512sum shred \
    shuf sleep sort split stat stdbuf sum sync tac tail tee test timeout touch tr true truncate tsort uname unexpand \
    uniq unlink vdir wc whoami yes";
/// What `diffutils` stands for.
const DIFFUTILS: &str = "cmp diff diff3 sdiff";

/// The named programs that this host has. A name that it does not have is left out: whoever runs it is told so by the
/// shell.
pub(crate) fn found(names: &[String]) -> Programs {
    let each = names.iter().flat_map(|name| match name.as_str() {
        "coreutils" => COREUTILS.split_whitespace().collect::<Vec<_>>(),
        "diffutils" => DIFFUTILS.split_whitespace().collect(),
        name => vec![name],
    });
    let mut paths: Vec<PathBuf> = each.filter_map(find).collect();
    paths.sort_unstable();
    paths.dedup();
    Programs::Only(paths)
}

fn find(name: &str) -> Option<PathBuf> {
    if name.starts_with('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_stand_for_their_programs_and_what_is_missing_is_left_out() {
        let Programs::Only(paths) = found(&["coreutils".into(), "sh".into(), "no-such-program".into()]) else {
            panic!("a list was asked for");
        };
        assert!(paths.iter().any(|path| path.ends_with("cat")));
        assert!(paths.iter().any(|path| path.ends_with("sh")));
        assert!(!paths.iter().any(|path| path.ends_with("no-such-program")));
    }
}
