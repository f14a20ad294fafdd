//! Real handshakes: a model behind TLS, whose authority the system trusts or does not.
//!
//! Start at [`asked`]. Which authorities are trusted is read from the environment (`SSL_CERT_FILE`), which a test cannot
//! change for itself: each case runs [`child_asks_over_tls`] in a process of its own. The certificates beside this file
//! hold from 2020 to 2119; their authority's key is thrown away.

#![expect(clippy::unwrap_used, reason = "functions that tests share are tests too")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use aos_abi::inference::{Encoding, FailureKind, Message, Part, Prompt};
use aos_abi::syscall::CallSet;
use aos_abi::{EffectId, Lsn};
use aos_models::scripted::{Answer, Rule, Script, Server};
use aos_models::{Options, Pool, Provider, Retries};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

/// What a process that trusts `authority` alone makes of a server that shows `certificate`: the answer's text, or the
/// kind of failure with its words, and how many connections it took.
fn asked(authority: &str, certificate: &str) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["child_asks_over_tls", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    child.env("SSL_CERT_FILE", file(authority)).env_remove("SSL_CERT_DIR").env("CERTIFICATE", certificate);
    let ran = child.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}{err}");
    out.lines().find_map(|line| line.split_once("came to ")).unwrap_or_else(|| panic!("{out}{err}")).1.to_owned()
}

#[test]
fn a_server_whose_authority_is_trusted_is_spoken_to() {
    assert_eq!(asked("authority.pem", "server.pem"), "`safe and sound` in 1 connections");
}

#[test]
fn a_server_of_a_stranger_is_refused_at_once_and_it_is_said_why() {
    let said = asked("stranger.pem", "server.pem");
    assert!(said.starts_with("Permanent: localhost"), "{said}");
    assert!(said.contains("has a certificate that this machine does not trust"), "{said}");
    assert!(said.contains("SSL_CERT_FILE"), "the way out is named: {said}");
    assert!(said.ends_with("in 1 connections"), "it is not tried again: {said}");
}

#[test]
fn a_trusted_certificate_of_another_name_is_refused() {
    let said = asked("authority.pem", "other.pem");
    assert!(said.starts_with("Permanent: localhost") && said.ends_with("in 1 connections"), "{said}");
}

/// Takes off the TLS and passes on to the scripted server; returns its port and the number of its connections.
async fn front(certificate: &str, plain: std::net::SocketAddr) -> (u16, Arc<std::sync::atomic::AtomicU32>) {
    let chain = vec![CertificateDer::from_pem_file(file(certificate)).unwrap()];
    let key = PrivateKeyDer::from_pem_file(file("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // Whoever does not trust us hangs up here.
                let Ok(mut secret) = acceptor.accept(stream).await else { return };
                let mut plain = TcpStream::connect(plain).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut secret, &mut plain).await;
            });
        }
    });
    (port, count)
}

#[tokio::test]
#[ignore = "the other tests run it, each with authorities of its own"]
async fn child_asks_over_tls() {
    let Ok(certificate) = std::env::var("CERTIFICATE") else { return };
    let server = Server::start(Script::new(vec![Rule::always(vec![Answer::text("safe and sound")])])).await.unwrap();
    let mut model = server.model(Provider::Openai);
    let (port, count) = front(&certificate, server.address()).await;
    model.base_url = Some(format!("https://localhost:{port}/v1"));
    let retries = Retries { retries_max: 2, base: Duration::ZERO, ..Retries::default() };
    let options = Options { retries, ..Options::default() };
    let pool = Pool::new(BTreeMap::from([("m".to_owned(), model)]), Arc::new(|_: &str| None), options);
    let prompt = Prompt {
        system: String::new(),
        messages: vec![Message::User(vec![Part::Text("begin".to_owned())])],
        status: String::new(),
        tools: CallSet::EMPTY,
        encoding: Encoding::Native,
        max_output: 100,
    };
    let outcome = pool.infer("m", &prompt, EffectId { cause: Lsn(1), nth: 0 }, |_| ()).await;
    let came_to = match outcome {
        Ok(reply) => format!("`{}`", reply.text),
        Err(failure) => {
            assert_ne!(failure.kind, FailureKind::Transient, "{failure:?}");
            format!("{:?}: {} ({})", failure.kind, failure.message, failure.hint.unwrap_or_default())
        }
    };
    println!("came to {came_to} in {} connections", count.load(std::sync::atomic::Ordering::Relaxed));
}
