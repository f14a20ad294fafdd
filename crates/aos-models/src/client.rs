//! HTTP to model servers: the clients, their deadlines, and what their errors mean.
//!
//! Start at [`Clients::to`]. What always holds: connections are reused and send without delay; no redirect is followed,
//! since it would carry the key elsewhere; what stays on this machine goes through no proxy. TLS is rustls with ring
//! (aws-lc would need cmake to build) and the system's certificates, or Mozilla's where the system has none.

use std::error::Error as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aos_abi::inference::Failure;

use crate::failure::{permanent, transient};

/// How long each part of an inference may take.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Until there is a connection.
    pub connect: Duration,
    /// Until the answer begins; a model's own `timeout_s` goes before.
    pub first_byte: Duration,
    /// Between two pieces of an answer.
    pub stall: Duration,
    /// All tries and waits together, where a model has no `timeout_s` of its own.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            connect: Duration::from_secs(5),
            first_byte: Duration::from_secs(120),
            stall: Duration::from_secs(60),
            total: Duration::from_secs(600),
        }
    }
}

/// The clients, each made when it is first needed: certificates take milliseconds to load.
#[derive(Debug)]
pub(crate) struct Clients {
    ua: String,
    connect: Duration,
    near: OnceLock<Result<reqwest::Client, Failure>>,
    far: OnceLock<Result<reqwest::Client, Failure>>,
}

impl Clients {
    pub(crate) fn new(ua: &str, connect: Duration) -> Clients {
        Clients { ua: ua.to_owned(), connect, near: OnceLock::new(), far: OnceLock::new() }
    }

    /// The client for `url`; `local` says that what is sent there must stay on this machine.
    pub(crate) fn to(&self, url: &reqwest::Url, local: bool) -> Result<reqwest::Client, Failure> {
        let near = local || loopback(url);
        let client = if near && url.scheme() == "http" {
            self.near.get_or_init(|| self.build(true, false))
        } else if near {
            // Rare: a server on this machine with TLS. Not kept, so that no third client lives for ever.
            return self.build(true, true);
        } else {
            self.far.get_or_init(|| self.build(false, true))
        };
        client.clone()
    }

    fn build(&self, near: bool, tls: bool) -> Result<reqwest::Client, Failure> {
        let mut builder = reqwest::Client::builder()
            .user_agent(&self.ua)
            .connect_timeout(self.connect)
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false);
        if near {
            builder = builder.no_proxy();
        }
        // Without TLS an empty set of roots stands in, since the library would otherwise look for a default of its own.
        let tls = if tls { certificates()? } else { no_roots()? };
        builder.tls_backend_preconfigured(tls).build().map_err(|error| {
            permanent(format!("no HTTP client: {}", causes(&error)), "check the proxy variables of the environment")
        })
    }
}

/// Whether an address names this machine.
pub(crate) fn loopback(url: &reqwest::Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn no_tls(error: &dyn std::fmt::Display) -> Failure {
    permanent(format!("TLS cannot be set up: {error}"), "this is a fault of the build; please report it")
}

fn configuration(roots: rustls::RootCertStore) -> Result<rustls::ClientConfig, Failure> {
    let builder = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| no_tls(&error))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// TLS that trusts nobody, for clients that speak none.
pub(crate) fn no_roots() -> Result<rustls::ClientConfig, Failure> {
    configuration(rustls::RootCertStore::empty())
}

/// The system's certificates, so that a company's own authority works; Mozilla's in a container that has none.
fn certificates() -> Result<rustls::ClientConfig, Failure> {
    use rustls_platform_verifier::BuilderVerifierExt as _;
    let builder = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| no_tls(&error))?;
    match builder.with_platform_verifier() {
        Ok(builder) => Ok(builder.with_no_client_auth()),
        Err(error) => {
            tracing::debug!(%error, "no certificates on this system, using the built-in ones");
            configuration(rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
        }
    }
}

/// What a failed exchange means. The address is left out of the words: it may hold what is nobody's business.
pub(crate) fn failed(error: reqwest::Error, host: &str, near: bool) -> Failure {
    let error = error.without_url();
    let causes = causes(&error);
    if causes.contains("invalid peer certificate") {
        let failure = permanent(
            format!("{host} has a certificate that this machine does not trust: {causes}"),
            "add its authority to the system's, or name the file in SSL_CERT_FILE where the daemon starts; or correct base_url",
        );
        return Failure { unreachable: true, ..failure };
    }
    let mut failure = if error.is_connect() {
        transient(format!("cannot connect to {host}: {causes}"))
    } else {
        transient(format!("the exchange with {host} broke off: {causes}"))
    };
    if error.is_connect() {
        failure.unreachable = true;
        failure.hint = Some(
            if near { "is the model server running?" } else { "is the network up, and base_url right?" }.to_owned(),
        );
    }
    failure
}

/// An error and its causes in one line.
fn causes(error: &reqwest::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(of) = cause {
        let more = of.to_string();
        if !words.ends_with(&more) {
            words.push_str(": ");
            words.push_str(&more);
        }
        cause = of.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known_by_its_addresses() {
        let loopback = |text: &str| loopback(&text.parse().unwrap());
        for near in [
            "http://localhost:1/v1",
            "http://127.0.0.1",
            "http://127.9.9.9/",
            "http://[::1]:8080/",
            "http://a.localhost",
        ] {
            assert!(loopback(near), "{near}");
        }
        for far in ["http://localhost.example", "http://10.0.0.1", "https://api.openai.com", "http://127.0.0.1.example"]
        {
            assert!(!loopback(far), "{far}");
        }
    }

    #[test]
    fn both_kinds_of_client_can_be_made() {
        let clients = Clients::new("aos/test", Duration::from_secs(1));
        clients.to(&"http://127.0.0.1:1/".parse().unwrap(), true).unwrap();
        clients.to(&"https://api.openai.com/v1".parse().unwrap(), false).unwrap();
        clients.to(&"https://localhost/v1".parse().unwrap(), false).unwrap();
    }
}
