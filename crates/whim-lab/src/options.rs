//! What a user may ask of a lab, and how it is written on a command line.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Most nodes in one lab: a bound for interface names, tables and patience.
pub const NODES_MAX: usize = 32;
/// Longest name of a lab, in bytes.
pub const NAME_MAX: usize = 32;
/// Longest delay of a link, in microseconds.
pub const DELAY_MAX_US: u64 = 60_000_000;

/// What is wrong with what was asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// A lab's name.
    #[error("A lab cannot be called '{}': 1 to {NAME_MAX} small letters, digits and '-'", .0.escape_debug())]
    Name(String),
    /// A number of nodes.
    #[error("A lab has 1 to {NODES_MAX} nodes, not {0}")]
    Nodes(usize),
    /// A CPU share.
    #[error("A node's CPU share is between 0.01 and 1024 CPUs, not {0}")]
    Cpu(f64),
    /// A memory limit.
    #[error("A node needs at least 16 MiB of memory, not {0} bytes")]
    Memory(u64),
    /// A probability.
    #[error("{0} is between 0% and 100%, not {1}")]
    Probability(&'static str, f64),
    /// A delay.
    #[error("A link's delay is at most 60 s, not {0} us")]
    Delay(u64),
    /// A packet size.
    #[error("A link's MTU is between 68 and 65535 bytes, not {0}")]
    Mtu(u32),
    /// A rate.
    #[error("A link's rate is between 8 kbit and 1 Tbit a second, not {0} bit")]
    Rate(u64),
    /// Too many entries in a list for each node.
    #[error("{0} values were given for {1} nodes")]
    TooMany(usize, usize),
    /// A directory to share that is none.
    #[error("Cannot share '{0}': it is not an absolute path of a directory")]
    Share(String),
    /// A text that is not of the expected shape.
    #[error("'{text}' is not {expected}")]
    Text {
        text: String,
        expected: &'static str,
    },
}

/// A lab as asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Options {
    /// Name, unique among this user's labs.
    pub name: String,
    /// Number of nodes; they are called n1, n2, ...
    pub nodes: usize,
    /// CPUs for each node; the last value counts for the nodes that follow; empty: no limit.
    pub cpu: Vec<f64>,
    /// Memory for each node in bytes; the last value counts for the rest; empty: no limit.
    pub memory: Vec<u64>,
    /// Properties of every link.
    pub link: LinkSettings,
    /// Clocks ahead of the machine's in milliseconds, by node; missing ones: 1000 s times the
    /// node's number.
    pub clock_offsets_ms: Vec<i64>,
    /// Directories below /tmp, /run or /dev/shm that the nodes shall see too.
    pub shares: Vec<PathBuf>,
    /// The program that answers to `lab-node`; `None`: the running program.
    pub helper: Option<PathBuf>,
    /// The daemon's command line in each node (with [placeholders](Bootstrap)); empty: none.
    pub daemon: Vec<String>,
    /// What makes a cluster of the nodes.
    pub bootstrap: Bootstrap,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            name: "lab".to_owned(),
            nodes: 3,
            cpu: Vec::new(),
            memory: Vec::new(),
            link: LinkSettings::default(),
            clock_offsets_ms: Vec::new(),
            shares: Vec::new(),
            helper: None,
            daemon: Vec::new(),
            bootstrap: Bootstrap::default(),
        }
    }
}

impl Options {
    /// Checks everything that can be checked without touching the machine.
    pub fn check(&self) -> Result<(), OptionsError> {
        check_name(&self.name)?;
        if !(1..=NODES_MAX).contains(&self.nodes) {
            return Err(OptionsError::Nodes(self.nodes));
        }
        for given in [
            self.cpu.len(),
            self.memory.len(),
            self.clock_offsets_ms.len(),
        ] {
            if given > self.nodes {
                return Err(OptionsError::TooMany(given, self.nodes));
            }
        }
        if let Some(&bad) = self.cpu.iter().find(|c| !(0.01..=1024.0).contains(*c)) {
            return Err(OptionsError::Cpu(bad));
        }
        if let Some(&bad) = self.memory.iter().find(|&&m| m < 16 << 20) {
            return Err(OptionsError::Memory(bad));
        }
        if let Some(bad) = self.shares.iter().find(|s| !s.is_absolute()) {
            return Err(OptionsError::Share(bad.display().to_string()));
        }
        self.link.check()
    }

    /// CPUs of the node with this index (from 0), if limited.
    #[must_use]
    pub fn cpu_of(&self, index: usize) -> Option<f64> {
        self.cpu.get(index).or(self.cpu.last()).copied()
    }

    /// Memory of the node with this index (from 0) in bytes, if limited.
    #[must_use]
    pub fn memory_of(&self, index: usize) -> Option<u64> {
        self.memory.get(index).or(self.memory.last()).copied()
    }

