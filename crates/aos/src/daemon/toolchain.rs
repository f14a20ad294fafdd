//! The Rust toolchain behind a program that rustup stands in for.
//!
//! Start at [`behind`]. `~/.cargo/bin/cargo` is rustup under another name: it reads its settings, picks a toolchain and starts
//! the `cargo` of that. A command is shown neither, so what it is granted is the toolchain's own program: of the one that
//! rustup would pick for no folder in particular. Nothing is run to find it, and no variable of the daemon's is asked.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// What the program is called for which it stands under other names.
const RUSTUP: &str = "rustup";

/// The part of rustup's settings that is asked for here.
#[derive(serde::Deserialize)]
struct Settings {
    default_toolchain: Option<String>,
}

/// The program of the default toolchain that rustup would start under this path; `None` where the path is not rustup under
/// another name. `person` is the home folder of the daemon's user.
///
/// # Errors
/// Why there is no such program.
pub(super) fn behind(program: &Path, person: Option<&Path>) -> Option<Result<PathBuf, &'static str>> {
    let real = program.canonicalize().ok()?;
    let name = program.file_name().filter(|name| *name != RUSTUP)?;
    if real.file_name()? != RUSTUP && !is_one(&real, &real.with_file_name(RUSTUP)) {
        return None;
    }
    let Some((home, settings)) =
        homes(&real, person).into_iter().find_map(|home| Some((home.clone(), settings(&home)?)))
    else {
        return Some(Err("rustup stands in for it, and its settings are not found"));
    };
    let Some(toolchain) = settings.default_toolchain.and_then(|wanted| toolchain(&home, &wanted)) else {
        return Some(Err("rustup stands in for it, and has no default toolchain"));
    };
    let own = toolchain.join("bin").join(name);
    Some(if own.is_file() { Ok(own) } else { Err("rustup stands in for it, and its default toolchain has none") })
}

/// The program that this person's own rustup stands in for; `None` where it stands in for none of this name.
pub(super) fn of_person(name: &str, person: Option<&Path>) -> Option<PathBuf> {
    let path = person?.join(".cargo/bin").join(name);
    behind(&path, person).map(|_| path)
}

/// The folders of the toolchains that these programs are of, in which what they start by name is.
pub(super) fn folders<'p>(programs: impl IntoIterator<Item = &'p PathBuf>) -> Vec<&'p Path> {
    let of_one = |program: &'p PathBuf| {
        let folder = program.parent().filter(|folder| folder.ends_with("bin"))?;
        (folder.parent()?.parent()?.ends_with("toolchains")).then_some(folder)
    };
    let mut folders: Vec<&Path> = programs.into_iter().filter_map(of_one).collect();
    folders.dedup();
    folders
}

/// Whether two paths are names of one file: older ones of rustup make hard links.
fn is_one(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let first = inode(one);
    first.is_some() && first == inode(other)
}

/// Where a rustup may have its settings: beside the folder that it is installed in, and in its user's home.
fn homes(real: &Path, person: Option<&Path>) -> Vec<PathBuf> {
    let installed = real.parent().and_then(Path::parent);
    let beside = installed.and_then(|cargo| match cargo.file_name()?.to_str()? {
        ".cargo" => Some(cargo.with_file_name(".rustup")),
        "cargo" => Some(cargo.with_file_name("rustup")),
        _ => None,
    });
    beside.into_iter().chain(person.map(|person| person.join(".rustup"))).collect()
}

fn settings(home: &Path) -> Option<Settings> {
    toml::from_str(&std::fs::read_to_string(home.join("settings.toml")).ok()?).ok()
}

