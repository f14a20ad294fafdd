//! The driver: from an allowed call to a command in the sandbox.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aos_abi::syscall::ExecCmd;
use aos_abi::{CallError, Code, Syscall, limits};
use aos_policy::Permit;
use aos_sandbox::{
    Cancel, Captured, Committed, End, Helper, Isolation, Isolator, Layer, LeftOut, LeftOutKind, Limits, Mount, Network,
    Outcome, Programs, ProxyServer, Spec, TOO_LARGE, ThisHost, foreign,
};
use base64::Engine as _;
use serde_json::{Value, json};

use super::bounds::{self, Bounds};
use super::error::Error;

/// Most changed paths in an answer.
const CHANGED_MAX: usize = limits::LISTING_MAX;

/// The most of what is left out that an answer names; the others are counted.
const LEFT_OUT_MAX: usize = 10;

/// What a shell ends with where a file is there and may not be executed.
const NOT_EXECUTABLE: i32 = 126;

/// What an agent is told then, where only granted programs run.
const NOT_GRANTED: &str = "only granted programs can be executed; run a script by its interpreter: `sh s.sh`. What lies in \
    the workspace can be executed where a person adds `./**` to `programs` in the role's `exec`";

/// Where and within which walls a command runs: what policy and configuration say.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The workspace folder.
    pub workspace: PathBuf,
    /// A folder for a layer of its own, on the workspace's file system: changes go there first. `None`: they go to the
    /// workspace at once and cannot be taken back.
    pub layer: Option<PathBuf>,
    /// What of the workspace the command may see and change.
    pub bounds: Arc<dyn Bounds>,
    /// What is written down with a commit; the caller's own.
    pub note: Value,
    /// Further files and folders it may see.
    pub mounts: Vec<Mount>,
    /// What its environment holds, where the call does not say otherwise.
    pub env: BTreeMap<OsString, OsString>,
    /// Programs it may execute.
    pub programs: Programs,
    /// A shell reads its line. Else its words are the program and its arguments, for which there may be no shell.
    pub shell: bool,
    /// The most it may use. The call's own deadline only makes `wall` shorter.
    pub limits: Limits,
    /// What it may connect to.
    pub network: Network,
    /// Who serves the proxy, where it has one.
    pub proxy: Option<ProxyServer>,
    /// How strong the walls are.
    pub isolation: Isolation,
    /// The program that the sandbox is started from.
    pub helper: Helper,
}

/// What came of a call. A command that failed may have changed something all the same.
#[derive(Debug)]
#[must_use]
pub struct Ran {
    /// What the agent is told.
    pub answer: Result<Value, CallError>,
    /// What it changed with all that this replaced; `None` where nothing of it is kept so.
    pub committed: Option<Committed>,
}

/// Carries out command calls. Share one for the whole daemon.
#[derive(Clone)]
pub struct Driver {
    isolator: Arc<dyn Isolator>,
}

impl Default for Driver {
    fn default() -> Driver {
        Driver::new(Arc::new(ThisHost))
    }
}

impl Driver {
    /// A driver that runs commands on what it is given.
    #[must_use]
    pub fn new(isolator: Arc<dyn Isolator>) -> Driver {
        Driver { isolator }
    }

    /// Carries out an allowed call. Blocks as long as the command runs; `cancel` ends it, and then nothing of a layer is
    /// kept. The answer's error is `ETIMEDOUT`, with what was printed by then as its partial result; `EDQUOT` for memory,
    /// `ENOSPC` for disk, `EINTR` where it was stopped, `EINVAL`, `ENOENT`, `EPERM`, `EIO`.
    pub fn call(&self, permit: Permit, scene: Scene, cancel: &Cancel) -> Ran {
        self.perform(permit.into_call(), scene, cancel)
    }

    pub(super) fn perform(&self, call: Syscall, scene: Scene, cancel: &Cancel) -> Ran {
        let args = match call {
            Syscall::ExecCmd(args) => args,
            other => {
                let error = CallError::new(Code::NoSys, format!("{} is no command call", other.name()));
                return Ran { answer: Err(error), committed: None };
            }
        };
        match self.run(args, scene, cancel) {
            Ok(ran) => ran,
            Err(error) => Ran { answer: Err(error.into()), committed: None },
        }
    }

