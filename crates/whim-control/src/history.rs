//! What a node was like, and what moved, as rows of one or several minutes.

use serde::{Deserialize, Deserializer, Serialize};
use whim_journey::cause::Cause;

use whim_monitor::plain::is_harmless;

/// For how many days history is kept, unless the configuration says otherwise.
pub const KEEP_DAYS: u32 = 30;
/// The most days for which it may be kept.
pub const KEEP_DAYS_MAX: u32 = 90;
/// The most bytes that are kept of a program's name, and of a reason.
pub const NAME_MAX: usize = 64;
pub const REASON_MAX: usize = 256;

/// A minute, in milliseconds.
pub const MINUTE: u64 = 60_000;
const DAY: u64 = 24 * 60 * MINUTE;

/// `keep = "30d"` or `keep = "off"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    Off,
    Days(u32),
}

impl Keep {
    /// Parses the form that the configuration uses.
    ///
    /// # Errors
    /// How it should be.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let days = text.strip_suffix('d').and_then(|days| days.parse().ok());
        match days {
            Some(days) if (1..=KEEP_DAYS_MAX).contains(&days) => Ok(Self::Days(days)),
            _ => Err(format!(
                "history.keep is {text:?}, it must be \"1d\" to \"{KEEP_DAYS_MAX}d\", or \"off\""
            )),
        }
    }

    /// What holds if the configuration does not say. A system that was started from a medium or the network,
    /// and forgets everything at its end, keeps nothing. `command_line` is that of the kernel.
    #[must_use]
    pub fn usual(command_line: &str) -> Self {
        let live = command_line.split_ascii_whitespace().any(|word| {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                // Debian's and its derivatives'; openSUSE's and Fedora's; Arch's.
                "boot" => value == "live" || value == "casper",
                "root" => value.starts_with("live:"),
                "rd.live.image" | "archisobasedir" => true,
                _ => false,
            }
        });
        if live {
            Self::Off
        } else {
            Self::Days(KEEP_DAYS)
        }
    }

    /// The age at which rows are removed.
    #[must_use]
    pub fn milliseconds(self) -> u64 {
        match self {
            Self::Off => 0,
            Self::Days(days) => u64::from(days) * DAY,
        }
    }
}

impl<'de> Deserialize<'de> for Keep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// The range of a value over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub min: f64,
    pub mean: f64,
    pub max: f64,
}

impl Spread {
    fn of(value: f64) -> Self {
        let (min, mean, max) = (value, value, value);
        Self { min, mean, max }
    }

    /// The spread over two periods together, of which the first holds `ours` samples and the second `theirs`.
    fn with(self, other: Self, ours: u32, theirs: u32) -> Self {
        let all = f64::from(ours) + f64::from(theirs);
        let sum = self.mean * f64::from(ours) + other.mean * f64::from(theirs);
        Self {
            min: self.min.min(other.min),
            mean: if all > 0.0 { sum / all } else { 0.0 },
            max: self.max.max(other.max),
        }
    }
}

/// One sample of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Threads that run or wait for a CPU.
    pub load: f64,
    pub cpus: f64,
    pub memory_used_bytes: f64,
    pub memory_total_bytes: u64,
    pub guests: f64,
}

/// How this node was over one or several minutes; the names are stable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleRow {
    /// When the period begins, in milliseconds since 1970, and how long it is.
    pub time_ms: u64,
    pub span_ms: u64,
    /// How many samples were taken in the period.
    pub looks: u32,
    /// Threads that ran or waited for a CPU.
    pub load: Spread,
    pub memory_used_bytes: Spread,
    pub guests: Spread,
    pub cpus: f64,
    pub memory_total_bytes: u64,
}

impl SampleRow {
    /// A minute of which there is one sample.
    #[must_use]
    pub fn of(time_ms: u64, sample: &Sample) -> Self {
        Self {
            time_ms: time_ms - time_ms % MINUTE,
            span_ms: MINUTE,
            looks: 1,
            load: Spread::of(sample.load),
            memory_used_bytes: Spread::of(sample.memory_used_bytes),
            guests: Spread::of(sample.guests),
            cpus: sample.cpus,
            memory_total_bytes: sample.memory_total_bytes,
        }
    }

