//! How many files and connections the daemon may have open.
//!
//! Start at [`raise`]. The soft limit that shells and service managers give, mostly 1,024, is for programs that use
//! `select(2)`; here it would be one number for all agents, their commands and whoever connects. Commands have a limit of
//! their own, which the sandbox sets.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The part of all descriptors that the connections of one listener may take: what agents do goes on while strangers
/// hold as many as they get.
const PART: u64 = 4;

/// Raises the soft limit to the hard one, and says how many descriptors there are then.
pub(super) fn raise() -> u64 {
    let there = getrlimit(Resource::Nofile);
    // Where the system says no it stays as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: there.maximum, ..there });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The most connections of one listener, of `descriptors` in all; no more than `most`.
pub(super) fn connections(descriptors: u64, most: usize) -> usize {
    usize::try_from(descriptors / PART).unwrap_or(usize::MAX).clamp(1, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_takes_a_part_of_the_descriptors() {
        assert_eq!([0, 256, 1024, 4096, u64::MAX].map(|all| connections(all, 1024)), [1, 64, 256, 1024, 1024]);
    }
}
