//! Every order of what can happen round a question, with the daemon killed at every entry of each.

use std::sync::atomic::{AtomicUsize, Ordering};

use aos_sim::proposals::{self, Explored};

/// `AOS_SIM_MORE=N` makes each run N acts longer.
#[test]
fn a_question_comes_to_exactly_what_was_said_wherever_the_daemon_dies() {
    let more = std::env::var("AOS_SIM_MORE").map_or(0, |text| text.parse().unwrap());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut explored = Vec::new();
        loop {
            let story = next.fetch_add(1, Ordering::Relaxed);
            if story >= proposals::stories() {
                return explored;
            }
            explored.push(proposals::check(story, more).unwrap_or_else(|what| panic!("{what}")));
        }
    };
    let explored: Vec<Explored> = std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mut explored = work();
        explored.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        explored
    });
    for of in &explored {
        println!("{of}");
    }
    let sum = |of: fn(&Explored) -> usize| explored.iter().map(of).sum::<usize>();
    let (states, crashes, made) = (sum(|of| of.states), sum(|of| of.crashes), sum(|of| of.made));
    // About as many as there were: a story that has become short would prove less.
    assert!(states >= 23_000 && crashes >= 9_500 && made >= 2_300, "{states} states, {crashes} crashes, {made} calls");
    let unused: Vec<&Explored> = explored.iter().filter(|of| of.made == 0 || of.crashes == 0).collect();
    assert!(unused.is_empty(), "nothing was made, or nobody crashed: {unused:?}");
}