    /// Merges another row, which does not begin earlier, into this one.
    pub fn take(&mut self, other: &Self) {
        let (ours, theirs) = (self.looks, other.looks);
        self.load = self.load.with(other.load, ours, theirs);
        self.memory_used_bytes =
            (self.memory_used_bytes).with(other.memory_used_bytes, ours, theirs);
        self.guests = self.guests.with(other.guests, ours, theirs);
        self.cpus = other.cpus;
        self.memory_total_bytes = other.memory_total_bytes;
        self.looks = ours.saturating_add(theirs);
        let end = other.time_ms.saturating_add(other.span_ms);
        self.span_ms = self.span_ms.max(end.saturating_sub(self.time_ms));
    }
}

/// How a move went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Done,
    /// The process is where it was.
    Failed,
}

/// A move of a process of this node; the names are stable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveRow {
    /// When it ended, in milliseconds since 1970.
    pub time_ms: u64,
    pub pid: i32,
    /// The program's name, without its arguments.
    pub program: String,
    /// The owner of the process.
    pub uid: u32,
    pub from: String,
    pub to: String,
    pub cause: Cause,
    pub outcome: Outcome,
    /// The phase in which it failed.
    pub phase: Option<String>,
    /// Why it failed, or why the process came home by itself: a sentence for its user and administrators alone.
    pub reason: Option<String>,
    pub bytes: u64,
    pub freeze_ms: f64,
    pub total_ms: f64,
}

impl MoveRow {
    /// The row with its texts cut to what may be kept, in one line each.
    #[must_use]
    pub fn cut(mut self) -> Self {
        cut(&mut self.program, NAME_MAX);
        if let Some(reason) = &mut self.reason {
            cut(reason, REASON_MAX);
        }
        self
    }
}

