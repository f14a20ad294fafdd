//! `FS_LIST`: what is in a folder.

use std::ops::ControlFlow;

use aos_abi::syscall::FsList;
use aos_abi::{Timestamp, limits};
use rustix::fs::{FileType, Stat};
use serde_json::{Value, json};

use super::error::Error;
use super::path::Beneath;
use super::pattern::Pattern;
use super::walk::DEPTH_MAX;
use super::workspace::{Workspace, look};

/// Lists a folder, as many levels of it as [`FsList::levels`] says. Paths are from the workspace; a link is shown as a link.
/// At most [`limits::LISTING_MAX`] entries, then `truncated` is true.
pub(super) fn list(workspace: &Workspace<'_>, args: &FsList) -> Result<Value, Error> {
    let path = Beneath::parse(args.path.as_deref().unwrap_or(""))?;
    let pattern = args.glob.as_deref().map(Pattern::parse).transpose()?;
    let depth = args.levels().unwrap_or(DEPTH_MAX);
    let folder = workspace.folder(&path)?;
    let mut entries = Vec::new();
    let walked = workspace.walk(&folder, &path, depth, &mut |found| {
        if pattern.as_ref().is_some_and(|pattern| !pattern.matches(found.below)) {
            return Ok(ControlFlow::Continue(()));
        }
        if entries.len() == limits::LISTING_MAX {
            return Ok(ControlFlow::Break(()));
        }
        // Gone since the folder was read: it is not there.
        if let Some(stat) = look(found.folder, found.name, found.path)? {
            entries.push(entry(found.path, &stat));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let mut result = json!({ "entries": entries, "truncated": walked.truncated });
    if !walked.unreadable.is_empty() {
        result["unreadable"] = walked.unreadable.into();
    }
    Ok(result)
}

fn entry(path: &str, stat: &Stat) -> Value {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => "file",
        FileType::Directory => "folder",
        FileType::Symlink => "link",
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
            "other"
        }
    };
    json!({ "path": path, "kind": kind, "size": stat.st_size, "mtime": modified(stat).to_string() })
}

/// When a file's content last changed.
fn modified(stat: &Stat) -> Timestamp {
    let nanos = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    Timestamp(stat.st_mtime.saturating_mul(1000).saturating_add(nanos / 1_000_000))
}
