//! Why a model cannot be used, as values: each with the way out.

use std::path::{Path, PathBuf};

/// Why a model could not be loaded or asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is no such file.
    #[error("there are no weights at {}", .0.display())]
    Absent(PathBuf),
    /// The file cannot be read.
    #[error("the weights at {} cannot be read: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// The file is not what its name says, or it ends before what its own header promises.
    #[error("{} is no whole {} file: {why}", path.display(), form(path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where it breaks.
        why: String,
    },
    /// The file is whole, but this runtime does not run what is in it.
    #[error("{} holds a model that this runtime does not run: {why}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it is.
        why: String,
    },
    /// The folder is whole, but this runtime makes no vectors with what is in it.
    #[error("{} holds no encoder that this runtime runs: {why}", path.display())]
    NoEncoder {
        /// The folder.
        path: PathBuf,
        /// What it is.
        why: String,
    },
    /// The model is for something else.
    #[error("the model at {} makes {makes}", path.display())]
    Purpose {
        /// The file or folder.
        path: PathBuf,
        /// What it makes, and what not.
        makes: &'static str,
    },
    /// A text does not fit the window of an encoder. It is not cut: what is lost would not be seen.
    #[error("a text has {tokens} tokens, the model reads {window} at once")]
    LongText {
        /// Its tokens.
        tokens: usize,
        /// Tokens that the model reads.
        window: usize,
    },
    /// A text has so many bytes that it is not even made into tokens.
    #[error("a text has {bytes} bytes, the model takes {most} at most")]
    HugeText {
        /// Its bytes.
        bytes: usize,
        /// Bytes that are made into tokens.
        most: usize,
    },
    /// The prompt and the least answer do not fit the model's window.
    #[error("the prompt has at least {tokens} tokens, the model's window {window}")]
    TooLong {
        /// Tokens of the prompt, or fewer where its bytes alone show that it does not fit.
        tokens: usize,
        /// Tokens of prompt and answer that the model takes.
        window: usize,
    },
    /// One process alone would need more memory than all together may have.
    #[error("this prompt needs at least {needed} bytes of cache, all processes together may have {limit}")]
    TooLarge {
        /// Bytes that it needs, or fewer where its bytes alone show that it does not fit.
        needed: usize,
        /// Bytes there are.
        limit: usize,
    },
    /// The model would answer as if that part of the prompt were not there.
    #[error("{0}")]
    Unread(&'static str),
    /// So many wait already that one more would only wait longer.
    #[error("{0} requests already wait for this model")]
    Busy(usize),
    /// A saved cache does not belong to this model, or is damaged.
    #[error("a saved cache cannot be restored: {0}")]
    Saved(&'static str),
    /// The grammar could not be made or followed; a fault of this runtime.
    #[error("the grammar of the calls failed: {0}")]
    Grammar(String),
    /// The library that computes failed or panicked; the model is loaded anew for the next request.
    #[error("the model failed while it computed: {0}")]
    Broke(String),
}

impl Fault {
    /// The way out.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Fault::Absent(_) => {
                "write the path of a .gguf file, or the name of one in models/ of the home; `aos models pull` fetches one"
            }
            Fault::Unreadable { .. } => "let the user that runs the daemon read it",
            Fault::Damaged { .. } => {
                "fetch it again: `aos models pull NAME` goes on where a download ended and checks it"
            }
            Fault::Unsupported { .. } => {
                "use a llama-architecture model in GGUF, or serve this one with llama-server or Ollama and provider = \"openai\""
            }
            Fault::NoEncoder { .. } => {
                "use a BERT model in safetensors whose vectors are means, such as `aos models pull all-minilm-l6-v2`, or a server with provider = \"openai\""
            }
            Fault::Purpose { .. } => "name another model for this",
            Fault::LongText { .. } | Fault::HugeText { .. } => {
                "cut it into pieces, or use a model with a larger window"
            }
            Fault::TooLong { .. } => "a shorter prompt, or a model with a larger window",
            Fault::TooLarge { .. } => "a shorter prompt, or a smaller model",
            Fault::Unread(_) => "leave it out, or name another model",
            Fault::Busy(_) => "ask again later, or lower `limits.concurrency` of the model",
            Fault::Saved(_) => "compute it again from the prompt",
            Fault::Grammar(_) | Fault::Broke(_) => "ask again; if it stays, another model",
        }
    }

    /// Whether the same request may do later.
    #[must_use]
    pub fn passes(&self) -> bool {
        match self {
            Fault::Busy(_) | Fault::Broke(_) => true,
            Fault::Absent(_)
            | Fault::Unreadable { .. }
            | Fault::Damaged { .. }
            | Fault::Unsupported { .. }
            | Fault::NoEncoder { .. }
            | Fault::Purpose { .. }
            | Fault::LongText { .. }
            | Fault::HugeText { .. }
            | Fault::TooLong { .. }
            | Fault::TooLarge { .. }
            | Fault::Unread(_)
            | Fault::Saved(_)
            | Fault::Grammar(_) => false,
        }
    }
}

/// What a file should be, by its name.
fn form(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => "JSON",
        Some("safetensors") => "safetensors",
        _ => "GGUF",
    }
}
