//! What the command line and the daemon say to each other.
//!
//! The control socket (`RUN/control.sock`) is open to everybody. The kernel tells the daemon who asks
//! (SO_PEERCRED), and each request is judged by that. A request is one line of JSON ([`Request`]), which is
//! answered by lines of JSON ([`Answer`]); the last one is `Done` or `Refused`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use whim_balance::balancer::Record;
use whim_journey::job::Event;
use whim_model::CpuTime;
use whim_monitor::feed::Update;
pub use whim_monitor::rows::{Admission, LogRow, NodeRow, NodeState, ProcessRow};
use whim_secret::Concealed;

use crate::config;
use crate::history::HistoryRow;

/// The most bytes of a request.
pub const REQUEST_MAX: usize = 64 << 10;
/// The most bytes of a line of an answer.
pub const ANSWER_MAX: usize = 4 << 20;
/// The longest list of nodes in [`RunOptions`], and the most bytes of a name in it: a label has 63 and its
/// sign.
pub const NAMES_MAX: usize = 256;
pub const NAME_MAX: usize = 64;
/// The most bytes of the name of a run.
pub const RUN_NAME_MAX: usize = 256;
/// Name of the daemon's socket in its run directory.
pub const SOCKET_NAME: &str = "control.sock";
/// Name of the file beside it in which the daemon notes the name of its node, for those who come while it is not
/// there.
pub const NODE_FILE: &str = "node";
/// Run directory of a daemon that was given no other.
pub const RUN_DIRECTORY: &str = "/run/whim";
/// State directory of a daemon that was given no other.
pub const STATE_DIRECTORY: &str = "/var/lib/whim";
/// Members of this group may do what root may do.
pub const ADMIN_GROUP: &str = "whim-admin";

/// Whether a node can have this name. The rule is `whim_net::NodeName`'s, which proves identities; this crate builds no
/// network. A test of `whim run` compares them.
#[must_use]
pub fn can_be_node(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..NAME_MAX).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// The options of `whim run` about where its program may go; inherited by descendants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunOptions {
    /// The node to which the program goes as soon as it has been started.
    pub on: Option<String>,
    /// Only these nodes may host it (empty: any).
    pub only: Vec<String>,
    /// These nodes may not host it.
    pub avoid: Vec<String>,
    /// The program does not move.
    pub pin: bool,
    /// How the balancer treats the program.
    #[serde(default)]
    pub class: Option<RunClass>,
    pub lease: Option<LeaseChoice>,
    /// The program is to be started with the CPU features that all nodes of its register layout share.
    pub portable: bool,
    /// The name under which [`Request::CpuAway`] adds up what the program and its descendants use.
    pub run: Option<String>,
}

impl RunOptions {
    /// Checks that the options are no longer than they need to be, because the daemon keeps them for each
    /// process that they are about, and for its descendants.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn check(&self) -> Result<(), String> {
        for (option, names) in [("--only", &self.only), ("--avoid", &self.avoid)] {
            if names.len() > NAMES_MAX {
                return Err(format!(
                    "{option} names {} nodes and labels: {NAMES_MAX} at most are taken",
                    names.len()
                ));
            }
        }
        let mut named = self.only.iter().chain(&self.avoid).chain(&self.on);
        if let Some(long) = named.clone().find(|name| name.len() > NAME_MAX) {
            return Err(format!(
                "A name of {} bytes is none of a node or label: {NAME_MAX} at most are taken",
                long.len()
            ));
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"@-_.".contains(&byte);
        if let Some(odd) = named.find(|name| !name.bytes().all(allowed)) {
            return Err(impossible(odd));
        }
        if let Some(on) = self.on.as_ref().filter(|on| self.avoid.contains(on)) {
            return Err(format!("--on {on} and --avoid {on} cannot both hold"));
        }
        if !self.only.is_empty() && self.only.iter().all(|name| self.avoid.contains(name)) {
            let (only, avoid) = (self.only.join(","), self.avoid.join(","));
            return Err(format!(
                "--only {only} and --avoid {avoid} leave no node: --pin says that it is to stay"
            ));
        }
        self.check_on()?;
        match self.run.as_ref().map_or(0, String::len) {
            0..=RUN_NAME_MAX => Ok(()),
            long => Err(format!(
                "A name of {long} bytes is too long for a run: {RUN_NAME_MAX} at most are taken"
            )),
        }
    }

