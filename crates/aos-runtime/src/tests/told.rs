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

/// A program's request, without a system message, which this model does not read.
fn unsaid(request: &str, calls: CallSet) -> Prompt {
    Prompt { system: String::new(), ..prompt(request, calls, 200) }
}

#[test]
fn what_is_told_of_a_small_models_answer_is_its_text() {
    let home = Home::new();
    let mut said = 0;
    for seed in 0..8 {
        let mut worker = worker(&home.put("m.gguf", &Gguf::nano(seed)), 1 << 30);
        for encoding in [Encoding::Native, Encoding::Text, Encoding::Constrained] {
            let (answered, told) = heard(&mut worker, Prompt { encoding, ..unsaid("hi", CallSet::EMPTY) });
            assert_eq!(told, answered.text, "{encoding:?}");
            assert!(!told.starts_with("{\""), "{told}");
            said += usize::from(!told.is_empty());
        }
        let (answered, told) = heard(&mut worker, unsaid("read a.txt", CallSet::all()));
        assert_eq!(told, answered.text, "where calls are to be decoded it is the object");
    }
    assert!(said > 0, "nothing was said");
}

/// Says what it is to say, a token at a time, whatever it reads.
struct Parrot {
    says: Vec<u32>,
    end: u32,
}

impl Decoder for Parrot {
    /// Tokens read, and tokens said.
    type State = (usize, usize);

    fn window(&self) -> usize {
        8192
    }

    fn fresh(&self) -> (usize, usize) {
        (0, 0)
    }

    fn len((read, _): &(usize, usize)) -> usize {
        *read
    }

    fn truncate(state: &mut (usize, usize), len: usize) {
        *state = (len, 0);
    }

    fn bytes_of(&self, tokens: usize) -> usize {
        tokens
    }

    fn bytes_held(&self) -> usize {
        0
    }

    fn read(&self, pieces: &mut [Piece<'_, (usize, usize)>]) -> Result<Vec<Option<Vec<f32>>>, Fault> {
        let one = |piece: &mut Piece<'_, (usize, usize)>| {
            let (read, said) = &mut *piece.state;
            *read += piece.ids.len();
            let next = self.says.get(*said).copied().unwrap_or(self.end);
            *said += usize::from(piece.wanted);
            piece.wanted.then(|| (0..=self.end).map(|id| f32::from(u8::from(id == next))).collect())
        };
        Ok(pieces.iter_mut().map(one).collect())
    }

    fn save(&self, _: &(usize, usize)) -> Vec<u8> {
        Vec::new()
    }

    fn restore(&self, _: &[u8]) -> Result<(usize, usize), Fault> {
        Ok((0, 0))
    }
}

/// A model in the form of many that answers this.
fn parrot(says: &str) -> Worker<Parrot> {
    let home = Home::new();
    let weights = Weights::open(&home.put("m.gguf", &Gguf::chat(1)), None).unwrap();
    let vocabulary = Vocabulary::of(&weights).unwrap();
    let form = Form::of(&weights, &vocabulary).unwrap();
    let parrot = Parrot { says: vocabulary.encode(says), end: form.end(&vocabulary) };
    Worker::new(parrot, vocabulary, form, 1 << 30).unwrap()
}

#[test]
fn an_answer_of_free_text_that_is_json_is_the_answer() {
    let object = r#"{"calls":[{"name":"FS_READ","args":{"path":"a"}}],"say":"I look."}"#;
    for says in ["42", "true", "null", "\"yes\"", "[1,2]", r#"{"name":"Ann","age":3}"#, object, "It is blue.", ""] {
        for encoding in [Encoding::Native, Encoding::Text, Encoding::Constrained] {
            let prompt = Prompt { encoding, ..prompt("hi", CallSet::EMPTY, 200) };
            let (answered, told) = heard(&mut parrot(says), prompt);
            assert_eq!((answered.text.as_str(), told.as_str()), (says, says), "{encoding:?}");
            assert!(answered.calls.is_empty() && answered.whole, "{answered:?}");
        }
    }
    // The same text is unpacked where the model had to write it so.
    let tools = [Name::FsRead].into_iter().collect();
    let native = Prompt { encoding: Encoding::Native, ..prompt("hi", tools, 200) };
    let (answered, _) = heard(&mut parrot(object), native);
    assert_eq!((answered.text.as_str(), answered.calls.len()), ("I look.", 1));
}

#[test]
fn who_listens_only_at_the_end_is_told_all() {
    // Its last character is cut off, and stands in the answer as what no character is.
    for (says, most) in [("It is blue, and so is the sea below it, on days like this.", 200), ("blue \u{2603}", 6)] {
        let mut worker = parrot(says);
        let (deltas, mut to_deltas) = mpsc::channel(3);
        let (reply, mut to_reply) = oneshot::channel();
        let prompt = Prompt { encoding: Encoding::Text, ..prompt("hi", CallSet::EMPTY, most) };
        worker.take(Note::Ask(Box::new(Job { pid: None, prompt, asked: Instant::now(), deltas, reply })));
        let answered = loop {
            worker.round();
            if let Ok(answered) = to_reply.try_recv() {
                break answered.unwrap();
            }
        };
        let told: String = std::iter::from_fn(|| to_deltas.try_recv().ok()).collect();
        assert_eq!(told, answered.text);
        assert_eq!(told.ends_with('\u{fffd}'), most == 6, "{told}");
    }
}

/// Else a program could find out what an agent has said, a token at a time.
#[test]
fn who_is_no_process_goes_on_from_a_whole_role_and_nothing_else() {
    let home = Home::new();
    let file = home.put("m.gguf", &Gguf::chat(1));
    let ask = |system: &str, said: &str| Prompt { system: system.to_owned(), ..prompt(said, CallSet::EMPTY, 20) };
    let (role, secret) = ("You are process 7 of AOS.", "the number is 4711");
    let mut worker = worker(&file, 1 << 30);
    let reused = |worker: &mut Worker<Llama>, pid, prompt| answers(worker, [(pid, prompt)]).remove(0).reused_tokens;
    // It is known both while the agent is answered and after.
    let (note, reply) = job(Some(1), Prompt { max_output: 2000, ..ask(role, secret) });
    worker.take(note);
    worker.round();
    let whole = reused(&mut worker, None, ask(role, secret));
    assert!((20..40).contains(&whole), "{whole} tokens are the role");
    drop(reply);
    for said in [secret, "the number is 4", "x"] {
        assert_eq!(reused(&mut worker, None, ask(role, said)), whole, "{said}");
    }
    for begun in ["You are process 7 of AO", "You are process 7 of AOS. And", "You", ""] {
        assert_eq!(reused(&mut worker, None, ask(begun, secret)), 0, "{begun}");
        assert!(reused(&mut worker, None, ask(begun, "x")) > 0, "what it had itself it need not read again: {begun}");
    }
    assert!(reused(&mut worker, Some(2), ask(role, secret)) > whole + 10, "a fork goes on where it parts");
}