    fn run(&self, args: ExecCmd, scene: Scene, cancel: &Cancel) -> Result<Ran, Error> {
        let wall = timeout(args.timeout_s)?.min(scene.limits.wall);
        let mut env = scene.env;
        env.extend(environment(&args)?);
        let hidden = bounds::hidden(&*scene.bounds, &scene.workspace).map_err(Error::Bounds)?;
        let layer = match scene.layer {
            Some(dir) => Some(Layer::create(dir)?.hiding(hidden)),
            None if hidden.is_empty() => None,
            None => return Err(Error::Bare),
        };
        let began = SystemTime::now();
        let argv: Vec<OsString> = match scene.shell {
            true => vec!["sh".into(), "-c".into(), args.cmd.into()],
            false => args.cmd.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect(),
        };
        let output = scene.limits.output.min(limits::EXEC_OUTPUT_BYTES_MAX);
        let spec = Spec {
            stdin: args.stdin.unwrap_or_default().into_bytes(),
            env,
            mounts: scene.mounts,
            layer: layer.clone(),
            programs: scene.programs,
            limits: Limits { wall, output, ..scene.limits },
            network: scene.network,
            proxy: scene.proxy,
            helper: scene.helper,
            ..Spec::new(argv, &scene.workspace, scene.isolation)
        };
        let outcome = match self.isolator.run(&spec, cancel) {
            Ok(outcome) => outcome,
            Err(error) => {
                // It did not start, or nobody knows: what is in the layer is nobody's.
                if let Some(layer) = layer {
                    let _ = layer.discard();
                }
                return Err(error.into());
            }
        };
        let wanted = match outcome.end {
            End::Exited(_) | End::Signaled(_) | End::TimedOut | End::OutOfMemory => true,
            End::OutOfDisk | End::Cancelled => false,
        };
        let mut answer = answer(&outcome, &spec.limits);
        if let (Ok(result), End::Exited(NOT_EXECUTABLE), Isolation::Full, Programs::Only(_)) =
            (&mut answer, outcome.end, &spec.isolation, &spec.programs)
        {
            result["hint"] = NOT_GRANTED.into();
        }
        if let (Ok(result), Some(hint)) = (&mut answer, unchangeable(&outcome, &spec)) {
            result["hint"] = hint.into();
        }
        let Some(layer) = layer else { return Ok(Ran { answer, committed: None }) };
        if !wanted {
            layer.discard()?;
            let answer = answer.map_err(|error| CallError { partial: error.partial.map(not_kept), ..error });
            return Ok(Ran { answer, committed: None });
        }
        if let Err(refused) = bounds::judge(&*scene.bounds, &scene.workspace, &layer, &outcome.changed) {
            layer.discard()?;
            return Ok(Ran { answer: Err(unkept(answer, refused)), committed: None });
        }
        scene.bounds.keeps();
        match layer.clone().commit(&scene.workspace, Some(began), scene.note) {
            Ok(committed) => Ok(Ran { answer, committed: Some(committed) }),
            Err(error) => {
                // What failed half-way was taken back and is gone already, or stays because it could not be.
                let _ = layer.discard();
                Err(error.into())
            }
        }
    }
}

/// Why something could not be changed, where the command was told so in words that nobody understands.
fn unchangeable(outcome: &Outcome, spec: &Spec) -> Option<String> {
    let said = [&outcome.stderr, &outcome.stdout].into_iter().any(|stream| stream.text().contains(TOO_LARGE));
    if !said || spec.isolation != Isolation::Full {
        return None;
    }
    // What the command may not see is not named to it either.
    let hides = |path: &Path| spec.layer.as_ref().is_some_and(|layer| layer.hides(path));
    let found = foreign(&spec.workspace, |path| !hides(path))?;
    Some(format!("{found}. File calls can, as far as the daemon may; a person can {}", found.remedy()))
}

/// Of a command whose changes may not be made: what it said still comes back.
fn unkept(answer: Result<Value, CallError>, refused: CallError) -> CallError {
    let partial = match answer {
        Ok(result) => Some(result),
        Err(error) => error.partial,
    };
    CallError { partial: partial.map(not_kept), ..refused }
}

/// A result that names what the command changed, where nothing of that is made.
fn not_kept(mut result: Value) -> Value {
    if let Some(fields) = result.as_object_mut() {
        // Where nothing is kept, nothing of it is left out.
        fields.remove("left_out");
        fields.remove("left_out_more");
        let changed = fields.remove("changed");
        fields.extend(changed.map(|changed| ("not_kept".to_owned(), changed)));
    }
    result
}