    /// Checks that it may be on the node to which it goes at once. Which nodes have a label is not known here.
    fn check_on(&self) -> Result<(), String> {
        let Some(on) = &self.on else {
            return Ok(());
        };
        if self.pin {
            return Err(format!("--on {on} and --pin cannot both hold"));
        }
        let open = |name: &str| name.starts_with('@');
        let named = on != "best" && !open(on);
        let bound = !self.only.is_empty() && !self.only.iter().any(|name| open(name) || name == on);
        if named && bound {
            let only = self.only.join(",");
            return Err(format!("--on {on} and --only {only} cannot both hold"));
        }
        Ok(())
    }

    /// Checks that there can be the nodes and labels that they name; which ones there are, a daemon knows.
    ///
    /// # Errors
    /// The first name that no node and no label can have.
    pub fn check_names(&self) -> Result<(), String> {
        let mut named = self.only.iter().chain(&self.avoid).chain(&self.on);
        let possible = |name: &&String| match name.strip_prefix('@') {
            Some(label) => config::is_label(label),
            None => can_be_node(name),
        };
        match named.find(|name| !possible(name)) {
            None => Ok(()),
            Some(odd) => Err(impossible(odd)),
        }
    }

    /// About how many bytes they take, here or written down.
    #[must_use]
    pub fn weight(&self) -> usize {
        let named = self.only.iter().chain(&self.avoid).chain(&self.on);
        // Each name is a text of its own. In the name of the run, all may have to be escaped where it is
        // written.
        let names: usize = named.map(|name| name.len() + size_of::<String>()).sum();
        names + self.run.as_ref().map_or(0, |run| 6 * run.len())
    }
}

/// `whim why --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Why {
    pub pid: i32,
    pub sentences: Vec<String>,
    /// The balancer's record of its last decision about the process, with the names of the nodes in question.
    pub decision: Option<Decided>,
}

/// What the balancer decided about a process last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    #[serde(flatten)]
    pub record: Record,
    /// The numbers by which the record names nodes.
    pub nodes: BTreeMap<String, u64>,
}

fn impossible(name: &str) -> String {
    format!(
        "No node and no label can be called {name:?}: names of nodes consist of a-z, 0-9 and '-'"
    )
}

/// `--class`: how the balancer treats a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum RunClass {
    /// It computes: it may go as soon as it has begun, and nobody sits before it.
    Batch,
    /// Somebody sits before it: it stays at home.
    Interactive,
}

/// `--lease S|inf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseChoice {
    Milliseconds(u64),
    Infinite,
}

impl LeaseChoice {
    /// The value for [`whim_journey::job::HomeJob::lease_ms`].
    #[must_use]
    pub fn milliseconds(self) -> Option<u64> {
        match self {
            Self::Milliseconds(ms) => Some(ms),
            Self::Infinite => None,
        }
    }
}

impl std::str::FromStr for LeaseChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "inf" {
            return Ok(Self::Infinite);
        }
        let seconds: f64 = text
            .trim_end_matches('s')
            .parse()
            .map_err(|_| format!("{text:?} is no lease: give seconds, such as 30, or inf"))?;
        let duration = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        if (100..=31_536_000_000).contains(&ms) {
            Ok(Self::Milliseconds(ms))
        } else {
            Err(format!(
                "A lease of {text} is not usable: give 0.1 seconds to a year, or inf"
            ))
        }
    }
}

