//! Programs as the policy names them, found on this host.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use aos_policy::{Policy, packages};
use aos_policy::settings::{Exec, OWN_PROGRAMS};
use aos_sandbox::Programs;

/// Where programs are looked for, in this order.
const FOLDERS: [&str; 3] = ["/usr/bin", "/bin", "/usr/local/bin"];

/// The named programs that this host has. A name that it does not have is left out: whoever runs it is told so by the
/// shell.
pub(crate) fn found(settings: &Exec) -> Programs {
    let mut paths: Vec<PathBuf> = named(settings).flat_map(|name| packages::programs(name)).filter_map(find).collect();
    paths.sort_unstable();
    paths.dedup();
    if settings.runs_own() { Programs::AndOwn(paths) } else { Programs::Only(paths) }
}

/// What stands for programs of the host.
fn named(settings: &Exec) -> impl Iterator<Item = &String> {
    settings.programs.iter().filter(|name| *name != OWN_PROGRAMS)
}

/// What roles name of which this host has nothing, with the way out; `None` where there is no such name. A name that
/// stands for many programs is missed only where none of them is there.
pub(crate) fn missing(policy: &Policy) -> Option<(String, String)> {
    let roles = policy.roles().filter_map(|name| policy.role(name));
    let named = roles.filter_map(|role| role.exec.as_ref()).flat_map(named);
    let absent: BTreeSet<&str> =
        named.filter(|name| packages::programs(name).all(|program| find(program).is_none())).map(String::as_str).collect();
    let what = format!(
        "not on this host, of the programs that roles name: {}",
        Vec::from_iter(absent.iter().copied()).join(", ")
    );
    let hint = "install them, or take them out of `programs`; commands do not find them";
    (!absent.is_empty()).then(|| (what, hint.to_owned()))
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
        let names = |own: Option<&str>| {
            let programs = ["coreutils", "sh", "no-such-program"].into_iter().chain(own);
            Exec {
                shell: true,
                programs: programs.map(Into::into).collect(),
                net: aos_policy::settings::ExecNet::Closed,
            }
        };
        let Programs::Only(paths) = found(&names(None)) else {
            panic!("a list was asked for");
        };
        assert_eq!(found(&names(Some("./**"))), Programs::AndOwn(paths.clone()));
        assert!(paths.iter().any(|path| path.ends_with("cat")));
        assert!(paths.iter().any(|path| path.ends_with("sh")));
        assert!(!paths.iter().any(|path| path.ends_with("no-such-program")));
    }

    #[test]
    fn what_is_missing_is_named_once_and_a_package_only_where_none_of_it_is_there() {
        let of = |programs: &str| {
            let exec = |programs: &str| format!("{{exec: {{shell: true, programs: {programs}, net: none}}}}");
            let roles = format!("  a: {}\n  b: {}\n", exec(programs), exec("[no-such-program, sh]"));
            let policy = Policy::parse(&format!("version: 1\ndefault_role: a\nroles:\n{roles}")).unwrap();
            missing(&policy).unwrap().0
        };
        assert!(of("[sh, coreutils, no-such-program]").ends_with(": no-such-program"));
        assert!(of("[/opt/none/x, coreutils]").ends_with(": /opt/none/x, no-such-program"));
        assert!(of("[sh, ./**]").ends_with(": no-such-program"), "what lies in the workspace is nothing of the host");
        let policy = Policy::parse("version: 1\ndefault_role: a\nroles:\n  a: {calls: []}\n").unwrap();
        assert_eq!(missing(&policy), None);
    }
}
