//! Bodies of the fuzz targets: each takes bytes as a stranger may send them and panics where something that always holds
//! does not.
//!
//! Start at [`TARGETS`]. `fuzz/run SECONDS` fuzzes each of them (`README.md` has what that came to); `cargo test` here runs
//! each over its corpus, whole and cut, on any compiler. To add one: a function here, a line in [`TARGETS`], a file in `fuzz_targets/`, a `[[bin]]`, and
//! some files in `corpus/NAME/`. One that needs more than the contract and the context is a module and a feature of its
//! name. What crashed once is kept in the corpus.

#[cfg(feature = "configuration")]
mod configuration;
#[cfg(feature = "http_body")]
mod http_body;
#[cfg(feature = "journal_file")]
mod journal_file;
#[cfg(any(feature = "policy_file", feature = "policy_pattern"))]
mod policy;
#[cfg(feature = "proxy_request")]
mod proxy_request;

#[cfg(feature = "configuration")]
pub use configuration::configuration;
#[cfg(feature = "http_body")]
pub use http_body::{call, http_body};
#[cfg(feature = "journal_file")]
pub use journal_file::{FOLDED, LAST, journal_file, opened};
#[cfg(any(feature = "policy_file", feature = "policy_pattern"))]
pub use policy::{policy_file, policy_pattern};
#[cfg(feature = "proxy_request")]
pub use proxy_request::{proxy_request, told};

use std::collections::BTreeSet;
use std::sync::Arc;

use aos_abi::decode::{call_ids, decode, kept};
use aos_abi::inference::{Encoding, Message, NativeCall};
use aos_abi::{Entry, Lsn, Name, Syscall, limits};
use aos_context::{Fit, estimate, item, item_bytes, message_tokens, render, render_fitted};
use aos_personal::{Detector, Tokens};

/// A target: its name, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// Every target that is built.
pub const TARGETS: &[Target] = &[
    #[cfg(feature = "configuration")]
    ("configuration", configuration),
    ("decode_reply", decode_reply),
    ("entry_json", entry_json),
    #[cfg(feature = "http_body")]
    ("http_body", http_body),
    #[cfg(feature = "journal_file")]
    ("journal_file", journal_file),
    ("personal", personal),
    #[cfg(feature = "policy_file")]
    ("policy_file", policy_file),
    #[cfg(feature = "policy_pattern")]
    ("policy_pattern", policy_pattern),
    #[cfg(feature = "proxy_request")]
    ("proxy_request", proxy_request),
    ("syscall_args", syscall_args),
];

/// A model's reply. The first byte chooses encoding and cut; then fields that end in `\x1f`: the text, and id, name and
/// arguments of native calls.
pub fn decode_reply(data: &[u8]) {
    let Some((flags, rest)) = data.split_first() else { return };
    let encoding = [Encoding::Native, Encoding::Text, Encoding::Constrained][usize::from(flags % 3)];
    let cut_off = flags & 0x80 != 0;
    let fields = String::from_utf8_lossy(rest);
    let mut fields = fields.split('\u{1f}');
    let text = fields.next().unwrap_or_default();
    let mut native = Vec::new();
    while let (Some(id), Some(name), Some(arguments)) = (fields.next(), fields.next(), fields.next()) {
        native.push(NativeCall { id: id.into(), name: name.into(), arguments: arguments.into() });
    }

    let decoding = decode(text, &native, encoding, cut_off, &mut call_ids(Lsn(1)));
    let ids: BTreeSet<&str> = decoding.calls.iter().map(|call| call.call_id.as_str()).collect();
    assert_eq!(ids.len(), decoding.calls.len(), "every call has an id of its own");
    assert!(decoding.calls.len() >= kept(&native).len(), "no native call that is shown is lost");
    assert!(decoding.calls.len() <= 2 * (limits::CALLS_PER_REPLY_MAX + 1), "there is a bound");
    let runnable = decoding.calls.iter().filter(|call| call.call.is_ok()).count();
    assert!(runnable <= limits::CALLS_PER_REPLY_MAX);
    assert_eq!(decoding, decode(text, &native, encoding, cut_off, &mut call_ids(Lsn(1))), "the same again");

    // Whatever it is, as a block quote it is data.
    let quoted: String = text.split('\n').map(|line| format!("> {line}\n")).collect();
    let decoding = decode(&quoted, &[], Encoding::Text, false, &mut call_ids(Lsn(1)));
    assert!(decoding.calls.is_empty(), "a quotation runs nothing: {:?}", decoding.calls);

    // So it is in the fence of a stranger, which it cannot close.
    let fenced = format!("x <untrusted source=\"x\">{}", text.replace("</untrusted", "("));
    let decoding = decode(&fenced, &[], encoding, cut_off, &mut call_ids(Lsn(1)));
    assert!(decoding.calls.is_empty(), "what a stranger wrote runs nothing: {:?}", decoding.calls);
}

