//! Programs as the policy names them, found on this host.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use aos_policy::settings::{Exec, OWN_PROGRAMS};
use aos_policy::{Policy, packages};
use aos_sandbox::Programs;

use super::toolchain;

/// Where programs are looked for, in this order.
const FOLDERS: [&str; 3] = ["/usr/bin", "/bin", "/usr/local/bin"];

/// The named programs that this host has and the sandbox can show. Others are left out: whoever runs one is told so by
/// the shell, and all else runs. `person` is the home folder of the daemon's user.
pub(crate) fn found(settings: &Exec, person: Option<&Path>) -> Programs {
    let programs = named(settings).flat_map(|name| packages::programs(name));
    let shown = |name: &str| shown(name, person)?.ok();
    let mut paths: Vec<PathBuf> = programs.filter_map(shown).collect();
    paths.sort_unstable();
    paths.dedup();
    if settings.runs_own() { Programs::AndOwn(paths) } else { Programs::Only(paths) }
}

/// Where commands look for programs by name, unless that is where all do.
pub(crate) fn path(programs: &Programs) -> Option<OsString> {
    let mut path: OsString = toolchain::folders(programs.granted()?).first()?.into();
    path.push(":");
    path.push(aos_sandbox::PATH);
    Some(path)
}

/// What stands for programs of the host.
fn named(settings: &Exec) -> impl Iterator<Item = &String> {
    settings.programs.iter().filter(|name| *name != OWN_PROGRAMS)
}

/// What roles name of which this host has nothing, with the way out; `None` where there is no such name. A name that
/// stands for many programs is missed only where none of them is there.
pub(crate) fn missing(policy: &Policy, person: Option<&Path>) -> Option<(String, String)> {
    let roles = policy.roles().filter_map(|name| policy.role(name));
    let named = roles.filter_map(|role| role.exec.as_ref()).flat_map(named);
    let absent: BTreeSet<&str> = named
        .filter(|name| packages::programs(name).all(|program| find(program, person).is_none()))
        .map(String::as_str)
        .collect();
    let what = format!(
        "not on this host, of the programs that roles name: {}",
        Vec::from_iter(absent.iter().copied()).join(", ")
    );
    let hint = "install them, or take them out of `programs`; commands do not find them";
    (!absent.is_empty()).then(|| (what, hint.to_owned()))
}

/// Which programs that roles name the sandbox cannot show, with the way out; `None` where there is none.
pub(crate) fn unshown(policy: &Policy, person: Option<&Path>) -> Option<(String, String)> {
    let roles = policy.roles().filter_map(|name| policy.role(name));
    let named = roles.filter_map(|role| role.exec.as_ref()).flat_map(named).flat_map(|name| packages::programs(name));
    let why = |name: &str| Some(format!("{name} ({})", shown(name, person)?.err()?));
    let closed: BTreeSet<String> = named.filter_map(why).collect();
    let hint = "install them where every user may run them, such as /usr/local/bin; commands do not find them";
    let names = Vec::from_iter(closed).join(", ");
    let what = || format!("the sandbox cannot show, of the programs that roles name: {names}");
    (!names.is_empty()).then(|| (what(), hint.to_owned()))
}

/// What a command is shown of a program, or why it cannot be; `None` where the host has none of this name.
fn shown(name: &str, person: Option<&Path>) -> Option<Result<PathBuf, &'static str>> {
    let found = find(name, person)?;
    let behind = toolchain::behind(&found, person);
    // Where programs are looked for by name, every command may enter.
    let everybodys = behind.is_none() && !name.starts_with('/');
    let looked = |program: PathBuf| match (!everybodys).then(|| closed(&program)).flatten() {
        Some(why) => Err(why),
        None => Ok(program),
    };
    Some(behind.unwrap_or(Ok(found)).and_then(looked))
}

/// Why a program of the host cannot be shown to a command.
fn closed(program: &Path) -> Option<&'static str> {
    /// Where a command has folders of its own.
    const OWN: [&str; 5] = ["/tmp", "/dev", "/proc", "/sys", aos_sandbox::WORKSPACE];
    if !program.components().skip(1).all(|part| matches!(part, Component::Normal(_))) {
        return Some("its path has `..`");
    }
    let (folder, real) = (program.parent()?.canonicalize().ok()?, program.canonicalize().ok()?);
    if OWN.iter().any(|own| folder.starts_with(own)) {
        return Some("commands have a folder of their own there");
    }
    let user = rustix::process::geteuid().as_raw();
    let entered = |path: &Path| path.metadata().is_ok_and(|meta| enters(meta.mode(), meta.uid(), user));
    let ways = folder.ancestors().chain(real.ancestors().skip(1));
    (!ways.into_iter().all(entered)).then_some("other users cannot enter a folder that it is in")
}

/// Whether a command comes through a folder: it is nobody whom the folder knows, but under an ordinary user's daemon its owner.
fn enters(mode: u32, owner: u32, user: u32) -> bool {
    if user != 0 && owner == user { mode & 0o100 != 0 } else { mode & 0o001 != 0 }
}

