//! The drivers as the edges use them.
//!
//! Start at [`Drivers`]. What the policy and the configuration say about walls, hosts and programs becomes here what a
//! driver takes; what a driver needs and is missing is an error for the agent, never a weaker wall.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aos_abi::entry::NetRequest;
use aos_abi::syscall::NetFetch;
use aos_abi::{Body, CallError, Code, EffectId, Pid, Syscall};
use aos_drivers::{exec, fs, net, watch};
use aos_gateway::ApiError;
use aos_kernel::effect::Authority;
use aos_memory::{MemoryStore, WordStore};
use aos_policy::address::{Address, Class};
use aos_policy::settings::{ExecNet, SandboxLimits};
use aos_policy::{Labels, Permit, Policy};
use aos_sandbox::{Cancel, Helper, Isolation, Limits, Network, UnsandboxedConsent};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch as policy_watch};
use tokio_util::sync::CancellationToken;

use super::heart::{Completion, now};
use super::memory::People;
use super::outlet::Outlet;
use super::requests::{Requests, net_request};
use super::slots::{Slot, Slots};
use super::spare::Spare;
use super::trust::Trust;
use crate::config::{Config, Exec, HostPort};
use crate::env::Env;
use crate::home::Home;
use crate::mounts::Mounts;
use crate::secrets::Secrets;

/// Settled bursts that wait to be taken; beyond, a burst goes on gathering.
const BURSTS_MAX: usize = 16;

/// What of its workspace a command may see and change: what both the policy it was decided under and the one that holds
/// by then let its process do.
#[derive(Debug)]
struct Bounds {
    authority: Authority,
    policy: policy_watch::Receiver<Policy>,
    requests: Arc<Requests>,
}

impl exec::Bounds for Bounds {
    fn reads_all(&self, folder: &str) -> bool {
        self.authority.reads_all(folder) && self.authority.under(&self.policy.borrow()).reads_all(folder)
    }

    fn allows(&self, call: &Syscall) -> Result<(), CallError> {
        self.authority.still_allows(&self.policy.borrow(), call).map(drop)
    }

    fn denies(&self, calls: &[Syscall], all: bool) {
        let now = self.authority.under(&self.policy.borrow());
        match all && calls.iter().all(|call| now.wants(call).is_some()) {
            true => self.requests.denied_changes(calls),
            // What stands against keeping them first, where that is not their number.
            false => {
                let (open, closed): (Vec<_>, Vec<_>) = calls.iter().partition(|call| now.wants(call).is_some());
                closed.into_iter().chain(open).for_each(|call| self.requests.closed(call));
            }
        }
    }

    /// That it has reached something marks the files.
    fn keeps(&self) {
        self.requests.send();
    }
}

/// Every driver of the daemon.
pub(crate) struct Drivers {
    files: fs::Driver,
    net: Arc<net::Driver>,
    commands: exec::Driver,
    /// From whom commands are started; kept, since it has the next one ready.
    helper: Helper,
    /// What agents leave of the disk.
    spare: Spare,
    /// Commands at once, and searches.
    running: [Arc<Slots>; 2],
    memory: Arc<dyn MemoryStore>,
    how: Exec,
    /// Hosts that may be reached at all; empty: whatever the policy allows.
    hosts: Vec<HostPort>,
    private: Vec<net::HostPort>,
    secrets: Secrets,
    mounts: Mounts,
    /// Where the certificates of commands are while they run.
    run: PathBuf,
    watches: Mutex<HashMap<(Pid, String), CancellationToken>>,
    /// The policy that holds: whoever runs under an older one may do no more than both allow.
    policy: policy_watch::Sender<Policy>,
}

/// Two commands for each processor, since many wait for something else, and four at least; a search for each.
fn slots() -> [Arc<Slots>; 2] {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    [(2 * processors).max(4), processors].map(Slots::new)
}

