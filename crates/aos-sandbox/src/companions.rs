//! What granted programs are made of beside themselves: loaders, libraries, and the programs that they start on their
//! own.
//!
//! Start at [`started`] for programs and at [`of`] for folders. Two walls keep to it where only some programs are granted: Landlock lets nothing else be executed,
//! and what is not listed here is mounted so that nothing of it can be mapped as code, since a loader that is asked by
//! name starts whatever can be mapped. Deliberately absent: what a person granted by its path; that speaks for itself
//! and for the folder that it lives in.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The loaders of the C libraries, as programs name them (`PT_INTERP`); which of them there are depends on the machine.
pub(crate) const LOADERS: &[&str] = &[
    "/lib64/ld-linux-x86-64.so.2",
    "/libx32/ld-linux-x32.so.2",
    "/lib/ld-linux.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-linux-armhf.so.3",
    "/lib/ld-linux-riscv64-lp64d.so.1",
    "/lib64/ld-linux-loongarch-lp64d.so.1",
    "/lib64/ld64.so.2",
    "/lib/ld64.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
    "/lib/ld-musl-riscv64.so.1",
];

/// Which programs start others of their own, or load code, and in which folder below [`FOLDERS`] those are.
const TABLE: &[(&[&str], &[&str])] = &[
    (&["git"], &["git-core"]),
    (&["cc", "c++", "cpp", "gcc", "g++", "gfortran", "clang", "clang++", "ld"], &["gcc", "bfd-plugins", "gold-ld"]),
    (&["cargo", "rustc"], &["rustlib"]),
    (&["node", "npm", "npx"], &["node_modules", "nodejs"]),
    (&["ssh", "scp", "sftp"], &["openssh"]),
    (&["gpg"], &["gnupg"]),
    (&["stdbuf"], &["coreutils"]),
    (&["man"], &["man-db"]),
    (&["tclsh", "wish"], &["tcl", "tk"]),
];

/// Which programs start others that lie among everybody's programs, and are of no use without them.
const STARTED: &[(&[&str], &[&str])] = &[
    (&["cc", "c++", "gcc", "g++", "gfortran", "clang", "clang++"], &["as", "ld", "ld.bfd", "ld.gold"]),
    (&["rustc"], &["cc"]),
    (&["cargo"], &["rustc"]),
];

/// Where programs of everybody are looked for, beside the folder of the one that starts them.
const BIN: &[&str] = &["/usr/local/bin", "/usr/bin"];

/// Where programs have folders of their own.
const FOLDERS: &[&str] = &["/usr/lib", "/usr/libexec", "/usr/local/lib", "/usr/local/libexec"];

/// Folders for libraries that hold those of everybody in folders of their own.
const SHARED: &[&str] = &["/usr/lib", "/usr/local/lib"];

/// Folders with programs and libraries of everybody.
const EVERYBODYS: &[&str] = &["/", "/usr", "/usr/local"];

/// Folders in which nothing is a library.
const WITHOUT_CODE: &[&str] =
    &["/usr/libexec", "/usr/share", "/usr/include", "/usr/local/libexec", "/usr/local/share", "/usr/local/include"];

/// How many libraries directly in a shared folder are taken one by one; where there are more it is taken whole.
const SINGLE_MAX: usize = 32;

/// The folders that these programs execute and load code from, as far as there are any; each program as it was granted
/// and as the file that it is.
pub(crate) fn of(programs: &[(PathBuf, PathBuf)]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for (granted, real) in programs {
        folders.extend(home(real).map(Path::to_owned));
        let name = granted.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let named = TABLE.iter().filter(|(names, _)| names.iter().any(|of| is(name, of))).flat_map(|(_, own)| *own);
        for own in named.copied().chain([stem(name)]).filter(|own| !own.is_empty()) {
            folders.extend(FOLDERS.iter().map(|folder| Path::new(folder).join(own)));
        }
    }
    folders.sort_unstable();
    folders.dedup();
    folders.retain(|folder| std::fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_dir()));
    folders
}

/// The programs that these start and that are not among them, as far as there are any, in the same form: a compiler its
/// assembler and its linker.
pub(crate) fn started(programs: &[(PathBuf, PathBuf)]) -> Vec<(PathBuf, PathBuf)> {
    let mut all = programs.to_vec();
    let mut next = 0;
    while let Some((granted, _)) = all.get(next) {
        let name = granted.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let own = granted.parent().unwrap_or(Path::new("/"));
        let folders = || [own].into_iter().chain(BIN.iter().map(Path::new));
        let named =
            STARTED.iter().filter(|(names, _)| names.iter().any(|of| is(name, of))).flat_map(|(_, starts)| *starts);
        let file = |path: PathBuf| path.canonicalize().ok().filter(|real| real.is_file()).map(|real| (path, real));
        let found: Vec<_> = named.filter_map(|start| folders().find_map(|folder| file(folder.join(start)))).collect();
        for one in found {
            if !all.contains(&one) {
                all.push(one);
            }
        }
        next += 1;
    }
    all.split_off(programs.len())
}

