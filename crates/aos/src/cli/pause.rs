//! `aos pause` and `aos resume`.

use aos_abi::Signal;

use super::kill::{Whom, send};
use super::{Context, Exit, Failure};

/// Let processes finish what they are at and start nothing new
#[derive(Debug, clap::Args)]
pub struct Pause {
    #[command(flatten)]
    whom: Whom,
}

/// Let paused or stopped processes go on
#[derive(Debug, clap::Args)]
pub struct Resume {
    #[command(flatten)]
    whom: Whom,
}

impl Pause {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        send(cx, &self.whom, Signal::Stop).await
    }
}

impl Resume {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        send(cx, &self.whom, Signal::Cont).await
    }
}