impl Drivers {
    /// The drivers that the configuration asks for, of a daemon that listens there.
    pub(crate) fn new(config: &Config, home: &Home, own: net::Own) -> Result<Drivers, super::Error> {
        let memory = WordStore::open(&home.memory_file())
            .map_err(|error| super::Error::Part { what: "the memory store", why: error.to_string() })?;
        // What cannot be removed now is not shown, and goes with the next that is written.
        let _ = memory.expire(now());
        Trust::sweep(&home.run());
        let private = config.net.private.iter().filter_map(|host| net::HostPort::from_str(&host.to_string()).ok());
        Ok(Drivers {
            files: fs::Driver::new(),
            net: Arc::new(net::Driver::new(net::Options::default()).away_from(own)),
            commands: exec::Driver::default(),
            helper: Helper::default(),
            spare: Spare::new(home.root()),
            running: slots(),
            memory: Arc::new(memory),
            how: config.exec,
            hosts: match config.net.allow.as_slice() {
                // Naming a private place is no wish to shut out the others.
                [] => Vec::new(),
                allow => allow.iter().chain(&config.net.private).cloned().collect(),
            },
            private: private.collect(),
            secrets: Secrets::new(home.secrets(), Env::of_process()),
            mounts: Mounts::new(home, &Env::of_process()),
            run: home.run(),
            watches: Mutex::default(),
            policy: policy_watch::Sender::new(Policy::deny_all()),
        })
    }

    /// With these in the place of its own, for tests of what a driver may do wrong.
    #[cfg(test)]
    pub(crate) fn with(self, memory: Arc<dyn MemoryStore>, resolver: Arc<dyn net::Resolve>) -> Drivers {
        let net = Arc::new(net::Driver::with_resolver(net::Options::default(), resolver));
        Drivers { memory, net, ..self }
    }

    /// From whom commands are started.
    pub(crate) fn helper(&self) -> &Helper {
        &self.helper
    }

    /// Where the folders are that a policy mounts.
    pub(crate) fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    /// Another policy holds from now on.
    pub(crate) fn adopt(&self, policy: Policy) {
        crate::log::look_for(policy.detector());
        self.policy.send_replace(policy);
    }

    /// The policy that holds, and those that come after it.
    pub(crate) fn policy(&self) -> policy_watch::Receiver<Policy> {
        self.policy.subscribe()
    }

    /// Waits until a policy holds that forbids what was begun under another one, or does not mount what it was shown.
    async fn withdrawn(&self, authority: &Authority, call: &Syscall, shown: &[fs::Mount]) {
        let mut policy = self.policy();
        let forbids = |policy: &Policy| {
            let now = authority.under(policy);
            policy.generation() != authority.policy.generation()
                && (now.forbids(call) || !covers(&self.mounts.placed(now.mounts()), shown))
        };
        // The sender lives as long as the drivers.
        let _ = policy.wait_for(forbids).await;
    }

    /// A file call; a change is kept where it is said. Blocking.
    pub(crate) fn files(
        &self,
        permit: Permit,
        place: &fs::Place,
        keeping: Option<fs::Keeping>,
        stop: &CancellationToken,
    ) -> fs::Done {
        self.files.call(permit, place, keeping, &|| stop.is_cancelled())
    }

    /// Whether the disk has room for what a call of an agent changes, and for its result.
    ///
    /// # Errors
    /// `ENOSPC` where what is left is the daemon's.
    pub(crate) fn has_room(&self) -> Result<(), CallError> {
        self.spare.check()
    }

    /// Waits until what takes the machine may run: a command, or a search. Nothing else waits.
    ///
    /// # Errors
    /// `EINTR` where the call is given up.
    pub(crate) async fn slot(
        &self,
        call: &Syscall,
        authority: &Authority,
        token: &CancellationToken,
    ) -> Result<Option<Slot>, CallError> {
        let [commands, searches] = &self.running;
        let slots = match call {
            Syscall::ExecCmd(_) => commands,
            Syscall::FsSearch(_) | Syscall::MemRead(_) => searches,
            _ => return Ok(None),
        };
        tokio::select! {
            biased;
            () = token.cancelled() => Err(CallError::new(Code::Intr, "cancelled")),
            slot = slots.take(authority.root) => Ok(Some(slot)),
        }
    }

    /// A memory call. Blocking.
    pub(crate) fn memory(&self, effect: EffectId, permit: Permit) -> Result<Value, CallError> {
        super::memory::call(&*self.memory, effect, permit)
    }

