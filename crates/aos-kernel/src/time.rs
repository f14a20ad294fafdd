//! Time: what is due, and when a timer fires next.

use aos_abi::{Body, CallError, Code, Pid, Timestamp, limits};
use aos_policy::Labels;
use cronexpr::Crontab;
use serde_json::json;

use crate::Kernel;
use crate::process::{Phase, Process, TimerRule, Wait};
use crate::table::PageStore;

/// When a timer fires next after `now`.
///
/// # Errors
/// `EINVAL` for a cron line or time zone that does not parse, or that never fires.
pub fn next_after(rule: &TimerRule, now: Timestamp) -> Result<Timestamp, CallError> {
    match rule {
        TimerRule::Every(millis) => Ok(now.plus_millis(*millis)),
        TimerRule::Cron(line, zone) => Cron::read(line, zone, now)?.next_after(now),
    }
}

/// A cron line that was read: that takes longer than finding a time by it.
struct Cron<'l> {
    line: &'l str,
    crontab: Crontab,
}

impl<'l> Cron<'l> {
    /// For times from `from` on.
    fn read(line: &'l str, zone: &str, from: Timestamp) -> Result<Cron<'l>, CallError> {
        let fields = line.split_whitespace().count();
        if fields != 5 {
            return Err(bad(format!("a cron line has five fields, `{line}` has {fields}")));
        }
        let crontab = cronexpr::parse_crontab(&format!("{line} {zone}"))
            .map_err(|error| bad(format!("`{line}` in zone `{zone}`: {error}").replace('\n', " ")))?;
        if !is_steady(zone, from) {
            return Err(bad(format!("the clocks of zone `{zone}` are not set by whole hours")));
        }
        Ok(Cron { line, crontab })
    }

    fn next_after(&self, now: Timestamp) -> Result<Timestamp, CallError> {
        let from = cronexpr::MakeTimestamp::from_millisecond(now.0).map_err(|error| bad(error.to_string()))?;
        let next = self.crontab.find_next(from).map_err(|_| bad(format!("`{}` never fires", self.line)))?;
        Ok(Timestamp(next.timestamp().as_millisecond()))
    }
}

fn bad(why: String) -> CallError {
    CallError::new(Code::Inval, why)
        .hint("five fields and an IANA time zone: {\"cron\":\"0 9 * * 1-5\",\"timezone\":\"Europe/Berlin\"}")
}

/// Changes of a zone's clocks that are looked at ahead: those of sixteen years, where they are set twice a year.
const CHANGES_SEEN: usize = 32;
/// The most by which they are set, in seconds.
const CHANGE_S_MAX: i32 = 3 * 3600;

/// Whether cronexpr, which goes from hour to hour and from day to day, gets on in a zone: its clocks must be set by whole
/// hours, and by few, or its next step is the one before (as in `Australia/Lord_Howe`, for ever). A zone that is written
/// out (POSIX) instead of named could be anything.
fn is_steady(zone: &str, now: Timestamp) -> bool {
    let (Ok(zone), Ok(now)) = (jiff::tz::TimeZone::get(zone), jiff::Timestamp::from_millisecond(now.0)) else {
        return false;
    };
    let mut offset = zone.to_offset(now).seconds();
    let mut changes = zone.following(now).take(CHANGES_SEEN).map(|change| {
        let by = change.offset().seconds() - std::mem::replace(&mut offset, change.offset().seconds());
        by % 3600 == 0 && by.abs() <= CHANGE_S_MAX
    });
    let named = zone.iana_name().is_some() || zone == jiff::tz::TimeZone::UTC;
    named && changes.all(|fine| fine)
}

impl<P: PageStore> Kernel<P> {
    /// Everything due by now.
    pub(crate) fn tick(&mut self) {
        let now = self.globals.at;
        // Handling one process may make another due in the same moment; each is handled once per tick.
        let mut handled = std::collections::BTreeSet::new();
        while let Some((at, pid)) = self.globals.due.iter().find(|(_, pid)| !handled.contains(pid)).copied() {
            if at > now {
                return;
            }
            handled.insert(pid);
            self.due(pid, now);
        }
    }

