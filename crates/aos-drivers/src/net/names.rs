//! Names, as a command is told of them that knows of no proxy: an address stands in for each, and means it.
//!
//! Start at [`Names::answer`]. What always holds: nothing is asked of anybody outside, so a question carries nothing out;
//! a name that no rule speaks of does not exist; an address stands for one name for as long as the command runs; what
//! cannot be read is refused, never guessed.
//!
//! Deliberately absent: addresses of the sixth version (the answer is that there are none), and everything that is not
//! an address.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most names of one command. Patterns let a command make up as many as it likes.
const NAMES_MAX: usize = 4096;
/// A name of the internet has at most 253 characters (RFC 1035, 2.3.4).
const NAME_BYTES_MAX: usize = 253;
/// How long an answer may be kept, in seconds: it holds for as long as the command runs.
const KEPT: u32 = 300;
/// The length of the head of a message (RFC 1035, 4.1.1).
const HEAD: usize = 12;
/// An address, of all the kinds of what can be asked for, and the internet, of all the classes.
const ADDRESS: u16 = 1;
const INTERNET: u16 = 1;

/// How a question ends (RFC 1035, 4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Fine = 0,
    Unreadable = 1,
    Failed = 2,
    NoSuchName = 3,
    NotDone = 4,
}

/// Which address stands for which name.
#[derive(Debug)]
pub(super) struct Names {
    first: u32,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    names: Vec<String>,
    places: BTreeMap<String, usize>,
}

impl Names {
    /// Addresses are given out from this one on.
    pub(super) fn new(first: Ipv4Addr) -> Names {
        Names { first: first.to_bits(), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name that an address was given out for.
    pub(super) fn of(&self, address: Ipv4Addr) -> Option<String> {
        let place = address.to_bits().checked_sub(self.first)?;
        self.known().names.get(usize::try_from(place).ok()?).cloned()
    }

    /// The address of a name; none when too many were asked for.
    fn address(&self, name: &str) -> Option<Ipv4Addr> {
        let mut known = self.known();
        let place = match known.places.get(name) {
            Some(place) => *place,
            None if known.names.len() >= NAMES_MAX => return None,
            None => {
                known.names.push(name.to_owned());
                let place = known.names.len() - 1;
                known.places.insert(name.to_owned(), place);
                place
            }
        };
        u32::try_from(place).ok().and_then(|place| self.first.checked_add(place)).map(Ipv4Addr::from_bits)
    }

    /// Answers a message, where it is a question; `granted` says whether a rule speaks of a name.
    pub(super) fn answer(&self, message: &[u8], granted: impl FnOnce(&str) -> bool) -> Option<Vec<u8>> {
        let head = message.get(..HEAD)?;
        let flags = u16::from_be_bytes([head[2], head[3]]);
        // An answer is not answered: two who do would go on for ever.
        if flags & 0x8000 != 0 {
            return None;
        }
        let questions = u16::from_be_bytes([head[4], head[5]]);
        if flags & 0x7800 != 0 {
            return Some(reply(head, &[], Code::NotDone, None));
        }
        let Some(question) = Question::read(&message[HEAD..]).filter(|_| questions == 1) else {
            return Some(reply(head, &[], Code::Unreadable, None));
        };
        let Question { name, kind, class, bytes } = question;
        let (code, address) = if class != INTERNET || !granted(&name) {
            (Code::NoSuchName, None)
        } else if kind != ADDRESS {
            (Code::Fine, None)
        } else {
            self.address(&name).map_or((Code::Failed, None), |address| (Code::Fine, Some(address)))
        };
        Some(reply(head, bytes, code, address))
    }
}

/// The one question of a message.
struct Question<'m> {
    /// In small letters, without a dot at its end.
    name: String,
    kind: u16,
    class: u16,
    /// As it was written, to be said again.
    bytes: &'m [u8],
}

impl<'m> Question<'m> {
    fn read(bytes: &'m [u8]) -> Option<Question<'m>> {
        let (mut name, mut at) = (String::new(), 0);
        loop {
            let length = usize::from(*bytes.get(at)?);
            at += 1;
            // Longer ones point elsewhere, where nothing can be yet.
            match length {
                0 => break,
                1..=63 => {}
                _ => return None,
            }
            let label = bytes.get(at..at + length)?;
            at += length;
            if !label.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
                return None;
            }
            if !name.is_empty() {
                name.push('.');
            }
            name.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
        }
        let [k0, k1, c0, c1] = *bytes.get(at..)?.first_chunk::<4>()?;
        let fits = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        fits.then(|| Question {
            name,
            kind: u16::from_be_bytes([k0, k1]),
            class: u16::from_be_bytes([c0, c1]),
            bytes: &bytes[..at + 4],
        })
    }
}

/// An answer to the message of which this is the head.
fn reply(head: &[u8], question: &[u8], code: Code, address: Option<Ipv4Addr>) -> Vec<u8> {
    let flags = u16::from_be_bytes([head[2], head[3]]);
    // It is an answer, and one is given to those who want all the work done; what they wanted is said again.
    let flags = 0x8080 | (flags & 0x7900) | code as u16;
    let mut said = head[..2].to_vec();
    let counts = [u16::from(!question.is_empty()), u16::from(address.is_some()), 0, 0];
    said.extend(flags.to_be_bytes().into_iter().chain(counts.into_iter().flat_map(u16::to_be_bytes)));
    said.extend_from_slice(question);
    if let Some(address) = address {
        // The name is the one that stands behind the head.
        said.extend([0xc0, HEAD as u8]);
        said.extend(ADDRESS.to_be_bytes().into_iter().chain(INTERNET.to_be_bytes()).chain(KEPT.to_be_bytes()));
        said.extend([0, 4].into_iter().chain(address.octets()));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

    fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut bytes = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            bytes.push(label.len() as u8);
            bytes.extend(label.as_bytes());
        }
        bytes.push(0);
        bytes.extend([0, kind as u8, 0, 1]);
        bytes
    }