/// What the command line asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// The peer itself becomes a candidate. It keeps the connection (close-on-exec) open, and the end of the
    /// connection tells the daemon that the program has been started.
    Register {
        options: RunOptions,
    },
    Adopt {
        pid: i32,
    },
    Migrate {
        pid: i32,
        to: String,
    },
    Bring {
        pid: i32,
        hold: bool,
    },
    Go {
        pid: i32,
    },
    /// This node's own processes may not leave, or may again.
    Stay {
        on: bool,
    },
    /// Guests are refused, or admitted.
    Block {
        on: bool,
    },
    /// All guests leave; answered when they have left.
    Expel,
    /// This node goes down, or (`undo`) does not any more. Guests leave; answered when they have left.
    Evacuate {
        undo: bool,
    },
    /// All of this node's processes come home and stay; answered when they have come.
    BringAll,
    /// A node is drained: answered when its guests have left and, with `wait`, its own processes ended.
    Drain {
        node: String,
        wait: bool,
    },
    Undrain {
        node: String,
    },
    Processes {
        all: bool,
    },
    Why {
        pid: i32,
    },
    Log {
        calls: Option<i32>,
    },
    /// What this node was like between these times, in milliseconds since 1970, and what moved.
    History {
        from_ms: u64,
        to_ms: u64,
    },
    /// The CPU time that the programs of a run have used on other nodes, once its journeys are over.
    CpuAway {
        run: String,
    },
    Nodes,
    /// All rows, and from then on their changes, until the client goes away: the feed of the monitors.
    Watch,
    /// A link to the page, with the rights of the one who asks.
    Web,
    Init {
        node: Option<String>,
        advertise: Vec<String>,
        /// The CA is restored from a backup, of which so many bytes follow this line. The daemon opens no path
        /// that a caller names.
        restore: Option<u64>,
    },
    Token,
    Join {
        host: String,
        token: Concealed,
        node: Option<String>,
        advertise: Vec<String>,
    },
    Leave {
        force: bool,
    },
    Remove {
        node: String,
    },
    /// Send a copy of the CA. The caller writes it, with its own rights.
    CaCopy,
    Doctor,
    /// Shows the present value of one key or of all; with a value, changes it.
    Tune {
        key: Option<String>,
        value: Option<String>,
    },
}

/// A row of `whim tune`; the names are stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knob {
    /// As in the configuration, with its table: `balance.fair`.
    pub key: String,
    /// What holds now.
    pub value: serde_json::Value,
    /// The value with which the daemon was started.
    pub configured: serde_json::Value,
}

/// `whim web --json`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// The first one to open it gets the session.
    pub url: String,
    /// How long the link can be opened, in seconds.
    pub good_for_seconds: u64,
    /// SHA-256 of the certificate of the page; null: the page is served over loopback, without TLS.
    pub certificate_sha256: Option<String>,
}

impl std::fmt::Debug for Invitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invitation")
            .field("good_for_seconds", &self.good_for_seconds)
            .finish_non_exhaustive()
    }
}

