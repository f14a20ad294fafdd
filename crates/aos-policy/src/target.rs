//! Targets: what a call acts on, in the form that rules are matched against, and the part of the floor that a call's
//! own text decides.
//!
//! Start at [`demands`]: a call asks for one to three actions, each on a target, and needs every one of them. What always
//! holds: a path in a target is relative and has no `..`; a call whose target cannot be read plainly is denied here.

use std::borrow::Cow;

use aos_abi::syscall::Kill;
use aos_abi::{Name, Syscall};

use crate::address::{Address, Class, METADATA_CLOSED};
use crate::pattern::Domain;

/// An atom of authority: a call's name, but moving is three, since it takes from one place and puts to another, where
/// others may read it, and an edit is two, since it shows what stands around its change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Action(u8);

impl Action {
    /// `FS_MOVE`, the place it goes to. `Action::of(Name::FsMove)` is the place it is taken from.
    pub(crate) const MOVE_TO: Action = Action(Name::ALL.len() as u8);
    /// `FS_EDIT`, what it shows. `Action::of(Name::FsEdit)` is what it changes.
    pub(crate) const EDIT_READ: Action = Action(Name::ALL.len() as u8 + 1);
    /// `FS_MOVE`, what can be read elsewhere by it.
    pub(crate) const MOVE_READ: Action = Action(Name::ALL.len() as u8 + 2);
    /// How many there are.
    pub(crate) const COUNT: usize = Name::ALL.len() + 3;

    pub(crate) fn of(name: Name) -> Action {
        Action(name as u8)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Whether it is the reading in a call that does something else.
    pub(crate) fn is_reading(self) -> bool {
        matches!(self, Action::EDIT_READ | Action::MOVE_READ)
    }

    /// The call it belongs to.
    pub(crate) fn name(self) -> Name {
        let part = if self == Action::EDIT_READ { Name::FsEdit } else { Name::FsMove };
        Name::ALL.get(self.index()).copied().unwrap_or(part)
    }
}

/// What the target of a call of some name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Always allowed: it touches nothing but the process itself and what was given to it.
    Always,
    /// It has none: the call is allowed or not.
    Bare,
    /// A file or folder of the workspace.
    File,
    /// A memory namespace.
    Memory,
    /// A host with method, port and path.
    Net,
    /// A channel and a receiver.
    Channel,
    /// One name in [`Domain::Word`]: a tool, peer or entity.
    Word,
    /// A process, by its name or else its pid, in [`Domain::Word`]: those below the caller always, any other by a grant.
    Process,
    /// A webhook path.
    Webhook,
}

/// What the target of a call of this name is. Exhaustive, so that a new call cannot be forgotten here.
pub(crate) fn kind(name: Name) -> Kind {
    match name {
        Name::SysExit | Name::Sleep | Name::SysWriteStdout | Name::SysReadStdin | Name::RecvMsg | Name::Wait => {
            Kind::Always
        }
        Name::Kill => Kind::Process,
        Name::SpawnAgent
        | Name::ExecCmd
        | Name::FsUnwatch
        | Name::ThreadDetach
        | Name::SysSchedule
        | Name::SysUnschedule
        | Name::SysWebhookReply
        | Name::ToolSearch
        | Name::AskUser
        | Name::Propose => Kind::Bare,
        Name::FsRead
        | Name::FsWrite
        | Name::FsEdit
        | Name::FsList
        | Name::FsSearch
        | Name::FsWatch
        | Name::FsDelete
        | Name::FsMove => Kind::File,
        Name::MemWrite | Name::MemRead | Name::MemForget => Kind::Memory,
        Name::NetFetch | Name::NetSend => Kind::Net,
        Name::ChannelSend => Kind::Channel,
        Name::ToolCall | Name::SendMsg | Name::ThreadAttach => Kind::Word,
        Name::SysRegisterWebhook => Kind::Webhook,
    }
}

/// The call that ends what this one starts; whoever may start may end.
pub(crate) fn counterpart(name: Name) -> Option<Name> {
    match name {
        Name::FsWatch => Some(Name::FsUnwatch),
        Name::SysSchedule => Some(Name::SysUnschedule),
        Name::SysRegisterWebhook => Some(Name::SysWebhookReply),
        Name::ThreadAttach => Some(Name::ThreadDetach),
        _ => None,
    }
}

/// How far below a file's path a call reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Not at all.
    Itself,
    /// If it is a folder, its content goes along: a grant on the folder is enough, but stricter rules below it count.
    Along,
    /// It shows what is below: a grant must cover all of it, and stricter rules below it count.
    Below,
}

