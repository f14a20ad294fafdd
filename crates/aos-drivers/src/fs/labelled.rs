//! Which labels of rules are on what is in a workspace: a rule labels files, and some workspaces have none of them.
//!
//! Start at [`labelled`]. What always holds: what was not looked at counts as carrying all that rules label. Names and kinds
//! are looked at, no content.

use std::ops::ControlFlow;

use aos_policy::Labels;
use rustix::fs::FileType;

use super::path::Beneath;
use super::place::Place;
use super::walk::DEPTH_MAX;
use super::workspace::Workspace;

/// Entries that are looked at; where there are more, they count as carrying all that a rule may label.
const ENTRIES_MAX: usize = 10_000;

/// Which of these labels are on something in the workspace or in what is mounted there. `of` says what an entry at a path
/// carries, and is told whether it is a folder. Blocking, for as long as a listing of so many names takes.
pub fn labelled(place: &Place, all: Labels, of: impl Fn(&str, bool) -> Labels) -> Labels {
    if all.is_empty() { Labels::NONE } else { look(place, all, &of).unwrap_or(all) }
}

/// `None` where not everything was looked at.
fn look(place: &Place, all: Labels, of: &dyn Fn(&str, bool) -> Labels) -> Option<Labels> {
    let workspace = Workspace::open(place).ok()?;
    let root = Beneath::parse("").ok()?;
    let folder = workspace.folder(&root).ok()?;
    let (mut found, mut left) = (Labels::NONE, ENTRIES_MAX);
    let walked = workspace.walk(&folder, &root, DEPTH_MAX, &mut |entry| {
        let is_folder = entry.kind == FileType::Directory;
        found = found.and(of(entry.path, is_folder));
        let deeper = is_folder && entry.path.split('/').count() >= DEPTH_MAX as usize;
        // What is below the last level is not looked at.
        left = if deeper { 0 } else { left.saturating_sub(1) };
        Ok(if left == 0 || all.within(found) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    let whole = walked.is_ok_and(|walked| !walked.truncated && walked.unreadable.is_empty());
    (whole || all.within(found)).then(|| all.only(found))
}