/// Cuts a text to at most this many bytes, between characters, and replaces control characters.
fn cut(text: &mut String, most: usize) {
    let harmful = |letter: char| !is_harmless(letter);
    if text.contains(harmful) {
        *text = text.replace(harmful, " ");
    }
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// A row of `whim history`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "history", rename_all = "kebab-case")]
pub enum HistoryRow {
    Sample(SampleRow),
    Move(MoveRow),
}

/// Merges samples, which are in the order of their times, into one row for each period of `span_ms`. The
/// periods begin at whole multiples of that since 1970. A period without samples leaves a gap.
#[must_use]
pub fn thin(samples: Vec<SampleRow>, span_ms: u64) -> Vec<SampleRow> {
    let mut thinned = Vec::new();
    for sample in samples {
        add(&mut thinned, sample, span_ms);
    }
    thinned
}

/// As [`thin`], for samples that come one by one.
pub fn add(thinned: &mut Vec<SampleRow>, sample: SampleRow, span_ms: u64) {
    let place = |sample: &SampleRow| sample.time_ms / span_ms.max(MINUTE);
    match thinned.last_mut() {
        Some(last) if place(last) == place(&sample) => last.take(&sample),
        _ => thinned.push(sample),
    }
}

/// The period that each row has to stand for so that there are at most `most` rows, in whole minutes.
#[must_use]
pub fn span(from_ms: u64, to_ms: u64, most: u64) -> u64 {
    let minutes = to_ms.saturating_sub(from_ms).div_ceil(MINUTE);
    // The first and the last period may be incomplete.
    minutes.div_ceil(most.saturating_sub(1).max(1)).max(1) * MINUTE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(load: f64) -> Sample {
        Sample {
            load,
            cpus: 2.0,
            memory_used_bytes: load * 1024.0,
            memory_total_bytes: 1 << 30,
            guests: 1.0,
        }
    }

    fn row(pid: i32) -> MoveRow {
        MoveRow {
            time_ms: 1,
            pid,
            program: "program".into(),
            uid: 1000,
            from: "n1".into(),
            to: "n2".into(),
            cause: whim_journey::cause::Cause::User,
            outcome: Outcome::Done,
            phase: None,
            reason: None,
            bytes: 1,
            freeze_ms: 1.0,
            total_ms: 2.0,
        }
    }

    #[test]
    fn samples_are_thinned_within_gaps() {
        let sample = |minute: u64, load: f64| SampleRow::of(minute * MINUTE, &sample(load));
        let all = vec![
            sample(10, 1.0),
            sample(11, 2.0),
            sample(14, 6.0),
            sample(100, 5.0),
        ];
        assert_eq!(thin(all.clone(), 0), all);
        let thinned = thin(all.clone(), 10 * MINUTE);
        let shown: Vec<_> = thinned
            .iter()
            .map(|s| (s.time_ms / MINUTE, s.span_ms / MINUTE, s.looks, s.load.max))
            .collect();
        assert_eq!(shown, [(10, 5, 3, 6.0), (100, 1, 1, 5.0)]);
        assert!((thinned[0].load.mean - 3.0).abs() < 1e-9);
        // There are never more rows than were asked for.
        for (minutes, most) in [(1, 10), (60, 10), (43_200, 2000), (61, 60), (59, 60)] {
            let from = 7 * MINUTE + 1;
            let span = span(from, from + minutes * MINUTE, most);
            let all = (0..minutes).map(|minute| sample(7 + minute, 1.0)).collect();
            let thinned = thin(all, span).len();
            assert!(
                u64::try_from(thinned).expect("few") <= most,
                "{minutes} {most}"
            );
        }
    }

    #[test]
    fn texts_are_cut_and_hold_no_control_characters() {
        let long = MoveRow {
            program: "é\x1b[2J".repeat(NAME_MAX),
            reason: Some("x\n".repeat(REASON_MAX)),
            ..row(1)
        };
        let cut = long.cut();
        assert!(cut.program.len() <= NAME_MAX && cut.program.len() > NAME_MAX - 4);
        let reason = cut.reason.expect("one");
        assert_eq!(reason.len(), REASON_MAX);
        assert!(!(cut.program + &reason).contains(char::is_control));
    }

    #[test]
    fn moves_have_stable_names() {
        let row = serde_json::to_value(HistoryRow::Move(row(7))).expect("encoded");
        let mut names: Vec<&str> = row
            .as_object()
            .expect("object")
            .keys()
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        let expected = [
            "bytes",
            "cause",
            "freeze_ms",
            "from",
            "history",
            "outcome",
            "phase",
            "pid",
            "program",
            "reason",
            "time_ms",
            "to",
            "total_ms",
            "uid",
        ];
        assert_eq!(names, expected);
        assert_eq!(
            (&row["history"], &row["outcome"]),
            (&"move".into(), &"done".into())
        );
    }

    #[test]
    fn what_is_kept_is_days_or_nothing() {
        assert_eq!(Keep::parse("off"), Ok(Keep::Off));
        assert_eq!(Keep::parse("1d"), Ok(Keep::Days(1)));
        assert_eq!(Keep::parse("90d"), Ok(Keep::Days(90)));
        for odd in ["", "d", "0d", "91d", "30", "-1d", "1h", "Off"] {
            assert!(Keep::parse(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn systems_that_forget_keep_nothing() {
        for live in [
            "BOOT_IMAGE=/live/vmlinuz boot=live components quiet",
            "boot=casper",
            "root=live:CDLABEL=X rd.live.image",
            "archisobasedir=arch archisodevice=/dev/x",
        ] {
            assert_eq!(Keep::usual(live), Keep::Off, "{live}");
        }
        for installed in ["", "root=UUID=1 ro quiet", "bootlive=1 root=/dev/live:x"] {
            assert_eq!(Keep::usual(installed), Keep::Days(KEEP_DAYS), "{installed}");
        }
    }
}