    /// Memory as people see it. Blocking.
    pub(crate) fn remembered<T>(&self, read: impl FnOnce(&People<'_>) -> Result<T, ApiError>) -> Result<T, ApiError> {
        read(&People(&*self.memory))
    }

    /// A command, within the walls that configuration and policy say. What it changes is kept, unless it runs without
    /// walls.
    ///
    /// # Errors
    /// Where it did not run. A command that ran and failed is told in what comes back, with its changes.
    pub(crate) async fn exec(
        &self,
        permit: Permit,
        folder: PathBuf,
        keeping: fs::Keeping,
        authority: &Authority,
        requests: Requests,
        token: CancellationToken,
    ) -> Result<exec::Ran, CallError> {
        let trust = self.trust(authority, &keeping)?;
        let outlet = Outlet::new(self, authority, trust.as_ref().map(Trust::authority), requests);
        let seen = self.seen(authority);
        let mut scene = self.scene(folder, keeping, authority, &outlet, trust.as_ref(), &seen.inside)?;
        let exec = authority.policy.role(&authority.role).and_then(|role| role.exec.as_ref());
        if let (Syscall::ExecCmd(args), Some(exec)) = (permit.call(), exec) {
            scene.shell = exec.needs_shell(&args.cmd);
        }
        let cancel = Cancel::new()
            .map_err(|error| CallError::new(Code::Io, format!("the command cannot be watched: {error}")))?;
        let call = permit.call().clone();
        let (commands, stop) = (self.commands.clone(), cancel.clone());
        let mut running = tokio::task::spawn_blocking(move || commands.call(permit, scene, &stop));
        let ran = tokio::select! {
            biased;
            ran = &mut running => ran,
            () = token.cancelled() => {
                cancel.cancel();
                running.await
            }
            () = self.withdrawn(authority, &call, &seen.shown) => {
                tracing::info!(pid = %authority.pid, "a command is ended, since the policy forbids it by now");
                cancel.cancel();
                running.await
            }
        };
        let told = outlet.close().await;
        let mut ran = ran.map_err(|error| CallError::new(Code::Io, format!("the command driver failed: {error}")))?;
        super::outlet::tell(&mut ran.answer, told);
        seen.tell(&mut ran.answer);
        Ok(ran)
    }

    /// What a command trusts, where it has a network.
    fn trust(&self, authority: &Authority, keeping: &fs::Keeping) -> Result<Option<Trust>, CallError> {
        let settings = authority.policy.role(&authority.role).and_then(|role| role.exec.as_ref());
        if self.how != Exec::Sandboxed || settings.is_none_or(|settings| settings.net != ExecNet::Rules) {
            return Ok(None);
        }
        // A layer is named as its effect.
        let name = keeping.layer.file_name().unwrap_or_default().to_string_lossy();
        Trust::new(&self.run, &name).map(Some)
    }

    /// What of the host a command is shown. Without walls there is nothing to show it in.
    fn seen(&self, authority: &Authority) -> Mounted {
        let mut mounted = Mounted::default();
        for mount in self.mounts.placed(authority.mounts()) {
            let looked = match self.how {
                Exec::Sandboxed => mount.check(),
                Exec::Unsandboxed => Err(CallError::new(Code::NoSys, "without the sandbox nothing can be mounted")),
            };
            match looked {
                Ok(is) => {
                    mounted.inside.push(inside(&mount, is));
                    mounted.shown.push(mount);
                }
                Err(error) => mounted.missing.push((mount.at, error.message)),
            }
        }
        mounted
    }

    fn scene(
        &self,
        workspace: PathBuf,
        keeping: fs::Keeping,
        authority: &Authority,
        outlet: &Outlet,
        trust: Option<&Trust>,
        shown: &[aos_sandbox::Mount],
    ) -> Result<exec::Scene, CallError> {
        let policy = &authority.policy;
        let settings = policy.role(&authority.role).and_then(|role| role.exec.as_ref());
        let Some(settings) = settings else {
            return Err(CallError::new(Code::Perm, "the policy's role has no `exec`"));
        };
        let isolation = match self.how {
            Exec::Sandboxed => Isolation::Full,
            Exec::Unsandboxed => match UnsandboxedConsent::from_words(UnsandboxedConsent::WORDS) {
                Some(consent) => Isolation::Unsandboxed(consent),
                None => Isolation::Full,
            },
        };
        let network = match (settings.net, &isolation) {
            (ExecNet::Closed, _) => Network::None,
            (ExecNet::Rules, Isolation::Full) => Network::Proxy,
            // Without walls a proxy would be a wish.
            (ExecNet::Rules, Isolation::Unsandboxed(_)) => {
                return Err(CallError::new(Code::NoSys, "without the sandbox a command's network cannot follow rules")
                    .hint("run commands in the sandbox, or set `net: none` in the role's `exec`"));
            }
        };
        let programs = super::programs::found(settings, self.mounts.person());
        let path = super::programs::path(&programs).map(|path| ("PATH".into(), path));
        Ok(exec::Scene {
            workspace,
            // Only the sandbox can show a command a layer in the place of its workspace.
            layer: (isolation == Isolation::Full).then_some(keeping.layer),
            bounds: Arc::new(Bounds {
                authority: authority.clone(),
                policy: self.policy(),
                requests: outlet.requests(),
            }),
            note: keeping.note,
            mounts: trust.map(Trust::mount).into_iter().chain(shown.iter().cloned()).collect(),
            env: trust.map(|_| Trust::variables()).into_iter().flatten().chain(path).collect(),
            programs,
            shell: settings.shell,
            limits: limits(&policy.limits().sandbox),
            network,
            proxy: (network == Network::Proxy).then(|| outlet.server()),
            isolation,
            helper: self.helper.clone(),
        })
    }

    /// A request to the network, where the configuration and, at every redirect, the policy allow it.
    pub(crate) async fn net(
        &self,
        permit: Permit,
        authority: &Authority,
        requests: Requests,
        token: CancellationToken,
    ) -> Result<Value, CallError> {
        let url = match permit.call() {
            Syscall::NetFetch(args) => args.url.clone(),
            Syscall::NetSend(args) => args.url.clone(),
            other => return Err(CallError::new(Code::NoSys, format!("{} is no network call", other.name()))),
        };
        self.configured(&url).map_err(CallError::unheard)?;
        // What the rules of places beyond a redirect say of their answers.
        let labels = Mutex::new(Labels::NONE);
        let allows = |url: &str, policy: &Policy| {
            self.configured(url)?;
            if !keeps_secrets(authority, policy) {
                return Err(CallError::new(Code::Perm, "the policy was changed and takes back a secret of this call")
                    .hint("a call that is made now has what the policy gives now"));
            }
            let call = Syscall::NetFetch(NetFetch { url: url.to_owned(), headers: None });
            authority.still_allows(policy, &call)
        };
        // What the policy gave when the call was decided, and still does.
        let secrets = match keeps_secrets(authority, &self.policy.borrow()) {
            true => self.secrets.of_role(authority.policy.role(&authority.role)),
            false => Vec::new(),
        };
        let decide = |url: &str| {
            let policy = self.policy.borrow().clone();
            let said = requests.timed(|| allows(url, &policy));
            // The journal keeps no secret that a server has put into where it leads.
            let to = net::covered(&secrets, url.split(['?', '#']).next().unwrap_or_default());
            let shown = said.as_ref().map_err(|error| &error.message);
            // Nor is a person shown one, or an address that the configuration closes.
            if said.is_err() && self.configured(url).is_ok() && net::covered(&secrets, url) == url {
                let call = Syscall::NetFetch(NetFetch { url: url.to_owned(), headers: None });
                match authority.under(&policy).is_liftable(&call) {
                    true => requests.denied(&call),
                    false => requests.closed(&super::outlet::bare(&call)),
                }
            }
            requests.decided(policy.generation(), net_request("GET", &to, shown));
            let mut labels = labels.lock().unwrap_or_else(PoisonError::into_inner);
            *labels = labels.and(said?.obligations.labels);
            Ok(())
        };
        let private = self.excepted(&url, &authority.policy.private_hosts(&authority.role));
        // What only the driver sees: where a name leads.
        let method = match permit.call() {
            Syscall::NetSend(args) => args.method.clone(),
            _ => "GET".to_owned(),
        };
        let refused = |url: &str, floor: &str, why: &str| {
            let to = net::covered(&secrets, url.split(['?', '#']).next().unwrap_or_default());
            let request = NetRequest { rule: Some(format!("floor: {floor}")), ..net_request(&method, &to, Err(why)) };
            requests.decided(self.policy.borrow().generation(), request);
        };
        let trip = net::Trip { decide: &decide, refused: &refused, private: &private, secrets: &secrets };
        let call = permit.call().clone();
        let answer = tokio::select! {
            biased;
            () = token.cancelled() => Err(CallError::new(Code::Intr, "cancelled")),
            () = self.withdrawn(authority, &call, &[]) => {
                Err(CallError::new(Code::Perm, "the policy was changed and forbids it by now")
                    .hint("whether it was made is not known; `aos policy explain` says what holds"))
            }
            answer = self.net.call(permit, trip) => answer,
        };
        requests.end();
        let mut answer = answer?;
        let labels = labels.into_inner().unwrap_or_else(PoisonError::into_inner);
        answer["label"] = labels.and(Labels::WEB).to_string().into();
        Ok(answer)
    }

    /// Where the values of secrets are.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// What a command's proxy reaches out with, and the configured hosts that go with it.
    pub(crate) fn way_out(&self) -> (Arc<net::Driver>, Configured) {
        (Arc::clone(&self.net), Configured { hosts: self.hosts.clone(), private: self.private.clone() })
    }

    /// Why a network call of a role is refused whatever the policy says, as far as its address tells: where the
    /// configuration closes it, and where this machine or its network has it. Nothing is looked up.
    pub(crate) async fn refuses(&self, role: &str, call: &Syscall) -> Option<CallError> {
        let url = match call {
            Syscall::NetFetch(args) => &args.url,
            Syscall::NetSend(args) => &args.url,
            _ => return None,
        };
        if let Err(error) = self.configured(url) {
            return Some(error);
        }
        let private = self.excepted(url, &self.policy.borrow().private_hosts(role));
        self.net.refuses(url, &private).await
    }

    /// The private addresses that a request to this URL may lead to, for a role whose rules name these.
    fn excepted(&self, url: &str, named: &[String]) -> Vec<net::HostPort> {
        self.private.iter().cloned().chain(decided_on(url, named)).collect()
    }

    fn configured(&self, url: &str) -> Result<(), CallError> {
        allowed(&self.hosts, url)
    }

    /// Begins to watch files; changes come back through `completions`.
    pub(crate) fn watch(
        &self,
        runtime: &tokio::runtime::Handle,
        completions: mpsc::UnboundedSender<Completion>,
        pid: Pid,
        watch_id: String,
        order: watch::Order,
    ) {
        let token = CancellationToken::new();
        let ours = token.clone();
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).insert((pid, watch_id.clone()), token);
        runtime.spawn(async move {
            let tell = |paths: BTreeSet<String>| {
                // The loop is gone only when the daemon stops.
                let _ = completions.send((pid, Body::Watch { watch_id: watch_id.clone(), paths }));
            };
            let (sender, mut bursts) = mpsc::channel(BURSTS_MAX);
            let watcher = match watch::Watcher::start(order, sender).await {
                Ok(watcher) => watcher,
                Err(error) => {
                    tell(BTreeSet::from([format!("(not watched: {error})")]));
                    return;
                }
            };
            loop {
                tokio::select! {
                    () = ours.cancelled() => break,
                    burst = bursts.recv() => match burst {
                        Some(mut burst) => {
                            if burst.incomplete {
                                burst.paths.insert("(and more: look at the whole folder)".to_owned());
                            }
                            tell(burst.paths);
                        }
                        None => break,
                    }
                }
            }
            watcher.stop().await;
        });
    }

