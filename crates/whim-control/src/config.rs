//! `/etc/whim/config.toml`. It is parsed strictly, and nothing requires it to exist.

mod fault;
mod faults;
mod number;
mod regular;
mod written;

use serde::Deserialize;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use thiserror::Error;

use crate::history::Keep;
use crate::owned::{self, OwnedError};
use crate::protocol::LeaseChoice;
pub use fault::{Fault, Odd};
pub use faults::{FAULTS_MAX, Faults};
use whim_machine::features::NAMES;
use written::Written;

/// Where the configuration is looked for when no other file is named.
pub const CONFIG_FILE: &str = "/etc/whim/config.toml";
/// TCP and UDP port of every node.
pub const PORT: u16 = 7946;
/// TCP port at which the page is served to this machine alone, unless the configuration says otherwise.
pub const WEB_PORT: u16 = 7947;
/// TCP port on which metrics are served by custom. The configuration has to name it, with an address.
pub const METRICS_PORT: u16 = 9947;
/// Guests of a node, unless its configuration says otherwise.
pub const GUESTS_MAX: u32 = 1024;
/// The most bytes of a configuration.
const CONFIG_MAX: u64 = 1 << 20;
/// The most labels of a node.
pub const LABELS_MAX: usize = 32;
/// The kernel accepts no uid beyond this one (the last one means 'none').
const UID_MAX: u32 = u32::MAX - 1;

#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("The configuration {path} cannot be read ({source})")]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("The configuration {path} is longer than 1 MiB: it cannot be ours")]
    TooLong { path: PathBuf },
    #[error("The configuration {path} is {kind}, which is never read: name a regular file")]
    NoFile { path: PathBuf, kind: &'static str },
    #[error("The configuration {path} is not taken: {source}")]
    Exposed { path: PathBuf, source: OwnedError },
    #[error("The configuration {path} is not valid: {faults}")]
    Invalid { path: PathBuf, faults: Faults },
}

pub(crate) fn is_label(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=63).contains(&text.len()) && text.bytes().all(allowed)
}

/// The configuration; every key has a default.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Address and port on which this node listens for others; `[::]` listens for IPv4 too.
    pub listen: SocketAddr,
    /// Each `HOST:PORT` under which other nodes reach this one, tried in order; if empty, they are found out.
    pub advertise: Vec<String>,
    pub lease: Lease,
    /// Whether processes of uid 0 may move.
    pub allow_root: bool,
    pub guests: Guests,
    pub cpu: Cpu,
    /// Words for kinds of nodes, by which users choose nodes: `whim run --only @WORD`.
    pub labels: Vec<String>,
    /// Whether this node announces itself in its local networks, and lists the nodes that do the same.
    pub discover: bool,
    pub balance: Balance,
    pub web: Web,
    pub metrics: Metrics,
    pub history: History,
    pub owner: Owner,
}

/// `[metrics]`: how Prometheus gets metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Where metrics are served; `None`: nowhere. Everybody who can reach this address may read them.
    pub listen: Option<SocketAddr>,
}

impl Metrics {
    fn check(&self, odds: &mut Vec<Odd>) {
        if self.listen.is_some_and(|listen| listen.port() == 0) {
            odds.push(Odd::new(
                "metrics.listen",
                format!(
                    "metrics.listen has port 0, where nobody finds it: give ADDRESS:PORT, such as \"127.0.0.1:{METRICS_PORT}\""
                ),
            ));
        }
    }
}

/// `[history]`: what is kept of this node's past.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// `None`: as is usual on such a system, see [`Keep::usual`].
    pub keep: Option<Keep>,
}

/// `[web]`: the page that `whim web` opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Web {
    pub enabled: bool,
    /// Where the page is served; `None`: at the usual port of this machine alone. At another address it is
    /// served by TLS.
    pub listen: Option<SocketAddr>,
    /// Names under which browsers find it, other than its address.
    pub names: Vec<String>,
    /// PEM files for TLS. Without them the daemon makes its own, and `whim web` prints the fingerprint.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

