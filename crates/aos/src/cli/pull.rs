//! `aos models pull`.
//!
//! Start at [`Args::perform`]. What always holds: what is printed as fetched is whole, has been checked as far as anybody
//! says what it should be, and has been opened by the runtime once.

use std::path::{Path, PathBuf};

use aos_models::pull::{self, File, KNOWN, Known, Makes, Order, Patience, Pulled, Vouched};
use aos_runtime::Runtime;
use serde_json::json;

use super::progress::Progress;
use super::table::{Column, Table};
use super::{Context, Exit, Failure};

/// Fetch a model's file into `models/` of the home; without a name: list those that are known
#[derive(Debug, clap::Args)]
#[command(
    after_help = "What breaks off goes on where it ended with the same command. The checksum is the one of the list, of --sha256, \
or the one that the server gives; it is kept beside the file, for `sha256sum -c`. Proxies of the environment are used.\n\n\
Examples:\n  aos models pull\n  aos models pull smollm2-360m\n  aos models pull https://HOST/PATH/NAME.gguf --sha256 HEX"
)]
pub(super) struct Args {
    /// A name of the list, or the https address of a .gguf file
    #[arg(value_name = "NAME|URL")]
    what: Option<String>,
    /// What the file's SHA-256 must be, in hex
    #[arg(long, value_name = "HEX", requires = "what", value_parser = sha256)]
    sha256: Option<String>,
}

fn sha256(text: &str) -> Result<String, String> {
    if pull::is_sha256(text) { Ok(text.to_owned()) } else { Err("a SHA-256 has 64 hex digits".to_owned()) }
}

impl Args {
    pub(super) async fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let Some(what) = self.what else { return list(cx) };
        cx.home.prepare()?;
        let models = cx.home.models();
        let (name, makes, files, to) = match Known::named(&what) {
            Some(known) => {
                let to = match known.makes {
                    Makes::Answers { .. } => models.join(format!("{}.gguf", known.name)),
                    Makes::Vectors { .. } => models.join(known.name),
                };
                let of = |file: &File| {
                    let place = if known.files.len() == 1 { to.clone() } else { to.join(file.name()) };
                    (file.url.to_owned(), place, self.sha256.clone().or(file.sha256.map(str::to_owned)))
                };
                if known.files.len() > 1 && self.sha256.is_some() {
                    return Err(Failure::usage(format!("{} is more than one file", known.name))
                        .hint("leave --sha256 out: the checksum of each is known"));
                }
                (known.name.to_owned(), Some(known.makes), known.files.iter().map(of).collect(), to)
            }
            None => {
                let name = name_of(&what)?;
                let to = models.join(format!("{name}.gguf"));
                (name, None, vec![(what, to.clone(), self.sha256)], to)
            }
        };
        if let Some(Makes::Vectors { .. }) = makes {
            std::fs::create_dir_all(&to)
                .map_err(|error| Failure::new(format!("{} cannot be made", to.display())).why(error.to_string()))?;
        }
        // Said before anything is fetched, so that whoever minds can stop it here.
        if !cx.json && files.iter().any(|(_, to, sha256)| sha256.is_none() && !to.exists()) {
            cx.note(
                "no checksum of this file is known here: its server's word is taken for it, or what comes where the server gives \
none; it is recorded beside the file. `--sha256 HEX` says what it must be",
            );
        }
        let mut pulled = Vec::with_capacity(files.len());
        for (url, to, sha256) in &files {
            pulled.push(fetch(cx, &name, Order { url, to, sha256: sha256.as_deref() }).await?);
        }
        let runs = opened(&to).await?;
        told(cx, makes, &name, &to, &pulled, runs)
    }
}

/// Fetches one file, and tells how far it is.
async fn fetch(cx: &Context, name: &str, order: Order<'_>) -> Result<Pulled, Failure> {
    let mut progress = Progress::new(cx);
    let mut tell = |have: u64, total: Option<u64>| {
        let of =
            total.map_or(String::new(), |total| format!(" ({} % of {} MiB)", have * 100 / total.max(1), total >> 20));
        progress.tell(&format!("fetching {name}{of}"), have);
    };
    let pulled = pull::pull(order, Patience::default(), &mut tell).await;
    pulled.map_err(|fault| Failure::new(format!("{name} was not fetched")).why(fault.to_string()).hint(fault.hint()))
}

/// Why the runtime does not run a file; nothing where it does.
async fn opened(file: &Path) -> Result<Option<aos_runtime::Fault>, Failure> {
    let file = file.to_owned();
    let checked = tokio::task::spawn_blocking(move || Runtime::check(&file).err()).await;
    checked.map_err(|error| Failure::new("the file could not be opened").why(error.to_string()))
}

