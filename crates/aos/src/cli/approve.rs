//! `aos approve` and `aos reject`: a person's answers.

use aos_abi::api::{ProposalView, RejectRequest};
use serde::Serialize;

use super::proposals::state;
use super::{Context, Exit, Failure, call};
use crate::client::Address;

/// Say yes to calls that wait
#[derive(Debug, clap::Args)]
pub struct Approve {
    /// Which, such as p3
    #[arg(required = true)]
    id: Vec<String>,
}

/// Say no to calls that wait
#[derive(Debug, clap::Args)]
pub struct Reject {
    /// Which, such as p3
    #[arg(required = true)]
    id: Vec<String>,
    /// What the agent is told
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
}

impl Approve {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        answer(cx, &self.id, "approve", &serde_json::json!({})).await
    }
}

impl Reject {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        answer(cx, &self.id, "reject", &RejectRequest { why: self.why }).await
    }
}

async fn answer(cx: &Context, ids: &[String], verb: &str, body: &impl Serialize) -> Result<Exit, Failure> {
    let client = cx.client()?;
    let mut first = None;
    for id in ids {
        match client.post::<ProposalView>(&Address::of("/v1/proposals").then(id).then(verb), body).await {
            Ok(proposal) if cx.json => cx.document(&proposal)?,
            Ok(proposal) => {
                let of = call(&proposal.call.name, &proposal.call.args);
                cx.note(&format!("{} is {}: {of}", proposal.id, state(proposal.state)));
            }
            Err(error) => first = first.or(Some(Failure::from(error))),
        }
    }
    first.map_or(Ok(Exit::Success), Err)
}
