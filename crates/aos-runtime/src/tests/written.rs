//! From prompts to tokens: what takes long is refused before, or waits its turn.

use super::*;

/// Texts in which bytes, characters and tokens differ as much as they can.
fn texts() -> Vec<String> {
    let long = |one: &str| one.repeat(3000);
    let mixed = [
        "the lather's ",
        "日本語のファイルを読む",
        "é\u{301}",
        "\u{10ffff}\r\n\n  x",
        "12345",
        "\u{2581}\u{2581}",
        "<|",
    ];
    let mut random = fastrand::Rng::with_seed(7);
    let shuffled = (0..40).map(|_| (0..60).map(|_| mixed[random.usize(..mixed.len())]).collect());
    mixed.map(long).into_iter().chain(["a", " ", "\n", "the", "\u{2581}"].map(long)).chain(shuffled).collect()
}

fn vocabulary(gguf: &Gguf) -> Vocabulary {
    let home = Home::new();
    Vocabulary::of(&Weights::open(&home.put("m.gguf", gguf), None).unwrap()).unwrap()
}

/// A vocabulary in SentencePiece's way: each byte, and rows of what stands for a space.
fn pieces() -> Gguf {
    let bytes = (0..=255u8).map(|byte| format!("<0x{byte:02X}>"));
    let rows = ["a", "\u{2581}", "\u{2581}\u{2581}", "\u{2581}\u{2581}\u{2581}\u{2581}"].map(str::to_owned);
    let tokens: Vec<String> = bytes.chain(rows).chain(["</s>".to_owned()]).collect();
    let mut types = vec![6; 256];
    types.extend([1, 1, 1, 1, 3]);
    Gguf::chat(1)
        .with("tokenizer.ggml.model", Meta::Text("llama".to_owned()))
        .with("tokenizer.ggml.eos_token_id", Meta::U32(tokens.len() as u32 - 1))
        .with("tokenizer.ggml.token_type", Meta::I32s(types))
        .with("tokenizer.ggml.scores", Meta::F32s(vec![0.0; tokens.len()]))
        .with("tokenizer.ggml.tokens", Meta::Texts(tokens))
}

/// Else a prompt that fits would be refused.
#[test]
fn no_text_has_fewer_tokens_than_its_bytes_say() {
    let split = |pre: &str| Gguf::chat(1).with("tokenizer.ggml.pre", Meta::Text(pre.to_owned()));
    for gguf in [Gguf::chat(1), split("llama-bpe"), split("qwen2"), split("gpt-2"), pieces()] {
        let vocabulary = vocabulary(&gguf);
        for text in texts() {
            let (least, tokens) = (vocabulary.least(text.len()), vocabulary.encode(&text).len());
            assert!(
                least <= tokens && least > 0,
                "{least} and {tokens}: {:?}",
                text.chars().take(9).collect::<String>()
            );
        }
    }
    // A row of spaces is one token of as many bytes as they are written with.
    let vocabulary = vocabulary(&pieces());
    let row = "\u{2581}".repeat(400);
    assert_eq!((vocabulary.encode(&row).len(), vocabulary.least(row.len())), (100, 100));
}

#[test]
fn a_text_with_what_would_be_a_control_token_is_written_by_its_characters() {
    let mut types = vec![1; 256];
    // `the` and what is merged with it.
    types.extend([1, 3, 1, 1, 1, 3, 3, 3]);
    let vocabulary = vocabulary(&Gguf::chat(1).with("tokenizer.ggml.token_type", Meta::I32s(types)));
    for text in texts() {
        let text = text + ",the";
        let alone = |one: char| vocabulary.encode(one.encode_utf8(&mut [0; 4]));
        let want: Vec<u32> = text.chars().flat_map(alone).collect();
        assert!(vocabulary.encode(&text) == want, "{:?}", text.chars().take(9).collect::<String>());
    }
}

fn fault(reply: &mut Reply) -> Option<Fault> {
    reply.try_recv().ok().map(|answered| answered.unwrap_err())
}

#[test]
fn a_prompt_that_is_too_long_by_its_bytes_is_not_made_into_tokens() {
    let home = Home::new();
    let file = home.put("m.gguf", &Gguf::chat(1));
    let refused = |cache_bytes: usize, prompt: Prompt| {
        let mut worker = worker(&file, cache_bytes);
        let (note, mut reply) = job(None, prompt);
        worker.take(note);
        worker.round();
        fault(&mut reply).unwrap()
    };
    // Each `z` is a token; no token has more than four bytes.
    let got = refused(1 << 30, prompt(&"z".repeat(80_000), CallSet::EMPTY, 100));
    assert!(matches!(got, Fault::TooLong { tokens: 20_000..21_000, window: 8192 }), "{got}");
    let got = refused(1 << 20, prompt(&"z".repeat(28_000), CallSet::EMPTY, 100));
    assert!(matches!(got, Fault::TooLarge { needed, limit } if needed > limit), "{got}");
    let mut turns = prompt("", CallSet::EMPTY, 100);
    turns.messages = vec![Message::Assistant { text: String::new(), calls: vec![] }; 5000];
    let got = refused(1 << 30, turns);
    assert!(matches!(got, Fault::TooLong { tokens: 10_000..11_000, .. }), "{got}");
}

#[test]
fn prompts_that_take_long_to_write_take_turns_with_those_who_run() {
    let home = Home::new();
    let mut worker = worker(&home.put("m.gguf", &Gguf::chat(1)), 1 << 30);
    let ask = |worker: &mut Worker<Llama>, prompt: Prompt| {
        let (note, reply) = job(None, prompt);
        worker.take(note);
        reply
    };
    // Too long, as shows only when they are tokens.
    let mut long: Vec<Reply> =
        (0..6).map(|_| ask(&mut worker, prompt(&"z".repeat(9000), CallSet::EMPTY, 100))).collect();
    worker.round();
    assert_eq!(worker.counts(), (4, 0, 0), "two are more than a round takes");
    drop(long.remove(2));
    worker.round();
    assert_eq!(worker.counts(), (1, 0, 0), "nobody waits for one");
    let mut short = ask(&mut worker, prompt("hi", CallSet::EMPTY, 3));
    worker.round();
    assert_eq!(worker.counts(), (0, 1, 0));
    assert!(long.iter_mut().all(|reply| matches!(fault(reply), Some(Fault::TooLong { tokens: 9000.., .. }))));
    while worker.counts().1 > 0 {
        worker.round();
    }
    assert!(short.try_recv().unwrap().is_ok());
}
