//! `aos man`.

use aos_abi::Name;
use aos_abi::syscall::manual;

use super::{Context, Exit, Failure};

/// Show the manual page of a system call; without a name, list them
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Such as FS_READ
    name: Option<String>,
}

impl Args {
    pub(super) fn perform(self, cx: &Context) -> Result<Exit, Failure> {
        let Some(name) = self.name else { return list(cx) };
        let name: Name = name.to_uppercase().parse().map_err(|error: aos_abi::CallError| Failure {
            exit: Exit::Failed,
            code: error.code.as_str().into(),
            hints: error.hint.into_iter().collect(),
            ..Failure::new(error.message)
        })?;
        if cx.json {
            let spec = name.spec();
            cx.document(&serde_json::json!({
                "name": name, "summary": spec.summary, "schema": aos_abi::syscall::schema(name), "result": spec.result,
                "example": spec.example, "manual": manual(name),
            }))?;
        } else {
            cx.print(&manual(name))?;
        }
        Ok(Exit::Success)
    }
}

fn list(cx: &Context) -> Result<Exit, Failure> {
    if cx.json {
        let all: Vec<_> =
            Name::ALL.iter().map(|name| serde_json::json!({ "name": name, "summary": name.spec().summary })).collect();
        cx.document(&all)?;
    } else {
        let lines: String = Name::ALL.iter().map(|name| format!("{name:<22} {}\n", name.spec().summary)).collect();
        cx.print(&lines)?;
    }
    Ok(Exit::Success)
}
