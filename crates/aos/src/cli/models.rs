//! `aos models`.

use aos_abi::api::ModelView;
use serde::Deserialize;

use super::table::{Column, Table};
use super::{Context, Exit, Failure, absent, count, doctor};
use crate::client::Address;
use crate::config::Config;

/// List the configured models, or test whether they answer
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List them
    List,
    /// Ask each (or one) for a short answer; exits 1 where one fails
    Test {
        /// Only this one
        model: Option<String>,
    },
    #[command(hide = true)]
    Pull(absent::Args),
    #[command(hide = true)]
    Route(absent::Args),
    #[command(hide = true)]
    Key(absent::Args),
}

#[derive(Deserialize)]
struct List {
    data: Vec<ModelView>,
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        match self.command {
            None | Some(Command::List) => list(cx).await,
            Some(Command::Test { model }) => test(cx, model.as_deref()).await,
            Some(Command::Pull(_)) => Err(absent::failure("aos models pull", "the local model runtime")),
            Some(Command::Route(_)) => Err(absent::failure("aos models route", "the router")),
            Some(Command::Key(_)) => Err(absent::failure("aos models key", "keys for other programs")),
        }
    }
}

async fn list(cx: &Context) -> Result<Exit, Failure> {
    let List { data } = cx.client()?.get(&Address::of("/v1/models")).await?;
    if cx.json {
        cx.document(&data)?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new(&[
        Column::text(""),
        Column::text("NAME"),
        Column::text("PROVIDER"),
        Column::text("TIER").dispensable(),
        Column::number("WINDOW").dispensable(),
        Column::text("WHERE"),
        Column::text("MODEL"),
    ]);
    for model in &data {
        table.row([
            if model.default { "*" } else { "" }.into(),
            model.id.clone(),
            model.provider.clone(),
            model.tier.clone().unwrap_or_else(|| "-".into()),
            count(model.context_window.into()),
            if model.local { "here" } else { "remote" }.into(),
            model.model.clone(),
        ]);
    }
    cx.print(&table.shown(cx.width, cx.out))?;
    if data.iter().any(|model| model.id == "demo" && model.default) {
        cx.note("`demo` is a script and no model: it shows how AOS works. `aos init` looks for models again");
    }
    Ok(Exit::Success)
}

async fn test(cx: &Context, only: Option<&str>) -> Result<Exit, Failure> {
    let config = Config::load(&cx.home.config_file(), &cx.env)?;
    if let Some(name) = only.filter(|name| !config.models.contains_key(*name)) {
        let known: Vec<&str> = config.models.keys().map(String::as_str).collect();
        return Err(
            Failure::usage(format!("no model `{name}` is configured")).hint(format!("there are: {}", known.join(", ")))
        );
    }
    let findings = doctor::models(&config, &cx.env, only).await;
    doctor::tell(cx, &findings)
}