fn told(
    cx: &Context,
    makes: Option<Makes>,
    name: &str,
    to: &PathBuf,
    pulled: &[Pulled],
    faulty: Option<aos_runtime::Fault>,
) -> Result<Exit, Failure> {
    // The weights are the last of them.
    let Some(weights) = pulled.last() else { return Ok(Exit::Success) };
    let (by, words) = match weights.vouched {
        Vouched::Order => ("given", "its checksum is the one that is known"),
        Vouched::Server => ("server", "its checksum is the one that the server gives"),
        Vouched::Nobody => ("nobody", "nobody says what its checksum should be"),
        Vouched::Record => ("record", "it was here already"),
    };
    if cx.json {
        let (bytes, kept) = pulled.iter().fold((0, 0), |(bytes, kept), of| (bytes + of.bytes, kept + of.kept));
        cx.document(&json!({
            "name": name, "path": to, "bytes": bytes, "sha256": weights.sha256, "checked_by": by,
            "kept_bytes": kept, "runs": faulty.is_none(), "why": faulty.as_ref().map(ToString::to_string),
        }))?;
    } else {
        cx.print(&format!("{}\n", to.display()))?;
        cx.note(&format!("{} MiB, SHA-256 {}: {words}", weights.bytes >> 20, weights.sha256));
    }
    if let Some(fault) = faulty {
        return Err(Failure::new(format!("{name} is here, but does not run"))
            .why(fault.to_string())
            .hint(fault.hint()));
    }
    let (table, more) = match makes {
        None => ("here", "context_window = 8192".to_owned()),
        Some(Makes::Answers { context_window, tier }) => {
            ("here", format!("tier = \"{tier}\"\ncontext_window = {context_window}"))
        }
        Some(Makes::Vectors { dimension }) => ("vectors", format!("dimension = {dimension}")),
    };
    cx.note(&format!(
        "to use it, add to aos.toml, then `aos down`:\n\n[models.{table}]\nprovider = \"local\"\nmodel = \"{name}\"\n{more}\n"
    ));
    Ok(Exit::Success)
}

fn list(cx: &Context) -> Result<Exit, Failure> {
    let here = |known: &Known| match known.makes {
        Makes::Answers { .. } => cx.home.models().join(format!("{}.gguf", known.name)).exists(),
        Makes::Vectors { .. } => {
            known.files.iter().all(|file| cx.home.models().join(known.name).join(file.name()).exists())
        }
    };
    if cx.json {
        let of = |known: &Known| {
            let files: Vec<_> =
                known.files.iter().map(|file| json!({ "url": file.url, "sha256": file.sha256 })).collect();
            let mut of = json!({ "name": known.name, "files": files, "megabytes": known.megabytes,
                "licence": known.licence, "here": here(known) });
            match known.makes {
                Makes::Answers { context_window, tier } => {
                    of["context_window"] = context_window.into();
                    of["tier"] = tier.into();
                }
                Makes::Vectors { dimension } => of["dimension"] = dimension.into(),
            }
            of
        };
        cx.document(&KNOWN.iter().map(of).collect::<Vec<_>>())?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new(&[
        Column::text("NAME"),
        Column::number("MB"),
        Column::text("TIER"),
        Column::text("LICENCE").dispensable(),
        Column::text("CHECKSUM"),
        Column::text("HERE"),
    ]);
    for known in &KNOWN {
        let here = if here(known) { "yes" } else { "-" };
        table.row([
            known.name.into(),
            known.megabytes.to_string(),
            match known.makes {
                Makes::Answers { tier, .. } => tier.into(),
                Makes::Vectors { .. } => "vectors".into(),
            },
            known.licence.into(),
            if known.files.iter().all(|file| file.sha256.is_some()) { "known" } else { "its server's" }.into(),
            here.into(),
        ]);
    }
    cx.print(&table.shown(cx.width, cx.out))?;
    cx.note("aos models pull NAME fetches one; aos models pull URL any other GGUF file of the llama architecture");
    Ok(Exit::Success)
}

/// The name of what an address leads to.
fn name_of(url: &str) -> Result<String, Failure> {
    let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
    if !url.contains("://") {
        return Err(Failure::usage(format!("no model is known as `{url}`"))
            .hint(format!("one of {}, or an address that begins with https://", names.join(", "))));
    }
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let name = path.rsplit('/').next().and_then(|file| file.strip_suffix(".gguf")).unwrap_or_default();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(fits) {
        return Err(Failure::usage(format!("`{url}` does not end in the name of a .gguf file"))
            .hint("write it as https://HOST/PATH/NAME.gguf"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_ends_in_the_name_of_a_file() {
        assert_eq!(name_of("https://h/a/M-1.5_q8.gguf?download=true").unwrap(), "M-1.5_q8");
        for wrong in
            ["smollm", "https://h/", "https://h/x.bin", "https://h/.gguf", "https://h/..gguf", "https://h/a%2fb.gguf"]
        {
            assert!(name_of(wrong).is_err(), "{wrong}");
        }
    }
}
