//! Discovery against servers on loopback.

#![expect(clippy::unwrap_used, reason = "functions that tests share are tests too")]

use std::sync::Arc;

use aos_abi::inference::Encoding;
use aos_models::discover::{Account, Candidate, Found, Probe, discover, known_accounts, known_servers};
use aos_models::scripted::{Page, Script, Server};
use aos_models::{Env, Provider, Tier};
use serde_json::{Value, json};

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
    let nobody = [Provider::Openai, Provider::Anthropic, Provider::Gemini]
        .map(|provider| Account { provider, address: format!("http://{closed}") });
    let all = discover(&probes, &nobody, &env(&["GEMINI_API_KEY", "ANTHROPIC_API_KEY"])).await;
    let candidates = all.models;
    let names: Vec<&str> = candidates.iter().map(|candidate| candidate.name.as_str()).collect();
    let keyed = ["anthropic", "anthropic-small", "anthropic-frontier", "gemini", "gemini-small", "gemini-strong"];
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
    // Offline, those that are usual are taken, and it is said why.
    assert_eq!((all.proposed, all.notes.len()), (vec![], 2));
    assert!(all.notes.iter().all(|note| note.contains("did not list") && note.contains("cannot connect")));
    assert!(candidates.iter().any(|one| one.config.tier == Some(Tier::Frontier)));
}

/// What is found with each provider's key at servers that list these documents, and the servers.
async fn with_keys(pages: [(Provider, Page); 3]) -> (Found, Vec<Server>) {
    let (mut servers, mut accounts) = (Vec::new(), Vec::new());
    for (provider, page) in pages {
        let server = Server::start(Script { pages: vec![page], ..Script::default() }).await.unwrap();
        accounts.push(Account { provider, address: server.base_url(provider) });
        servers.push(server);
    }
    let keys: Env = Arc::new(|name| name.strip_suffix("_API_KEY").map(|provider| format!("key-of-{provider}")));
    (discover(&[], &accounts, &keys).await, servers)
}

fn priced(found: &[Candidate]) -> Vec<(&str, &str, &str, u32, bool)> {
    let row = |one: &'_ Candidate| {
        let tier = one.config.tier.map_or("", Tier::name);
        (tier, one.config.context_window, one.config.price.is_some())
    };
    found
        .iter()
        .map(|one| {
            let (tier, window, price) = row(one);
            (one.name.as_str(), one.config.model.as_str(), tier, window, price)
        })
        .collect()
}

