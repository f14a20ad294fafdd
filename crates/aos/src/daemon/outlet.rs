//! The way out of one command's network: the policy's rules, kept by a proxy.
//!
//! Start at [`Outlet::new`]; it stands for as long as the command runs. What always holds: every request is decided as
//! `NET_FETCH` and `NET_SEND` are, by the policy that held when the command began and by the one that holds now, and what
//! is open is closed when the latter forbids it; each is logged with pid and verdict and journaled with the rule, as long as
//! they are not too many, and the first are in the command's result.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aos_abi::entry::NetRequest;
use aos_abi::syscall::{NetFetch, NetSend};
use aos_abi::{CallError, Code, Syscall, limits};
use aos_drivers::net::{self, Driver, Gate, HostPort, Proxy, Secret, Seen, Tunnel};
use aos_kernel::effect::Authority;
use aos_policy::settings::ExecNet;
use aos_policy::{Allowed, Labels, Obligations, Policy};
use aos_sandbox::ProxyServer;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::drivers::{Configured, Drivers, allowed, keeps_secrets};
use super::requests::{GATHERED_FOR, Requests, cut, net_request};
use crate::secrets::Secrets;

/// The ports of http and https.
const WEB: [u16; 2] = [80, 443];
/// Ports inside at which the daemon is asked for names and as a proxy.
const TAKEN: [u16; 2] = [53, 3128];
/// How many addresses of rules can be meant as they are; those beyond are reached by the proxy alone.
const ADDRESSES_MAX: usize = 256;
/// How much of a request's address and of its verdict is logged, in characters each: the requests of one command, which
/// are journaled at length, must not take up the whole log.
const LOGGED_CHARS_MAX: usize = 200;

/// One command's way out.
pub(crate) struct Outlet {
    driver: Arc<Driver>,
    rules: Arc<Rules>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What is decided by, and what was.
struct Rules {
    authority: Authority,
    /// The policy that holds, and those that come after it.
    policy: watch::Receiver<Policy>,
    configured: Configured,
    private: Vec<HostPort>,
    /// Where the secrets of the role are kept; they are read when they are used.
    secrets: Secrets,
    /// By whom TLS is opened.
    opener: Option<Arc<net::Authority>>,
    requests: Arc<Requests>,
    told: Mutex<Told>,
}

/// What a command asked for, and what the answers carry.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The first of them.
    seen: Vec<NetRequest>,
    /// Whether any was passed on.
    reached: bool,
    labels: Labels,
}

/// The rules, as the proxy asks them.
struct Door(Arc<Rules>);

impl Outlet {
    /// For a command of the process whose authority this is.
    pub(crate) fn new(
        drivers: &Drivers,
        authority: &Authority,
        opener: Option<Arc<net::Authority>>,
        requests: Requests,
    ) -> Outlet {
        let (driver, configured) = drivers.way_out();
        // A private address that a rule names stands in the rule itself; each request is decided before it is reached.
        let named = authority.policy.private_hosts(&authority.role);
        let mut private = configured.private.clone();
        private.extend(named.iter().filter_map(|host| host.parse().ok()));
        let secrets = drivers.secrets().clone();
        // A command can send whatever it can read.
        let (authority, policy) = (authority.sending(), drivers.policy());
        let (told, requests) = (Mutex::default(), Arc::new(requests));
        let rules = Rules { authority, policy, configured, private, secrets, opener, requests, told };
        Outlet { driver, rules: Arc::new(rules), tasks: TaskTracker::new(), stop: CancellationToken::new() }
    }

    /// Who serves the listener in the command's network.
    pub(crate) fn server(&self) -> ProxyServer {
        let (driver, rules) = (Arc::clone(&self.driver), Arc::clone(&self.rules));
        let (tasks, stop) = (self.tasks.clone(), self.stop.clone());
        let runtime = tokio::runtime::Handle::current();
        let (ports, addresses) = (self.rules.ports(), self.rules.addresses());
        let mut server = ProxyServer::new(move |doors| {
            let proxy = Proxy::new(Arc::clone(&driver), Door(Arc::clone(&rules)), stop.clone());
            let told = |served: io::Result<()>| {
                if let Err(error) = served {
                    tracing::warn!(%error, "a way out of a command's network could not be served");
                }
            };
            let (packets, connections) = doors.names;
            let names = Arc::clone(&proxy).serve_names(packets, connections);
            tasks.spawn_on(async move { told(names.await) }, &runtime);
            for listener in doors.through {
                let through = Arc::clone(&proxy).serve_through(listener);
                tasks.spawn_on(async move { told(through.await) }, &runtime);
            }
            let asked = proxy.serve(doors.proxy);
            tasks.spawn_on(async move { told(asked.await) }, &runtime);
            let (rules, stop) = (Arc::clone(&rules), stop.clone());
            let journaled = async move {
                while stop.run_until_cancelled(tokio::time::sleep(GATHERED_FOR)).await.is_some() {
                    rules.requests.send();
                }
            };
            tasks.spawn_on(journaled, &runtime);
        });
        (server.ports, server.addresses) = (ports, addresses);
        server
    }