    /// Stops watching.
    pub(crate) fn unwatch(&self, pid: Pid, watch_id: &str) {
        let token = self.watches.lock().unwrap_or_else(PoisonError::into_inner).remove(&(pid, watch_id.to_owned()));
        if let Some(token) = token {
            token.cancel();
        }
    }

    /// Stops every watch.
    pub(crate) fn close(&self) {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).drain().for_each(|(_, token)| token.cancel());
    }
}

/// The mounts of one command.
#[derive(Debug, Default)]
struct Mounted {
    shown: Vec<fs::Mount>,
    /// The same as the sandbox takes them.
    inside: Vec<aos_sandbox::Mount>,
    /// Those that could not be, and why: the command goes without, and says so.
    missing: Vec<(String, String)>,
}

impl Mounted {
    fn tell(self, answer: &mut Result<Value, CallError>) {
        if self.missing.is_empty() {
            return;
        }
        let result = match answer {
            Ok(result) => result,
            Err(error) => error.partial.get_or_insert_with(|| json!({})),
        };
        result["not_mounted"] =
            self.missing.into_iter().map(|(at, why)| (at, why.into())).collect::<Map<_, _>>().into();
    }
}

fn inside(mount: &fs::Mount, is: aos_sandbox::Inode) -> aos_sandbox::Mount {
    let at = Path::new(aos_sandbox::WORKSPACE).join(&mount.at);
    aos_sandbox::Mount { host: mount.host.clone(), at, access: aos_sandbox::Access::Read, is: Some(is) }
}

