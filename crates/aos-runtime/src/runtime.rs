//! The models of a home: loaded when somebody asks, let go when nobody does.
//!
//! Start at [`Runtime::ask`]. What always holds: one thread per loaded model; asking returns at once; a panic in the
//! library that computes ends that thread alone, and the next request loads the model anew.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use aos_abi::Pid;
use aos_abi::inference::Prompt;
use tokio::sync::{mpsc, oneshot};

use crate::bert::is_encoder;
use crate::encoder::{Embedded, Encoder, Texts};
use crate::fault::Fault;
use crate::form::Form;
use crate::llama::Llama;
use crate::vocabulary::Vocabulary;
use crate::voices::Voices;
use crate::weights::Weights;
use crate::worker::{Answered, Job, Note, WAITING_MAX, Worker};

/// Pieces of an answer that wait for whoever listens.
const DELTAS: usize = 64;

/// How a runtime behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where models are looked for by their names.
    pub folder: PathBuf,
    /// Models that are in the program, by the names that stand for them where the folder has no file of that name.
    pub inside: &'static [(&'static str, &'static [u8])],
    /// Most bytes of cache per model, all processes together.
    pub cache_bytes: usize,
    /// After this time without a request a model is let go.
    pub idle: Duration,
}

impl Options {
    /// The usual bounds: 1 GiB of cache, ten minutes; no model in the program.
    #[must_use]
    pub fn new(folder: PathBuf) -> Options {
        Options { folder, inside: &[], cache_bytes: 1 << 30, idle: Duration::from_secs(600) }
    }
}

/// The models of a home.
#[derive(Debug)]
pub struct Runtime {
    options: Options,
    loaded: Loaded<Note>,
    encoders: Loaded<Texts>,
}

/// The threads of models, by file.
type Loaded<T> = Mutex<HashMap<PathBuf, SyncSender<T>>>;

/// An answer to come. Dropping it ends the work on it.
#[derive(Debug)]
pub struct Answering {
    /// The answer's text, piece by piece.
    pub deltas: mpsc::Receiver<String>,
    /// The whole answer. A closed channel says that the model's thread broke.
    pub reply: oneshot::Receiver<Result<Answered, Fault>>,
}

impl Runtime {
    /// Nothing is loaded yet.
    #[must_use]
    pub fn new(options: Options) -> Runtime {
        Runtime { options, loaded: Mutex::default(), encoders: Mutex::default() }
    }

    /// The file of a model, or the folder of an encoder: an absolute path, or one below the folder, with or without `.gguf`.
    #[must_use]
    pub fn file(&self, model: &str) -> PathBuf {
        let named = self.options.folder.join(model);
        if model.ends_with(".gguf") || named.exists() {
            named
        } else {
            self.options.folder.join(format!("{model}.gguf"))
        }
    }

    /// The models in the folder and in the program, by the names that [`Runtime::file`] takes.
    #[must_use]
    pub fn models(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.options.folder).into_iter().flatten().flatten();
        let name = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let file = name.strip_suffix(".gguf").map(str::to_owned);
            file.or_else(|| is_encoder(&entry.path()).then_some(name))
        };
        let inside = self.options.inside.iter().map(|(name, _)| (*name).to_owned());
        let mut names: Vec<String> = entries.filter_map(name).chain(inside).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Opens a model's file and checks it without keeping it.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn check(file: &Path) -> Result<(), Fault> {
        guarded(|| if is_encoder(file) { Encoder::open(file).map(drop) } else { load(file, None, 0).map(drop) })
    }

    /// Asks a model. What cannot be answered comes as a fault through the reply.
    ///
    /// # Errors
    /// [`Fault::Busy`] where too many wait already.
    pub fn ask(&self, file: &Path, pid: Option<Pid>, prompt: Prompt) -> Result<Answering, Fault> {
        let (deltas, to_deltas) = mpsc::channel(DELTAS);
        let (reply, to_reply) = oneshot::channel();
        let answering = Answering { deltas: to_deltas, reply: to_reply };
        let note = Note::Ask(Box::new(Job { pid, prompt, asked: Instant::now(), deltas, reply }));
        let options = self.options.clone();
        send(&self.loaded, file, note, move |file, notes| serve(file, notes, &options))?;
        Ok(answering)
    }

    /// Has vectors made of texts, one for each, in their order. What cannot be done comes as a fault through the receiver;
    /// a closed one says that the model's thread broke. Dropping it ends the work.
    ///
    /// # Errors
    /// [`Fault::Busy`] where too many wait already.
    pub fn embed(
        &self,
        file: &Path,
        texts: Vec<String>,
    ) -> Result<oneshot::Receiver<Result<Vec<Embedded>, Fault>>, Fault> {
        let (reply, made) = oneshot::channel();
        let idle = self.options.idle;
        send(&self.encoders, file, Texts { texts, reply }, move |file, asked| encode(file, asked, idle))?;
        Ok(made)
    }

    /// A process has ended: what is kept of it goes before anything else.
    pub fn ended(&self, pid: Pid) {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        for sender in loaded.values() {
            // Where there is no room for the note, it goes by its age.
            let _ = sender.try_send(Note::Ended(pid));
        }
    }
}

