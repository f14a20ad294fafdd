//! What a process's window looks like: which entries are in it, how they are shown to a model, how many tokens that
//! takes, and what gives way when it is full.
//!
//! Start at [`Window`] for the plan and at [`render_fitted`] for the text. Both count by the same rules, which [`Fit`]
//! states: a window that [`Window::plan`] lets pass renders to no more tokens than its budget. What always holds: the
//! same entries render to the same bytes, and a prompt that was sent is a prefix of every later one until the next
//! compaction; a call is never shown without a result, nor a result without its call; what strangers wrote stands in a
//! fence that it cannot leave. No I/O, clock or randomness here. Deliberately absent: tokenizers (estimates are
//! calibrated by what providers report, see [`Calibration`]), and any choice of what is worth remembering, which is
//! left to the model that summarises.

mod digest;
mod estimate;
mod fit;
mod identity;
mod image;
mod item;
mod render;
mod segment;
mod shown;
mod status;
mod texts;
mod window;

pub use aos_abi::entry::ItemKind;
pub use digest::{digest, summary_prompt, summary_prompt_fitted};
pub use estimate::{Calibration, estimate, message_tokens};
pub use fit::Fit;
pub use identity::{Identity, system_prompt};
pub use item::{item, item_bytes};
pub use render::{Rendered, render, render_fitted};
pub use shown::{PERSON_TEXT_BYTES, json_bytes};
pub use status::{Status, status};
pub use texts::with_texts;
pub use window::{Compaction, Item, Window};