/// Something that `whim doctor` checked, with how to mend it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub subject: String,
    pub grade: Grade,
    pub found: String,
    /// What to do about it, when it is not good.
    pub mend: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grade {
    Good,
    /// It works, but with restrictions.
    Warning,
    /// Programs cannot move.
    Bad,
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    Process(ProcessRow),
    Node(NodeRow),
    Log(LogRow),
    History(HistoryRow),
    Update(Update),
    CpuAway {
        time: CpuTime,
        moves: u32,
    },
    Finding(Finding),
    Knob(Knob),
    /// To `whim run --portable`: CPU features that the C library must not use, in its own words.
    Without {
        hwcaps: Vec<String>,
    },
    /// To `whim run`, where the kernel does not say which process has connected (before Linux 6.5). The process
    /// is to send one byte, with a descriptor of itself (SCM_RIGHTS).
    HandOver,
    /// What `whim why` says of a process.
    Why(Why),
    /// A sentence for the user, before or beside the result.
    Notice {
        text: String,
    },
    Token {
        token: Concealed,
        /// Its public part, by which `whim nodes` and the log name it.
        #[serde(default)]
        id: String,
    },
    /// A part of the copy of the CA; all parts together are the file.
    CaPart {
        text: Concealed,
    },
    /// A link to the page, which opens one session.
    Link(Invitation),
    /// What the supervisor reports of a journey.
    Journey {
        event: Event,
    },
    Done {
        text: Option<String>,
    },
    Refused {
        reason: String,
    },
    /// Refused for want of room that comes back by itself: whoever asks again may be heard.
    Busy {
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_bounded() {
        let node = |length| vec!["n".repeat(length)];
        let longest = RunOptions {
            on: Some("best".into()),
            only: vec![format!("@{}", "x".repeat(NAME_MAX - 1)); NAMES_MAX],
            avoid: vec!["n1".into(); NAMES_MAX],
            run: Some("r".repeat(RUN_NAME_MAX)),
            ..RunOptions::default()
        };
        assert_eq!(longest.check(), Ok(()));
        let none = RunOptions::default;
        let [only, avoid] = ["--only", "--avoid"];
        let many = || vec!["n1".to_owned(); NAMES_MAX + 1];
        #[rustfmt::skip]
        let refused = [
            (RunOptions { only: many(), ..none() }, only),
            (RunOptions { avoid: many(), ..none() }, avoid),
            (RunOptions { only: node(NAME_MAX + 1), ..none() }, "65 bytes"),
            (RunOptions { avoid: node(60_000), ..none() }, "60000 bytes"),
            (RunOptions { on: node(60_000).pop(), ..none() }, "60000 bytes"),
            (RunOptions { avoid: vec!["@\u{1}".into()], ..none() }, "\"@\\u{1}\""),
            (RunOptions { run: Some("r".repeat(257)), ..none() }, "257 bytes"),
            (RunOptions { on: Some("n2".into()), avoid: vec!["n2".into()], ..none() }, "--avoid n2"),
            (RunOptions { on: Some("n2".into()), only: vec!["n1".into()], ..none() }, "--only n1"),
            (RunOptions { on: Some("n2".into()), pin: true, ..none() }, "--pin"),
            (RunOptions { only: node(2), avoid: node(2), ..none() }, "--only nn and --avoid nn"),
        ];
        for (options, why) in refused {
            let error = options.check().expect_err(why);
            assert!(error.contains(why) && error.len() < 200, "{error}");
        }
    }

    #[test]
    fn names_that_nothing_can_have_are_told() {
        let named = |name: &str| RunOptions {
            avoid: vec![name.into()],
            ..RunOptions::default()
        };
        for name in ["n1", "best", "0-9", "@gpu", "@Big.one_2", &"n".repeat(63)] {
            assert_eq!(named(name).check_names(), Ok(()), "{name}");
        }
        for name in [
            "",
            "N1",
            "n_1",
            "-n",
            "n-",
            "n1.org",
            "@",
            "@a@b",
            &"n".repeat(64),
        ] {
            let error = named(name).check_names().expect_err(name);
            assert!(error.contains(&format!("{name:?}")), "{error}");
        }
    }

    #[test]
    fn no_secret_is_shown_for_a_log() {
        const SECRET: &str = "0123456789abcdef0123456789abcdef";
        let secret = || Concealed::new(SECRET);
        let join = Request::Join {
            host: "n1".into(),
            token: secret(),
            node: None,
            advertise: Vec::new(),
        };
        let sent = serde_json::to_string(&join).expect("encoded");
        assert!(sent.contains(SECRET), "the daemon is told");
        let read: Request = serde_json::from_str(&sent).expect("understood");
        let token = Answer::Token {
            token: secret(),
            id: "0a1b2c3d".into(),
        };
        let link = Answer::Link(Invitation {
            url: format!("http://127.0.0.1:7947/{SECRET}"),
            good_for_seconds: 300,
            certificate_sha256: None,
        });
        let part = Answer::CaPart { text: secret() };
        let shown = format!("{join:?} {read:#?} {token:?} {link:?} {part:?}");
        assert!(!shown.contains(SECRET), "{shown}");
        assert!(
            shown.contains("0a1b2c3d") && shown.contains("\"n1\""),
            "{shown}"
        );
    }

    #[test]
    fn what_an_older_client_asks_with_a_path_is_not_understood() {
        for line in [
            r#"{"request":"ca-backup","file":"/etc/cron.d/x"}"#,
            r#"{"request":"init","node":null,"advertise":[],"restore":"/etc/x"}"#,
        ] {
            assert!(serde_json::from_str::<Request>(line).is_err(), "{line}");
        }
    }

    #[test]
    fn leases_are_seconds_or_infinite() {
        assert_eq!("30".parse(), Ok(LeaseChoice::Milliseconds(30_000)));
        assert_eq!("2.5s".parse(), Ok(LeaseChoice::Milliseconds(2_500)));
        assert_eq!("inf".parse(), Ok(LeaseChoice::Infinite));
        for bad in ["", "0", "-1", "nan", "1e99", "soon"] {
            assert!(bad.parse::<LeaseChoice>().is_err(), "{bad}");
        }
    }
}