    /// What it was asked for, on its way to the journal.
    pub(crate) fn requests(&self) -> Arc<Requests> {
        Arc::clone(&self.rules.requests)
    }

    /// Closes it, and says what was asked of it.
    pub(crate) async fn close(self) -> Told {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.rules.requests.end();
        let beyond = self.rules.requests.beyond();
        if beyond > 0 {
            tracing::info!(pid = %self.rules.authority.pid, beyond, "more requests of a command");
        }
        std::mem::take(&mut *self.rules.told())
    }
}

impl Rules {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who decides: by the policy of the beginning and, where another one holds by now, by that too.
    fn deciding(&self) -> Result<Vec<Authority>, CallError> {
        let began = &self.authority;
        let policy = self.policy.borrow().clone();
        if policy.generation() == began.policy.generation() {
            return Ok(vec![began.clone()]);
        }
        let now = policy.role(&began.role);
        let (reached, reaches) = (began.policy.private_hosts(&began.role), policy.private_hosts(&began.role));
        let on = now.and_then(|role| role.exec.as_ref()).is_some_and(|exec| exec.net == ExecNet::Rules);
        // What a command was given when it began cannot be taken from it one by one.
        if on && keeps_secrets(began, &policy) && reached.iter().all(|one| reaches.contains(one)) {
            return Ok(vec![began.clone(), began.under(&policy)]);
        }
        Err(CallError::new(Code::Perm, "the policy was changed and takes back what this command reached out with")
            .hint("a command that begins now has what the policy gives now"))
    }

    /// Where programs are let through that know of no proxy: the ports of the web, and those that rules name.
    fn ports(&self) -> Vec<u16> {
        let places = self.authority.policy.places(&self.authority.role);
        let named = places.iter().filter_map(|(_, port)| *port).filter(|port| !TAKEN.contains(port));
        let mut seen = BTreeSet::new();
        WEB.into_iter().chain(named).filter(|port| seen.insert(*port)).take(aos_sandbox::PORTS_MAX).collect()
    }

    /// The addresses that rules name as they are.
    fn addresses(&self) -> Vec<IpAddr> {
        let places = self.authority.policy.places(&self.authority.role);
        let plain = |host: &str| host.trim_start_matches('[').trim_end_matches(']').parse().ok();
        places.iter().filter_map(|(host, _)| plain(host)).take(ADDRESSES_MAX).collect()
    }

    fn request(&self, call: &Syscall) -> Result<Allowed, CallError> {
        keepable(every(self.deciding()?.iter().map(|authority| authority.allows(call)))?)
    }

    fn tunnel(&self, host: &str, port: u16) -> Result<Tunnel, CallError> {
        let shown = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        allowed(&self.configured.hosts, &format!("https://{shown}:{port}/"))?;
        let deciding = self.deciding()?;
        let whole = every(deciding.iter().map(|authority| authority.opens(&shown, port))).and_then(keepable);
        // Where a person could let something through, what is asked for is looked at, and refused there.
        let root = asks("GET", &format!("https://{shown}:{port}/"));
        let liftable = |authority: &Authority| authority.wants(&root).is_some() || authority.allows(&root).is_ok();
        let speaks = deciding.iter().all(|authority| authority.speaks_of(&shown, port) || liftable(authority));
        // A secret can only be put in where requests are seen, and so can rules that name some of them.
        let carries = self.role_secrets().iter().any(|secret| secret.is_for(host, port));
        match (whole, &self.opener) {
            (Ok(allowed), _) if !carries => Ok(Tunnel::Passed(allowed)),
            (Ok(_), Some(opener)) => Ok(Tunnel::Opened(Arc::clone(opener))),
            (Err(_), Some(opener)) if speaks => Ok(Tunnel::Opened(Arc::clone(opener))),
            (Err(error), _) => {
                self.requests.closed(&root);
                Err(error)
            }
            (Ok(_), None) => Err(CallError::new(Code::Perm, "TLS to a place with a secret cannot be opened here")),
        }
    }

    fn role_secrets(&self) -> Vec<Secret> {
        // Where the policy has taken one of them back since, no request is allowed.
        self.secrets.of_role(self.authority.policy.role(&self.authority.role))
    }
}

/// Unless it is allowed under an obligation that cannot be kept for what a command sends: only calls are looked through for
/// personal data, and only calls are counted.
fn keepable(allowed: Allowed) -> Result<Allowed, CallError> {
    let Obligations { redact, rates, .. } = &allowed.obligations;
    let cannot = |what: &str| {
        CallError::new(Code::Perm, format!("{what}, which cannot be kept for a command's requests: {}", allowed.rule))
            .hint("NET_FETCH and NET_SEND can make it")
    };
    if *redact {
        return Err(cannot("a rule of `labels` keeps personal data here"));
    }
    if let Some(rate) = rates.first() {
        return Err(cannot(&format!("{} has a rate", rate.rule)));
    }
    Ok(allowed)
}