/// What a call acts on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target<'a> {
    /// Nothing that a pattern could name.
    Bare,
    /// A command line.
    Command(&'a str),
    /// A path, namespace or name.
    Words { words: Vec<Cow<'a, str>>, reach: Reach },
    /// A request.
    Net { method: u8, address: Address },
    /// A message to somebody outside.
    Channel { channel: Vec<Cow<'a, str>>, to: Cow<'a, str> },
}

/// The methods of requests, as bits of a set.
pub(crate) const METHODS: [(&str, u8); 5] = [("GET", 1), ("POST", 2), ("PUT", 4), ("PATCH", 8), ("DELETE", 16)];
/// The methods of `NET_SEND`.
pub(crate) const SEND_METHODS: u8 = 2 | 4 | 8 | 16;

/// The bit of a method; methods are written in capitals.
pub(crate) fn method(name: &str) -> Option<u8> {
    METHODS.iter().find(|(known, _)| *known == name).map(|(_, bit)| *bit)
}

/// Why a call is denied whatever the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Floor {
    pub(crate) why: Cow<'static, str>,
    pub(crate) hint: &'static str,
}

/// What a call asks for, in order. Always-allowed calls ask for nothing. `reaches`: see [`crate::Subject`].
pub(crate) fn demands<'a>(
    call: &'a Syscall,
    reaches: Option<&'a [String]>,
) -> Result<Vec<(Action, Target<'a>)>, Floor> {
    let action = Action::of(call.name());
    let target = match call {
        Syscall::SysExit(_)
        | Syscall::Sleep(_)
        | Syscall::SysWriteStdout(_)
        | Syscall::SysReadStdin(_)
        | Syscall::RecvMsg(_)
        | Syscall::Wait(_) => return Ok(Vec::new()),
        Syscall::Kill(args) => return signalled(args, reaches),
        Syscall::SpawnAgent(_)
        | Syscall::FsUnwatch(_)
        | Syscall::ThreadDetach(_)
        | Syscall::SysSchedule(_)
        | Syscall::SysUnschedule(_)
        | Syscall::SysWebhookReply(_)
        | Syscall::ToolSearch(_)
        | Syscall::AskUser(_)
        | Syscall::Propose(_) => Target::Bare,
        Syscall::ExecCmd(exec) => Target::Command(&exec.cmd),
        Syscall::FsRead(args) => file(&args.path, Reach::Itself)?,
        Syscall::FsWrite(args) => file(&args.path, Reach::Itself)?,
        Syscall::FsEdit(args) => {
            let target = file(&args.path, Reach::Itself)?;
            return Ok(vec![(action, target.clone()), (Action::EDIT_READ, target)]);
        }
        Syscall::FsList(args) => {
            // A level of one shows the names in the folder and nothing below them.
            let reach = if args.levels() == Some(1) { Reach::Itself } else { Reach::Below };
            file(args.path.as_deref().unwrap_or(""), reach)?
        }
        Syscall::FsSearch(args) => file(args.path.as_deref().unwrap_or(""), Reach::Below)?,
        Syscall::FsWatch(args) => file(args.path.as_deref().unwrap_or(""), Reach::Below)?,
        Syscall::FsDelete(args) => file(&args.path, Reach::Along)?,
        Syscall::FsMove(args) => {
            let from = file(&args.from, Reach::Along)?;
            let to = file(&args.to, Reach::Along)?;
            return Ok(vec![(action, from.clone()), (Action::MOVE_READ, from), (Action::MOVE_TO, to)]);
        }
        Syscall::NetFetch(args) => net(&args.url, "GET")?,
        Syscall::NetSend(args) => net(&args.url, &args.method)?,
        Syscall::MemWrite(args) => memory(args.namespace.as_deref())?,
        Syscall::MemRead(args) => memory(args.namespace.as_deref())?,
        Syscall::MemForget(args) => memory(args.namespace.as_deref())?,
        Syscall::ThreadAttach(args) => word(&args.entity),
        Syscall::ToolCall(args) => word(&args.name),
        Syscall::SendMsg(args) => match (&args.to, args.to_pid) {
            (Some(name), None) => word(name),
            (None, Some(pid)) => words(vec![Cow::Owned(pid.to_string())]),
            (None, None) => return Err(floor("a message has one receiver", "give `to` or `to_pid`")),
            (Some(_), Some(_)) => return Err(floor("a message has one receiver", "give `to` or `to_pid`, not both")),
        },
        Syscall::ChannelSend(args) => Target::Channel {
            channel: Domain::Word.split(&args.channel).into_iter().map(Cow::Borrowed).collect(),
            to: Cow::Borrowed(&args.to),
        },
        Syscall::SysRegisterWebhook(args) => {
            words(path(&args.path).map_err(|why| floor(why, "a webhook path is a plain name such as `orders`"))?)
        }
    };
    Ok(vec![(action, target)])
}