/// The call's deadline, 30 seconds if it names none.
fn timeout(seconds: Option<f64>) -> Result<Duration, Error> {
    match seconds {
        None => Ok(Duration::from_secs(limits::EXEC_TIMEOUT_S)),
        Some(seconds) if seconds > 0.0 && seconds <= limits::EXEC_TIMEOUT_S_MAX as f64 => {
            Ok(Duration::from_secs_f64(seconds).max(Duration::from_millis(1)))
        }
        Some(_) => Err(Error::Timeout),
    }
}

fn environment(args: &ExecCmd) -> Result<BTreeMap<OsString, OsString>, Error> {
    let variables = args.env.iter().flatten();
    variables
        .map(|(name, value)| {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(Error::Variable { name: name.chars().take(64).flat_map(char::escape_debug).collect() });
            }
            Ok((name.into(), value.into()))
        })
        .collect()
}

/// The command's end as the agent is told of it.
fn answer(outcome: &Outcome, limits: &Limits) -> Result<Value, CallError> {
    let mut result = json!({});
    for (name, stream) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
        show(&mut result, name, stream);
    }
    let (code, ended) = match outcome.end {
        End::Exited(code) => (Some(code), None),
        // As a shell reports it.
        End::Signaled(signal) => {
            result["signal"] = signal.into();
            (Some(128 + signal), None)
        }
        End::TimedOut => (None, Some(Error::TimedOut { seconds: limits.wall.as_secs_f64() })),
        End::OutOfMemory => (None, Some(Error::OutOfMemory { bytes: limits.memory })),
        End::OutOfDisk => (None, Some(Error::OutOfDisk { bytes: limits.disk })),
        End::Cancelled => (None, Some(Error::Cancelled)),
    };
    if let Some(code) = code {
        result["exit_code"] = code.into();
    }
    let mut left = limits::CHANGED_BYTES_MAX;
    let mut fits = |path: &String| {
        // JSON writes six bytes for some.
        let bytes = 6 * path.len();
        let fits = bytes <= left;
        left = left.saturating_sub(bytes);
        fits
    };
    let left_out: Vec<String> = outcome.left_out.iter().take(LEFT_OUT_MAX).map(named).take_while(&mut fits).collect();
    if outcome.left_out.len() > left_out.len() {
        result["left_out_more"] = (outcome.left_out.len() - left_out.len()).into();
    }
    if !outcome.left_out.is_empty() {
        result["left_out"] = left_out.into();
    }
    let paths = outcome.changed.iter().map(|change| change.path.to_string_lossy().into_owned());
    let changed: Vec<String> = paths.take(CHANGED_MAX).take_while(fits).collect();
    if outcome.changed_truncated || changed.len() < outcome.changed.len() {
        result["changed_truncated"] = true.into();
    }
    result["changed"] = changed.into();
    match ended {
        None => Ok(result),
        Some(error) => Err(CallError { partial: Some(result), ..error.into() }),
    }
}

/// What is left out of what a command made, in words.
fn named(left_out: &LeftOut) -> String {
    let what = match left_out.kind {
        LeftOutKind::Pipe => "a pipe",
        LeftOutKind::Socket => "a socket",
        LeftOutKind::Device => "a device",
        LeftOutKind::SetId => "its set-id bits",
    };
    format!("{}: {what}", left_out.path.to_string_lossy())
}

/// A stream as text: bytes that are no UTF-8 replaced, since one wrong byte in a log must not hide it; base64 where a
/// zero byte says that it is no text at all.
fn show(result: &mut Value, name: &str, stream: &Captured) {
    if stream.bytes.contains(&0) {
        result[name] = base64::engine::general_purpose::STANDARD.encode(&stream.bytes).into();
        result[format!("{name}_encoding")] = "base64".into();
    } else {
        let cut = if stream.truncated() { whole(&stream.bytes) } else { &stream.bytes };
        result[name] = String::from_utf8_lossy(cut).into();
    }
    if stream.truncated() {
        result[format!("{name}_dropped")] = stream.dropped.into();
    }
}

/// The bytes without a character that the end cuts in two.
fn whole(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}
