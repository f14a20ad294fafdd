//! The models that a server has: `GET …/models` in each provider's form.

use aos_abi::inference::Failure;
use aos_abi::{EffectId, Lsn};
use serde_json::Value;

use crate::client;
use crate::failure::{self, transient};
use crate::target::Target;

/// Largest listing that is read, in bytes; OpenRouter's, the longest known, is under one million.
pub(crate) const LISTING_BYTES_MAX: usize = 8 << 20;

/// Asks for the names of the listing. The caller sets the deadline.
pub(crate) async fn of(target: &Target<'_>) -> Result<Vec<String>, Failure> {
    let names = names(&document(target).await?);
    names.ok_or_else(|| transient(format!("{} sent what is no listing of models", target.host)))
}

/// Asks for the whole listing. The caller sets the deadline.
pub(crate) async fn document(target: &Target<'_>) -> Result<Value, Failure> {
    let headers = target.headers(EffectId { cause: Lsn::ZERO, nth: 0 });
    let failed = |error| client::failed(error, &target.host, target.near);
    let mut response = target.client.get(target.url.clone()).headers(headers).send().await.map_err(failed)?;
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(failed)? {
        body.extend_from_slice(&piece);
        if body.len() > LISTING_BYTES_MAX {
            return Err(transient(format!("{} lists more models than anyone has", target.host)));
        }
    }
    if !response.status().is_success() {
        return Err(failure::classify(response.status().as_u16(), response.headers(), &body, &target.about()));
    }
    let no_listing = |_| transient(format!("{} sent what is no listing of models", target.host));
    serde_json::from_slice(&body).map_err(no_listing)
}

/// The names in a listing: OpenAI's and Anthropic's `data[].id`, Gemini's `models[].name`.
pub(crate) fn names(listing: &Value) -> Option<Vec<String>> {
    Some(entries(listing)?.into_iter().map(|(name, _)| name).collect())
}

/// The same names, each with all that the listing says of its model.
pub(crate) fn entries(listing: &Value) -> Option<Vec<(String, &Value)>> {
    let of = |list: &str, name: &str| {
        let models = listing.get(list)?.as_array()?;
        let named = models.iter().filter_map(|model| Some((model.get(name)?.as_str()?, model)));
        Some(named.map(|(name, model)| (name.trim_start_matches("models/").to_owned(), model)).collect())
    };
    of("data", "id").or_else(|| of("models", "name"))
}
