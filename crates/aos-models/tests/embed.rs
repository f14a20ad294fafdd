//! Texts become vectors: by a server over real HTTP that misbehaves as the test says, and by what is inside the program.

#![expect(clippy::unwrap_used, reason = "functions that tests share are tests too")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aos_abi::inference::{Failure, FailureKind, Format};
use aos_abi::{EffectId, Lsn};
use aos_models::embed::{Embedder, Embedding, TEXTS_MAX, Vector, Wanted};
use aos_models::{Asked, ModelConfig, Options, Pool, Provider, Refusal, Retries};
use bytes::Bytes;
use serde_json::{Value, json};

/// What a server does with the texts of its nth request: a status and a body; no status cuts the connection.
type Act = dyn Fn(usize, &[String]) -> (Option<u16>, String) + Send;

/// A server and the texts of each request that it got.
struct Served {
    address: String,
    asked: Arc<Mutex<Vec<Vec<String>>>>,
}

fn serve(act: impl Fn(usize, &[String]) -> (Option<u16>, String) + Send + 'static) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let known = Arc::clone(&asked);
    std::thread::spawn(move || listener.incoming().for_each(|stream| answer(stream.unwrap(), &known, &act)));
    Served { address, asked }
}

fn answer(mut stream: TcpStream, asked: &Mutex<Vec<Vec<String>>>, act: &Act) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut length = 0;
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        assert!(!line.starts_with("POST") || line.contains(" /v1/embeddings "), "{line}");
        if let Some(said) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = said.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["model"], "maker");
    let texts: Vec<String> = serde_json::from_value(body["input"].clone()).unwrap();
    let nth = {
        let mut asked = asked.lock().unwrap();
        asked.push(texts.clone());
        asked.len() - 1
    };
    let (status, body) = act(nth, &texts);
    let cut = if status.is_none() { body.len() + 1 } else { body.len() };
    let head = format!("HTTP/1.1 {} X\r\nconnection: close\r\ncontent-length: {cut}\r\n\r\n", status.unwrap_or(200));
    // Whoever asked may have hung up.
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}

fn with(config: ModelConfig) -> Pool {
    let options = Options { retries: Retries { base: Duration::ZERO, ..Retries::default() }, ..Options::default() };
    let models = BTreeMap::from([("m".to_owned(), config.clone()), ("other".to_owned(), config)]);
    Pool::new(models, Arc::new(|_: &str| None), options)
}

fn pool(served: &Served, dimension: Option<u32>) -> Pool {
    let base_url = Some(served.address.clone());
    with(ModelConfig { base_url, dimension, ..ModelConfig::new(Provider::Openai, "maker") })
}

/// What a text is made into: its length, and 0.5.
fn vector(text: &str) -> [f32; 2] {
    [text.len() as f32, 0.5]
}

