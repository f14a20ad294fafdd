//! What of a workspace a command does not see, though it works there.
//!
//! Start at [`Layer::hiding`]. What is hidden is marked in the layer as overlayfs marks what was deleted, so to the
//! command it is not there: it can neither read it nor learn its name, and may make something else of that name. Always
//! true: a mark that was put here is no change, so what is hidden stays as it is in the workspace.

use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, makedev};
use rustix::io::Errno;

use crate::error::Error;
use crate::layer::{Layer, at};

impl Layer {
    /// The same layer, in which nothing is seen of what the workspace has at these paths, each relative to it. To be said
    /// before a run.
    #[must_use]
    pub fn hiding(mut self, hidden: impl IntoIterator<Item = PathBuf>) -> Self {
        self.hidden.extend(hidden);
        self
    }

    /// Whether something of the workspace is not seen through the layer, by its path there.
    #[must_use]
    pub fn hides(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.hidden.contains(above))
    }

    /// Puts the marks into a layer that is about to be shown.
    pub(crate) fn hide(&self, workspace: &Path) -> Result<(), Error> {
        for path in &self.hidden {
            self.folders_above(workspace, path)?;
            let mark = self.upper().join(path);
            // Whoever may write may make this one device (`mknod(2)`, whiteouts since Linux 5.8).
            match rustix::fs::mknodat(CWD, &mark, FileType::CharacterDevice, Mode::empty(), makedev(0, 0)) {
                // From an earlier run over this layer, or what that run made of the name.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(at(&mark)(errno.into())),
            }
        }
        Ok(())
    }
}
