//! What is lost where a request is translated, and would be missed: it is refused in words.
//!
//! Start at [`refused`]. Deliberately absent: what only hints (`seed`, penalties, `metadata`, `user`, `top_k`); another
//! provider answers without it.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::peek::Misfit;

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow, default)]
    logprobs: Option<&'a RawValue>,
    #[serde(borrow, default)]
    top_logprobs: Option<&'a RawValue>,
    #[serde(borrow, default)]
    logit_bias: Option<&'a RawValue>,
    #[serde(borrow, default)]
    audio: Option<&'a RawValue>,
    #[serde(borrow, default)]
    background: Option<&'a RawValue>,
    #[serde(borrow, default)]
    conversation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    prompt: Option<&'a RawValue>,
}

/// Refuses a request of either of OpenAI's formats that asks for what no other has.
pub(super) fn refused(body: &[u8]) -> Result<(), Misfit> {
    let fields: Fields<'_> = serde_json::from_slice(body)?;
    let named = [
        ("logprobs", fields.logprobs),
        ("top_logprobs", fields.top_logprobs),
        ("logit_bias", fields.logit_bias),
        ("audio", fields.audio),
        ("background", fields.background),
        ("conversation", fields.conversation),
        ("prompt", fields.prompt),
    ];
    match named.into_iter().find(|(_, value)| value.is_some_and(asks)) {
        None => Ok(()),
        Some((name, _)) => {
            Err(Misfit::new(format!("`{name}` cannot be said to this model's server, which speaks another format"))
                .hint("leave it out, or name a model whose server speaks the format of the request"))
        }
    }
}

/// Whether it is more than a way to say nothing.
fn asks(value: &RawValue) -> bool {
    !matches!(value.get(), "null" | "false" | "0" | "{}" | "[]")
}