/// Whether a program's name says that it is `of`, with a version behind it or a machine before it.
fn is(name: &str, of: &str) -> bool {
    let bare = |name: &str| name == of || name.strip_suffix(of).is_some_and(|machine| machine.ends_with("-gnu-"));
    bare(name) || bare(stem(name))
}

/// A name without its version.
fn stem(name: &str) -> &str {
    name.trim_end_matches(|end: char| end.is_ascii_digit() || end == '.').trim_end_matches('-')
}

/// The folder of its own that a program lives in, where that is one among libraries or a toolchain of Rust's, whose programs
/// find their libraries by where they lie.
fn home(real: &Path) -> Option<&Path> {
    if let Some(toolchain) = real.parent().filter(|bin| bin.ends_with("bin")).and_then(Path::parent)
        && !EVERYBODYS.iter().any(|of| Path::new(of) == toolchain)
        && toolchain.join("lib/rustlib").is_dir()
    {
        return Some(toolchain);
    }
    let folder = real.parent()?;
    let folder = if folder.ends_with("bin") { folder.parent()? } else { folder };
    let among = |of: &str| folder.starts_with(of) && folder != Path::new(of);
    SHARED.iter().chain(WITHOUT_CODE).any(|of| among(of)).then_some(folder)
}

/// What can be mapped as code of a folder of the system.
pub(crate) enum Code {
    /// All that is in it.
    All,
    /// These files and folders only.
    Of(Vec<PathBuf>),
}

/// The code in a folder of the system that belongs to no program in particular: libraries, and the modules of the
/// languages that other programs embed.
pub(crate) fn code(folder: &Path) -> Code {
    let is_one = |of: &[&str]| of.iter().any(|one| Path::new(one) == folder);
    if is_one(WITHOUT_CODE) {
        return Code::Of(Vec::new());
    }
    let Some(entries) = is_one(SHARED).then(|| std::fs::read_dir(folder).ok()).flatten() else { return Code::All };
    let (mut files, mut parts) = (0, Vec::new());
    for entry in entries.flatten() {
        let (name, Ok(kind)) = (entry.file_name(), entry.file_type()) else { continue };
        let name = name.to_string_lossy();
        let library = kind.is_file() && name.contains(".so");
        files += usize::from(library);
        // A folder for each kind of machine (Debian's way), and of languages.
        if library || (kind.is_dir() && (name.contains("-linux-") || matches!(stem(&name), "python" | "perl"))) {
            parts.push(entry.path());
        }
    }
    if files > SINGLE_MAX { Code::All } else { Code::Of(parts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_its_name_with_a_version_or_a_machine() {
        for (name, of) in [
            ("git", "git"),
            ("gcc-12", "gcc"),
            ("g++", "g++"),
            ("c++", "c++"),
            ("x86_64-linux-gnu-gcc-12", "gcc"),
            ("python3.11", "python"),
        ] {
            assert!(is(name, of), "{name}");
        }
        for (name, of) in [("legit", "git"), ("git-lfs", "git"), ("ccache", "cc"), ("", "git")] {
            assert!(!is(name, of), "{name}");
        }
    }

    #[test]
    fn what_is_started_is_found_and_what_that_starts_too() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = folder.path().join(name);
            (path.clone(), path.canonicalize().unwrap_or_default())
        };
        for name in ["cargo", "rustc", "cc", "machine-as", "ld", "sh"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("machine-as", folder.path().join("as")).unwrap();
        let here = |granted: &[&str]| {
            let granted: Vec<_> = granted.iter().map(|name| at(name)).collect();
            started(&granted).into_iter().filter(|(path, _)| path.starts_with(folder.path())).collect::<Vec<_>>()
        };
        assert_eq!(here(&["cargo", "sh"]), ["rustc", "cc", "as", "ld"].map(at));
        assert_eq!(at("as").1, at("machine-as").0.canonicalize().unwrap());
        assert_eq!(here(&["cc", "ld"]), ["as"].map(at), "what is granted is not found again");
        assert_eq!(here(&["sh"]), []);
    }

    #[test]
    fn the_home_of_a_program_is_never_a_folder_for_everybody() {
        let of = |path: &'static str| home(Path::new(path)).map(|home| home.to_str().unwrap());
        assert_eq!(of("/usr/lib/jvm/java-17/bin/java"), Some("/usr/lib/jvm/java-17"));
        assert_eq!(of("/usr/lib/git-core/git"), Some("/usr/lib/git-core"));
        let toolchain = tempfile::tempdir().unwrap();
        let cargo = toolchain.path().join("bin/cargo");
        assert_eq!(home(&cargo), None);
        std::fs::create_dir_all(toolchain.path().join("lib/rustlib")).unwrap();
        assert_eq!(home(&cargo), Some(toolchain.path()));
        assert_eq!(home(&toolchain.path().join("cargo")), None);
        for alone in ["/usr/libexec/one", "/usr/bin/git", "/usr/lib/bin/x", "/usr/share/x", "/opt/x/bin/y"] {
            assert_eq!(of(alone), None, "{alone}");
        }
    }
}
