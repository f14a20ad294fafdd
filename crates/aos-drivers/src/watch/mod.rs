//! Watched folders: `FS_WATCH`, one event per settled burst of changes.
//!
//! Start at [`Watcher::start`]; `tree` speaks with inotify, `burst` gathers, `watcher` waits.
//!
//! What always holds: only what is beneath the workspace is watched and no symbolic link is followed; a burst is told
//! once, when it has been quiet for a while or has lasted too long; where changes were missed (too many at once, too
//! many folders) the event says so rather than being silent; a file that is replaced by renaming stays watched, and so
//! does a folder that is removed and made again. The number of folders and of paths in an event is bounded.
//!
//! Deliberately absent: what changed in a file, and who did it.

mod burst;
#[cfg(test)]
mod tests;
mod tree;
mod watcher;

pub use burst::{Changed, Settle};
pub use watcher::{Order, Watcher};