    /// How far the clocks of the node with this index (from 0) are ahead, in milliseconds.
    #[must_use]
    pub fn clock_offset_of(&self, index: usize) -> i64 {
        let number = i64::try_from(index + 1).unwrap_or(i64::MAX / 1_000_000);
        self.clock_offsets_ms
            .get(index)
            .copied()
            .unwrap_or(1_000_000 * number)
    }
}

/// Checks a lab's name, which becomes part of paths and cgroups.
pub fn check_name(name: &str) -> Result<(), OptionsError> {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if name.is_empty() || name.len() > NAME_MAX || name.starts_with('-') || !name.bytes().all(legal)
    {
        return Err(OptionsError::Name(name.to_owned()));
    }
    Ok(())
}

/// Properties of one link, the same in both directions. The default is a plain link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkSettings {
    /// One-way delay, in microseconds.
    pub delay_us: u64,
    /// Share of packets lost, 0 to 1.
    pub loss: f64,
    /// Share of packets that are overtaken by later ones, 0 to 1.
    pub reorder: f64,
    /// Share of packets that arrive twice, 0 to 1.
    pub duplicate: f64,
    /// Largest IP packet in bytes; below 1280 IPv6 does not pass.
    pub mtu: Option<u32>,
    /// Bits a second.
    pub rate_bits: Option<u64>,
    /// Seed of all that happens by chance: equal seeds lose the same packets, by number.
    pub seed: u64,
}

impl fmt::Display for LinkSettings {
    /// What is set, as the options of `whim lab link` say it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share =
            |name: &str, share: f64| (share > 0.0).then(|| format!("{name} {}%", share * 100.0));
        let set = [
            (self.delay_us > 0).then(|| format!("delay {} us", self.delay_us)),
            share("loss", self.loss),
            share("reorder", self.reorder),
            share("duplicate", self.duplicate),
            self.mtu.map(|bytes| format!("mtu {bytes}")),
            self.rate_bits.map(|bits| format!("rate {bits} bit/s")),
        ];
        let set: Vec<String> = set.into_iter().flatten().collect();
        f.write_str(if set.is_empty() { "plain" } else { "" })?;
        f.write_str(&set.join(", "))
    }
}

impl LinkSettings {
    /// Checks the bounds.
    pub fn check(&self) -> Result<(), OptionsError> {
        let shares = [
            ("A share of lost packets", self.loss),
            ("A share of reordered packets", self.reorder),
            ("A share of doubled packets", self.duplicate),
        ];
        if let Some(&(what, bad)) = shares.iter().find(|(_, p)| !(0.0..=1.0).contains(p)) {
            return Err(OptionsError::Probability(what, bad));
        }
        if self.delay_us > DELAY_MAX_US {
            return Err(OptionsError::Delay(self.delay_us));
        }
        if let Some(mtu) = self.mtu.filter(|m| !(68..=65535).contains(m)) {
            return Err(OptionsError::Mtu(mtu));
        }
        if let Some(rate) = self
            .rate_bits
            .filter(|r| !(8_000..=1_000_000_000_000).contains(r))
        {
            return Err(OptionsError::Rate(rate));
        }
        Ok(())
    }

    /// Whether packets have to pass through a process of ours.
    #[must_use]
    pub fn needs_wire(&self) -> bool {
        self.delay_us > 0 || self.loss > 0.0 || self.reorder > 0.0 || self.duplicate > 0.0
    }

    /// Whether this is a plain link.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        !self.needs_wire() && self.mtu.is_none() && self.rate_bits.is_none()
    }
}

/// Where a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// On node n1.
    First,
    /// On the node that the steps are being done for.
    This,
}

/// One step of making a cluster of the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Starts the daemon on the node that the steps are for.
    Daemon,
    /// Runs a command and waits for its end; anything but exit status 0 ends `up`.
    Run {
        /// On which node.
        on: Place,
        /// Program and arguments, with placeholders.
        command: Vec<String>,
        /// What it reads from standard input, with placeholders: secrets do not stand in commands.
        #[serde(default)]
        input: Option<String>,
        /// Makes the command's output (without the white space around it) a placeholder.
        capture: Option<String>,
    },
}

/// The steps from bare nodes to a cluster.
///
/// In a command, `{node}`, `{address}`, `{address6}` stand for the node that the steps are for,
/// `{first_address}` and `{first_address6}` for n1, `{lab}` for the lab's name, and `{NAME}` for
/// an output captured before for the same node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// For n1.
    pub first: Vec<Step>,
    /// For each other node, one after the other.
    pub others: Vec<Step>,
}

impl Bootstrap {
    /// The daemon on every node and nothing else.
    #[must_use]
    pub fn daemons_only() -> Bootstrap {
        Bootstrap {
            first: vec![Step::Daemon],
            others: vec![Step::Daemon],
        }
    }
}

/// Reads a share: `10%` or `0.1`.
pub fn parse_share(text: &str) -> Result<f64, OptionsError> {
    let wrong = || OptionsError::Text {
        text: text.to_owned(),
        expected: "a share such as 10% or 0.1",
    };
    let (number, divisor) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    let value: f64 = number.trim().parse().map_err(|_| wrong())?;
    if !(0.0..=1.0).contains(&(value / divisor)) {
        return Err(wrong());
    }
    Ok(value / divisor)
}