/// An entry of the journal as JSON, and what a window makes of it.
pub fn entry_json(data: &[u8]) {
    let Ok(entry) = serde_json::from_slice::<Entry>(data) else { return };
    let json = serde_json::to_vec(&entry).expect("an entry that was read can be written");
    let again: Entry = serde_json::from_slice(&json).expect("an entry that was written can be read");
    assert_eq!(again.body.kind(), entry.body.kind());
    assert_eq!(again.lsn, entry.lsn);

    let entries = [Arc::new(entry)];
    let counted = estimate(item_bytes(&entries[0]));
    for encoding in [Encoding::Native, Encoding::Text, Encoding::Constrained] {
        let tokens = |messages: &[Message]| messages.iter().map(message_tokens).sum::<u64>();
        let whole = tokens(&render(&entries, encoding));
        assert!(item(&entries[0]).is_some() || whole == 0);
        assert!(whole <= counted, "{whole} tokens are shown, {counted} were counted");
        let fitted = tokens(&render_fitted(&entries, encoding, Fit::for_budget(Fit::BUDGET_MIN)));
        assert!(fitted <= Fit::BUDGET_MIN, "{fitted} tokens are shown");
    }
    let _ = aos_context::digest(&entries);
}

/// Texts, each ended by `\x1f`, in which personal data is found, replaced by tokens and filled in again.
pub fn personal(data: &[u8]) {
    let written = String::from_utf8_lossy(data);
    let texts: Vec<&str> = written.split('\u{1f}').collect();
    let (detector, mut tokens) = (Detector::all(), Tokens::default());
    for text in &texts {
        let mut last = 0;
        let Ok(all) = detector.find(text) else { return };
        for found in all {
            assert!(last <= found.start && found.start < found.end, "spans are sorted and disjoint");
            assert!(!text[found.start..found.end].is_empty(), "between characters");
            last = found.end;
        }
        tokens.avoid(text);
    }
    for text in &texts {
        let replaced = tokens.replace(&detector, "", text).ok().flatten().unwrap_or_else(|| (*text).to_owned());
        let again = tokens.fill(&replaced, |value| Some(value.to_owned())).unwrap_or(replaced);
        assert_eq!(again, *text, "filled in again it is what it was");
    }
}

/// The arguments of a call. The first byte chooses its name.
pub fn syscall_args(data: &[u8]) {
    let Some((name, args)) = data.split_first() else { return };
    let name = Name::ALL[usize::from(*name) % Name::ALL.len()];
    let args = String::from_utf8_lossy(args);
    match Syscall::parse(name.as_str(), &args) {
        Ok(call) => {
            assert_eq!(call.name(), name);
            let again = Syscall::parse(name.as_str(), &call.args().to_string()).expect("canonical arguments parse");
            assert_eq!(again.name(), name);
        }
        Err(error) => assert!(!error.message.is_empty() && error.message.len() <= 4 * args.len() + 2000),
    }
}
