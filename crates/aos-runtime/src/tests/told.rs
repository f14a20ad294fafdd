//! What whoever listens is told of an answer, and what of it comes at its end.

use super::*;

/// An answer, and its parts as they were told.
fn heard<D: Decoder>(worker: &mut Worker<D>, prompt: Prompt) -> (Answered, String) {
    let (deltas, mut to_deltas) = mpsc::channel(64);
    let (reply, mut to_reply) = oneshot::channel();
    worker.take(Note::Ask(Box::new(Job { pid: None, prompt, asked: Instant::now(), deltas, reply })));
    let mut told = String::new();
    loop {
        worker.round();
        while let Ok(delta) = to_deltas.try_recv() {
            told += &delta;
        }
        if let Ok(answered) = to_reply.try_recv() {
            return (answered.unwrap(), told);
        }
    }
}

#[test]
fn what_is_told_of_a_small_models_answer_is_its_text() {
    let home = Home::new();
    let mut said = 0;
    for seed in 0..8 {
        let mut worker = worker(&home.put("m.gguf", &Gguf::nano(seed)), 1 << 30);
        for encoding in [Encoding::Native, Encoding::Text, Encoding::Constrained] {
            let (answered, told) = heard(&mut worker, Prompt { encoding, ..prompt("hi", CallSet::EMPTY, 200) });
            assert_eq!(told, answered.text, "{encoding:?}");
            assert!(!told.starts_with("{\""), "{told}");
            said += usize::from(!told.is_empty());
        }
        let (answered, told) = heard(&mut worker, prompt("read a.txt", CallSet::all(), 200));
        assert_eq!(told, answered.text, "where calls are to be decoded it is the object");
    }
    assert!(said > 0, "nothing was said");
}
