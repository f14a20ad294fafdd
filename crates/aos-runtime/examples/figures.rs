//! Figures of a model on this machine: `cargo run --release -p aos-runtime --example figures -- FILE.gguf`.
//!
//! Reading and writing tokens, a switch of context beside computing it again, the cost of the grammar, a cold start.
//! Medians of several runs, one JSON document.

use std::path::Path;
use std::time::{Duration, Instant};

use aos_abi::inference::{Encoding, Message, Part, Prompt};
use aos_abi::{Name, Pid};
use aos_runtime::decoder::{Decoder, Piece};
use aos_runtime::{Llama, Options, Runtime};

const RUNS: usize = 5;

fn median(mut run: impl FnMut() -> Duration) -> f64 {
    let mut times: Vec<Duration> = (0..RUNS).map(|_| run()).collect();
    times.sort();
    times[RUNS / 2].as_secs_f64() * 1e6
}

fn timed<T>(act: impl FnOnce() -> T) -> Duration {
    let began = Instant::now();
    std::hint::black_box(act());
    began.elapsed()
}

fn main() {
    let file = std::env::args().nth(1).expect("the path of a GGUF file");
    let file = Path::new(&file);
    let load = median(|| timed(|| Llama::open(file).expect("a model")));
    let model = Llama::open(file).expect("a model");
    let ids: Vec<u32> = (0..1024u32).map(|nth| 32 + nth * 7 % 90).collect();
    let read = |state: &mut _, ids: &[u32]| {
        for ids in ids.chunks(128) {
            model.read(&mut [Piece { ids, state, wanted: true }]).expect("it computes");
        }
    };
    let prefill = median(|| timed(|| read(&mut model.fresh(), &ids)));
    let mut state = model.fresh();
    read(&mut state, &ids);
    let decode = median(|| {
        let mut state = state.clone();
        read(&mut state, &[40]);
        timed(|| (0..32).for_each(|_| read(&mut state, &[41])))
    }) / 32.0;
    let batch = median(|| {
        let mut states: Vec<_> = (0..8).map(|_| state.clone()).collect();
        timed(|| {
            let mut pieces: Vec<_> = states.iter_mut().map(|state| Piece { ids: &[41], state, wanted: true }).collect();
            model.read(&mut pieces).expect("it computes")
        })
    }) / 8.0;
    let fork = median(|| timed(|| state.clone()));
    let save = median(|| timed(|| model.save(&state)));
    let saved = model.save(&state);
    let restore = median(|| timed(|| model.restore(&saved).expect("it was saved")));
    let (cold, grammar) = asked(file);
    println!(
        "{{\"load_us\":{load:.0},\"prefill_1024_us\":{prefill:.0},\"decode_us\":{decode:.0},\"decode_of_8_us\":{batch:.0},\
         \"fork_us\":{fork:.2},\"save_us\":{save:.0},\"restore_us\":{restore:.0},\"saved_bytes\":{},\
         \"cold_start_us\":{cold:.0},\"grammar_per_token_us\":{grammar:.1}}}",
        saved.len()
    );
}

/// From nothing to the first token of an answer, and the grammar's share of each token.
fn asked(file: &Path) -> (f64, f64) {
    let prompt = Prompt {
        system: "You are process 7 of AOS.".to_owned(),
        messages: vec![Message::User(vec![Part::Text("Write \"the report is ready\" to out/notes.txt".to_owned())])],
        status: String::new(),
        tools: [Name::FsRead, Name::FsWrite, Name::FsList, Name::ExecCmd, Name::SysExit].into_iter().collect(),
        encoding: Encoding::Constrained,
        max_output: 400,
    };
    let (mut masks, mut tokens) = (Duration::ZERO, 0);
    let cold = median(|| {
        let runtime = Runtime::new(Options::new(".".into()));
        let answering = runtime.ask(file, Some(Pid(1)), prompt.clone()).expect("nobody else asks");
        let answered = answering.reply.blocking_recv().expect("the thread answers").expect("an answer");
        masks += answered.masks;
        tokens += answered.answer_tokens;
        answered.first
    });
    (cold, masks.as_secs_f64() * 1e6 / tokens.max(1) as f64)
}