fn base64(numbers: &[f32]) -> String {
    use base64::Engine as _;
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn data(texts: &[String]) -> Vec<Value> {
    let of =
        |(index, text): (usize, &String)| json!({ "object": "embedding", "index": index, "embedding": vector(text) });
    texts.iter().enumerate().map(of).collect()
}

fn well(data: &[Value]) -> (Option<u16>, String) {
    let usage = json!({ "prompt_tokens": 30, "total_tokens": 30 });
    (Some(200), json!({ "object": "list", "data": data, "model": "x", "usage": usage }).to_string())
}

fn numbers(vectors: &[Vector]) -> Vec<&[f32]> {
    vectors.iter().map(|vector| &*vector.numbers).collect()
}

#[tokio::test]
async fn vectors_are_put_in_the_order_of_the_texts_whatever_their_form() {
    let served = serve(|nth, texts| {
        let mut data = data(texts);
        match nth {
            0 => data.reverse(),
            1 => data.iter_mut().zip(texts).for_each(|(datum, text)| datum["embedding"] = base64(&vector(text)).into()),
            _ => data.iter_mut().for_each(|datum| drop(datum.as_object_mut().unwrap().remove("index"))),
        }
        well(&data)
    });
    let pool = pool(&served, Some(2));
    for texts in [["a", "bb", "ccc"], ["d", "ee", "fff"], ["g", "hh", "iii"]] {
        let vectors = pool.embed("m", &texts).await.unwrap();
        assert_eq!(numbers(&vectors), texts.map(vector).each_ref().map(|of| &of[..]));
        let told: Vec<(&str, usize, u64)> = vectors.iter().map(|of| (&*of.model, of.dimension(), of.tokens)).collect();
        assert_eq!(told, [("maker", 2, 5), ("maker", 2, 10), ("maker", 2, 15)], "the sum, by length");
    }
    assert!(pool.embed("m", &[]).await.unwrap().is_empty());
    assert_eq!(served.asked.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_batch_is_split_until_the_server_takes_it() {
    for status in [400, 413, 422] {
        let served = serve(move |_, texts| match texts.len() {
            0..=10 => well(&data(texts)),
            _ => (Some(status), json!({ "error": { "message": "batch size exceeds 10" } }).to_string()),
        });
        let texts: Vec<String> = (0..150).map(|nth| "x".repeat(nth)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let vectors = pool(&served, None).embed("m", &texts).await.unwrap();
        assert!(vectors.iter().zip(&texts).all(|(made, text)| *made.numbers == vector(text)));
        let sizes: Vec<usize> = served.asked.lock().unwrap().iter().map(Vec::len).collect();
        assert_eq!(sizes[..4], [64, 32, 16, 8], "and it stays at what was taken");
        assert_eq!(sizes[3..].iter().sum::<usize>(), 150, "each text once: {sizes:?}");
    }
    // Large texts go alone.
    let served = serve(|_, texts| well(&data(texts)));
    let texts = ["a".repeat(200 << 10), "b".repeat(200 << 10), "c".to_owned()];
    pool(&served, None).embed("m", &texts.each_ref().map(String::as_str)).await.unwrap();
    let sizes: Vec<usize> = served.asked.lock().unwrap().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 2]);
    // A single text that is refused is the text's fault, and said in the server's words.
    let served = serve(|_, texts| match texts.iter().any(|text| text == "bad") {
        true => (Some(400), json!({ "error": { "message": "bad is no text" } }).to_string()),
        false => well(&data(texts)),
    });
    let failure = pool(&served, None).embed("m", &["good", "fine", "bad", "last"]).await.unwrap_err();
    assert!(failure.message.contains("bad is no text"), "{failure:?}");
    assert_eq!(failure.usage.unwrap().input_tokens, 30, "what came before is paid for");
}

#[tokio::test]
async fn what_is_no_answer_is_tried_again_and_then_refused() {
    let of = |embedding: Value| json!({ "data": [{ "index": 0, "embedding": embedding }] }).to_string();
    let twice = json!({ "data": [{ "index": 0, "embedding": [1] }, { "index": 0, "embedding": [1] }] }).to_string();
    let far = json!({ "data": [{ "index": 0, "embedding": [1] }, { "index": 7, "embedding": [1] }] }).to_string();
    let table = [
        (1, well(&[]), "0 vectors for 1 texts"),
        (2, (Some(200), of(json!([1]))), "1 vectors for 2 texts"),
        (2, (Some(200), twice), "two vectors for text 0"),
        (2, (Some(200), far), "no such text"),
        (1, (Some(200), of(json!([1, null]))), "what is no answer"),
        (1, (Some(200), of(json!([1e60]))), "no numbers"),
        (1, (Some(200), of(json!(base64(&[1.0, f32::NAN])))), "no numbers"),
        (1, (Some(200), of(json!("AAAA"))), "no numbers"),
        (1, (Some(200), of(json!("%"))), "no numbers"),
        (1, (Some(200), "<html>welcome</html>".to_owned()), "a web page"),
        (1, (None, of(json!([1]))), "127.0.0.1"),
        (1, (Some(503), String::new()), "503"),
    ];
    for (count, (status, body), words) in table {
        let texts = &["one", "two"][..count];
        let (said, at) = (body.clone(), status);
        let served = serve(move |_, _| (at, said.clone()));
        let failure = pool(&served, None).embed("m", texts).await.unwrap_err();
        assert!(failure.message.contains(words), "{words}: {failure:?}");
        assert_eq!((failure.kind, served.asked.lock().unwrap().len()), (FailureKind::Transient, 3), "{failure:?}");

        // The same once, and then as it should be.
        let served = serve(move |nth, texts| if nth == 0 { (status, body.clone()) } else { well(&data(texts)) });
        let vectors = pool(&served, None).embed("m", texts).await.unwrap();
        assert_eq!(vectors.len(), count, "{words}");
    }
}

#[tokio::test]
async fn what_only_a_person_can_mend_is_told_at_once_with_the_way_out() {
    let served = serve(|_, texts| well(&data(texts)));
    let failure = pool(&served, Some(3)).embed("m", &["a"]).await.unwrap_err();
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (FailureKind::Permanent, "a vector of m has 2 numbers, not 3")
    );
    assert!(failure.hint.unwrap().contains("`dimension = 2` below [models.m]"));

    let served = serve(|_, texts| {
        let mut data = data(texts);
        data[1]["embedding"] = json!([1, 2, 3]);
        well(&data)
    });
    let failure = pool(&served, None).embed("m", &["a", "b"]).await.unwrap_err();
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (FailureKind::Permanent, "a vector of m has 3 numbers, not 2")
    );
    assert_eq!(served.asked.lock().unwrap().len(), 1);

    let served = serve(|_, _| (Some(401), json!({ "error": { "message": "no such key" } }).to_string()));
    let failure = pool(&served, None).embed("m", &["a", "b"]).await.unwrap_err();
    assert_eq!((failure.kind, served.asked.lock().unwrap().len()), (FailureKind::Permanent, 1), "{failure:?}");

    let config =
        ModelConfig { base_url: Some(served.address.clone()), ..ModelConfig::new(Provider::Anthropic, "maker") };
    let failure = with(config).embed("m", &["a"]).await.unwrap_err();
    assert!(failure.hint.unwrap().contains("/v1/embeddings"));
    let texts = vec!["a"; TEXTS_MAX + 1];
    let failure = pool(&served, None).embed("m", &texts).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::TooLong, "{failure:?}");
    assert_eq!(served.asked.lock().unwrap().len(), 1, "none of these was asked");
}

