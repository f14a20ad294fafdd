//! `SYS_REGISTER_WEBHOOK` and `SYS_WEBHOOK_REPLY`.

use aos_abi::syscall::{SysRegisterWebhook, SysWebhookReply};
use aos_abi::{CallError, Code, Pid, limits};
use serde_json::{Value, json};

use super::invalid_at;
use crate::Kernel;
use crate::effect::Effect;
use crate::process::{Process, Route};
use crate::table::PageStore;

impl<P: PageStore> Kernel<P> {
    pub(super) fn register_webhook(&mut self, pid: Pid, args: SysRegisterWebhook) -> Result<Value, CallError> {
        // As the policy reads it: one place has one name.
        let path = aos_policy::segments(&args.path).collect::<Vec<_>>().join("/");
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/' | '.');
        if path.is_empty() || path.len() > 128 || !path.chars().all(fine) || path.contains("..") {
            let message = "a webhook path holds letters, digits, `-`, `_`, `.` and `/`, at most 128 of them";
            return Err(invalid_at("/path", message));
        }
        let reply_within_s = args.reply_within_s.unwrap_or(30);
        if reply_within_s > limits::WEBHOOK_REPLY_S_MAX {
            let message = format!("callers wait {} s at most", limits::WEBHOOK_REPLY_S_MAX);
            return Err(invalid_at("/reply_within_s", message));
        }
        // Anybody can sign with nothing, and the webhook would be said to be signed.
        if args.secret.as_deref().is_some_and(|secret| secret.trim().is_empty()) {
            return Err(invalid_at("/secret", "a secret that is empty proves nothing")
                .hint("give a secret that nobody can guess, or leave it out for a webhook that anybody may call"));
        }
        if self.config.hooks_url.is_empty() {
            return Err(CallError::new(Code::Again, "no address leads here: another program has the daemon's port")
                .hint("`aos status` tells a person what to do"));
        }
        match self.globals.routes.get(&path) {
            Some(owner) if *owner != pid => {
                return Err(CallError::new(Code::Exist, format!("`{path}` belongs to process {owner}"))
                    .hint("take another path"));
            }
            _ => {}
        }
        // Whoever was let register it signed may not have been let take what nobody signed.
        let signed = |process: &Process| process.webhooks.get(&path).is_some_and(|route| route.secret.is_some());
        if args.secret.is_none() && self.table.get(pid).is_some_and(signed) {
            return Err(CallError::new(Code::Exist, format!("`{path}` is registered with a secret already"))
                .hint("give its secret, or take another path"));
        }
        let route = Route { secret: args.secret, reply_within_s };
        let added = self.with(pid, |process| {
            if !process.webhooks.contains_key(&path) && process.webhooks.len() >= limits::WEBHOOKS_MAX {
                return Err(CallError::new(
                    Code::Again,
                    format!("{} webhooks already, the most there may be", limits::WEBHOOKS_MAX),
                ));
            }
            process.webhooks.insert(path.clone(), route);
            Ok(())
        });
        added.unwrap_or_else(|| Err(crate::no_process(pid)))?;
        self.globals.routes.insert(path.clone(), pid);
        Ok(json!({ "url": format!("{}{path}", self.config.hooks_url) }))
    }

    pub(super) fn webhook_reply(&mut self, pid: Pid, args: SysWebhookReply) -> Result<Value, CallError> {
        if !(200..=599).contains(&args.status) {
            return Err(invalid_at("/status", "a number from 200 to 599 was expected"));
        }
        let now = self.globals.at;
        let open = self.with(pid, |process| process.requests.remove(&args.request_id)).flatten();
        match open {
            Some(reply_by) if reply_by >= now => {
                self.perform(Effect::WebhookReply {
                    request_id: args.request_id,
                    status: args.status,
                    headers: args.headers.unwrap_or_default().into_iter().collect(),
                    body: args.body,
                });
                Ok(json!({}))
            }
            Some(_) => {
                Err(CallError::new(Code::TimedOut, format!("the caller of `{}` has stopped waiting", args.request_id)))
            }
            None => Err(CallError::new(Code::NoEnt, format!("no open request `{}`", args.request_id))
                .hint("each request is answered once, by the process it came to")),
        }
    }
}
