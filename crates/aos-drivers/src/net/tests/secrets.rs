//! Secrets: where they go, where they never go, and what comes back.

use super::proxy::Outlet;
use super::*;

const VALUE: &str = "ghp_0123456789abcdef";

fn secret(port: u16) -> Secret {
    Secret::new("TOKEN", "127.0.0.1", port, "Authorization", Ok(VALUE.to_owned()))
}

/// Says whatever it was told, in header and body, and in a gzip body where asked for `/packed`.
async fn parrot() -> Server {
    Server::start(|request| {
        let said = request.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or("nobody").to_owned();
        if request.starts_with("GET /packed") {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut packer, said.as_bytes()).unwrap();
            return with_headers("content-encoding: gzip\r\n", packer.finish().unwrap());
        }
        let headers = format!("x-told: {said}\r\nx-{VALUE}: 1\r\nlocation: /x?{VALUE}\r\n");
        with_headers(&headers, format!("you said {said}, and it ends in ghp_0123"))
    })
    .await
}

#[tokio::test]
async fn it_replaces_what_the_agent_set_and_comes_back_covered() {
    let server = parrot().await;
    let args = json!({ "url": server.url("/a"), "headers": { "Authorization": "Bearer mine", "range": "bytes=0-3" } });
    let (private, secrets) = ([server.private()], [secret(server.port)]);
    let fetched = call_with(&private, &secrets, "NET_FETCH", args.clone()).await.unwrap();
    let covered = "*".repeat(VALUE.len());
    assert_eq!(fetched["body"], format!("you said Bearer {covered}, and it ends in ********"));
    assert_eq!(fetched["headers"]["x-told"], format!("Bearer {covered}"));
    assert!(!fetched.to_string().contains(VALUE), "{fetched}");
    let mut sending = args;
    sending["method"] = "POST".into();
    sending["body"] = "b".into();
    let sent = call_with(&private, &secrets, "NET_SEND", sending).await.unwrap();
    assert!(!sent.to_string().contains(VALUE), "{sent}");
    let packed = call_with(&private, &secrets, "NET_FETCH", json!({ "url": server.url("/packed") })).await.unwrap();
    assert_eq!(packed["body"], format!("Bearer {covered}"));
    for request in server.seen() {
        let told: Vec<&str> = request.lines().filter(|line| line.starts_with("authorization")).collect();
        assert_eq!(told, [format!("authorization: Bearer {VALUE}")], "{request}");
        assert!(!request.contains("range:"), "an answer in parts would bring it back in parts: {request}");
    }
}

#[tokio::test]
async fn it_goes_to_its_own_place_alone() {
    let other = parrot().await;
    let away = other.url("/stolen");
    let server = Server::start(move |_| redirect_to(&away)).await;
    let private = [server.private(), other.private()];
    let secrets = [secret(server.port)];
    let fetched = call_with(&private, &secrets, "NET_FETCH", json!({ "url": server.url("/") })).await.unwrap();
    assert_eq!(fetched["body"].as_str().unwrap().split(',').next(), Some("you said nobody"));
    assert!(server.seen()[0].contains(VALUE) && !other.seen()[0].contains(VALUE));
    // The same machine by another name is another place.
    let by_name = format!("http://localhost:{}/", server.port);
    let named = [format!("localhost:{}", server.port).parse().unwrap(), other.private()];
    let _ = call_with(&named, &secrets, "NET_FETCH", json!({ "url": by_name })).await;
    assert!(server.seen().len() == 2 && !server.seen()[1].contains(VALUE), "{:?}", server.seen());
}

#[tokio::test]
async fn it_goes_over_no_wire_that_others_read_and_nothing_goes_without_it() {
    let plain = Secret::new("TOKEN", "a.example", 80, "x-key", Ok(VALUE.to_owned()));
    let missing = CallError::new(Code::Io, "the secret TOKEN cannot be put in");
    let gone = Secret::new("TOKEN", "a.example", 443, "x-key", Err(missing));
    for (secret, url, why) in
        [(plain, "http://a.example/", "over TLS alone"), (gone, "https://a.example/", "cannot be")]
    {
        let decide = |_: &str| Ok(());
        let call = Syscall::parse("NET_FETCH", &json!({ "url": url }).to_string()).unwrap();
        let driver = faking(&[&["93.184.216.34"]]);
        let trip = Trip { decide: &decide, refused: &UNTOLD, private: &[], secrets: &[secret] };
        let error = driver.perform(call, trip).await.unwrap_err();
        assert!(error.message.contains(why), "{error:?}");
        assert!(!format!("{error:?}").contains(VALUE));
    }
}

#[tokio::test]
async fn a_command_never_sees_it_and_its_requests_carry_it() {
    let server = parrot().await;
    let other = parrot().await;
    let everything = ["GET http".to_owned()];
    let private = vec![server.private(), other.private()];
    let outlet = Outlet::with(Driver::new(Options::default()), &everything, &[], private, vec![secret(server.port)]);
    let asked = format!(
        "GET {} HTTP/1.1\r\nhost: x\r\nauthorization: mine\r\nrange: bytes=0-3\r\nconnection: close\r\n\r\n",
        server.url("/a")
    );
    let answer = outlet.say(&asked).await;
    let covered = "*".repeat(VALUE.len());
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(&format!("you said Bearer {covered},")), "{answer}");
    assert!(answer.contains(&format!("location: /x?{covered}")), "{answer}");
    assert!(!answer.to_lowercase().contains(VALUE), "{answer}");
    assert!(answer.ends_with("ends in ********"), "lengths stay true: {answer}");
    let packed = outlet.get(&server.url("/packed")).await;
    assert!(packed.starts_with("HTTP/1.1 502") && packed.contains("packed"), "{packed}");
    assert!(outlet.get(&other.url("/")).await.contains("you said nobody"));
    assert!(server.seen()[0].contains(&format!("authorization: Bearer {VALUE}\r\n")), "{:?}", server.seen());
    assert!(!server.seen()[0].contains("mine") && !server.seen()[0].contains("range:"));
    assert!(!other.seen()[0].contains(VALUE));
}
