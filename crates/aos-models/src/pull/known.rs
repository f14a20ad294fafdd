//! Models that `aos models pull` knows by name: of the llama architecture, in a chat form that the runtime writes, and
//! encoders that make vectors.

/// A model that can be fetched by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// By which it is asked for, and what its file is called without `.gguf`, or its folder.
    pub name: &'static str,
    /// Of what it consists.
    pub files: &'static [File],
    /// Megabytes, rounded.
    pub megabytes: u32,
    /// Under which it is given away.
    pub licence: &'static str,
    /// What it is for.
    pub makes: Makes,
}

/// A file of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Where it is.
    pub url: &'static str,
    /// Its SHA-256 in hex, where it is certain: several publications apart from each other, and an address that names one
    /// revision. For the others the server's word is taken, which Hugging Face gives in `x-linked-etag`.
    pub sha256: Option<&'static str>,
}

/// What a model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Makes {
    /// Answers; a GGUF file.
    Answers {
        /// Tokens of prompt and answer that it takes on a processor in good time; no more than the file says.
        context_window: u32,
        /// The tier that it is of.
        tier: &'static str,
    },
    /// Vectors of texts; a folder.
    Vectors {
        /// How many numbers one has.
        dimension: u32,
    },
}

/// All of them, the smallest first.
pub const KNOWN: [Known; 5] = [
    Known {
        name: "all-minilm-l6-v2",
        files: &[
            File {
                url: "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/1110a243fdf4706b3f48f1d95db1a4f5529b4d41/config.json",
                sha256: Some("953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
            },
            File {
                url: "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/1110a243fdf4706b3f48f1d95db1a4f5529b4d41/tokenizer.json",
                sha256: Some("be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
            },
            File {
                url: "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/1110a243fdf4706b3f48f1d95db1a4f5529b4d41/model.safetensors",
                sha256: Some("53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
            },
        ],
        megabytes: 91,
        licence: "Apache-2.0",
        makes: Makes::Vectors { dimension: 384 },
    },
    Known {
        name: "smollm2-135m",
        files: &[File {
            url: "https://huggingface.co/bartowski/SmolLM2-135M-Instruct-GGUF/resolve/main/SmolLM2-135M-Instruct-Q8_0.gguf",
            sha256: None,
        }],
        megabytes: 145,
        licence: "Apache-2.0",
        makes: Makes::Answers { context_window: 8192, tier: "nano" },
    },
    Known {
        name: "smollm2-360m",
        files: &[File {
            url: "https://huggingface.co/HuggingFaceTB/SmolLM2-360M-Instruct-GGUF/resolve/main/smollm2-360m-instruct-q8_0.gguf",
            sha256: None,
        }],
        megabytes: 386,
        licence: "Apache-2.0",
        makes: Makes::Answers { context_window: 8192, tier: "nano" },
    },
    Known {
        name: "llama-3.2-1b",
        files: &[File {
            url: "https://huggingface.co/bartowski/Llama-3.2-1B-Instruct-GGUF/resolve/067b946cf014b7c697f3654f621d577a3e3afd1c/Llama-3.2-1B-Instruct-Q4_K_M.gguf",
            sha256: Some("6f85a640a97cf2bf5b8e764087b1e83da0fdb51d7c9fab7d0fece9385611df83"),
        }],
        megabytes: 808,
        licence: "Llama 3.2 Community",
        makes: Makes::Answers { context_window: 16384, tier: "small" },
    },
    Known {
        name: "smollm2-1.7b",
        files: &[File {
            url: "https://huggingface.co/bartowski/SmolLM2-1.7B-Instruct-GGUF/resolve/1f03464768bfcc0319fc50da8ff5fb20b6417ba2/SmolLM2-1.7B-Instruct-Q4_K_M.gguf",
            sha256: Some("77665ea4815999596525c636fbeb56ba8b080b46ae85efef4f0d986a139834d7"),
        }],
        megabytes: 1056,
        licence: "Apache-2.0",
        makes: Makes::Answers { context_window: 8192, tier: "small" },
    },
];

impl File {
    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.url.rsplit('/').next().unwrap_or(self.url)
    }
}

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
            for file in known.files {
                assert!(file.url.starts_with("https://huggingface.co/"), "{known:?}");
                let pinned = !file.url.contains("/resolve/main/");
                assert_eq!(file.sha256.is_some(), pinned, "a checksum goes with one revision: {known:?}");
                assert!(file.sha256.is_none_or(super::super::is_sha256), "{known:?}");
            }
            let names: Vec<&str> = known.files.iter().map(File::name).collect();
            match known.makes {
                Makes::Answers { .. } => assert!(names.len() == 1 && names[0].ends_with(".gguf"), "{names:?}"),
                Makes::Vectors { .. } => assert_eq!(names, ["config.json", "tokenizer.json", "model.safetensors"]),
            }
            assert_eq!(Known::named(known.name), Some(known));
        }
    }
}