impl Web {
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, WEB_PORT));
        self.listen.unwrap_or(usual)
    }
}

impl Default for Web {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: None,
            names: Vec::new(),
            certificate: None,
            key: None,
        }
    }
}

impl Web {
    fn check(&self, odds: &mut Vec<Odd>) {
        if self.certificate.is_some() != self.key.is_some() {
            let (key, other) = match self.key {
                Some(_) => ("web.key", "web.certificate"),
                None => ("web.certificate", "web.key"),
            };
            let reason = "web.certificate and web.key go together: give both, or neither";
            odds.push(Odd::new(key, reason.into()).beside(other));
        }
        let is_name = |name: &String| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-.[]:".contains(&byte);
            (1..=253).contains(&name.len()) && name.bytes().all(allowed)
        };
        if let Some(odd) = self.names.iter().find(|name| !is_name(name)) {
            odds.push(Odd::new(
                "web.names",
                format!(
                    "web.names holds {odd:?}, which is no name of a machine: give names as they stand in an address, without a port"
                ),
            ));
        }
    }
}

/// Whether the node belongs to somebody who sits at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Guests leave while the owner is active.
    pub enabled: bool,
    /// Seconds without activity after which the owner is assumed to be gone.
    pub idle: u64,
    /// Terminals whose use is activity; a `*` at the end stands for any rest.
    pub terminals: Vec<PathBuf>,
}

impl Default for Owner {
    fn default() -> Self {
        Self {
            enabled: false,
            idle: 300,
            // The consoles. Sessions that come by the network or in a window have other names.
            terminals: (1..=6)
                .map(|number| format!("/dev/tty{number}").into())
                .collect(),
        }
    }
}

/// `[balance]`: what the cluster moves by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// Whether this node moves its own programs by itself.
    pub enabled: bool,
    /// Processes of users with a lower uid are left alone.
    pub uid_min: u32,
    /// Control groups, such as `batch.slice`, in which every process is a candidate, no matter who started it.
    pub sessions: Vec<String>,
    /// Whether programs of a Slurm job may go to nodes that the job does not have.
    pub beyond_job: bool,
    /// Whether programs that share a CPU take turns with those that have one for themselves.
    pub fair: bool,
    /// In a cluster of more nodes than this, only some nodes are asked before each decision, and only those
    /// count.
    pub ask_above: usize,
}

impl Default for Balance {
    fn default() -> Self {
        Self {
            enabled: true,
            uid_min: whim_balance::candidate::UID_MIN,
            sessions: Vec::new(),
            beyond_job: false,
            fair: false,
            ask_above: whim_balance::sample::ALL_UP_TO,
        }
    }
}

/// `lease = 30` (seconds) or `lease = "inf"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease(pub LeaseChoice);

impl<'de> Deserialize<'de> for Lease {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "the lease must be seconds, such as 30, or \"inf\""
        )]
        enum Written {
            Whole(u64),
            Fraction(f64),
            Text(String),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::Whole(seconds) => seconds.to_string(),
            Written::Fraction(seconds) => seconds.to_string(),
            Written::Text(text) => text,
        };
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// `[guests]`: what guests may use of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guests {
    /// How many there may be at the same time, up to 65536; 0: none.
    pub max: u32,
    /// How many of these one user of one home may have.
    pub per_user: u32,
    /// Share of this node's memory for all guests together, 1 to 100.
    pub memory_percent: u8,
    /// Threads of each guest, 16 to 65536.
    pub pids: u32,
    /// Whether guests use this node's vDSO where it is the same as home's. If not, or where it differs, they
    /// get a copy of home's vDSO that makes system calls. That is right everywhere, but asking for the time is
    /// slower.
    pub own_vdso: bool,
    /// First uid (and gid) of the range under which guests run: one per home node and user.
    pub uid_start: u32,
    /// Length of that range.
    pub uid_count: u32,
}

impl Guests {
    /// What all guests together may use of this much memory.
    #[must_use]
    pub fn share(&self, memory_total_bytes: u64) -> u64 {
        memory_total_bytes / 100 * u64::from(self.memory_percent)
    }