/// Reads a time in microseconds: `200ms`, `1.5s`, `50us`.
pub fn parse_delay_us(text: &str) -> Result<u64, OptionsError> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    parse_with_unit(text, &units, "a time such as 200ms, 1.5s or 50us")
}

/// Reads a rate in bits a second: `1gbit`, `100mbit`, `64kbit`.
pub fn parse_rate_bits(text: &str) -> Result<u64, OptionsError> {
    let units = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
    parse_with_unit(text, &units, "a rate such as 1gbit, 100mbit or 64kbit")
}

/// Reads a size in bytes: `2G`, `512M`, `1048576` (powers of 1024).
pub fn parse_bytes(text: &str) -> Result<u64, OptionsError> {
    let units = [
        ("T", 1_099_511_627_776.0),
        ("G", 1_073_741_824.0),
        ("M", 1_048_576.0),
        ("K", 1024.0),
        ("", 1.0),
    ];
    parse_with_unit(text, &units, "a size such as 2G, 512M or 1048576")
}

fn parse_with_unit(
    text: &str,
    units: &[(&str, f64)],
    expected: &'static str,
) -> Result<u64, OptionsError> {
    let wrong = || OptionsError::Text {
        text: text.to_owned(),
        expected,
    };
    let trimmed = text.trim();
    for (unit, factor) in units {
        let Some(number) = trimmed.strip_suffix(unit) else {
            continue;
        };
        if !number.ends_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let value: f64 = number.parse().map_err(|_| wrong())?;
        let scaled = (value * factor).round();
        if !(0.0..=1e15).contains(&scaled) {
            return Err(wrong());
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to 1e15"
        )]
        return Ok(scaled as u64);
    }
    Err(wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_numbers() {
        assert_eq!(parse_delay_us("200ms"), Ok(200_000));
        assert_eq!(parse_delay_us("1.5s"), Ok(1_500_000));
        assert_eq!(parse_delay_us("50us"), Ok(50));
        assert_eq!(parse_rate_bits("1gbit"), Ok(1_000_000_000));
        assert_eq!(parse_rate_bits("64kbit"), Ok(64_000));
        assert_eq!(parse_bytes("2G"), Ok(2 << 30));
        assert_eq!(parse_bytes("1048576"), Ok(1 << 20));
        assert_eq!(parse_share("10%"), Ok(0.1));
        assert_eq!(parse_share("0.25"), Ok(0.25));
        for bad in ["", "ms", "-1ms", "1", "1 hour", "nanms"] {
            assert!(parse_delay_us(bad).is_err(), "{bad}");
        }
        for bad in ["", "101%", "-1", "nan"] {
            assert!(parse_share(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bad_options_are_refused() {
        assert_eq!(Options::default().check(), Ok(()));
        let mut largest = Options {
            name: "x".repeat(NAME_MAX),
            nodes: NODES_MAX,
            ..Options::default()
        };
        largest.link.delay_us = DELAY_MAX_US;
        assert_eq!(largest.check(), Ok(()));
        let refused = |change: &dyn Fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.check().is_err()
        };
        for name in ["", "A", "a/b", "..", "-a", &"x".repeat(33)] {
            assert!(refused(&|o| o.name = name.to_owned()), "{name}");
        }
        assert!(refused(&|o| o.nodes = 0));
        assert!(refused(&|o| o.nodes = NODES_MAX + 1));
        assert!(refused(&|o| o.cpu = vec![0.0]));
        assert!(refused(&|o| o.cpu = vec![f64::NAN]));
        assert!(refused(&|o| o.cpu = vec![1.0; 4]), "more than nodes");
        assert!(refused(&|o| o.memory = vec![1]));
        assert!(refused(&|o| o.shares = vec!["x".into()]));
        assert!(refused(&|o| o.link.loss = 1.5));
        assert!(refused(&|o| o.link.mtu = Some(1)));
        assert!(refused(&|o| o.link.rate_bits = Some(1)));
        assert!(refused(&|o| o.link.delay_us = DELAY_MAX_US + 1));
    }

    #[test]
    fn lists_repeat_their_last_value() {
        let options = Options {
            cpu: vec![0.8, 0.4],
            ..Options::default()
        };
        assert_eq!(options.cpu_of(0), Some(0.8));
        assert_eq!(options.cpu_of(2), Some(0.4));
        assert_eq!(options.memory_of(0), None);
        assert_eq!(options.clock_offset_of(1), 2_000_000);
    }

    #[test]
    fn links_are_told_as_they_are_asked_for() {
        let plain = LinkSettings::default();
        assert_eq!(plain.to_string(), "plain");
        let slow = LinkSettings {
            delay_us: 300,
            loss: 0.1,
            mtu: Some(1280),
            ..plain
        };
        assert_eq!(slow.to_string(), "delay 300 us, loss 10%, mtu 1280");
    }
}
