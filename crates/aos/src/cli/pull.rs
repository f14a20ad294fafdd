//! `aos models pull`.
//!
//! Start at [`Args::perform`]. What always holds: what is printed as fetched is whole, has been checked as far as anybody
//! says what it should be, and has been opened by the runtime once.

use std::path::{Path, PathBuf};

use aos_models::pull::{self, KNOWN, Known, Order, Patience, Pulled, Vouched};
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
        let known = Known::named(&what);
        let (url, name) = match known {
            Some(known) => (known.url, known.name.to_owned()),
            None => (what.as_str(), name_of(&what)?),
        };
        cx.home.create()?;
        let to = cx.home.models().join(format!("{name}.gguf"));
        let sha256 = self.sha256.as_deref().or(known.and_then(|known| known.sha256));
        let mut progress = Progress::new(cx);
        let mut tell = |have: u64, total: Option<u64>| {
            let of = total
                .map_or(String::new(), |total| format!(" ({} % of {} MiB)", have * 100 / total.max(1), total >> 20));
            progress.tell(&format!("fetching {name}{of}"), have);
        };
        let order = Order { url, to: &to, sha256 };
        let pulled = pull::pull(order, Patience::default(), &mut tell).await.map_err(|fault| {
            Failure::new(format!("{name} was not fetched")).why(fault.to_string()).hint(fault.hint())
        })?;
        drop(progress);
        let runs = opened(&to).await?;
        told(cx, known, &name, &to, &pulled, runs)
    }
}

/// Why the runtime does not run a file; nothing where it does.
async fn opened(file: &Path) -> Result<Option<aos_runtime::Fault>, Failure> {
    let file = file.to_owned();
    let checked = tokio::task::spawn_blocking(move || Runtime::check(&file).err()).await;
    checked.map_err(|error| Failure::new("the file could not be opened").why(error.to_string()))
}

fn told(
    cx: &Context,
    known: Option<&Known>,
    name: &str,
    to: &PathBuf,
    pulled: &Pulled,
    faulty: Option<aos_runtime::Fault>,
) -> Result<Exit, Failure> {
    let (by, words) = match pulled.vouched {
        Vouched::Order => ("given", "its checksum is the one that is known"),
        Vouched::Server => ("server", "its checksum is the one that the server gives"),
        Vouched::Nobody => ("nobody", "nobody says what its checksum should be"),
        Vouched::Record => ("record", "it was here already"),
    };
    if cx.json {
        cx.document(&json!({
            "name": name, "path": to, "bytes": pulled.bytes, "sha256": pulled.sha256, "checked_by": by,
            "kept_bytes": pulled.kept, "runs": faulty.is_none(), "why": faulty.as_ref().map(ToString::to_string),
        }))?;
    } else {
        cx.print(&format!("{}\n", to.display()))?;
        cx.note(&format!("{} MiB, SHA-256 {}: {words}", pulled.bytes >> 20, pulled.sha256));
    }
    if let Some(fault) = faulty {
        return Err(Failure::new(format!("{name} is here, but does not run"))
            .why(fault.to_string())
            .hint(fault.hint()));
    }
    let window = known.map_or(8192, |known| known.context_window);
    let tier = known.map_or(String::new(), |known| format!("tier = \"{}\"\n", known.tier));
    cx.note(&format!(
        "to use it, add to aos.toml, then `aos down`:\n\n[models.here]\nprovider = \"local\"\nmodel = \"{name}\"\n{tier}context_window = {window}\n"
    ));
    Ok(Exit::Success)
}

fn list(cx: &Context) -> Result<Exit, Failure> {
    let here = |known: &Known| cx.home.models().join(format!("{}.gguf", known.name)).exists();
    if cx.json {
        let of = |known: &Known| {
            json!({ "name": known.name, "url": known.url, "megabytes": known.megabytes, "licence": known.licence,
                "sha256": known.sha256, "context_window": known.context_window, "tier": known.tier, "here": here(known) })
        };
        cx.document(&KNOWN.iter().map(of).collect::<Vec<_>>())?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new(&[
        Column::text("NAME"),
        Column::number("MB"),
        Column::text("TIER"),
        Column::text("LICENCE").dispensable(),
        Column::text("HERE"),
    ]);
    for known in &KNOWN {
        let here = if here(known) { "yes" } else { "-" };
        table.row([
            known.name.into(),
            known.megabytes.to_string(),
            known.tier.into(),
            known.licence.into(),
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
