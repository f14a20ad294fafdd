//! The daemon's own address, asked for in every way: no rule and no exception opens it.

use super::super::Own;
use super::proxy::Outlet;
use super::*;

#[tokio::test]
async fn no_address_leads_to_the_daemon_whatever_is_excepted() {
    let daemon = Server::start(|_| ok("the daemon")).await;
    let port = daemon.port;
    let other = Server::start(move |_| redirect_to(&format!("http://localhost:{port}/healthz"))).await;
    let hosts = ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1.2.3", "localhost", "daemon.example"];
    let mut private: Vec<HostPort> = hosts.iter().map(|host| format!("{host}:{port}").parse().unwrap()).collect();
    private.push(other.private());
    let own = Own::new(format!("127.0.0.1:{port}").parse().unwrap());
    let driver = || faking(&[&["192.0.2.1", "127.0.0.1"]]).away_from(own);
    let refused = |what: &str, said: Result<Value, CallError>| {
        let error = said.expect_err(what);
        let told = error.message.contains("is the daemon's own address");
        assert!(error.code == Code::Perm && told && error.hint.is_some(), "{what}: {error:?}");
    };
    for host in hosts {
        let url = format!("http://{host}:{port}/healthz");
        refused(host, call(&driver(), &private, "NET_FETCH", json!({ "url": url })).await);
        refused(host, call(&driver(), &private, "NET_SEND", json!({ "url": url, "method": "POST" })).await);
        let unnamed = call(&driver(), &[], "NET_FETCH", json!({ "url": url })).await;
        assert_eq!(unnamed.unwrap_err().code, Code::Perm, "{host}");
    }
    let there = other.url("/");
    let redirected =
        call(&faking(&[&["127.0.0.1"]]).away_from(own), &private, "NET_FETCH", json!({ "url": there })).await;
    refused("a redirect", redirected);
    assert_eq!((daemon.seen().len(), other.seen().len()), (0, 1));
    // Without it, the rules decide alone.
    let plain = call(&Driver::new(Options::default()), &private, "NET_FETCH", json!({ "url": daemon.url("/") })).await;
    assert_eq!(plain.unwrap()["body"], "the daemon");
}

/// `aos policy explain` asks without making a request: nothing is looked up for it, and nobody is reached.
#[tokio::test]
async fn what_an_address_alone_makes_refused_is_known_without_a_request() {
    let server = Server::start(|_| ok("here")).await;
    let fake = Fake::with(&[]);
    let own = Own::new("127.0.0.1:7".parse().unwrap());
    let driver = Driver::with_resolver(Options::default(), fake.clone()).away_from(own);
    let private = [server.private(), "127.0.0.1:7".parse().unwrap()];
    for (url, why) in [
        (server.url("/"), None),
        (format!("http://0.0.0.0:{}/", server.port), Some("private")),
        ("http://10.1.2.3/".to_owned(), Some("private")),
        ("http://169.254.169.254/latest".to_owned(), Some("metadata")),
        ("http://127.0.0.1:7/".to_owned(), Some("the daemon's own address")),
        ("http://93.184.216.34/".to_owned(), None),
        ("http://a.test/".to_owned(), None),
        ("no address".to_owned(), None),
    ] {
        let said = driver.refuses(&url, &private).await;
        let told = said.as_ref().map(|error| error.message.as_str()).unwrap_or_default();
        assert_eq!(said.is_some(), why.is_some(), "{url}: {told}");
        assert!(told.contains(why.unwrap_or_default()), "{url}: {told}");
    }
    assert_eq!(*fake.asked.lock().unwrap(), [""; 0]);
    assert_eq!(server.seen(), [""; 0]);
}

#[tokio::test]
async fn a_commands_proxy_does_not_lead_to_the_daemon_either() {
    let daemon = Server::start(|_| ok("the daemon")).await;
    let at = format!("localhost:{}", daemon.port);
    let driver =
        faking(&[&["127.0.0.1"], &["::1"]]).away_from(Own::new(format!("0.0.0.0:{}", daemon.port).parse().unwrap()));
    let everything = ["GET http://".to_owned()];
    let private = vec![at.parse().unwrap(), daemon.private()];
    let outlet = Outlet::with(driver, &everything, std::slice::from_ref(&at), private, Vec::new());
    let tunnel = format!("CONNECT {at} HTTP/1.1\r\nhost: {at}\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n");
    for said in
        [outlet.get(&daemon.url("/")).await, outlet.get(&format!("http://{at}/")).await, outlet.say(&tunnel).await]
    {
        assert!(said.starts_with("HTTP/1.1 403") && said.contains("is the daemon's own address"), "{said}");
    }
    assert!(daemon.seen().is_empty());
}
