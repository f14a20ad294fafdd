//! `aos pause` and `aos resume`.

use aos_abi::{Pid, Signal};

use super::{Context, Exit, Failure, kill};

/// Let processes finish what they are at and start nothing new
#[derive(Debug, clap::Args)]
pub struct Pause {
    /// Which
    #[arg(required = true)]
    pid: Vec<Pid>,
    /// All their descendants too
    #[arg(long)]
    tree: bool,
}

/// Let paused or stopped processes go on
#[derive(Debug, clap::Args)]
pub struct Resume {
    /// Which
    #[arg(required = true)]
    pid: Vec<Pid>,
    /// All their descendants too
    #[arg(long)]
    tree: bool,
}

impl Pause {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        kill::send(cx, &self.pid, Signal::Stop, self.tree).await
    }
}

impl Resume {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        kill::send(cx, &self.pid, Signal::Cont, self.tree).await
    }
}
