//! What a command may say to its proxy.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use aos_abi::{CallError, Code};
use aos_drivers::net::{Driver, Gate, HostPort, Options, Proxy, Resolve, Resolving, Secret, Seen, Tunnel};
use aos_policy::address::Address;
use aos_policy::{Allowed, Obligations, Policy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Lets through what begins with [`OPEN`], and writes down what it was asked and told.
struct Door {
    asked: Arc<Mutex<Vec<(String, String)>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Nothing changes here.
    policy: watch::Sender<Policy>,
}

fn allowed() -> Allowed {
    Allowed { rule: "a rule".into(), generation: "1".into(), obligations: Obligations::default() }
}

impl Gate for Door {
    fn request(&self, method: &str, url: &str) -> Result<Allowed, CallError> {
        self.asked.lock().expect("nobody panics with it").push((method.to_owned(), url.to_owned()));
        // As the policy reads it.
        let address = Address::parse(url).map_err(|fault| CallError::new(Code::Perm, fault.why))?;
        let open = address.host == "ok.test" && address.path.first().is_some_and(|first| first == "open");
        open.then(allowed).ok_or_else(|| CallError::new(Code::Perm, "no rule"))
    }
    fn tunnel(&self, host: &str, _: u16) -> Result<Tunnel, CallError> {
        (host == "ok.test").then(|| Tunnel::Passed(allowed())).ok_or_else(|| CallError::new(Code::Perm, "no rule"))
    }
    fn names(&self, host: &str) -> bool {
        host == "ok.test"
    }
    fn private(&self) -> &[HostPort] {
        &[]
    }
    fn secrets(&self) -> Vec<Secret> {
        Vec::new()
    }
    fn changes(&self) -> watch::Receiver<Policy> {
        self.policy.subscribe()
    }
    fn saw(&self, seen: Seen) {
        self.seen.lock().expect("nobody panics with it").push(seen);
    }
}

/// No name has an address.
struct Nowhere;

impl Resolve for Nowhere {
    fn resolve<'r>(&'r self, _: &'r str) -> Resolving<'r> {
        Box::pin(std::future::ready(Err(io::Error::other("nowhere"))))
    }
}

static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime can be made")
});

/// Everything that one connection says, until it ends.
pub fn proxy_request(data: &[u8]) {
    let (seen, asked, answer) = told(data);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{:?}", String::from_utf8_lossy(&answer));
    assert_ne!(answer.get(9), Some(&b'2'), "nobody is there to say so");
    for (method, url) in &asked {
        assert!(["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&method.as_str()), "{method}");
        // Whoever writes letters beyond ASCII is refused by the policy's own reading.
        let blank = |c: char| c.is_ascii_whitespace() || c.is_ascii_control();
        assert!(url.starts_with("http://") && !url.contains(blank), "{url:?}");
    }
    for seen in &seen {
        assert!(seen.said.is_err(), "it cannot be reached: {seen:?}");
        assert!(!seen.to.contains('?'), "{seen:?}");
    }
}

/// What the proxy was seen to do, what it asked the policy, and what it answered.
pub fn told(data: &[u8]) -> (Vec<Seen>, Vec<(String, String)>, Vec<u8>) {
    let (seen, asked) = (Arc::default(), Arc::default());
    let policy = watch::Sender::new(Policy::deny_all());
    let door = Door { asked: Arc::clone(&asked), seen: Arc::clone(&seen), policy };
    let driver = Arc::new(Driver::with_resolver(Options::default(), Arc::new(Nowhere)));
    let proxy = Proxy::new(driver, door, CancellationToken::new());
    let answer = RUNTIME.block_on(async move {
        let (mut ours, theirs) = tokio::io::duplex(1 << 20);
        let talk = async move {
            // A proxy that has heard enough hangs up, and one that waits does when its time is over: the clock goes on by
            // itself where nothing else can happen.
            let _ = ours.write_all(data).await;
            let mut answer = Vec::new();
            let _ = ours.read_to_end(&mut answer).await;
            answer
        };
        tokio::join!(proxy.speak(theirs), talk).1
    });
    let taken = (
        std::mem::take(&mut *seen.lock().expect("it is over")),
        std::mem::take(&mut *asked.lock().expect("it is over")),
    );
    (taken.0, taken.1, answer)
}