/// Before, no provider was asked, so models that were gone were configured and the tier `frontier` never was.
#[tokio::test]
async fn a_key_goes_to_its_own_provider_and_what_that_lists_is_the_pool() {
    let openai = json!({"object": "list", "data": [
        {"id": "gpt-5-nano"}, {"id": "gpt-5-mini-2025-08-07"}, {"id": "gpt-5-mini"}, {"id": "gpt-5.4-mini"},
        {"id": "gpt-5.4"}, {"id": "gpt-5.4-2026-03-01"}, {"id": "gpt-5-pro"}, {"id": "gpt-4o"}, {"object": "model"},
        {"id": "text-embedding-3-small"}, {"id": "gpt-5-chat-latest"},
    ]});
    let anthropic = json!({"data": [
        {"type": "model", "id": "claude-opus-4-5-20251101", "max_input_tokens": 1_000_000},
        {"type": "model", "id": "claude-haiku-4-5-20251001", "max_input_tokens": 100_000},
        {"type": "model", "id": "claude-sonnet-6-20260901", "max_input_tokens": 1_000_000},
        {"type": "model", "id": "claude-fable-5-2"},
    ], "has_more": false});
    let gemini = json!({"models": [
        {"name": "models/gemini-2.5-pro", "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536},
        {"name": "models/gemini-2.5-flash", "inputTokenLimit": 1_048_576},
        {"name": "models/gemini-3-pro-preview", "inputTokenLimit": 1_048_576},
    ]});
    let (found, servers) = with_keys([
        (Provider::Openai, Page::new("/v1/models", openai)),
        (Provider::Anthropic, Page::new("/v1/models", anthropic)),
        (Provider::Gemini, Page::new("/v1beta/models", gemini)),
    ])
    .await;
    assert_eq!(found.notes, Vec::<String>::new());
    assert_eq!(
        priced(&found.models),
        [
            ("openai", "gpt-5-mini", "standard", 400_000, true),
            ("openai-small", "gpt-5-nano", "small", 400_000, true),
            ("anthropic-small", "claude-haiku-4-5", "small", 100_000, true),
            ("anthropic-frontier", "claude-opus-4-5", "frontier", 200_000, true),
            ("gemini", "gemini-2.5-flash", "standard", 1_048_576, true),
            ("gemini-strong", "gemini-2.5-pro", "strong", 200_000, true),
        ]
    );
    assert_eq!(
        priced(&found.proposed),
        [
            ("openai-strong", "gpt-5.4", "strong", 400_000, false),
            ("openai-frontier", "gpt-5-pro", "frontier", 400_000, false),
            ("anthropic", "claude-sonnet-6-20260901", "standard", 1_000_000, false),
            ("anthropic-fable", "claude-fable-5-2", "frontier", 200_000, false),
        ]
    );
    for one in found.models.iter().chain(&found.proposed) {
        assert_eq!(one.reason.contains("price is not known"), one.config.price.is_none(), "{}", one.reason);
        assert_eq!(one.config.base_url, None, "the provider's own address");
    }
    // Each server was asked once and saw its own key alone, in a header.
    for (server, (header, key, query)) in servers.iter().zip([
        ("authorization", "Bearer key-of-OPENAI", ""),
        ("x-api-key", "key-of-ANTHROPIC", "limit=1000"),
        ("x-goog-api-key", "key-of-GEMINI", "pageSize=1000"),
    ]) {
        let asked = server.requests();
        assert_eq!((asked.len(), server.count()), (1, 0), "{asked:?}");
        assert_eq!(asked[0].headers[header], key);
        assert!(asked[0].path.ends_with(query), "{}", asked[0].path);
        assert_eq!(format!("{asked:?}").matches("key-of-").count(), 1, "{asked:?}");
    }
    assert!(!format!("{found:?}").contains("key-of-"));
}

/// Where no model with a known price is left, those that are there serve, but for the dearest.
#[tokio::test]
async fn a_provider_without_any_known_price_is_used_and_it_is_said_that_no_budget_bounds_it() {
    let openai = json!({"data": [{"id": "gpt-9-mini"}, {"id": "gpt-9"}, {"id": "gpt-9-pro"}]});
    let nothing = || json!({"data": []});
    let (found, _servers) = with_keys([
        (Provider::Openai, Page::new("/v1/models", openai)),
        (Provider::Anthropic, Page::new("/v1/models", nothing())),
        (Provider::Gemini, Page::new("/v1beta/models", nothing())),
    ])
    .await;
    let models = ["gpt-9-mini", "gpt-9"];
    assert_eq!(found.models.iter().map(|one| one.config.model.as_str()).collect::<Vec<_>>(), models);
    assert!(found.models.iter().all(|one| one.reason.contains("no budget in dollars bounds it")), "{found:?}");
    assert_eq!((found.proposed.len(), found.proposed[0].config.model.as_str()), (1, "gpt-9-pro"));
    assert_eq!(found.notes.len(), 2, "the other two list nothing: {:?}", found.notes);
}

#[tokio::test]
async fn a_provider_that_refuses_or_lists_nothing_known_is_told() {
    let refusal =
        json!({"error": {"message": "Incorrect API key provided: key-of-OPENAI.", "code": "invalid_api_key"}});
    let (found, _servers) = with_keys([
        (Provider::Openai, Page { status: Some(401), ..Page::new("/v1/models", refusal) }),
        (Provider::Anthropic, Page::new("/v1/models", json!({"data": [{"id": "claude-2.1"}]}))),
        (Provider::Gemini, Page::new("/v1beta/models", json!("a web page"))),
    ])
    .await;
    let names: Vec<&str> = found.models.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["openai", "openai-small", "openai-strong", "gemini", "gemini-small", "gemini-strong"]);
    assert!(found.models.iter().all(|one| one.config.price.is_some()));
    let [openai, anthropic, gemini] = &found.notes[..] else { panic!("{:?}", found.notes) };
    assert!(openai.contains("answered 401") && openai.contains("[key]") && !openai.contains("key-of"), "{openai}");
    assert!(anthropic.contains("lists no model that is known here"), "{anthropic}");
    assert!(gemini.contains("no list of models"), "{gemini}");
}

