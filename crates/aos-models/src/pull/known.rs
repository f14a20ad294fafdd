//! Models that `aos models pull` knows by name: of the llama architecture, in a chat form that the runtime writes.

/// A model that can be fetched by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// By which it is asked for, and what its file is called without `.gguf`.
    pub name: &'static str,
    /// Where it is.
    pub url: &'static str,
    /// Its SHA-256 in hex, where it is certain: several publications apart from each other, and an address that names one
    /// revision. For the others the server's word is taken, which Hugging Face gives in `x-linked-etag`.
    pub sha256: Option<&'static str>,
    /// Megabytes, rounded.
    pub megabytes: u32,
    /// Under which it is given away.
    pub licence: &'static str,
    /// Tokens of prompt and answer that it takes on a processor in good time; no more than the file says.
    pub context_window: u32,
    /// The tier that it is of.
    pub tier: &'static str,
}

/// All of them, the smallest first.
pub const KNOWN: [Known; 4] = [
    Known {
        name: "smollm2-135m",
        url: "https://huggingface.co/bartowski/SmolLM2-135M-Instruct-GGUF/resolve/main/SmolLM2-135M-Instruct-Q8_0.gguf",
        sha256: None,
        megabytes: 145,
        licence: "Apache-2.0",
        context_window: 8192,
        tier: "nano",
    },
    Known {
        name: "smollm2-360m",
        url: "https://huggingface.co/HuggingFaceTB/SmolLM2-360M-Instruct-GGUF/resolve/main/smollm2-360m-instruct-q8_0.gguf",
        sha256: None,
        megabytes: 386,
        licence: "Apache-2.0",
        context_window: 8192,
        tier: "nano",
    },
    Known {
        name: "llama-3.2-1b",
        url: "https://huggingface.co/bartowski/Llama-3.2-1B-Instruct-GGUF/resolve/067b946cf014b7c697f3654f621d577a3e3afd1c/Llama-3.2-1B-Instruct-Q4_K_M.gguf",
        sha256: Some("6f85a640a97cf2bf5b8e764087b1e83da0fdb51d7c9fab7d0fece9385611df83"),
        megabytes: 808,
        licence: "Llama 3.2 Community",
        context_window: 16384,
        tier: "small",
    },
    Known {
        name: "smollm2-1.7b",
        url: "https://huggingface.co/bartowski/SmolLM2-1.7B-Instruct-GGUF/resolve/1f03464768bfcc0319fc50da8ff5fb20b6417ba2/SmolLM2-1.7B-Instruct-Q4_K_M.gguf",
        sha256: Some("77665ea4815999596525c636fbeb56ba8b080b46ae85efef4f0d986a139834d7"),
        megabytes: 1056,
        licence: "Apache-2.0",
        context_window: 8192,
        tier: "small",
    },
];

impl Known {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Known> {
        KNOWN.iter().find(|known| known.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_fetched_protected_and_checked_where_its_checksum_stands() {
        for known in &KNOWN {
            assert!(known.url.starts_with("https://huggingface.co/") && known.url.ends_with(".gguf"), "{known:?}");
            let pinned = !known.url.contains("/resolve/main/");
            assert_eq!(known.sha256.is_some(), pinned, "a checksum goes with one revision: {known:?}");
            assert!(known.sha256.is_none_or(super::super::is_sha256), "{known:?}");
            assert_eq!(Known::named(known.name), Some(known));
        }
    }
}