    fn due(&mut self, pid: Pid, now: Timestamp) {
        let Some(process) = self.table.get(pid) else { return };
        if process.budget.ends_at.is_some_and(|at| at <= now) {
            self.exit_tree(pid, 124, "ran past its time");
            return;
        }
        if process.terminating.is_some_and(|terminating| terminating.kill_at <= now) {
            self.exit(pid, 137, serde_json::Value::Null, "killed: did not end within 5 s of TERM");
            return;
        }
        self.fire_timers(pid, now);
        self.expire_proposals(pid, now);
        let Some(process) = self.table.get(pid) else { return };
        match process.phase.clone() {
            Phase::Waiting { until: Some(until), wait, since, .. } if until <= now => {
                let waited_s = now.millis_since(since) as f64 / 1000.0;
                self.wait_over(pid, &wait, waited_s);
            }
            Phase::Backoff(at) | Phase::Broke { until: Some(at), .. } if at <= now => self.want_turn_again(pid),
            _ => {}
        }
    }

    fn wait_over(&mut self, pid: Pid, wait: &Wait, waited_s: f64) {
        // To a tenth: the moment at which it is noticed is a little later than asked.
        let told = if waited_s < 1.0 { waited_s } else { (waited_s * 10.0).round() / 10.0 };
        let late = |what: &str| Err(CallError::new(Code::TimedOut, format!("{what} within {told} s")));
        let result = match wait {
            Wait::Sleep => Ok(json!({ "slept_s": waited_s })),
            Wait::Message => Ok(json!({ "messages": [] })),
            Wait::Child(_) => late("no child ended"),
            Wait::Stdin => late("no input came"),
            Wait::Person => late("nobody answered"),
            Wait::Approval(_) => return,
        };
        self.resolve(pid, result);
    }