    fn check(&self, odds: &mut Vec<Odd>) {
        if self.max > 65_536 {
            odds.push(Odd::new(
                "guests.max",
                format!("guests.max is {}, it must be 0 to 65536", self.max),
            ));
        }
        if !(1..=100).contains(&self.memory_percent) {
            odds.push(Odd::new(
                "guests.memory_percent",
                format!(
                    "guests.memory_percent is {}, it must be 1 to 100",
                    self.memory_percent
                ),
            ));
        }
        if !(16..=65_536).contains(&self.pids) {
            odds.push(Odd::new(
                "guests.pids",
                format!("guests.pids is {}, it must be 16 to 65536", self.pids),
            ));
        }
        let end = self.uid_start.checked_add(self.uid_count);
        if self.uid_count == 0 || self.uid_start < 1000 || end.is_none_or(|e| e > UID_MAX) {
            let reason = format!(
                "guests.uid_start = {} with guests.uid_count = {} is no usable range: it must lie between 1000 and {UID_MAX}",
                self.uid_start, self.uid_count
            );
            odds.push(Odd::new("guests.uid_start", reason).beside("guests.uid_count"));
        }
    }
}

impl Default for Guests {
    fn default() -> Self {
        Self {
            max: GUESTS_MAX,
            per_user: GUESTS_MAX,
            memory_percent: 80,
            pids: 4096,
            own_vdso: true,
            uid_start: 0x6f00_0000,
            uid_count: 0x1_0000,
        }
    }
}

/// What this node reports of its CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cpu {
    /// Speed of one core, where 1 is an ordinary one; `None`: it is measured.
    pub speed: Option<f64>,
    /// Features, as /proc/cpuinfo names them, that portable programs shall not count on here.
    pub hide: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT)),
            advertise: Vec::new(),
            lease: Lease(LeaseChoice::Milliseconds(30_000)),
            allow_root: false,
            guests: Guests::default(),
            cpu: Cpu::default(),
            labels: Vec::new(),
            discover: false,
            balance: Balance::default(),
            web: Web::default(),
            metrics: Metrics::default(),
            history: History::default(),
            owner: Owner::default(),
        }
    }
}

impl Config {
    /// What holds in a lab unless its file says otherwise: short leases, and root may move.
    #[must_use]
    pub fn lab() -> Self {
        Self {
            lease: Lease(LeaseChoice::Milliseconds(2_000)),
            allow_root: true,
            // The users of a lab are root, or those whom the namespace makes root.
            balance: Balance {
                uid_min: 0,
                ..Balance::default()
            },
            // All its nodes have the cores of one machine.
            cpu: Cpu {
                speed: Some(1.0),
                ..Cpu::default()
            },
            ..Self::default()
        }
    }