/// Puts something before the thread of a model, which is started where it does not run.
fn send<T: Send + 'static>(
    loaded: &Loaded<T>,
    file: &Path,
    mut what: T,
    serve: impl FnOnce(&Path, &Receiver<T>) + Send + 'static,
) -> Result<(), Fault> {
    let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(sender) = loaded.get(file) {
        what = match sender.try_send(what) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(_)) => return Err(Fault::Busy(WAITING_MAX)),
            // It was let go, or it broke.
            Err(TrySendError::Disconnected(what)) => what,
        };
    }
    let (sender, receiver) = sync_channel(WAITING_MAX);
    sender.try_send(what).unwrap_or_else(|_| unreachable!("the channel is new and has room"));
    let path = file.to_owned();
    let thread = std::thread::Builder::new().name("aos-model".to_owned());
    thread
        .spawn(move || serve(&path, &receiver))
        .map_err(|error| Fault::Broke(format!("no thread can be started: {error}")))?;
    loaded.insert(file.to_owned(), sender);
    Ok(())
}

impl Options {
    /// The bytes of a model in the program that this file stands for.
    fn inside(&self, file: &Path) -> Option<&'static [u8]> {
        let stem = file.strip_prefix(&self.folder).ok()?.to_str()?.strip_suffix(".gguf")?;
        self.inside.iter().find(|(name, _)| *name == stem).map(|(_, bytes)| *bytes)
    }
}

fn load(file: &Path, inside: Option<&'static [u8]>, cache_bytes: usize) -> Result<Worker<Voices<Llama>>, Fault> {
    if is_encoder(file) {
        return Err(Fault::Purpose { path: file.to_owned(), makes: "vectors of texts and no answers" });
    }
    let mut weights = Weights::open(file, inside)?;
    let vocabulary = Vocabulary::of(&weights)?;
    let form = Form::of(&weights, &vocabulary)?;
    let voices = Voices::new(Llama::load(&mut weights)?, form.voices());
    Worker::new(voices, vocabulary, form, cache_bytes)
}

/// The thread of a model.
fn serve(file: &Path, notes: &Receiver<Note>, options: &Options) {
    let began = Instant::now();
    let mut worker = match guarded(|| load(file, options.inside(file), options.cache_bytes)) {
        Ok(worker) => worker,
        Err(fault) => {
            tracing::warn!(file = %file.display(), %fault, "a model cannot be used");
            for note in notes.try_iter() {
                if let Note::Ask(job) = note {
                    let _ = job.reply.send(Err(fault.clone()));
                }
            }
            return;
        }
    };
    tracing::info!(file = %file.display(), took = ?began.elapsed(), "a model was loaded");
    let served = guarded(|| {
        worker.run(notes, options.idle);
        Ok(())
    });
    match served {
        Ok(()) => tracing::info!(file = %file.display(), "a model was let go, nobody asked for it"),
        Err(fault) => {
            tracing::error!(file = %file.display(), %fault, "a model broke");
            worker.fail(&fault);
        }
    }
}

/// The thread of an encoder.
fn encode(path: &Path, asked: &Receiver<Texts>, idle: Duration) {
    let began = Instant::now();
    let opened = guarded(|| match is_encoder(path) {
        true => Encoder::open(path),
        false if path.exists() => {
            Err(Fault::Purpose { path: path.to_owned(), makes: "answers and no vectors of texts" })
        }
        false => Err(Fault::Absent(path.to_owned())),
    });
    let encoder = match opened {
        Ok(encoder) => encoder,
        Err(fault) => {
            tracing::warn!(model = %path.display(), %fault, "a model cannot be used");
            for texts in asked.try_iter() {
                let _ = texts.reply.send(Err(fault.clone()));
            }
            return;
        }
    };
    tracing::info!(model = %path.display(), took = ?began.elapsed(), "a model was loaded");
    let served = guarded(|| {
        encoder.run(asked, idle);
        Ok(())
    });
    match served {
        Ok(()) => tracing::info!(model = %path.display(), "a model was let go, nobody asked for it"),
        // Whoever waits sees that the thread has gone.
        Err(fault) => tracing::error!(model = %path.display(), %fault, "a model broke"),
    }
}

/// A panic as a fault: the last line of defence against a library that panics on what it did not expect.
fn guarded<T>(act: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
        Err(Fault::Broke(text.lines().next().unwrap_or_default().to_owned()))
    })
}
