//! Time: what is due, and when a timer fires next.

use std::sync::LazyLock;

use aos_abi::{Body, CallError, Code, Pid, Timestamp, limits};
use aos_policy::Labels;
use cronexpr::{Crontab, FallbackTimezoneOption, ParseOptions};
use jiff::ToSpan as _;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
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
        TimerRule::Cron(line, zone) => Cron::read(line, zone)?.next_after(now),
    }
}

/// The zones that are in the program. Those of the machine change with its updates, and what the journal has of a timer
/// must come out the same at the next start and on another machine.
fn zones() -> &'static TimeZoneDatabase {
    static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
    &ZONES
}

/// A cron line that was read: that takes longer than finding a time by it.
struct Cron<'l> {
    line: &'l str,
    /// What a clock shows when it fires. Read as UTC, so that cronexpr knows of no zone: it looks for zones in the files of
    /// the machine, and where clocks are not set by whole hours its next step is the one before, for ever.
    shown: Crontab,
    zone: TimeZone,
}

impl<'l> Cron<'l> {
    fn read(line: &'l str, zone: &str) -> Result<Cron<'l>, CallError> {
        let fields = line.split_whitespace().count();
        if fields != 5 {
            return Err(bad(format!("a cron line has five fields, `{line}` has {fields}")));
        }
        let mut options = ParseOptions::default();
        options.fallback_timezone_option = FallbackTimezoneOption::UTC;
        let shown = cronexpr::parse_crontab_with(line, options)
            .map_err(|error| bad(format!("`{line}`: {error}").replace('\n', " ")))?;
        let zone = zones().get(zone).map_err(|_| bad(format!("there is no time zone `{zone}`")))?;
        Ok(Cron { line, shown, zone })
    }

    fn next_after(&self, now: Timestamp) -> Result<Timestamp, CallError> {
        let from = jiff::Timestamp::from_millisecond(now.0).map_err(|error| bad(error.to_string()))?;
        let every_hour = self.line.split_whitespace().nth(1).is_some_and(|hours| hours.starts_with('*'));
        let next = if every_hour { self.whenever_shown(from) } else { self.once_a_day(from) };
        next.map(|next| Timestamp(next.as_millisecond())).ok_or_else(|| bad(format!("`{}` never fires", self.line)))
    }

    /// The next time that a clock shows, after another one.
    fn after(&self, shown: DateTime) -> Option<DateTime> {
        let shown = Offset::UTC.to_timestamp(shown).ok()?;
        Some(self.shown.find_next(cronexpr::MakeTimestamp(shown)).ok()?.datetime())
    }

    /// Of every hour: again in an hour that is shown twice, and never in one that is left out.
    fn whenever_shown(&self, now: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut shown = self.zone.to_datetime(now);
        let mut changes = self.zone.following(now);
        let mut offset = self.zone.to_offset(now);
        loop {
            let next = offset.to_timestamp(self.after(shown)?).ok()?;
            match changes.next() {
                Some(change) if change.timestamp() <= next => {
                    offset = change.offset();
                    // What is shown in the instant of the change counts too.
                    shown = offset.to_datetime(change.timestamp()).checked_sub(1.second()).ok()?;
                }
                _ => return Some(next),
            }
        }
    }

    /// At hours that are named: the first time that they are shown, and where they are left out as much later.
    fn once_a_day(&self, now: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let mut shown = self.zone.to_datetime(now);
        if let Some(change) = self.zone.preceding(now.checked_add(1.second()).ok()?).next() {
            // Of what was left out then some may be to come.
            let before = self.zone.to_offset(change.timestamp().checked_sub(1.second()).ok()?);
            shown = shown.min(before.to_datetime(now));
        }
        loop {
            shown = self.after(shown)?;
            let next = self.zone.to_ambiguous_timestamp(shown).compatible().ok()?;
            if next > now {
                return Some(next);
            }
        }
    }
}

fn bad(why: String) -> CallError {
    CallError::new(Code::Inval, why)
        .hint("five fields and an IANA time zone: {\"cron\":\"0 9 * * 1-5\",\"timezone\":\"Europe/Berlin\"}")
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
            self.works_on(pid);
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
        self.expire_denials(pid, now);
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
        TimerRule::Cron(line, zone) => match Cron::read(line, zone) {
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

    /// In Berlin an hour is left out on 29 March and shown twice on 25 October.
    #[test]
    fn an_hour_that_is_left_out_or_shown_twice_loses_no_firing_and_repeats_none() {
        let all = |line: &str, from: &str, count: usize| {
            let rule = TimerRule::Cron(line.into(), "Europe/Berlin".into());
            let mut from = at(from);
            let mut next = || {
                from = next_after(&rule, from).unwrap();
                from
            };
            (0..count).map(|_| next()).collect::<Vec<_>>()
        };
        let daily = all("30 2 * * *", "2026-03-28T12:00:00Z", 2);
        assert_eq!(daily, [at("2026-03-29T01:30:00Z"), at("2026-03-30T00:30:00Z")]);
        let daily = all("30 2 * * *", "2026-10-24T12:00:00Z", 2);
        assert_eq!(daily, [at("2026-10-25T00:30:00Z"), at("2026-10-26T01:30:00Z")]);
        let minutes = all("*/30 2 * * *", "2026-03-28T12:00:00Z", 3);
        assert_eq!(minutes, [at("2026-03-29T01:00:00Z"), at("2026-03-29T01:30:00Z"), at("2026-03-30T00:00:00Z")]);
        assert_eq!(all("30 2 * * *", "2026-03-29T01:10:00Z", 1), [at("2026-03-29T01:30:00Z")]);
        // Twice a day, of which one falls on the other.
        assert_eq!(
            all("30 2,3 * * *", "2026-03-29T00:00:00Z", 2),
            [at("2026-03-29T01:30:00Z"), at("2026-03-30T00:30:00Z")]
        );
        for day in ["2026-03-29", "2026-10-25"] {
            let half_hours = all("*/30 * * * *", &format!("{day}T00:00:00Z"), 6);
            let told = ["00:30", "01:00", "01:30", "02:00", "02:30", "03:00"];
            assert_eq!(half_hours, told.map(|time| at(&format!("{day}T{time}:00Z"))));
        }
    }

    /// Clocks that are set by half an hour kept the kernel busy for ever once.
    #[test]
    fn every_zone_has_a_next_time_and_what_names_none_is_refused() {
        let now = at("2026-03-28T09:00:00Z");
        let next = |line: &str, zone: &str| next_after(&TimerRule::Cron(line.into(), zone.into()), now);
        for zone in [
            "XXX0YYY-0:30,J60/0,J61/0",
            "XXX-12YYY12,J60/0,J200/0",
            "EST5EDT,M3.2.0,M11.1.0",
            "localtime",
            "posixrules",
            "+02:00",
            "",
        ] {
            assert_eq!(next("0 5 4 4 *", zone).unwrap_err().code, Code::Inval, "{zone}");
        }
        let mut known = 0;
        for zone in zones().available() {
            for line in ["0 5 4 4 *", "*/7 * 4 4 *", "59 23 31 12 *"] {
                assert!(next(line, zone.as_str()).unwrap() > now, "{line} {zone}");
            }
            known += 1;
        }
        assert!(known > 400, "{known}");
        // 05:00 of a day on which clocks go from 02:00 to 01:30.
        assert_eq!(next("0 5 5 4 *", "Australia/Lord_Howe").unwrap(), at("2026-04-04T18:30:00Z"));
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