#[tokio::test]
async fn a_provider_that_says_nothing_is_not_waited_for() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let accounts =
        [Account { provider: Provider::Gemini, address: format!("http://{}", silent.local_addr().unwrap()) }];
    let found = discover(&[], &accounts, &env(&["GEMINI_API_KEY"])).await;
    assert!(found.notes[0].contains("no answer within 2 s") && found.models.len() == 3, "{found:?}");
}

/// The key of a gateway went to the provider whose name the variable bears.
#[tokio::test]
async fn a_key_that_belongs_to_another_address_goes_nowhere() {
    let server = Server::start(Script::default()).await.unwrap();
    let [openai, anthropic, gemini] = [Provider::Openai, Provider::Anthropic, Provider::Gemini];
    for (provider, name, address, told) in [
        (openai, "OPENAI_BASE_URL", "https://me:hush@gateway.test/v1/?key=hush", Some("https://gateway.test/v1")),
        (openai, "OPENAI_API_BASE", "http://localhost:4000", Some("http://localhost:4000")),
        (anthropic, "ANTHROPIC_BASE_URL", "no address", Some("ADDRESS")),
        (gemini, "GOOGLE_GEMINI_BASE_URL", "https://gateway.test/g", Some("https://gateway.test/g/v1beta")),
        (openai, "ANTHROPIC_BASE_URL", "https://gateway.test", None),
        (openai, "OPENAI_BASE_URL", " ", None),
        (openai, "OPENAI_BASE_URL", "its own", None),
    ] {
        let own = server.base_url(provider);
        let address = if address == "its own" { own.clone() } else { address.to_owned() };
        let set: Env = Arc::new(move |variable| {
            let key = variable.ends_with("_API_KEY").then(|| "sk-secret".to_owned());
            if variable == name { Some(address.clone()) } else { key }
        });
        let before = server.connections();
        let found = discover(&[], &[Account { provider, address: own }], &set).await;
        let asked = server.connections() - before;
        let Some(told) = told else {
            assert_eq!(asked, 1, "{name}: {found:?}");
            continue;
        };
        assert_eq!((asked, found.models.len(), found.proposed.len()), (0, 0, 0), "{name}: {found:?}");
        let [note] = &found.notes[..] else { panic!("{:?}", found.notes) };
        assert!(note.contains(name) && note.contains(&format!("base_url = \"{told}\"\n")), "{note}");
        assert!(!note.contains("hush") && !note.contains("sk-secret"), "{note}");
    }
}

/// They made a home that could not be used.
#[tokio::test]
async fn names_that_nobody_can_configure_are_passed_over() {
    let long = "x".repeat(257);
    let (found, _server) = at("llama-server", &["", "  ", "a\nb", "a\u{1b}[2J", &long, "good-8b"], vec![]).await;
    assert_eq!(found.iter().map(|one| one.config.model.as_str()).collect::<Vec<_>>(), ["good-8b"]);
    assert!(!found[0].reason.contains("models in all"), "{}", found[0].reason);
    assert_eq!(at("llama-server", &[" "], vec![]).await.0, vec![]);
}

#[test]
fn a_key_is_only_ever_sent_to_its_provider() {
    let accounts = known_accounts();
    assert_eq!(accounts.len(), 3);
    assert!(accounts.iter().all(|one| one.address == one.provider.base_url() && one.address.starts_with("https://")));
}

/// What is found at a server of this kind that has these models and these documents.
async fn at(kind: &str, models: &[&str], pages: Vec<Page>) -> (Vec<Candidate>, Server) {
    let models = models.iter().map(|name| (*name).to_owned()).collect();
    let server = Server::start(Script { models, pages, ..Script::default() }).await.unwrap();
    let probes = [probe(kind, format!("http://{}", server.address()))];
    (discover(&probes, &[], &env(&[])).await.models, server)
}