    /// Reads the text of a configuration; `path` is for messages only.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with all that is wrong, each with its line.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        Self::parse_over(text, path, Self::default())
    }

    /// As [`Config::parse`], but `base` gives the values that the text does not set.
    fn parse_over(text: &str, path: &Path, base: Self) -> Result<Self, ConfigError> {
        let invalid = |faults| ConfigError::Invalid {
            path: path.to_path_buf(),
            faults,
        };
        let written: Written = match toml::from_str(text) {
            Ok(written) => written,
            Err(error) => return Err(invalid(Faults::sought(&error, text, base))),
        };
        let config = written.over(base);
        match Faults::of_odds(config.odds(), text) {
            None => Ok(config),
            Some(faults) => Err(invalid(faults)),
        }
    }

    /// This configuration with another value of one key, such as `balance.fair`.
    ///
    /// # Errors
    /// If there is no such key, or if the value is of another type or out of range.
    pub fn with(&self, key: &str, value: toml::Value) -> Result<Self, Fault> {
        let fault = |reason| Fault {
            line: None,
            key: Some(key.to_owned()),
            reason,
        };
        let mut entry = value;
        for part in key.rsplit('.') {
            entry = toml::Table::from_iter([(part.to_owned(), entry)]).into();
        }
        let written = Written::deserialize(entry);
        let written = written.map_err(|error| {
            let reason = error.message().trim_end();
            fault(number::told(Some(key), reason).unwrap_or_else(|| reason.to_owned()))
        })?;
        let config = written.over(self.clone());
        config.check().map_err(|odd| fault(odd.reason))?;
        Ok(config)
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// Which key is out of range, and how it should be.
    pub fn check(&self) -> Result<(), Odd> {
        self.odds().into_iter().next().map_or(Ok(()), Err)
    }

    /// All values that are out of range, at most one of a key.
    fn odds(&self) -> Vec<Odd> {
        let mut odds = Vec::new();
        self.guests.check(&mut odds);
        self.web.check(&mut odds);
        self.metrics.check(&mut odds);
        self.check_names(&mut odds);
        let speed = self.cpu.speed.unwrap_or(1.0);
        if !(0.01..=100.0).contains(&speed) {
            odds.push(Odd::new(
                "cpu.speed",
                format!("cpu.speed is {speed}, it must be 0.01 to 100: 1 is an ordinary core"),
            ));
        }
        let is_reached_at = |address: &String| {
            let port = address.rsplit_once(':').map(|(_, port)| port.parse());
            matches!(port, Some(Ok(1..=u16::MAX)))
        };
        if let Some(address) = self.advertise.iter().find(|one| !is_reached_at(one)) {
            odds.push(Odd::new(
                "advertise",
                format!(
                    "advertise holds {address:?}, which is not HOST:PORT, such as \"192.0.2.7:7946\" or \"[2001:db8::7]:7946\""
                ),
            ));
        }
        odds
    }

    /// Names of features, of labels and of control groups.
    fn check_names(&self, odds: &mut Vec<Odd>) {
        let is_feature = |name: &String| NAMES.iter().any(|feature| feature.name == name);
        if let Some(name) = self.cpu.hide.iter().find(|name| !is_feature(name)) {
            odds.push(Odd::new(
                "cpu.hide",
                format!(
                    "cpu.hide holds {name:?}, which is no feature that is known here: give names as in /proc/cpuinfo, such as \"avx2\""
                ),
            ));
        }
        if self.labels.len() > LABELS_MAX {
            odds.push(Odd::new(
                "labels",
                format!(
                    "labels holds {} words, {LABELS_MAX} at most are allowed",
                    self.labels.len()
                ),
            ));
        }
        let is_group = |group: &String| {
            let name = group.trim_matches('/');
            !name.is_empty() && !name.contains("..")
        };
        if let Some(group) = self.balance.sessions.iter().find(|one| !is_group(one)) {
            odds.push(Odd::new(
                "balance.sessions",
                format!(
                    "balance.sessions holds {group:?}: give the name of a control group, such as \"batch.slice\""
                ),
            ));
        }
        let odd = self.labels.iter().find(|label| !is_label(label));
        if let Some(odd) = odd.filter(|_| self.labels.len() <= LABELS_MAX) {
            odds.push(Odd::new(
                "labels",
                format!(
                    "labels holds {odd:?}: a label has 1 to 63 letters, digits, '-', '_' and '.'"
                ),
            ));
        }
    }

    /// Reads a file. A missing one gives `None`.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn load(path: &Path) -> Result<Option<Self>, ConfigError> {
        Self::load_over(path, Self::default())
    }

    /// As [`Config::load_over`], for a daemon, which only reads a file that nobody but its user and root can
    /// change: the file says who may come in, and whether root's programs move.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn load_own(path: &Path, base: Self) -> Result<Option<Self>, ConfigError> {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        owned::check(&absolute).map_err(|source| {
            let path = path.to_path_buf();
            ConfigError::Exposed { path, source }
        })?;
        Self::load_over(path, base)
    }

    /// Why no daemon of this user would take the file as it lies there, a sentence; `None`: it would.
    #[must_use]
    pub fn exposure(path: &Path) -> Option<String> {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        owned::check(&absolute).err().map(|error| error.to_string())
    }

    /// As [`Config::load`], but `base` gives the values that the file does not set.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn load_over(path: &Path, base: Self) -> Result<Option<Self>, ConfigError> {
        use std::io::Read;
        let unreadable = |source| ConfigError::Unreadable {
            path: path.to_path_buf(),
            source,
        };
        let Some(file) = regular::open(path)? else {
            return Ok(None);
        };
        let mut text = String::new();
        let length = file
            .take(CONFIG_MAX + 1)
            .read_to_string(&mut text)
            .map_err(unreadable)?;
        if length as u64 > CONFIG_MAX {
            return Err(ConfigError::TooLong {
                path: path.to_path_buf(),
            });
        }
        Self::parse_over(&text, path, base).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("config.toml")).map_err(|e| e.to_string())
    }

    #[test]
    fn an_empty_file_is_the_default() {
        assert_eq!(parse(""), Ok(Config::default()));
    }

    #[test]
    fn leases_are_numbers_or_inf() {
        assert_eq!(
            parse("lease = \"inf\"").map(|c| c.lease.0),
            Ok(LeaseChoice::Infinite)
        );
        assert_eq!(
            parse("lease = 5").map(|c| c.lease.0),
            Ok(LeaseChoice::Milliseconds(5000))
        );
        assert_eq!(
            parse("lease = 0.5").map(|c| c.lease.0),
            Ok(LeaseChoice::Milliseconds(500))
        );
        assert!(parse("lease = 0").is_err());
        assert!(parse("lease = true").is_err_and(|e| e.contains("seconds")));
    }

    #[test]
    fn a_configuration_is_read_up_to_its_limit() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("config.toml");
        let limit = usize::try_from(CONFIG_MAX).expect("small");
        let text = "lease = 5\n#";
        let load = |length: usize| {
            let padding = " ".repeat(length - text.len());
            std::fs::write(&path, text.to_owned() + &padding).expect("written");
            Config::load(&path)
        };
        let config = load(limit).expect("read").expect("there");
        assert_eq!(config.lease.0, LeaseChoice::Milliseconds(5000));
        let error = load(limit + 1).expect_err("one byte more").to_string();
        assert!(
            error.ends_with("is longer than 1 MiB: it cannot be ours"),
            "{error}"
        );
    }

    #[test]
    fn labels_are_words_and_not_too_many() {
        let long = "a".repeat(63);
        let short: Vec<String> = (0..LABELS_MAX).map(|n| format!("\"l{n}\"")).collect();
        let config = parse(&format!("labels = [{}]", short.join(", "))).expect("as many as may be");
        assert_eq!(config.labels.len(), LABELS_MAX);
        let error = parse(&format!("labels = [{}, \"more\"]", short.join(", ")));
        assert!(error.is_err_and(|e| e.contains("32 at most")));
        assert_eq!(
            parse(&format!("labels = [\"{long}\"]")).map(|c| c.labels),
            Ok(vec![long.clone()])
        );
        for odd in [
            format!("{long}a"),
            String::new(),
            "a b".into(),
            "@a".into(),
            "a,b".into(),
        ] {
            let error = parse(&format!("labels = [{odd:?}]")).expect_err(&odd);
            assert!(error.contains("a label has"), "{error}");
        }
    }

    /// Keys that the parser accepts in a table: it lists them when it is given another one.
    fn keys(table: &str) -> Vec<String> {
        let text = if table.is_empty() {
            "no_such_key = 1".to_owned()
        } else {
            format!("[{table}]\nno_such_key = 1")
        };
        let error = parse(&text).expect_err("no such key");
        let (_, expected) = error.split_once("expected").expect("it names others");
        let names = expected.split('`').skip(1).step_by(2);
        names.map(str::to_owned).collect()
    }

    #[test]
    fn the_sample_names_each_key_and_is_valid_with_all_of_them() {
        let sample = include_str!("../../../dist/config.toml");
        assert_eq!(parse(sample), Ok(Config::default()));
        let uncommented: Vec<&str> = sample
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(key) if key.starts_with(|c: char| c.is_ascii_lowercase()) => key,
                _ => line,
            })
            .collect();
        let text = uncommented.join("\n");
        let config = parse(&text).expect("valid");
        // All values are the defaults, except for examples.
        let expected = Config {
            advertise: config.advertise.clone(),
            cpu: config.cpu.clone(),
            web: Web {
                listen: config.web.listen,
                certificate: config.web.certificate.clone(),
                key: config.web.key.clone(),
                ..Web::default()
            },
            metrics: config.metrics.clone(),
            history: config.history.clone(),
            ..Config::default()
        };
        assert_eq!(config, expected);
        assert_eq!(config.web.listen, Some(Web::default().address()));
        let tree: toml::Table = text.parse().expect("TOML");
        let mut count = 0;
        for table in ["", "guests", "cpu", "balance", "web", "metrics", "history"] {
            let here = match table {
                "" => Some(&tree),
                name => tree[name].as_table(),
            };
            for key in keys(table) {
                let there = here.is_some_and(|here| here.contains_key(&key));
                assert!(there, "{table}.{key} is missing in dist/config.toml");
                count += 1;
            }
        }
        assert!(count > 20, "{count} keys");
    }

    #[test]
    fn a_fault_is_of_a_line_and_a_key() {
        let fault = |text: &str| match Config::parse(text, Path::new("config.toml")) {
            Err(ConfigError::Invalid { faults, .. }) => faults.as_slice()[0].clone(),
            other => panic!("{text}: {other:?}"),
        };
        for (text, line, key, words) in [
            ("# first\nlisen = 1", 2, Some("lisen"), "expected one of"),
            (
                "[guests]\n\nmax = 70000",
                3,
                Some("guests.max"),
                "0 to 65536",
            ),
            ("guests.max = 70000", 1, Some("guests.max"), "0 to 65536"),
            ("[guests]\nmax = \"many\"", 2, Some("guests.max"), "u32"),
            ("[guests]\nmox = 1", 2, Some("guests.mox"), "memory_percent"),
            (
                "lease = 30\nlabels = [\"a\",\n\"b c\"]",
                2,
                Some("labels"),
                "a label has",
            ),
            ("lease = true", 1, Some("lease"), "seconds"),
            ("[balance]\nfair = maybe", 2, None, ""),
        ] {
            let fault = fault(text);
            assert_eq!(
                (fault.line, fault.key.as_deref()),
                (Some(line), key),
                "{text}: {fault}"
            );
            assert!(fault.reason.contains(words), "{text}: {fault}");
            assert!(!fault.reason.contains('\n'), "{fault}");
            let said = fault.to_string();
            assert!(said.starts_with(&format!("line {line}: ")), "{said}");
            assert!(said.ends_with("the default holds then"), "{said}");
        }
    }

    #[test]
    fn unknown_keys_and_values_out_of_range_are_refused_by_name() {
        for (text, word) in [
            ("lisen = 1", "lisen"),
            ("[guests]\nmax = 65537", "guests.max"),
            ("[guests]\nmemory_percent = 0", "memory_percent"),
            ("[guests]\npids = 3", "pids"),
            ("[cpu]\nhide = [\"avx3\"]", "avx3"),
            ("[cpu]\nspeed = 0.0", "cpu.speed"),
            ("[cpu]\nspeed = nan", "cpu.speed"),
            ("[guests]\nuid_start = 5", "uid_start"),
            ("[guests]\nuid_start = 4294967000", "uid_start"),
            ("advertise = [\"here\"]", "advertise"),
            ("listen = \"7946\"", "listen"),
            ("[web]\nlisten = \"7947\"", "listen"),
            ("[web]\nnames = [\"a b\"]", "web.names"),
            ("[web]\nkey = \"/k\"", "web.certificate"),
            ("[balance]\nsessions = [\"../x\"]", "balance.sessions"),
            ("[metrics]\nlisten = \"127.0.0.1:0\"", "127.0.0.1:9947"),
            ("[metrics]\nport = 9947", "port"),
            ("[history]\nkeep = \"1y\"", "history.keep"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(word), "{error}");
        }
    }
}