#[tokio::test]
async fn a_text_is_asked_for_once_by_each_model() {
    let served = serve(|nth, texts| if nth == 0 { (Some(401), String::new()) } else { well(&data(texts)) });
    let pool = pool(&served, None);
    pool.embed("m", &["a"]).await.unwrap_err();
    let first = pool.embed("m", &["a", "bb", "a"]).await.unwrap();
    assert_eq!(numbers(&first), [&vector("a")[..], &vector("bb"), &vector("a")]);
    assert_eq!(pool.embed("m", &["a", "bb", "a"]).await.unwrap(), first);
    pool.embed("m", &["ccc", "bb"]).await.unwrap();
    pool.embed("other", &["a"]).await.unwrap();
    let asked = served.asked.lock().unwrap().clone();
    assert_eq!(asked, [vec!["a"], vec!["a", "bb"], vec!["ccc"], vec!["a"]], "a failure is not kept");
}

/// Makes what it is told to, or nothing for ever.
#[derive(Debug)]
struct Inside(Option<Vec<Vec<f32>>>);

impl Embedder for Inside {
    fn embed<'a>(&'a self, wanted: Wanted<'a>) -> Embedding<'a> {
        Box::pin(async move {
            let Some(vectors) = &self.0 else { return std::future::pending::<Result<_, Failure>>().await };
            let model: Arc<str> = wanted.config.model.as_str().into();
            let of = |numbers: &Vec<f32>| Vector { model: Arc::clone(&model), numbers: numbers[..].into(), tokens: 4 };
            Ok(vectors.iter().map(of).collect())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_inside_the_program_is_held_to_the_same() {
    let with = |vectors| with(ModelConfig::new(Provider::Local, "here")).with_embedder(Arc::new(Inside(vectors)));
    let vectors = with(Some(vec![vec![0.5; 3]])).embed("m", &["a"]).await.unwrap();
    assert_eq!((&*vectors[0].model, vectors[0].dimension(), vectors[0].tokens), ("here", 3, 4));
    for (made, words) in [
        (Some(vec![]), "0 vectors for 1 texts"),
        (Some(vec![vec![f32::INFINITY]]), "no number"),
        (Some(vec![vec![]]), "0 numbers"),
        (None, "in time"),
    ] {
        let failure = with(made).embed("m", &["a"]).await.unwrap_err();
        assert!(failure.message.contains(words), "{words}: {failure:?}");
    }
    let none = ModelConfig::new(Provider::Local, "here");
    let failure = self::with(none).embed("m", &["a"]).await.unwrap_err();
    assert!(failure.message.contains("not part of this pool"), "{failure:?}");
}

/// Whatever came was passed on: vectors of another length than the table says, and none at all.
#[tokio::test]
async fn a_program_gets_a_vector_for_each_text_of_as_many_numbers_as_there_should_be() {
    let packed = base64(&[0.1, 0.2, 0.3, 0.4]);
    let relay = async |data: Value, asks: Value| {
        let body = json!({"data": data, "usage": {"prompt_tokens": 7}}).to_string();
        let served = serve(move |_, _| (Some(200), body.clone()));
        let pool = Arc::new(pool(&served, Some(4)));
        let mut request = json!({"model": "m"});
        request.as_object_mut().unwrap().extend(asks.as_object().unwrap().clone());
        let asked = Asked::read(Format::Embeddings, Bytes::from(request.to_string())).unwrap();
        match pool.relay("m", &asked, 0, EffectId { cause: Lsn(1), nth: 0 }, None).await {
            Ok(_) => "passed on".to_owned(),
            Err(Refusal::Failed(failure)) => {
                assert_eq!(
                    (failure.kind, failure.usage.map(|usage| usage.input_tokens)),
                    (FailureKind::Permanent, Some(7))
                );
                format!("{}; {}", failure.message, failure.hint.unwrap())
            }
            Err(Refusal::Misfit(misfit)) => panic!("{misfit:?}"),
        }
    };
    let of = |vectors: &[Value]| json!(vectors.iter().map(|vector| json!({"embedding": vector})).collect::<Vec<_>>());
    let (four, five) = (json!([0.1, 0.2, 0.3, 0.4]), json!([1, 2, 3, 4, 5]));
    assert_eq!(relay(of(std::slice::from_ref(&four)), json!({"input": ["a"]})).await, "passed on");
    assert_eq!(relay(of(&[json!(packed)]), json!({"input": ["a"]})).await, "passed on");
    assert_eq!(relay(of(&[json!([1, 2])]), json!({"input": ["a"], "dimensions": 2})).await, "passed on");
    for (data, asks, words) in [
        (
            of(std::slice::from_ref(&five)),
            json!({"input": ["a"]}),
            "a vector of 5 numbers, and 4 were to come; write `dimension = 5`",
        ),
        (of(&[four.clone(), five]), json!({"input": ["a", "b"]}), "a vector of 5 numbers"),
        (of(std::slice::from_ref(&four)), json!({"input": ["a"], "dimensions": 2}), "leave `dimensions` out"),
        (of(&[]), json!({"input": ["a"]}), "0 vectors for 1 texts"),
        (of(&[four]), json!({"input": ["a", "b"]}), "1 vectors for 2 texts"),
        (of(&[json!([])]), json!({"input": ["a"]}), "a vector of 0 numbers"),
    ] {
        let said = relay(data, asks).await;
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// The vectors of many texts are larger than any text is; what is larger than that has been paid, and is not asked for again.
#[tokio::test]
async fn a_program_gets_vectors_as_large_as_its_texts_allow() {
    let numbers = "        0.012345678901234567890,\n".repeat(1499) + "1";
    let data = vec![format!("{{\"embedding\":[{numbers}]}}"); 600].join(",");
    let vectors = format!("{{\"data\":[{data}],\"usage\":{{\"prompt_tokens\":700}}}}");
    let body = vectors.clone();
    let served = serve(move |_, _| (Some(200), body.clone()));
    let pool = Arc::new(pool(&served, None));
    let relay = async |texts: usize| {
        let body = json!({"model": "m", "input": vec!["a"; texts]}).to_string();
        let asked = Asked::read(Format::Embeddings, Bytes::from(body)).unwrap();
        pool.relay("m", &asked, 0, EffectId { cause: Lsn(1), nth: 0 }, None).await
    };
    let mut relayed = relay(600).await.unwrap();
    assert_eq!((relayed.status, relayed.ended().usage.input_tokens), (200, 700));
    assert!(relayed.next().await.unwrap() == vectors, "as they came");
    let refused = relay(2).await;
    let Err(Refusal::Failed(failure)) = refused else { panic!("{refused:?}") };
    assert_eq!((failure.kind, served.asked.lock().unwrap().len()), (FailureKind::Refused, 2));
    assert!(failure.usage.is_some() && failure.hint.unwrap().contains("fewer texts"), "{}", failure.message);
}
