//! `aos models`.

use aos_abi::Usd;
use aos_abi::api::{KeyMade, KeyRequest, ModelView, RouteRequest, RouteView, RoutedModel};
use aos_abi::model::{Ability, ModelLimits, TIERS};
use aos_abi::process::{BudgetSpec, StatusView};
use serde::Deserialize;

use super::run::{above_zero, named, usd};
use super::table::{Column, Table};
use super::{Context, Exit, Failure, count, doctor, money, of, pull};
use crate::client::Address;
use crate::config::Config;
use crate::local::NANO;

/// List the configured models, test them, fetch others, make keys for other programs
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List them
    List,
    /// Ask each (or one) for a short answer, and measure those inside this program; exits 1 where one fails
    Test {
        /// Only this one
        model: Option<String>,
    },
    Pull(pull::Args),
    /// Say which models would serve a task, in which order, and why; nothing is asked of any
    Route {
        /// The task; only its length counts
        #[arg(value_name = "TASK", default_value = "")]
        task: String,
        /// The role of policy.yaml it would run under
        #[arg(long)]
        role: Option<String>,
        /// What would be asked for: a model, a tier or `auto`
        #[arg(short, long)]
        model: Option<String>,
        /// What the model must be able to do: tools, images, reasoning, json_schema; several with commas
        #[arg(long, value_name = "ABILITY", value_delimiter = ',', value_parser = ability)]
        needs: Vec<Ability>,
    },
    /// Make a key with which another program can ask models; it is shown this once
    #[command(
        after_help = "The program stands in `aos ps` under its name: `aos cost` says what it spent, `aos budget` gives it more, \
`aos pause` and `aos resume` hold it, `aos kill` takes the key back.\n\nExamples:\n  aos models key editor --budget 2\n  \
aos models key batch --tier nano --tier small --rpm 60"
    )]
    Key(KeyArgs),
}

#[derive(Debug, clap::Args)]
struct KeyArgs {
    /// The program's name
    #[arg(value_parser = named)]
    name: String,
    /// Whose it is
    #[arg(long, value_name = "TEXT")]
    owner: Option<String>,
    /// The most it may spend, in US dollars
    #[arg(long, value_name = "USD", value_parser = usd)]
    budget: Option<Usd>,
    /// The most tokens it may use
    #[arg(long, value_name = "N", value_parser = above_zero::<u64>)]
    tokens: Option<u64>,
    /// The most requests a minute
    #[arg(long, value_name = "N", value_parser = above_zero::<u32>)]
    rpm: Option<u32>,
    /// A tier of models that it may ask; may be repeated. Without one: all that its role may
    #[arg(long, value_name = "TIER", value_parser = clap::builder::PossibleValuesParser::new(TIERS))]
    tier: Vec<String>,
    /// The role of policy.yaml that it runs under, instead of the default one
    #[arg(long, value_name = "NAME")]
    policy_role: Option<String>,
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
            Some(Command::Pull(args)) => args.perform(cx).await,
            Some(Command::Route { task, role, model, needs }) => {
                let needs = needs.into_iter().collect();
                route(cx, RouteRequest { task, role, model, needs }).await
            }
            Some(Command::Key(args)) => key(cx, args).await,
        }
    }
}

fn ability(text: &str) -> Result<Ability, String> {
    Ability::ALL.into_iter().find(|ability| ability.name() == text).ok_or_else(|| {
        let names: Vec<&str> = Ability::ALL.into_iter().map(Ability::name).collect();
        format!("there are: {}", names.join(", "))
    })
}