/// What `/api/show` says of a model.
fn show(model: &str, document: Value) -> Page {
    Page { body: Some(format!("\"{model}\"")), ..Page::new("/api/show", document) }
}

fn table(candidate: &Candidate) -> (&str, &str, Encoding, u32) {
    let config = &candidate.config;
    (&candidate.name, &config.model, config.tools, config.context_window)
}

/// Before, a model without tools was asked with tools, and failed at its first task.
#[tokio::test]
async fn a_model_of_ollama_without_tools_is_asked_in_text_and_one_with_them_goes_before() {
    let trained = |length: u32| json!({"general.architecture": "a", "a.context_length": length, "a.block_count": 9});
    let pages = vec![
        show("gemma3:4b", json!({"capabilities": ["completion", "vision"], "model_info": trained(131_072)})),
        show(
            "qwen3:8b",
            json!({
                "capabilities": ["completion", "tools"],
                "parameters": "stop                           \"x\"\nnum_ctx                        16384",
            }),
        ),
        show("vectors:small", json!({"capabilities": ["embedding"]})),
        show("tiny:1b", json!({"capabilities": ["completion"], "model_info": trained(8192)})),
        show("old:70b", json!({"error": "no such document"})),
        Page::new("/api/ps", json!({"models": [{"name": "old:70b", "model": "old:70b", "context_length": 4096}]})),
    ];
    let names = ["vectors:small", "gemma3:4b", "qwen3:8b", "tiny:1b", "old:70b"];
    let (found, _server) = at("ollama", &names, pages).await;
    assert_eq!(
        found.iter().map(table).collect::<Vec<_>>(),
        [
            ("ollama", "qwen3:8b", Encoding::Native, 16_384),
            ("ollama-nano", "tiny:1b", Encoding::Text, 8192),
            ("ollama-strong", "old:70b", Encoding::Native, 4096),
        ]
    );
    assert!(toml::to_string(&found[1].config).unwrap().contains("tools = \"text\""));
    assert!(found[1].reason.contains("no tool calls"), "{}", found[1].reason);
    assert!(found[2].reason.contains("OLLAMA_CONTEXT_LENGTH of 32768"), "{}", found[2].reason);
    assert!(found.iter().all(|one| one.config.max_output <= one.config.context_window / 2));

    let (alone, _server) = at("ollama", &["gemma3:4b"], vec![show("gemma3:4b", json!({"capabilities": []}))]).await;
    assert_eq!(table(&alone[0]), ("ollama", "gemma3:4b", Encoding::Text, 32_768));
}

#[tokio::test]
async fn llama_server_says_its_window_and_whether_its_template_knows_tools() {
    let props = |more: Value| {
        let mut props = json!({"default_generation_settings": {"n_ctx": 12_288}, "total_slots": 1});
        props.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        vec![Page::new("/props", props)]
    };
    for (more, tools) in [
        (json!({"chat_template_caps": {"supports_tools": false}, "chat_template": "{{ tools }}"}), Encoding::Text),
        (json!({"chat_template_caps": {"supports_tools": true}}), Encoding::Native),
        (json!({"chat_template": "{{ messages }}"}), Encoding::Text),
        (json!({"chat_template": "{% if tools %}{% endif %}"}), Encoding::Native),
        (json!({"chat_template": "{{ messages }}", "chat_template_tool_use": "{{ tools }}"}), Encoding::Native),
        (json!({}), Encoding::Native),
    ] {
        let (found, _server) = at("llama-server", &["a-7b.gguf"], props(more.clone())).await;
        assert_eq!(table(&found[0]), ("llama-server", "a-7b.gguf", tools, 12_288), "{more}");
    }
    let (silent, _server) = at("llama-server", &["a-7b.gguf"], vec![]).await;
    assert_eq!(table(&silent[0]), ("llama-server", "a-7b.gguf", Encoding::Native, 32_768));
}

