//! Discovery against servers on loopback.

use std::sync::Arc;

use aos_models::Env;
use aos_models::discover::{Probe, discover, known_servers};
use aos_models::scripted::{Script, Server};

fn env(set: &'static [&'static str]) -> Env {
    Arc::new(move |name| set.contains(&name).then(|| "sk-secret".to_owned()))
}

fn probe(name: &str, root: String) -> Probe {
    Probe { name: name.to_owned(), server: "A server".to_owned(), root }
}

#[tokio::test]
async fn servers_come_before_keys_and_silence_is_no_candidate() {
    let models = ["nomic-embed-text", "big:cloud", "qwen3:8b", "gemma3:4b", "llama3.3:70b"].map(str::to_owned).to_vec();
    let found = Server::start(Script { models, ..Script::default() }).await.unwrap();
    let embedding = Server::start(Script { models: vec!["bge-small".to_owned()], ..Script::default() }).await.unwrap();
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let probes = [
        probe("closed", format!("http://{closed}")),
        probe("silent", format!("http://{}", silent.local_addr().unwrap())),
        probe("embedding", format!("http://{}", embedding.address())),
        probe("ollama", format!("http://{}", found.address())),
    ];
    let candidates = discover(&probes, &env(&["GEMINI_API_KEY", "ANTHROPIC_API_KEY"])).await;
    let names: Vec<&str> = candidates.iter().map(|candidate| candidate.name.as_str()).collect();
    let keyed = ["anthropic", "anthropic-small", "anthropic-strong", "gemini", "gemini-small", "gemini-strong"];
    assert_eq!(names, [&["ollama", "ollama-strong"], &keyed[..]].concat());
    assert_eq!(candidates[1].config.model, "llama3.3:70b");
    let ollama = &candidates[0];
    assert_eq!((ollama.config.model.as_str(), ollama.config.local), ("qwen3:8b", Some(true)));
    assert!(ollama.reason.contains("OLLAMA_CONTEXT_LENGTH") && ollama.reason.contains("5 models"), "{}", ollama.reason);
    assert!(!format!("{candidates:?}").contains("sk-secret"), "a key is seen and never taken");
    for candidate in &candidates {
        let text = toml::to_string(&candidate.config).unwrap();
        assert_eq!(toml::from_str::<aos_models::ModelConfig>(&text).unwrap(), candidate.config, "{text}");
        assert!(candidate.config.price.is_some());
    }
}

#[tokio::test]
async fn nothing_here_is_nothing_found() {
    assert_eq!(discover(&[], &env(&[])).await, []);
}

#[test]
fn only_loopback_is_ever_asked() {
    assert!(known_servers().iter().all(|probe| probe.root.starts_with("http://127.0.0.1:")));
}