fn floor(why: &'static str, hint: &'static str) -> Floor {
    Floor { why: why.into(), hint }
}

/// Whom a signal reaches that is not below whoever sends it. Where nobody has looked, a process counts as such a one.
fn signalled<'a>(args: &'a Kill, reaches: Option<&'a [String]>) -> Result<Vec<(Action, Target<'a>)>, Floor> {
    let action = Action::of(Name::Kill);
    match (args.pid, &args.group, reaches) {
        (None, None, _) => Err(floor("a signal goes to one process or to one group", "give `pid` or `group`")),
        (Some(_), Some(_), _) => {
            Err(floor("a signal goes to one process or to one group", "give `pid` or `group`, not both"))
        }
        (_, _, Some(others)) => Ok(others.iter().map(|other| (action, word(other))).collect()),
        (Some(pid), None, None) => Ok(vec![(action, words(vec![Cow::Owned(pid.to_string())]))]),
        (None, Some(_), None) => Err(floor("nobody knows here who is in the group", "name a process by its `pid`")),
    }
}

fn words(words: Vec<Cow<'_, str>>) -> Target<'_> {
    Target::Words { words, reach: Reach::Itself }
}

fn word(text: &str) -> Target<'_> {
    words(Domain::Word.split(text).into_iter().map(Cow::Borrowed).collect())
}

/// The words of a memory namespace, by which it has one name however it is written: `self` is the process's own, also where
/// none is given or it has no word.
#[must_use]
pub fn namespace(given: Option<&str>) -> Vec<&str> {
    let words: Vec<&str> = given.into_iter().flat_map(segments).collect();
    if words.is_empty() { vec!["self"] } else { words }
}

/// What says something of a path: its segments, without empty ones and `.`. By these one place has one name.
pub fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|word| !matches!(*word, "" | "."))
}

/// The segments of a relative path, `.` and empty ones left out.
fn path(text: &str) -> Result<Vec<Cow<'_, str>>, &'static str> {
    if text.starts_with('/') {
        return Err("the path is absolute");
    }
    if text.contains('\0') {
        return Err("the path holds a NUL");
    }
    let words: Vec<Cow<'_, str>> = segments(text).map(Cow::Borrowed).collect();
    if words.iter().any(|word| word == "..") { Err("the path has `..`") } else { Ok(words) }
}

/// The name of the daemon's folder where it stands inside a workspace. Its key, journal and policy are nobody's.
const HOME_NAME: &str = ".aos";

/// Whether a file or folder of this name is closed to agents wherever it stands, with all below it.
#[must_use]
pub fn is_home(name: &str) -> bool {
    name.eq_ignore_ascii_case(HOME_NAME)
}

fn file(text: &str, reach: Reach) -> Result<Target<'_>, Floor> {
    let words = path(text)
        .map_err(|why| Floor { why: format!("{why}, which could leave the workspace").into(), hint: WORKSPACE_HINT })?;
    if words.iter().any(|word| is_home(word)) {
        return Err(floor("the daemon's own files are closed to agents", "work on other files"));
    }
    Ok(Target::Words { words, reach })
}

/// The segments of a path of the workspace; `None` where it cannot be read plainly.
pub(crate) fn plain(path: &str) -> Option<Vec<Cow<'_, str>>> {
    match file(path, Reach::Itself) {
        Ok(Target::Words { words, .. }) => Some(words),
        _ => None,
    }
}

/// Everything at and below a path; `None` where it cannot be read plainly.
pub(crate) fn below(path: &str) -> Option<Target<'_>> {
    file(path, Reach::Below).ok()
}

const WORKSPACE_HINT: &str = "give a path relative to the workspace, such as `notes.txt`, without `..`";

fn memory(given: Option<&str>) -> Result<Target<'_>, Floor> {
    path(given.unwrap_or_default()).map_err(|_| {
        floor("the namespace is no plain path", "leave `namespace` out for your own, or name one such as `team`")
    })?;
    Ok(words(namespace(given).into_iter().map(Cow::Borrowed).collect()))
}

fn net<'a>(url: &str, name: &str) -> Result<Target<'a>, Floor> {
    let Some(method) = method(name) else {
        return Err(floor("there is no such method", "write POST, PUT, PATCH or DELETE in capitals"));
    };
    let address = Address::parse(url)
        .map_err(|fault| Floor { why: fault.to_string().into(), hint: "write a plain `https://host/path`" })?;
    if address.class == Class::Metadata {
        return Err(floor(METADATA_CLOSED, "there is no grant for this"));
    }
    Ok(Target::Net { method, address })
}