#[tokio::test]
async fn vllm_says_its_window_and_refuses_tools_where_it_was_not_started_for_them() {
    let listing = |len: Value| {
        Page::new("/v1/models", json!({"object": "list", "data": [{"id": "Qwen/Qwen3-8B", "max_model_len": len}]}))
    };
    let answer =
        |status: u16, document: Value| Page { status: Some(status), ..Page::new("/v1/chat/completions", document) };
    let refusal = json!({
        "object": "error", "type": "BadRequestError", "code": 400,
        "message": "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
    });
    for (status, document, tools) in [
        (400, refusal.clone(), Encoding::Text),
        (400, json!({"error": {"message": "something else"}}), Encoding::Native),
        (200, json!({"choices": [{"message": {"role": "assistant", "content": "H"}}]}), Encoding::Native),
    ] {
        let pages = vec![listing(json!(40_960)), answer(status, document)];
        let (found, server) = at("vllm", &[], pages).await;
        assert_eq!(table(&found[0]), ("vllm", "Qwen/Qwen3-8B", tools, 40_960), "{status}");
        let asked: Value = serde_json::from_slice(&server.requests().last().unwrap().body).unwrap();
        assert_eq!((&asked["max_tokens"], asked["tools"].as_array().map(Vec::len)), (&json!(1), Some(1)));
    }
    // The window was that of the entry before it where one has no name.
    let entries = json!({"data": [{"max_model_len": 1024}, {"id": "a-8b", "max_model_len": 50_000}]});
    let pages = vec![Page::new("/v1/models", entries), answer(200, json!({}))];
    assert_eq!(table(&at("vllm", &[], pages).await.0[0]).3, 50_000);
    // What says no window is no vLLM, and is not made to compute.
    let (found, server) = at("vllm", &[], vec![listing(Value::Null), answer(400, refusal)]).await;
    assert_eq!(table(&found[0]), ("vllm", "Qwen/Qwen3-8B", Encoding::Native, 32_768));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn lm_studio_says_the_window_of_what_is_loaded_and_the_largest_of_the_rest() {
    let model = |id: &str, more: Value| {
        let mut model = json!({"id": id, "object": "model", "type": "llm", "state": "not-loaded"});
        model.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        model
    };
    let models = json!({"data": [
        model("vectors-of-7b", json!({"type": "embeddings", "max_context_length": 2048})),
        model("plain-8b", json!({"max_context_length": 131_072, "capabilities": []})),
        model("able-30b", json!({
            "state": "loaded", "max_context_length": 131_072, "loaded_context_length": 20_000, "capabilities": ["tool_use"],
        })),
        model("short-70b", json!({"max_context_length": 8192})),
    ]});
    let names = ["vectors-of-7b", "plain-8b", "able-30b", "short-70b"];
    let (found, _server) = at("lm-studio", &names, vec![Page::new("/api/v0/models", models)]).await;
    assert_eq!(
        found.iter().map(table).collect::<Vec<_>>(),
        [
            ("lm-studio", "plain-8b", Encoding::Text, 32_768),
            ("lm-studio-standard", "able-30b", Encoding::Native, 20_000),
            ("lm-studio-strong", "short-70b", Encoding::Native, 8192),
        ]
    );
    assert!(found[0].reason.contains("not loaded") && !found[1].reason.contains("not loaded"), "{found:?}");
}

#[tokio::test]
async fn nothing_here_is_nothing_found() {
    assert_eq!(discover(&[], &known_accounts(), &env(&[])).await, Found::default());
}

#[test]
fn only_loopback_is_ever_asked() {
    for (host, root) in [
        (None, "http://127.0.0.1:11434"),
        (Some("127.0.0.1:11500"), "http://127.0.0.1:11500"),
        (Some("http://0.0.0.0:11500/"), "http://127.0.0.1:11500"),
        (Some("localhost"), "http://127.0.0.1:11434"),
        (Some("gpu.example:11500"), "http://127.0.0.1:11434"),
        (Some("10.0.0.7"), "http://127.0.0.1:11434"),
        (Some("https://ollama.example"), "http://127.0.0.1:11434"),
    ] {
        let env: Env = Arc::new(move |name| host.filter(|_| name == "OLLAMA_HOST").map(str::to_owned));
        let servers = known_servers(&env);
        assert_eq!(servers[0].root, root, "{host:?}");
        assert!(servers.iter().all(|probe| probe.root.starts_with("http://127.0.0.1:")));
    }
}