fn covers(all: &[fs::Mount], some: &[fs::Mount]) -> bool {
    some.iter().all(|mount| all.contains(mount))
}

/// Whether a policy has every secret that a call or a command began with.
pub(crate) fn keeps_secrets(began: &Authority, now: &Policy) -> bool {
    let of = |policy: &Policy| policy.role(&began.role).map(|role| role.secrets.clone()).unwrap_or_default();
    let has = of(now);
    of(&began.policy).iter().all(|one| has.contains(one))
}

/// Hosts as aos.toml has them.
pub(crate) struct Configured {
    /// Hosts that may be reached at all; empty: whatever the policy allows.
    pub(crate) hosts: Vec<HostPort>,
    /// Hosts that may be reached at private addresses.
    pub(crate) private: Vec<net::HostPort>,
}

/// Whether `[net]` of aos.toml lets this host be reached. Without any host in `allow`, the policy alone decides.
pub(crate) fn allowed(hosts: &[HostPort], url: &str) -> Result<(), CallError> {
    if hosts.is_empty() {
        return Ok(());
    }
    let (host, port) = host_and_port(url).unwrap_or_default();
    if hosts.iter().any(|allowed| allowed.covers(&host, port)) {
        return Ok(());
    }
    Err(CallError::new(Code::Perm, format!("[net] of aos.toml does not name {host}:{port}"))
        .hint("add it to `allow` there, or take `allow` out so that the policy alone decides"))
}

