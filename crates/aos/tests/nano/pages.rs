//! The web server that stands in the place of all hosts of the tasks.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a client may take for its request.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server on loopback, without pages at first.
pub(crate) struct Pages {
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    pages: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Pages {
    pub(crate) fn serve() -> Pages {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let pages = Arc::new(Mutex::new(BTreeMap::new()));
        let served = Arc::clone(&pages);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Whoever asked may have hung up.
                let _ = answer(stream, &served);
            }
        });
        Pages { address, pages }
    }

    /// Serves this text at this address, which is one of this server.
    pub(crate) fn add(&self, address: &str, body: &str) {
        let page = address.strip_prefix("http://").and_then(|rest| rest.strip_prefix(&self.address));
        let page = page.unwrap_or_else(|| panic!("a page is not at the server")).to_owned();
        let before = self.pages.lock().unwrap().insert(page, body.to_owned());
        assert!(before.is_none_or(|before| before == body), "two tasks have other pages at one address");
    }
}

fn answer(stream: TcpStream, pages: &Mutex<BTreeMap<String, String>>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let (mut asked, mut line, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut asked)?;
    while reader.read_line(&mut line)? > 0 && line != "\r\n" {
        if let Some(given) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = given.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; length])?;
    let asked = asked.split(' ').nth(1).unwrap_or_default();
    let page = pages.lock().unwrap().get(asked).cloned();
    let (status, body) = page.map_or(("404 Not Found", String::new()), |body| ("200 OK", body));
    let head = "content-type: text/plain; charset=utf-8\r\nconnection: close";
    let answer = format!("HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    reader.get_mut().write_all(answer.as_bytes())
}
