//! What a command trusts: the system's certificates, and an authority of its own by which the proxy opens TLS.
//!
//! Start at [`Trust::new`]. What always holds: the authority's key is in memory alone; the file holds certificates, is
//! shown to one command, and is gone when that has ended.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aos_abi::{CallError, Code};
use aos_drivers::net::Authority;
use aos_sandbox::{Access, Mount};

use crate::env::Env;

/// Where it stands inside.
const INSIDE: &str = "/etc/aos-certificates.pem";
/// Where systems keep the certificates that they trust, in one file.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// By which programs are told of them.
const VARIABLES: [&str; 8] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
];
/// What the files are called, before the effect.
const PREFIX: &str = "trusted-";

/// The certificates of one command.
pub(crate) struct Trust {
    authority: Arc<Authority>,
    file: PathBuf,
}

impl Trust {
    /// A new authority, and a file of certificates in `folder` that `name` tells from others.
    pub(crate) fn new(folder: &Path, name: &str) -> Result<Trust, CallError> {
        let failed =
            |why: String| CallError::new(Code::Io, format!("the command's certificates cannot be made: {why}"));
        let authority = Authority::new().map_err(failed)?;
        let file = folder.join(format!("{PREFIX}{name}.pem"));
        let own = Env::of_process();
        let chosen = own.path("SSL_CERT_FILE").map(Path::new);
        let known = chosen.into_iter().chain(BUNDLES.map(Path::new));
        // What the daemon trusts, so that TLS that is passed on is trusted inside as well.
        let mut text = known.filter_map(|bundle| fs::read_to_string(bundle).ok()).next().unwrap_or_default();
        text.push('\n');
        text.push_str(&authority.pem());
        let trust = Trust { authority: Arc::new(authority), file };
        fs::write(&trust.file, text).map_err(|error| failed(error.to_string()))?;
        Ok(trust)
    }

    /// Who opens TLS.
    pub(crate) fn authority(&self) -> Arc<Authority> {
        Arc::clone(&self.authority)
    }

    /// How a command sees them.
    pub(crate) fn mount(&self) -> Mount {
        Mount { host: self.file.clone(), at: INSIDE.into(), access: Access::Read, is: None }
    }

    /// How its programs learn of them.
    pub(crate) fn variables() -> BTreeMap<OsString, OsString> {
        VARIABLES.into_iter().map(|name| (name.into(), INSIDE.into())).collect()
    }

    /// Takes away what a daemon left that was killed.
    pub(crate) fn sweep(folder: &Path) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl Drop for Trust {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}
