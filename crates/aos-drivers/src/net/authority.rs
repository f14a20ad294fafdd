//! An authority of one command's own, by which TLS from inside its sandbox is opened.
//!
//! Start at [`Authority::new`]. What always holds: its key and those of its certificates are in memory alone and end
//! with the command; only the programs that are shown its certificate trust it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Hosts whose certificates are kept; those of others are made for each connection. Patterns let a command make up as many
/// as it likes.
const KEPT_MAX: usize = 256;

/// Makes certificates for the hosts that a command asks for.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    own: CertificateDer<'static>,
    /// One key serves every host: they differ in nothing but their names.
    key: KeyPair,
    served: Mutex<BTreeMap<String, Arc<ServerConfig>>>,
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// Where keys cannot be made here.
    pub fn new() -> Result<Authority, String> {
        let words = |error: rcgen::Error| error.to_string();
        let (mut params, issuing) = (CertificateParams::default(), KeyPair::generate().map_err(words)?);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "AOS authority of one command");
        let own = params.self_signed(&issuing).map_err(words)?.der().clone();
        let key = KeyPair::generate().map_err(words)?;
        Ok(Authority { issuer: Issuer::new(params, issuing), own, key, served: Mutex::default() })
    }

    /// Its certificate, as programs read it.
    #[must_use]
    pub fn pem(&self) -> String {
        let text = base64::engine::general_purpose::STANDARD.encode(&self.own);
        let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    }

    /// Its certificate, as it is.
    #[cfg(test)]
    pub(super) fn own(&self) -> CertificateDer<'static> {
        self.own.clone()
    }

    /// How a connection is answered in the name of this host.
    pub(super) fn serves(&self, host: &str) -> Result<Arc<ServerConfig>, String> {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = served.get(host) {
            return Ok(Arc::clone(known));
        }
        let words = |error: rcgen::Error| error.to_string();
        let mut params = CertificateParams::new(vec![host.to_owned()]).map_err(words)?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.distinguished_name.push(DnType::CommonName, "opened by the proxy of AOS");
        let certificate = params.signed_by(&self.key, &self.issuer).map_err(words)?.der().clone();
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).map_err(str::to_owned)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certificate], key))
            .map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Nothing is resumed: the memory for that would be the most of it.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let config = Arc::new(config);
        if served.len() < KEPT_MAX {
            served.insert(host.to_owned(), Arc::clone(&config));
        }
        Ok(config)
    }
}
