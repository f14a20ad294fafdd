//! TLS: rustls with ring, and the certificates that the operating system trusts.

use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;

/// Two configurations, each made once: reading the system's certificates takes milliseconds.
#[derive(Debug, Default)]
pub(super) struct Tls {
    trusting: OnceLock<Result<ClientConfig, String>>,
    none: OnceLock<Result<ClientConfig, String>>,
}

impl Tls {
    /// The configuration for a scheme: for `http` one that trusts nobody, so that a missing store does no harm there.
    pub(super) fn of(&self, scheme: &str) -> Result<ClientConfig, String> {
        let config = match scheme {
            "https" => self.trusting.get_or_init(trusting),
            _ => self.none.get_or_init(|| with(RootCertStore::empty())),
        };
        config.clone()
    }
}

#[cfg(test)]
impl Tls {
    /// One that trusts this authority alone.
    pub(super) fn of_authority(authority: rustls::pki_types::CertificateDer<'static>) -> Tls {
        let mut roots = RootCertStore::empty();
        roots.add(authority).expect("it is a certificate");
        let tls = Tls::default();
        tls.trusting.set(with(roots)).expect("nobody has set it");
        tls
    }
}

/// The system's certificates; those of Mozilla's programme where the system has none, as in a bare container.
fn trusting() -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    match builder.with_platform_verifier() {
        Ok(builder) => Ok(builder.with_no_client_auth()),
        Err(_) => with(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }),
    }
}

fn with(roots: RootCertStore) -> Result<ClientConfig, String> {
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())
        .map(|builder| builder.with_root_certificates(roots).with_no_client_auth())
}
