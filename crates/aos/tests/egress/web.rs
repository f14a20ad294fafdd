//! Web servers on loopback that write down what they are asked.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A web server that answers by path and writes down every request whole.
pub(crate) struct Web {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Web {
    /// Answers with status line, further headers and body, by method and path; `{told}` in a body is what the request
    /// says in `authorization`.
    pub(crate) fn serve(pages: &[(&str, &str, &str)]) -> Web {
        let pages: BTreeMap<String, (String, String)> = pages
            .iter()
            .map(|(what, head, body)| ((*what).to_owned(), ((*head).to_owned(), (*body).to_owned())))
            .collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut head, mut line) = (String::new(), String::new());
                while reader.read_line(&mut line).is_ok_and(|read| read > 0) && line != "\r\n" {
                    head.push_str(&line);
                    line.clear();
                }
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                let mut body = vec![0; length.unwrap_or(0)];
                reader.read_exact(&mut body).unwrap();
                let asked = head.split(' ').take(2).collect::<Vec<_>>().join(" ");
                let what = asked.split('?').next().unwrap();
                log.lock().unwrap().push(format!("{head}\n{}", String::from_utf8_lossy(&body)));
                let (status, body) = pages.get(what).cloned().unwrap_or(("404 Not Found".to_owned(), String::new()));
                let told = head.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or("nobody");
                let body = body.replace("{told}", told);
                let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}", body.len());
                let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes());
            }
        });
        Web { port, asked }
    }

    /// The requests, each whole.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Methods and paths of the requests.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.asked().iter().map(|request| request.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
    }
}

/// A web server behind TLS for `localhost` that answers with the path and what `authorization` said; the authority that
/// its certificate is from is in the file returned.
pub(crate) fn serve_tls() -> (Web, std::path::PathBuf) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../aos-models/tests/tls");
    let certificate = CertificateDer::from_pem_file(folder.join("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream);
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            let told = head.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or("nobody");
            let body = format!("{} {told}", head.split(' ').nth(1).unwrap_or_default());
            let answer =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            log.lock().unwrap().push(head);
            let _ = stream.write_all(answer.as_bytes());
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    (Web { port, asked }, folder.join("authority.pem"))
}