    fn fire_timers(&mut self, pid: Pid, now: Timestamp) {
        let Some(process) = self.table.get(pid) else { return };
        let due: Vec<String> =
            process.timers.iter().filter(|(_, timer)| timer.next_at <= now).map(|(id, _)| id.clone()).collect();
        for timer_id in due {
            // What is recorded is shown in the end, so what cannot be kept is not recorded: it fires once there is room, and
            // tells then how often it should have.
            if self.table.get(pid).is_some_and(Process::is_full) {
                return;
            }
            let Some(timer) = self.table.get(pid).and_then(|process| process.timers.get(&timer_id)).cloned() else {
                continue;
            };
            let (missed, next) = missed(&timer.rule, timer.next_at, now);
            let body = Body::Timer {
                timer_id: timer_id.clone(),
                name: timer.name,
                prompt: timer.prompt,
                missed,
                untrusted: timer.untrusted,
            };
            let lsn = self.fact(pid, body);
            self.with(pid, |process| match next {
                Some(next) if !timer.once => {
                    if let Some(timer) = process.timers.get_mut(&timer_id) {
                        timer.next_at = next;
                    }
                }
                _ => {
                    process.timers.remove(&timer_id);
                }
            });
            self.notice(pid, lsn, Labels::NONE);
        }
    }
}

/// Firings missed between `due` and now beside the one that fires now, and the next one.
fn missed(rule: &TimerRule, due: Timestamp, now: Timestamp) -> (u64, Option<Timestamp>) {
    match rule {
        TimerRule::Every(millis) => {
            let missed = now.millis_since(due) / millis;
            // The rhythm is kept: the next firing is a whole number of periods after the one that was due.
            (missed, Some(due.plus_millis(millis.saturating_mul(missed + 1))))
        }
        TimerRule::Cron(line, zone) => match Cron::read(line, zone, due) {
            Ok(cron) => count(due, now, |at| cron.next_after(at).ok()),
            Err(_) => (0, None),
        },
    }
}

/// The same of whatever fires `next` after a time. One at a time: so they are counted to [`limits::MISSED_COUNTED_MAX`], and
/// one more stands for all beyond.
fn count(
    due: Timestamp,
    now: Timestamp,
    mut next: impl FnMut(Timestamp) -> Option<Timestamp>,
) -> (u64, Option<Timestamp>) {
    let mut at = due;
    for missed in 0..=limits::MISSED_COUNTED_MAX {
        match next(at) {
            Some(then) if then <= now => at = then,
            other => return (missed, other),
        }
    }
    (limits::MISSED_COUNTED_MAX + 1, next(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn cron_lines_follow_their_zone_through_daylight_saving() {
        let rule = TimerRule::Cron("30 9 * * *".into(), "Europe/Berlin".into());
        assert_eq!(next_after(&rule, at("2026-03-28T09:00:00Z")).unwrap(), at("2026-03-29T07:30:00Z"));
        assert_eq!(next_after(&rule, at("2026-01-05T09:00:00Z")).unwrap(), at("2026-01-06T08:30:00Z"));
    }

    /// One such line kept the kernel busy for ever.
    #[test]
    fn zones_in_which_hours_go_round_in_a_circle_are_refused() {
        let now = at("2026-03-28T09:00:00Z");
        let next = |zone: &str| next_after(&TimerRule::Cron("0 5 4 4 *".into(), zone.into()), now);
        for zone in
            ["Australia/Lord_Howe", "XXX0YYY-0:30,J60/0,J61/0", "XXX-12YYY12,J60/0,J200/0", "EST5EDT,M3.2.0,M11.1.0"]
        {
            assert_eq!(next(zone).unwrap_err().code, Code::Inval, "{zone}");
        }
        // All others that are known come to an end.
        let named = jiff::tz::db().available().map(|zone| zone.as_str().to_owned());
        let steady = named.filter(|zone| is_steady(zone, now)).filter(|zone| next(zone).is_ok()).count();
        assert!(steady > 400, "{steady}");
    }

    #[test]
    fn a_cron_line_that_never_fires_is_refused() {
        let error =
            next_after(&TimerRule::Cron("0 0 30 2 *".into(), "UTC".into()), at("2026-01-01T00:00:00Z")).unwrap_err();
        assert!(error.message.contains("never fires"), "{error}");
        for (line, zone) in [("* * * *", "UTC"), ("61 * * * *", "UTC"), ("* * * * *", "Mars/Olympus")] {
            assert_eq!(
                next_after(&TimerRule::Cron(line.into(), zone.into()), Timestamp(0)).unwrap_err().code,
                Code::Inval
            );
        }
    }

    #[test]
    fn missed_firings_are_counted_and_the_rhythm_is_kept() {
        assert_eq!(missed(&TimerRule::Every(1000), Timestamp(5000), Timestamp(5000)), (0, Some(Timestamp(6000))));
        assert_eq!(missed(&TimerRule::Every(1000), Timestamp(5000), Timestamp(8400)), (3, Some(Timestamp(9000))));
        let daily = TimerRule::Cron("0 9 * * *".into(), "UTC".into());
        assert_eq!(
            missed(&daily, at("2026-01-01T09:00:00Z"), at("2026-01-04T12:00:00Z")),
            (3, Some(at("2026-01-05T09:00:00Z")))
        );
    }

    /// A timer of each minute has 1,440 in a day, and a process may have 64 timers.
    #[test]
    fn missed_firings_beyond_a_hundred_are_not_counted_one_by_one() {
        const MOST: i64 = limits::MISSED_COUNTED_MAX as i64;
        let minute = TimerRule::Cron("* * * * *".into(), "Europe/Berlin".into());
        let due = at("2026-01-01T09:00:00Z");
        let after = |minutes: i64| Timestamp(due.0 + minutes * 60_000);
        for (minutes, told) in [(0, 0), (1, 1), (MOST, 100), (MOST + 1, 101), (MOST + 2, 101), (2 * 1440, 101)] {
            let mut looked = 0;
            let next = |at| {
                looked += 1;
                next_after(&minute, at).ok()
            };
            let found = (told, Some(after(minutes + 1)));
            assert_eq!(count(due, after(minutes), next), found, "{minutes} minutes");
            assert!(looked <= MOST + 2, "{looked} times were looked for");
            assert_eq!(missed(&minute, due, after(minutes)), found, "{minutes} minutes");
        }
        // One that fires no more, and one that cannot be read any more.
        assert_eq!(count(due, after(9), |_| None), (0, None));
        assert_eq!(missed(&TimerRule::Cron("* * * * *".into(), "Mars/Olympus".into()), due, after(9)), (0, None));
    }
}