/// The call that would make a request. What it sends is not looked at.
fn asks(method: &str, url: &str) -> Syscall {
    match method {
        "GET" | "HEAD" => Syscall::NetFetch(NetFetch { url: url.to_owned(), headers: None }),
        method => {
            Syscall::NetSend(NetSend { url: url.to_owned(), method: method.to_owned(), headers: None, body: None })
        }
    }
}

/// The same, with no more of the address than a rule is about: nobody is shown the rest of what is refused for good.
pub(super) fn bare(call: &Syscall) -> Syscall {
    let mut bare = call.clone();
    if let Syscall::NetFetch(NetFetch { url, .. }) | Syscall::NetSend(NetSend { url, .. }) = &mut bare {
        url.truncate(url.find(['?', '#']).unwrap_or(url.len()));
    }
    bare
}

/// What all of them allow together.
fn every(said: impl IntoIterator<Item = Result<Allowed, CallError>>) -> Result<Allowed, CallError> {
    let mut said = said.into_iter();
    let first = said.next().expect("the policy of the beginning decides")?;
    said.try_fold(first, |allowed, later| Ok(allowed.and(later?)))
}

impl Gate for Door {
    fn request(&self, method: &str, url: &str) -> Result<Allowed, CallError> {
        allowed(&self.0.configured.hosts, url)?;
        self.0.requests.timed(|| self.0.request(&asks(method, url)))
    }

    fn tunnel(&self, host: &str, port: u16) -> Result<Tunnel, CallError> {
        self.0.requests.timed(|| self.0.tunnel(host, port))
    }

    fn names(&self, host: &str) -> bool {
        let rules = &*self.0;
        let speaks = |port: &u16| {
            let deciding = rules.deciding();
            let spoken = deciding.is_ok_and(|all| all.iter().all(|authority| authority.speaks_of(host, *port)));
            spoken && allowed(&rules.configured.hosts, &format!("https://{host}:{port}/")).is_ok()
        };
        rules.ports().iter().any(speaks)
    }

    fn changes(&self) -> watch::Receiver<Policy> {
        self.0.policy.clone()
    }

    fn private(&self) -> &[HostPort] {
        &self.0.private
    }

    fn secrets(&self) -> Vec<Secret> {
        self.0.role_secrets()
    }

    fn saw(&self, seen: Seen) {
        let rules = &*self.0;
        let request = net_request(&seen.method, &seen.to, seen.said.as_ref());
        // What the configuration closes no yes opens.
        if let Some(url) = seen.denied.filter(|url| allowed(&rules.configured.hosts, url).is_ok()) {
            let (call, now) = (asks(&seen.method, &url), rules.authority.under(&rules.policy.borrow()));
            match now.wants(&call).is_some() {
                true => rules.requests.denied(&call),
                false => rules.requests.closed(&bare(&call)),
            }
        }
        let listed = match &seen.said {
            Ok(allowed) => rules.requests.decided(&allowed.generation, request.clone()),
            Err(_) => rules.requests.decided(rules.policy.borrow().generation(), request.clone()),
        };
        // A command asks as often as it likes, and refusals cost it nothing.
        if listed {
            let to = cut(&request.to, LOGGED_CHARS_MAX);
            let verdict = cut(request.why.as_deref().unwrap_or("allow"), LOGGED_CHARS_MAX);
            tracing::info!(pid = %rules.authority.pid, method = %request.method, %to, verdict, "a command's request");
        }
        let mut told = rules.told();
        if let Ok(allowed) = seen.said {
            told.reached = true;
            told.labels = told.labels.and(allowed.obligations.labels);
        }
        if told.seen.len() <= limits::EGRESS_SHOWN_MAX {
            told.seen.push(request);
        }
    }
}

/// Puts what a command asked for into its result.
pub(crate) fn tell(answer: &mut Result<Value, CallError>, told: Told) {
    let Told { seen, reached, labels } = told;
    if seen.is_empty() {
        return;
    }
    let one = |seen: &NetRequest| match &seen.why {
        Some(why) => json!({ "method": seen.method, "to": seen.to, "verdict": "deny", "why": why }),
        None => json!({ "method": seen.method, "to": seen.to, "verdict": "allow" }),
    };
    let requests: Vec<Value> = seen.iter().take(limits::EGRESS_SHOWN_MAX).map(one).collect();
    let result = match answer {
        Ok(result) => result,
        Err(error) => error.partial.get_or_insert_with(|| json!({})),
    };
    result["requests"] = requests.into();
    if seen.len() > limits::EGRESS_SHOWN_MAX {
        result["requests_truncated"] = true.into();
    }
    if reached {
        result["label"] = labels.and(Labels::WEB).to_string().into();
    }
}
