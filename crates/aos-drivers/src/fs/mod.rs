//! Files: `FS_READ`, `FS_WRITE`, `FS_EDIT`, `FS_LIST`, `FS_SEARCH`, `FS_DELETE` and `FS_MOVE` beneath one workspace folder.
//!
//! Start at [`Driver::call`]; how a path is kept inside is in `workspace`.
//!
//! What always holds:
//! - Nothing is reached by a path string. The workspace is opened once per call and everything below it is resolved by
//!   the kernel with `openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)`, or by a checked last component on a folder so opened.
//! - **No symbolic link is followed**, not even one that stays inside: the policy judged the path that was written, and
//!   a link would let `notes/x` stand for `contracts/x`. The error names where an inner link leads, so that the call can
//!   be made again under the name that the policy must judge. Deleting and moving act on the link itself.
//! - A replaced file is replaced whole: readers see the old or the new content. Permission bits and, where we may, the
//!   owner are kept; extended attributes are not. A hard link is broken by a replacement and never written through:
//!   appending to a file with several names is refused. Reading one is allowed, as an agent cannot make one to the outside.
//! - Devices, pipes and sockets are neither read nor written.
//!
//! - What is a daemon's own (`home`) is not shown, and no folder that holds it is moved or deleted.
//!
//! - A change for which a layer is given goes through it and can be undone (`keep`).
//!
//! - A mounted folder of the host (`place`) is a root of its own, to which the same holds, and is only read.
//!
//! Deliberately absent: what is kept for how long (the caller says), and any cache.

mod delete;
mod difference;
mod draft;
mod driver;
mod edit;
mod error;
mod examine;
mod home;
mod keep;
mod labelled;
mod list;
mod locks;
mod path;
mod pattern;
mod place;
mod read;
mod search;
#[cfg(test)]
mod tests;
mod walk;
mod workspace;
mod write;

pub use difference::{Differences, SHOWN_BYTES_MAX};
pub use driver::{Done, Driver};
pub use examine::{Seen, drift, examine};
pub use keep::Keeping;
pub use labelled::labelled;
pub use place::{Mount, Place};

// What watching needs of the way paths are kept inside.
pub(crate) use draft::Draft;
pub(crate) use error::Error;
pub(crate) use path::Beneath;
pub(crate) use pattern::Pattern;
pub(crate) use walk::{DEPTH_MAX, is_unseen, walk};
pub(crate) use workspace::{Workspace, beneath};