async fn key(cx: &Context, args: KeyArgs) -> Result<Exit, Failure> {
    let request = KeyRequest {
        name: args.name,
        owner: args.owner,
        policy_role: args.policy_role,
        budget: BudgetSpec { usd: args.budget, tokens: args.tokens, ..BudgetSpec::default() },
        rpm: args.rpm,
        tiers: args.tier,
    };
    let client = cx.client()?;
    let made: KeyMade = client.post(&Address::of("/v1/keys"), &request).await?;
    if cx.json {
        cx.document(&made)?;
        return Ok(Exit::Success);
    }
    cx.print(&format!("{}\n", made.key))?;
    let status: StatusView = client.get(&Address::of("/v1/status")).await?;
    let keep = format!("keep it: it is not shown again. The program is process {}", made.pid);
    cx.note(&match &status.taken {
        None => format!("{keep}; its base URL is http://{}/v1 (Anthropic's clients: without /v1)", status.listen),
        Some(why) => format!("{keep}. It can ask nothing yet: {why}; `aos status` says more"),
    });
    Ok(Exit::Success)
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
        Column::text("PRICE OF A MILLION").dispensable(),
        Column::text("CAN").dispensable(),
        Column::text("LIMITS").dispensable(),
        Column::text("WHERE"),
        Column::text("MODEL"),
    ]);
    for model in &data {
        let price = match (&model.price, model.local) {
            (Some(price), _) => format!("{} in, {} out", money(price.input), money(price.output)),
            (None, true) => "-".into(),
            (None, false) => "unknown".into(),
        };
        let can: Vec<&str> = model.can.iter().map(|ability| ability.name()).collect();
        let can = model.dimension.map_or_else(|| can.join(", "), |numbers| format!("vectors of {numbers}"));
        table.row([
            if model.default { "*" } else { "" }.into(),
            model.id.clone(),
            model.provider.clone(),
            model.tier.clone().unwrap_or_else(|| "-".into()),
            count(model.context_window.into()),
            price,
            can,
            limits(&model.limits),
            if model.local { "here" } else { "remote" }.into(),
            model.model.clone(),
        ]);
    }
    cx.print(&table.shown(cx.width, cx.out))?;
    if data.iter().any(|model| model.id == NANO && model.default) {
        cx.note("`nano` is the small model inside aos, for plain tasks. `aos init` looks for a larger one");
    }
    Ok(Exit::Success)
}

/// What its server allows, in words.
fn limits(limits: &ModelLimits) -> String {
    let rpm = limits.rpm.map(|rpm| format!("{}/min", of(rpm.into(), "request")));
    let tpm = limits.tpm.map(|tpm| format!("{} tokens/min", count(tpm)));
    [Some(format!("{} at once", limits.concurrency)), rpm, tpm].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

async fn route(cx: &Context, request: RouteRequest) -> Result<Exit, Failure> {
    let said: RouteView = cx.client()?.post(&Address::of("/v1/models/route"), &request).await?;
    if cx.json {
        cx.document(&said)?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new(&[
        Column::number(""),
        Column::text("MODEL"),
        Column::text("TIER"),
        Column::number("AT MOST"),
        Column::text("WHY"),
    ]);
    let mut row = |place: String, model: &RoutedModel| {
        let tier = model.tier.clone().unwrap_or_else(|| "-".into());
        let worst = model.worst_usd.map_or("unknown".into(), money);
        table.row([place, model.model.clone(), tier, worst, model.why.clone()]);
    };
    for (nth, model) in said.order.iter().enumerate() {
        row((nth + 1).to_string(), model);
    }
    for model in &said.barred {
        row("-".into(), model);
    }
    cx.print(&table.shown(cx.width, cx.out))?;
    if said.order.is_empty() {
        cx.note("no model may serve it");
    }
    Ok(if said.order.is_empty() { Exit::Failed } else { Exit::Success })
}

async fn test(cx: &Context, only: Option<&str>) -> Result<Exit, Failure> {
    // Who writes aos.toml says where keys go.
    cx.home.make_private()?;
    // Before the home is made, the model inside the program can be tried.
    let config = match cx.home.is_new() {
        true => Config::parse("", &cx.env)?,
        false => Config::load(&cx.home.config_file(), &cx.env)?,
    };
    let serving = config.serving();
    if let Some(name) = only.filter(|name| !serving.contains_key(*name)) {
        let known: Vec<&str> = serving.keys().map(String::as_str).collect();
        // As the daemon says it to whoever names one that is not there.
        let failure = Failure { code: "ENOENT".into(), ..Failure::new(format!("no model `{name}`")) };
        return Err(failure.hint(format!("configured are: {}", known.join(", "))));
    }
    let findings = doctor::models(&config, &cx.home, &cx.env, only).await;
    doctor::tell(cx, &findings)
}