    fn code(answer: &[u8]) -> u8 {
        answer[3] & 15
    }

    #[test]
    fn a_granted_name_has_one_address_that_means_it() {
        let names = Names::new(FIRST);
        let granted = |name: &str| name.ends_with("example.com");
        let answer = names.answer(&question("API.example.com", 1), granted).unwrap();
        assert_eq!((code(&answer), &answer[..2], answer[2] & 0x80), (0, &[0x12, 0x34][..], 0x80));
        assert_eq!(&answer[answer.len() - 4..], FIRST.octets());
        assert_eq!(&answer[12..12 + 21], &question("API.example.com", 1)[12..], "the question as it was written");
        assert_eq!(names.answer(&question("api.example.com", 1), granted).unwrap()[33..], answer[33..]);
        let other = names.answer(&question("example.com", 1), granted).unwrap();
        assert_eq!(&other[other.len() - 4..], [198, 18, 0, 2]);
        assert_eq!(names.of(FIRST).as_deref(), Some("api.example.com"));
        assert_eq!(names.of(Ipv4Addr::new(198, 18, 0, 3)), None);
        assert_eq!(names.of(Ipv4Addr::new(198, 18, 0, 0)), None);
        // Of other kinds there is nothing, but the name is there.
        let sixth = names.answer(&question("example.com", 28), granted).unwrap();
        assert_eq!((code(&sixth), sixth[7]), (0, 0));
    }

    #[test]
    fn what_no_rule_speaks_of_is_not_there_and_what_is_no_question_is_refused() {
        let names = Names::new(FIRST);
        let answer = names.answer(&question("other.org", 1), |_| false).unwrap();
        assert_eq!((code(&answer), answer[7]), (3, 0));
        assert_eq!(names.of(FIRST), None);
        let never = |_: &str| panic!("no rule is asked");
        let plain = question("a.b", 1);
        let changed = |at: usize, to: u8| {
            let mut bytes = plain.clone();
            bytes[at] = to;
            bytes
        };
        assert_eq!(names.answer(&changed(2, 0x80), never), None, "an answer");
        assert_eq!(code(&names.answer(&changed(2, 0x28), never).unwrap()), 4, "an update");
        for (at, to) in [(5, 0), (5, 2), (12, 0xc0), (12, 64), (12, 60), (13, b'/'), (13, 0), (12, 0)] {
            assert_eq!(code(&names.answer(&changed(at, to), never).unwrap()), 1, "{at} {to}");
        }
        for length in 0..plain.len() {
            let answer = names.answer(&plain[..length], never);
            assert!(answer.is_none_or(|answer| code(&answer) == 1), "{length}");
        }
    }

    #[test]
    fn a_command_that_makes_up_names_comes_to_an_end() {
        let names = Names::new(FIRST);
        for nth in 0..NAMES_MAX {
            assert!(names.address(&format!("n{nth}.example.com")).is_some());
        }
        let answer = names.answer(&question("one.more", 1), |_| true).unwrap();
        assert_eq!(code(&answer), 2);
        assert!(names.address("n7.example.com").is_some());
    }

    /// What a command writes there is read by nothing but this: whatever it is, the answer is short, and one to it.
    #[test]
    fn whatever_is_asked_the_answer_is_one_to_it() {
        // Numbers that are the same in every run (Knuth, MMIX).
        let mut state = 7u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below
        };
        let names = Names::new(FIRST);
        let plain = question("a.example.com", 1);
        let mut given = 0;
        for _ in 0..200_000 {
            let mut message = plain.clone();
            for _ in 0..next(4) {
                let at = next(message.len());
                match next(3) {
                    0 => message[at] = u8::try_from(next(256)).unwrap(),
                    1 => drop(message.splice(at..at, [0xc0, 12, 63].into_iter().take(next(4)))),
                    _ => message.truncate(at.max(1)),
                }
            }
            let mut asked = None;
            let granted = |name: &str| {
                asked = Some(name.to_owned());
                name.ends_with("example.com")
            };
            let Some(answer) = names.answer(&message, granted) else { continue };
            assert_eq!((&answer[..2], answer[2] & 0x80), (&message[..2], 0x80), "{message:x?}");
            assert!(answer.len() <= message.len() + 16, "{message:x?}: {answer:x?}");
            if answer[7] == 1 {
                let name = asked.unwrap();
                let last: [u8; 4] = answer[answer.len() - 4..].try_into().unwrap();
                assert_eq!(names.of(Ipv4Addr::from(last)).as_deref(), Some(&*name), "{message:x?}");
                assert!(code(&answer) == 0 && name.ends_with("example.com"), "{name}");
                given += 1;
            }
        }
        assert!(given > 20_000, "{given} were questions still");
    }
}