fn find(name: &str, person: Option<&Path>) -> Option<PathBuf> {
    if name.starts_with('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let everybody = FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file());
    everybody.or_else(|| toolchain::of_person(name, person))
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
        let Programs::Only(paths) = found(&names(None), None) else {
            panic!("a list was asked for");
        };
        assert_eq!(found(&names(Some("./**")), None), Programs::AndOwn(paths.clone()));
        assert!(paths.iter().any(|path| path.ends_with("cat")));
        assert!(paths.iter().any(|path| path.ends_with("sh")));
        assert!(!paths.iter().any(|path| path.ends_with("no-such-program")));
    }

    /// Every command of such a role failed, with the sandbox's own words.
    #[test]
    fn what_the_sandbox_cannot_show_is_left_out_and_named() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let program = dir.path().join("tool");
        std::fs::write(&program, "").unwrap();
        let text = format!("{{exec: {{shell: true, programs: [sh, {0}, /tmp/../{0}], net: none}}}}", program.display());
        let policy = Policy::parse(&format!("version: 1\ndefault_role: a\nroles:\n  a: {text}\n")).unwrap();
        let Programs::Only(paths) = found(policy.role("a").unwrap().exec.as_ref().unwrap(), None) else {
            panic!("a list was asked for");
        };
        assert!(paths.len() == 1 && paths[0].ends_with("sh"), "{paths:?}");
        let (what, _) = unshown(&policy, None).unwrap();
        assert!(what.contains("tool (commands have a folder of their own there)"), "{what}");
        assert!(what.contains("tool (its path has `..`)"), "{what}");
        assert_eq!(missing(&policy, None), None, "they are there");
    }

    /// What rustup stands in for failed with rustup's own words, and by its name it was not found at all.
    #[test]
    fn what_rustup_stands_in_for_is_the_program_of_its_toolchain() {
        // Not below `/tmp`, where commands have a folder of their own.
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let person = dir.path().canonicalize().unwrap();
        std::fs::set_permissions(&person, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        toolchain::tests::installed(&person, "default_toolchain = \"stable-machine\"", &["aos-cargo"]);
        let proxy = |name: &str| {
            std::os::unix::fs::symlink("rustup", person.join(".cargo/bin").join(name)).unwrap();
            person.join(".cargo/bin").join(name).display().to_string()
        };
        let (by_path, _) = (proxy("aos-cargo"), proxy("aos-rustc"));
        let own = person.join(".rustup/toolchains/stable-machine/bin/aos-cargo");
        let policy = |programs: &str| {
            let role = format!("{{exec: {{shell: true, programs: [{programs}], net: none}}}}");
            Policy::parse(&format!("version: 1\ndefault_role: a\nroles:\n  a: {role}\n")).unwrap()
        };
        let of = |programs: &str| found(policy(programs).role("a").unwrap().exec.as_ref().unwrap(), Some(&person));
        assert_eq!(of("aos-cargo"), Programs::Only(vec![own.clone()]));
        assert_eq!(of(&by_path), Programs::Only(vec![own.clone()]));
        let path = path(&of("sh, aos-cargo")).unwrap();
        assert_eq!(path, *format!("{}:{}", own.parent().unwrap().display(), aos_sandbox::PATH));
        assert_eq!(super::path(&of("sh")), None);
        assert_eq!(unshown(&policy("aos-cargo, sh"), Some(&person)), None);
        assert!(missing(&policy("aos-cargo"), None).unwrap().0.ends_with(": aos-cargo"), "whose home is not known");
        let (what, _) = unshown(&policy("aos-rustc"), Some(&person)).unwrap();
        assert!(what.ends_with("aos-rustc (rustup stands in for it, and its default toolchain has none)"), "{what}");
        assert_eq!(missing(&policy("aos-rustc"), Some(&person)), None, "it is there");
        std::fs::set_permissions(&person, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        // Root reads it all the same; a command does not come through.
        if rustix::process::geteuid().is_root() {
            let (what, _) = unshown(&policy("aos-cargo"), Some(&person)).unwrap();
            assert!(what.ends_with("aos-cargo (other users cannot enter a folder that it is in)"), "{what}");
        }
        std::fs::set_permissions(&person, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_folder_is_entered_by_everybody_or_by_the_ordinary_user_whose_it_is() {
        assert!(enters(0o755, 0, 0) && enters(0o755, 0, 1000) && enters(0o700, 1000, 1000));
        assert!(!enters(0o700, 0, 0) && !enters(0o750, 0, 1000) && !enters(0o700, 1000, 0));
    }

    #[test]
    fn what_is_missing_is_named_once_and_a_package_only_where_none_of_it_is_there() {
        let of = |programs: &str| {
            let exec = |programs: &str| format!("{{exec: {{shell: true, programs: {programs}, net: none}}}}");
            let roles = format!("  a: {}\n  b: {}\n", exec(programs), exec("[no-such-program, sh]"));
            let policy = Policy::parse(&format!("version: 1\ndefault_role: a\nroles:\n{roles}")).unwrap();
            missing(&policy, None).unwrap().0
        };
        assert!(of("[sh, coreutils, no-such-program]").ends_with(": no-such-program"));
        assert!(of("[/opt/none/x, coreutils]").ends_with(": /opt/none/x, no-such-program"));
        assert!(of("[sh, ./**]").ends_with(": no-such-program"), "what lies in the workspace is nothing of the host");
        let policy = Policy::parse("version: 1\ndefault_role: a\nroles:\n  a: {calls: []}\n").unwrap();
        assert_eq!(missing(&policy, None), None);
    }
}