/// The folder of a toolchain, which older settings name without the machine that it is for.
fn toolchain(home: &Path, wanted: &str) -> Option<PathBuf> {
    // One that is linked may lie anywhere, and then its name is a path.
    let plain = |name: &str| !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    let machine = format!(
        "{wanted}-{}-unknown-linux-{}",
        std::env::consts::ARCH,
        if cfg!(target_env = "musl") { "musl" } else { "gnu" }
    );
    let found =
        [wanted, &machine].into_iter().filter(|name| plain(name)).map(|name| home.join("toolchains").join(name));
    found.into_iter().find(|folder| folder.is_dir())?.canonicalize().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A home of rustup and cargo below a folder, with toolchains that have these programs.
    pub(crate) fn installed(folder: &Path, settings: &str, programs: &[&str]) {
        let (cargo, toolchain) = (folder.join(".cargo/bin"), folder.join(".rustup/toolchains/stable-machine"));
        std::fs::create_dir_all(&cargo).unwrap();
        std::fs::create_dir_all(toolchain.join("bin")).unwrap();
        std::fs::create_dir_all(toolchain.join("lib/rustlib")).unwrap();
        std::fs::write(cargo.join("rustup"), "").unwrap();
        for name in ["cargo", "rustc", "rls"] {
            std::os::unix::fs::symlink("rustup", cargo.join(name)).unwrap();
        }
        programs.iter().for_each(|name| std::fs::write(toolchain.join("bin").join(name), "").unwrap());
        std::fs::write(folder.join(".rustup/settings.toml"), settings).unwrap();
    }

    #[test]
    fn the_default_toolchains_own_program_is_behind_rustup() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        installed(&folder, "version = \"12\"\ndefault_toolchain = \"stable-machine\"\n", &["cargo", "rustc"]);
        let (cargo, own) =
            (folder.join(".cargo/bin/cargo"), folder.join(".rustup/toolchains/stable-machine/bin/cargo"));
        assert_eq!(behind(&cargo, None), Some(Ok(own.clone())));
        assert_eq!(of_person("cargo", Some(&folder)), Some(cargo.clone()));
        assert_eq!(folders([&own, &own]), [own.parent().unwrap()]);
        let hard = folder.join(".cargo/bin/rustdoc");
        std::fs::hard_link(folder.join(".cargo/bin/rustup"), &hard).unwrap();
        assert!(behind(&hard, None).unwrap().unwrap_err().ends_with("its default toolchain has none"));
        // Under another name elsewhere, as a distribution has it.
        let elsewhere = folder.join("cargo");
        std::os::unix::fs::symlink(&cargo, &elsewhere).unwrap();
        assert_eq!(behind(&elsewhere, None), Some(Ok(own.clone())));
        for other in [own.clone(), folder.join(".cargo/bin/rustup"), folder.join(".cargo/bin/none")] {
            assert_eq!(behind(&other, Some(&folder)), None, "{}", other.display());
        }
        assert_eq!((of_person("sh", Some(&folder)), of_person("cargo", None)), (None, None));
        let why = |settings: &str| {
            std::fs::write(folder.join(".rustup/settings.toml"), settings).unwrap();
            behind(&cargo, None).unwrap().unwrap_err()
        };
        for bad in ["", "default_toolchain = \"none\"", "default_toolchain = \"..\"", "default_toolchain = \"\""] {
            assert!(why(bad).ends_with("has no default toolchain"), "{bad}");
        }
        assert!(why("]").ends_with("not found"));
    }

    #[test]
    fn a_program_that_the_toolchain_lacks_is_told_of() {
        let folder = tempfile::tempdir().unwrap();
        installed(folder.path(), "default_toolchain = \"stable-machine\"", &["cargo"]);
        let why = behind(&folder.path().join(".cargo/bin/rls"), None).unwrap().unwrap_err();
        assert!(why.ends_with("its default toolchain has none"), "{why}");
    }

    /// Settings of older versions name a toolchain without the machine.
    #[test]
    fn a_toolchain_is_found_by_its_short_name() {
        let folder = tempfile::tempdir().unwrap();
        installed(folder.path(), "", &[]);
        let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
        let full = format!("1.95-{}-unknown-linux-{libc}", std::env::consts::ARCH);
        let (home, toolchains) = (folder.path().join(".rustup"), folder.path().join(".rustup/toolchains"));
        std::os::unix::fs::symlink("stable-machine", toolchains.join(full)).unwrap();
        let real = toolchains.join("stable-machine").canonicalize().unwrap();
        assert_eq!(toolchain(&home, "1.95"), Some(real));
        assert_eq!(toolchain(&home, "1.9"), None);
    }
}
