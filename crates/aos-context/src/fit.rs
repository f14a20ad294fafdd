//! How much room each part of a window gets at most.

use crate::estimate::BYTES_PER_TOKEN;

/// The shares of a budget. A window is a **head** (the task, and the summary once there is one) and **segments**: each a
/// turn with its results and whatever came in before the next turn; what came before the first turn is one too. A
/// segment that takes more than half of the budget is shown cut to that, and so the newest one, which always stays,
/// leaves room for the head. Which items are cut follows from the segment and the budget alone, so that it is the same
/// in every later prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    budget: u64,
    images: bool,
}

impl Fit {
    /// The smallest budget for which a rendered window is guaranteed to fit, in tokens: below it the frames of a few
    /// calls alone can be more.
    pub const BUDGET_MIN: u64 = 2048;

    /// For a window of so many tokens, uncalibrated.
    #[must_use]
    pub fn for_budget(tokens: u64) -> Fit {
        Fit { budget: tokens, images: false }
    }

    /// The same for a model that is shown images, or for one that is not.
    #[must_use]
    pub fn with_images(self, images: bool) -> Fit {
        Fit { images, ..self }
    }

    /// Nothing is cut beyond the limits of each item.
    #[must_use]
    pub fn unbounded() -> Fit {
        Fit { budget: u64::MAX / 64, images: false }
    }

    /// Whether images are shown.
    pub(crate) fn images(self) -> bool {
        self.images
    }

    /// Most tokens of one segment: half.
    pub(crate) fn segment_tokens(self) -> u64 {
        self.budget / 2
    }

    /// Most tokens of the task, once there is a summary, and of the summary: an eighth each.
    pub(crate) fn head_tokens(self) -> u64 {
        self.budget / 8
    }

    /// Tokens of whole segments that a compaction leaves, where they are smaller than that: three eighths.
    pub(crate) fn kept_tokens(self) -> u64 {
        self.budget / 8 * 3
    }

    pub(crate) fn segment_bytes(self) -> usize {
        bytes(self.segment_tokens())
    }

    pub(crate) fn head_bytes(self) -> usize {
        bytes(self.head_tokens())
    }
}

impl Default for Fit {
    fn default() -> Self {
        Fit::unbounded()
    }
}

fn bytes(tokens: u64) -> usize {
    usize::try_from(tokens.saturating_mul(BYTES_PER_TOKEN)).unwrap_or(usize::MAX)
}
