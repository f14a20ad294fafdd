//! A model inside the program: how fast it reads and writes, what its grammar costs, what a switch of context costs
//! beside reading the prefix again, and how long a cold start takes.
//!
//! `cargo bench -p aos-runtime [-- FILE.gguf]`. Without a file: the weights of `models/nano` where they are, else random
//! ones in their form, of which only the speed means something. Medians of several rounds; under `cargo test` everything
//! once and small.

#[path = "../src/tests/gguf.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "it is for tests, of which this takes a part")]
mod gguf;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aos_abi::Pid;
use aos_abi::inference::{Encoding, Message, Part, Prompt};
use aos_abi::syscall::CallSet;
use aos_runtime::decoder::{Decoder, Piece};
use aos_runtime::{Answered, Kv, Llama, Options, Runtime};

use gguf::Gguf;

/// Tokens that the worker reads of one prompt at once.
const PIECE: usize = 128;
/// Processes that write at once.
const TOGETHER: usize = 8;

/// How much is done.
#[derive(Clone, Copy)]
struct Scale {
    rounds: usize,
    prefix: usize,
    written: usize,
}

impl Scale {
    fn of_arguments() -> Scale {
        // Cargo says so to a benchmark that is run as one.
        if std::env::args().any(|argument| argument == "--bench") {
            Scale { rounds: 7, prefix: 1024, written: 64 }
        } else {
            Scale { rounds: 1, prefix: 128, written: 2 }
        }
    }
}

fn main() {
    let scale = Scale::of_arguments();
    let folder = tempfile::tempdir().expect("a folder to write in");
    let file = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).map(PathBuf::from);
    let file = file.unwrap_or_else(|| {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/nano/weights/aos-nano.gguf");
        if own.exists() {
            return own;
        }
        let random = folder.path().join("random.gguf");
        Gguf::nano(1).write(&random);
        random
    });
    let bytes = std::fs::metadata(&file).map_or(0, |meta| meta.len());
    println!("{}: {:.1} MB, medians of {} rounds", file.display(), bytes as f64 / 1e6, scale.rounds);
    computing(&file, scale);
    answering(&file, scale);
}

/// The middle one of several times.
fn median(rounds: usize, mut once: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..rounds).map(|_| once()).collect();
    times.sort();
    times[rounds / 2]
}

fn told(what: &str, figure: String) {
    println!("{what:<58} {figure}");
}

fn rate(tokens: usize, time: Duration) -> String {
    format!("{:.0} tokens/s", tokens as f64 / time.as_secs_f64())
}

fn read(model: &Llama, state: &mut Kv, ids: &[u32]) {
    for ids in ids.chunks(PIECE) {
        let mut pieces = [Piece { ids, state, wanted: true }];
        black_box(model.read(&mut pieces).expect("the model computes"));
    }
}

/// The weights alone.
fn computing(file: &Path, scale: Scale) {
    let model = Llama::open(file).expect("the file can be used");
    let prefix = scale.prefix.min(model.window() - scale.written - 1);
    let ids: Vec<u32> = (0..prefix as u32).map(|nth| nth * 7 % 200).collect();
    let mut state = model.fresh();
    let whole = median(scale.rounds, || {
        state = model.fresh();
        let began = Instant::now();
        read(&model, &mut state, &ids);
        began.elapsed()
    });
    told(&format!("prefill of {prefix} tokens"), rate(prefix, whole));
    let decode = |processes: usize| {
        let mut states: Vec<Kv> = (0..processes).map(|_| state.clone()).collect();
        let began = Instant::now();
        for nth in 0..scale.written {
            let id = [nth as u32];
            let pieces = states.iter_mut().map(|state| Piece { ids: &id, state, wanted: true });
            let mut pieces: Vec<Piece<'_, Kv>> = pieces.collect();
            black_box(model.read(&mut pieces).expect("the model computes"));
        }
        began.elapsed()
    };
    told(&format!("decode behind {prefix}"), rate(scale.written, median(scale.rounds, || decode(1))));
    let together = rate(scale.written * TOGETHER, median(scale.rounds, || decode(TOGETHER)));
    told(&format!("decode behind {prefix}, {TOGETHER} processes at once, all together"), together);

    let timed = |act: &mut dyn FnMut()| {
        median(scale.rounds, || {
            let began = Instant::now();
            act();
            began.elapsed()
        })
    };
    let beside = |time: Duration| format!("{time:?}, {:.0} times less", whole.as_secs_f64() / time.as_secs_f64());
    told(&format!("the prefix of {prefix} read again"), format!("{whole:?}"));
    told(
        "switch: fork and go on one token before its end",
        beside(timed(&mut || {
            let mut fork = state.clone();
            Llama::truncate(&mut fork, prefix - 1);
            black_box(fork);
        })),
    );
    let saved = model.save(&state);
    told(&format!("switch: save to {} bytes", saved.len()), beside(timed(&mut || drop(black_box(model.save(&state))))));
    told(
        "switch: restore from them",
        beside(timed(&mut || {
            black_box(model.restore(&saved).expect("it was saved by this model"));
        })),
    );
}

/// The whole way of a request, with the grammar of all calls.
fn answering(file: &Path, scale: Scale) {
    let folder = file.parent().unwrap_or(Path::new("."));
    let cold = median(scale.rounds, || ask(&Runtime::new(Options::new(folder.to_owned())), file, "Read a.txt").first);
    told("cold start: from nothing to the first token", format!("{cold:?}"));
    let runtime = Runtime::new(Options::new(folder.to_owned()));
    let first = ask(&runtime, file, "Write the word blue to colour.txt, then list the files.");
    let again = ask(&runtime, file, "Write the word blue to colour.txt, then list the files.");
    told(
        &format!("first token of {} that were read before", again.prompt_tokens),
        format!("{:?}, else {:?}", again.first, first.first),
    );
    let mut spent = (Duration::ZERO, 0);
    for nth in 0..scale.rounds {
        let answered = ask(&runtime, file, &format!("Write {nth} words about ships to file-{nth}.txt and read it."));
        spent = (spent.0 + answered.masks, spent.1 + answered.answer_tokens);
    }
    told("the grammar, each token", format!("{:?}", spent.0 / u32::try_from(spent.1.max(1)).unwrap_or(u32::MAX)));
}

fn ask(runtime: &Runtime, file: &Path, text: &str) -> Answered {
    let prompt = Prompt {
        system: "You are process 7 of AOS.".to_owned(),
        messages: vec![Message::User(vec![Part::Text(text.to_owned())])],
        status: String::new(),
        tools: CallSet::all(),
        encoding: Encoding::Constrained,
        max_output: 256,
    };
    let mut answering = runtime.ask(file, Some(Pid(7)), prompt).expect("nobody else asks");
    while answering.deltas.blocking_recv().is_some() {}
    answering.reply.blocking_recv().expect("its thread lives").expect("the model answers")
}