/// What to watch, as the driver takes it.
pub(crate) fn watch_order(place: fs::Place, path: String, glob: Option<String>) -> watch::Order {
    let path = Some(path).filter(|path| path != ".");
    watch::Order { place, path, glob, settle: watch::Settle::default() }
}

fn limits(policy: &SandboxLimits) -> Limits {
    Limits {
        wall: Duration::from_millis(policy.wall_ms),
        cpu: Duration::from_millis(policy.cpu_ms),
        memory: policy.memory_bytes,
        pids: policy.pids,
        files: policy.files,
        disk: policy.disk_bytes,
        output: usize::try_from(policy.output_bytes).unwrap_or(usize::MAX),
    }
}

fn host_and_port(url: &str) -> Option<(String, u16)> {
    let uri: hyper::Uri = url.parse().ok()?;
    let port = uri.port_u16().or_else(|| match uri.scheme_str()? {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    })?;
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some((host, port))
}

/// Host and port of a URL whose host is an address in numbers or `localhost`.
fn literal(url: &str) -> Option<(String, u16)> {
    let (host, port) = host_and_port(url)?;
    let address = host.parse::<std::net::IpAddr>().ok();
    match address {
        Some(std::net::IpAddr::V6(_)) => Some((format!("[{host}]"), port)),
        Some(std::net::IpAddr::V4(_)) => Some((host, port)),
        None => (host == "localhost").then_some((host, port)),
    }
}

/// The private address that stands in a URL itself, on which the policy has decided then. To the policy one that only this
/// machine makes private is like any other, unless a rule names it.
fn decided_on(url: &str, named: &[String]) -> Option<net::HostPort> {
    let (host, port) = literal(url)?;
    let place: net::HostPort = format!("{host}:{port}").parse().ok()?;
    let private = Address::parse(url).is_ok_and(|address| address.class == Class::Private);
    (private || named.iter().any(|one| one.parse() == Ok(place.clone()))).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_private_here_alone_must_be_named() {
        let (private, public) = ("http://127.0.0.1:8080/a", "http://9.9.9.9:8080/a");
        assert_eq!(decided_on(private, &[]), "127.0.0.1:8080".parse().ok());
        assert_eq!(decided_on("https://[::1]/", &[]), "[::1]:443".parse().ok());
        assert_eq!(decided_on(public, &[]), None);
        assert_eq!(decided_on(public, &["9.9.9.9:443".into(), "a.test:8080".into()]), None);
        assert_eq!(decided_on(public, &["9.9.9.9:8080".into()]), "9.9.9.9:8080".parse().ok());
        assert_eq!(decided_on("http://a.test:8080/", &["a.test:8080".into()]), None);
    }
}
