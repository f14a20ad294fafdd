//! Colours, where a person wants them, and how numbers, money and times are written.
//!
//! Start at [`Style`]. Colour is never the only carrier of a meaning.

use aos_abi::{Timestamp, Usd};

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Writes text in colours or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    colors: bool,
}

impl Style {
    /// For a stream that is a terminal or not, and `NO_COLOR` set or not.
    #[must_use]
    pub fn new(color: Color, terminal: bool, no_color: bool) -> Style {
        let colors = match color {
            Color::Auto => terminal && !no_color,
            Color::Always => true,
            Color::Never => false,
        };
        Style { colors }
    }

    /// Without colours.
    #[must_use]
    pub fn plain() -> Style {
        Style { colors: false }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colors && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
    /// Less important.
    #[must_use]
    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }
    /// More important.
    #[must_use]
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }
    /// Good.
    #[must_use]
    pub fn green(self, text: &str) -> String {
        self.paint("32", text)
    }
    /// Bad.
    #[must_use]
    pub fn red(self, text: &str) -> String {
        self.paint("31", text)
    }
    /// Somebody should look.
    #[must_use]
    pub fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }
    /// A name.
    #[must_use]
    pub fn cyan(self, text: &str) -> String {
        self.paint("36", text)
    }
}

/// Money with as many digits as matter.
#[must_use]
pub fn money(amount: Usd) -> String {
    let dollars = amount.dollars();
    match dollars {
        0.0 => "$0".into(),
        d if d < 0.0001 => "<$0.0001".into(),
        d if d < 1.0 => format!("${d:.4}"),
        d => format!("${d:.2}"),
    }
}

/// What something cost: where a price is not known it is never shown as nothing.
#[must_use]
pub fn cost(known: Usd, unknown: bool) -> String {
    match (known, unknown) {
        (known, false) => money(known),
        (Usd::ZERO, true) => "unknown".into(),
        (known, true) => format!("{} + unknown", money(known)),
    }
}

/// A number of things: `1 hit`, `2 hits`.
#[must_use]
pub fn of(number: u64, thing: &str) -> String {
    let things = match thing.strip_suffix('y') {
        _ if number == 1 => thing.to_owned(),
        Some(stem) => format!("{stem}ies"),
        None if thing.ends_with('s') || thing.ends_with("ch") => format!("{thing}es"),
        None => format!("{thing}s"),
    };
    format!("{number} {things}")
}

/// A count in at most five characters: `999`, `12.3k`, `4.5M`.
#[must_use]
pub fn count(number: u64) -> String {
    let scaled = |unit: f64, name: &str| {
        let value = number as f64 / unit;
        if value < 99.95 { format!("{value:.1}{name}") } else { format!("{value:.0}{name}") }
    };
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => scaled(1e3, "k"),
        1_000_000..1_000_000_000 => scaled(1e6, "M"),
        _ => scaled(1e9, "G"),
    }
}

/// A size: `812 bytes`, `163 KiB`, `4 MiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    match bytes {
        0..0x400 => of(bytes, "byte"),
        0x400..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// A length of time in at most two units: `45s`, `3m12s`, `2h05m`, `3d04h`.
#[must_use]
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// How long ago something was.
#[must_use]
pub fn ago(at: Timestamp, now: Timestamp) -> String {
    format!("{} ago", duration(now.millis_since(at) / 1_000))
}

/// A time of the day in UTC, to the second: `13:05:59`.
#[must_use]
pub fn clock(at: Timestamp) -> String {
    // RFC 3339 has the time between the 11th and the 19th character.
    at.to_string().get(11..19).unwrap_or("").to_owned()
}

/// A moment in UTC, to the second: `2026-11-22 13:05:59`.
#[must_use]
pub fn moment(at: Timestamp) -> String {
    at.to_string().get(..19).unwrap_or("").replace('T', " ")
}

/// Now, by the clock of this machine.
#[must_use]
pub fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let counts = [0, 999, 1_000, 12_345, 99_949, 99_950, 999_999, 4_500_000].map(count);
        assert_eq!(counts.join(" "), "0 999 1.0k 12.3k 99.9k 100k 1000k 4.5M");
        let amounts = [0, 1_000, 400_000, 12_300_000, 1_999_000_000, 250_000_000_000].map(|nanos| money(Usd(nanos)));
        assert_eq!(amounts.join(" "), "$0 <$0.0001 $0.0004 $0.0123 $2.00 $250.00");
        let costs = [(0, false), (0, true), (400_000, false), (400_000, true)];
        let costs = costs.map(|(nanos, unknown)| cost(Usd(nanos), unknown));
        assert_eq!(costs.join(", "), "$0, unknown, $0.0004, $0.0004 + unknown");
        assert_eq!([5, 65, 3_900, 100_000].map(duration).join(" "), "5s 1m05s 1h05m 1d03h");
        let sizes = [0, 1, 1_023, 1_024, 167_000, (1 << 20) - 1, 5 << 20].map(size);
        assert_eq!(sizes.join(", "), "0 bytes, 1 byte, 1023 bytes, 1 KiB, 163 KiB, 1023 KiB, 5 MiB");
        assert_eq!(clock(Timestamp(1_795_305_600_123)), "00:00:00");
        assert_eq!(moment(Timestamp(1_795_305_600_123)), "2026-11-22 00:00:00");
        assert_eq!(
            [of(1, "hit"), of(2, "match"), of(0, "process"), of(3, "entry")].join(", "),
            "1 hit, 2 matches, 0 processes, 3 entries"
        );
    }

    #[test]
    fn colours_follow_the_flag_then_the_stream() {
        assert_eq!(Style::new(Color::Auto, true, false).red("x"), "\x1b[31mx\x1b[0m");
        assert_eq!(Style::new(Color::Auto, true, true).red("x"), "x");
        assert_eq!(Style::new(Color::Auto, false, false).red("x"), "x");
        assert_eq!(Style::new(Color::Always, false, true).red("x"), "\x1b[31mx\x1b[0m");
    }
}
