//! The command line, from which help, man pages and completions are made.

use clap::error::ErrorKind;
use clap::{Args, Command, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use whim_control::protocol::{LeaseChoice, RunClass};

pub(crate) mod pages;

/// The command line, with what help and man pages say of each verb behind its options.
#[must_use]
pub(crate) fn command() -> Command {
    told(Arguments::command(), "")
}

/// Reads the command line. What is said of verbs behind their options is added only where help is asked for: each start
/// of a program waits for what is done here.
///
/// # Errors
/// It is not understood, or asks for help or the version.
pub(crate) fn parse() -> Result<Arguments, clap::Error> {
    if let Some(started) = started(std::env::args_os()) {
        return Ok(started);
    }
    Arguments::try_parse().map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            command().try_get_matches().err().unwrap_or(error)
        }
        _ => error,
    })
}

/// A command line that starts a program, read by the definition of that verb alone: that of all verbs takes longer to
/// make than anything else before the program runs. `None` if it is another one, or if something is to be said of it.
fn started(mut words: impl Iterator<Item = OsString>) -> Option<Arguments> {
    words.next();
    let mut words = words.peekable();
    words.next_if(|word| word == "run")?;
    let words = std::iter::once("run".into()).chain(words);
    let Started { socket, run } = Started::try_parse_from(words).ok()?;
    Some(Arguments {
        socket,
        wait: None,
        verb: Verb::Run(Box::new(run)),
    })
}

/// `whim run` without the other verbs.
#[derive(Debug, Parser)]
struct Started {
    #[arg(long)]
    socket: Option<PathBuf>,
    #[command(flatten)]
    run: Run,
}

fn told(command: Command, verb: &str) -> Command {
    let command = command.mut_subcommands(|below| {
        let path = format!("{verb} {}", below.get_name());
        told(below, path.trim_start())
    });
    match pages::of(verb) {
        Some(page) => command.after_long_help(page.text()),
        None => command,
    }
}

/// Ordinary machines as one computer: programs move between them while they run.
#[derive(Debug, Parser)]
#[command(
    name = "whim",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
pub(crate) struct Arguments {
    /// Control socket of the daemon (default: that of this user's daemon, or else of root's)
    #[arg(long, global = true, value_name = "PATH", hide = true)]
    pub socket: Option<PathBuf>,
    /// Before the verb: wait this many seconds for a daemon that is being started (default: 0; of 'run' and
    /// 'shell' 5)
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(..=86_400))]
    pub wait: Option<u64>,
    #[command(subcommand)]
    pub verb: Verb,
}

/// How a monitor shows what it sees.
#[derive(Debug, Args)]
pub(crate) struct Seen {
    /// The feed, one JSON object per line, until it is interrupted
    #[arg(long)]
    pub json: bool,
    /// One picture, as a table (or, with --json, as objects), and no more; so it is without a terminal
    #[arg(long)]
    pub once: bool,
    /// A feed that was recorded with --json; '-': standard input
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
}

/// `PID` (of this node) or `HOME:PID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessName {
    pub home: Option<String>,
    pub pid: i32,
}

impl FromStr for ProcessName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (home, digits) = match text.rsplit_once(':') {
            Some((home, digits)) => (Some(home.to_string()), digits),
            None => (None, text),
        };
        let pid = digits.parse::<i32>().ok().filter(|pid| *pid > 0);
        match pid {
            Some(pid) if home.as_deref() != Some("") => Ok(Self { home, pid }),
            _ => Err("give a process id, such as 4711, or HOME:PID, such as n2:4711".into()),
        }
    }
}

/// `2h`, `90m`, `30d`, `45s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ago {
    pub milliseconds: u64,
}

impl FromStr for Ago {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [
            ("s", 1000),
            ("m", 60_000),
            ("h", 3_600_000),
            ("d", 86_400_000),
        ];
        let parsed = units.iter().find_map(|(unit, milliseconds)| {
            let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
            number.checked_mul(*milliseconds)
        });
        match parsed {
            Some(milliseconds) if milliseconds > 0 => Ok(Self { milliseconds }),
            _ => Err("give a number and s, m, h or d, such as 90m, 2h or 7d".into()),
        }
    }
}

/// What `whim log` shows.
#[derive(Debug, Args)]
pub(crate) struct Logged {
    /// What this process did alone, and not also what others did
    #[arg(value_name = "PID")]
    pub pid: Option<ProcessName>,
    /// How many calls this process sent home
    #[arg(long, value_name = "PID", conflicts_with_all = ["pid", "since"])]
    pub calls: Option<ProcessName>,
    /// From so long ago: a number and s, m, h or d
    #[arg(long, value_name = "TIME")]
    pub since: Option<Ago>,
    /// One JSON object per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a program that may move
    Run(Box<Run>),
    /// Start a shell in which everything typed may move
    Shell(Shelled),
    /// Let a program move that runs already
    Adopt {
        /// A process of this node
        pid: ProcessName,
    },
    /// Move a process; returns when it has moved
    Migrate {
        /// A process whose home is this node
        pid: ProcessName,
        /// A node's name, 'home', or 'best': the least loaded node other than the present one, or @LABEL:
        /// of those with a label
        #[arg(value_name = "NODE|home|best|@LABEL")]
        to: String,
        /// Print the report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Bring a process home; without one, all of this node's, which stay then
    Bring {
        /// Keep it there, for strace or gdb, until 'whim go'
        #[arg(long, requires = "pid")]
        hold: bool,
        /// A process whose home is this node
        pid: Option<ProcessName>,
        /// Print the report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Let a process move again that 'bring --hold' keeps; without one, this node's own ('stay')
    Go {
        /// A process whose home is this node
        pid: Option<ProcessName>,
    },
    /// This node's own processes may not leave, until 'whim go'
    Stay,
    /// Admit no more guests, until 'whim unblock'
    Block,
    /// Admit guests again
    Unblock,
    /// Send all guests away and admit no more, until 'whim unblock'; returns when they have left
    Expel,
    /// Before this node goes down (shutdown, a failing UPS, a spot notice): guests leave, no more come, and
    /// the processes that would end with it are named; returns when no guest is left
    Evacuate {
        /// It does not go down after all
        #[arg(long)]
        undo: bool,
    },
    /// Empty a node: its guests leave, no more come, its own processes stay
    Drain {
        /// Until its own processes have ended, too
        #[arg(long)]
        wait: bool,
        /// A node of the cluster
        node: String,
    },
    /// End 'whim drain'
    Undrain {
        /// A node of the cluster
        node: String,
    },
    /// List processes that may move, and where they are, and guests of other nodes
    Ps {
        /// Those that have moved and ended, too
        #[arg(short, long)]
        all: bool,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Say why a process stays, or where it is
    Why {
        /// A process whose home is this node
        pid: ProcessName,
        /// Print the sentences, and the record of the last decision, as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show what moved, and why
    Log(Logged),
    /// Show what this node was like, and what moved
    History {
        /// From so long ago: a number and s, m, h or d
        #[arg(long, value_name = "TIME", default_value = "2h")]
        since: Ago,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show the programs of the cluster as they run and move; keys sort, filter, move, signal, explain
    Top(Seen),
    /// Show the nodes of the cluster as bars, and what they were lately
    Mon(Seen),
    /// Print a link to the page: the cluster in a browser, live, with your rights. It opens once, within
    /// five minutes, and for you alone
    Web {
        /// Print the link, how long it is good, and the certificate's fingerprint as one JSON object
        #[arg(long)]
        json: bool,
    },
    /// List the nodes of the cluster
    Nodes {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Several nodes on this machine, to try and to test
    #[command(subcommand)]
    Lab(Box<Lab>),
    /// Make a new cluster, with this node as its first
    Init {
        #[command(flatten)]
        node: NodeOptions,
        /// Take up the CA of a lost node from its backup ('-': standard input)
        #[arg(long, value_name = "FILE")]
        restore: Option<PathBuf>,
    },
    /// Print a token that admits one node within 15 minutes, for 'whim join' to read there
    Token,
    /// Join the cluster of HOST, by a token that is asked for
    Join {
        /// HOST or HOST:PORT of the node that ran 'whim init'
        host: String,
        /// Read what 'whim token' printed there from this file, which nobody else may read ('-': standard
        /// input). Without it the token is asked for at a terminal, and read from standard input elsewhere
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        #[command(flatten)]
        node: NodeOptions,
    },
    /// Leave the cluster
    Leave {
        /// Even if the rest of the cluster cannot be told, processes are away, or the CA is here, which is lost
        #[arg(long)]
        force: bool,
        /// Do not ask. Without a terminal nobody is asked
        #[arg(short, long)]
        yes: bool,
    },
    /// Remove a node from the cluster; it is refused at once
    Remove {
        /// A node of the cluster
        node: String,
        /// Do not ask. Without a terminal nobody is asked
        #[arg(short, long)]
        yes: bool,
    },
    /// The certificate authority of the cluster
    #[command(subcommand)]
    Ca(Ca),
    /// Look for what hinders programs from moving, and say how to mend it
    Doctor {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// The configuration
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Show what the daemon goes by, or change it, until the daemon ends
    Tune {
        /// As in the configuration, with its table, such as balance.fair; without one, all are shown
        key: Option<String>,
        /// As in the configuration, such as true, 40, '["gpu"]'; only administrators change anything
        #[arg(requires = "key")]
        value: Option<String>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Print completions for a shell
    Completions {
        /// Which one
        shell: Shell,
    },
    /// Print the words that may stand at the end of a command line, for the scripts of 'completions'
    #[command(hide = true)]
    CompleteWords {
        #[arg(last = true, value_name = "LINE")]
        line: Vec<String>,
    },
    /// Write what a package holds beside the programs
    #[command(hide = true)]
    Generate { kind: Generated, directory: PathBuf },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Generated {
    Man,
    Completions,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Send it there as soon as it runs, if that node takes it then
    #[arg(long, value_name = "NODE|@LABEL|best", conflicts_with = "pin")]
    pub on: Option<String>,
    #[command(flatten)]
    pub hosts: Hosts,
    /// It does not move
    #[arg(long)]
    pub pin: bool,
    /// What the balancer is told of it: that it computes, or that somebody sits before it and it stays
    #[arg(long, value_enum)]
    pub class: Option<RunClass>,
    /// Use only CPU features that nodes of several kinds share, as far as the C library decides
    #[arg(long)]
    pub portable: bool,
    /// Do not run it where no daemon answers within some seconds
    #[arg(long)]
    pub strict: bool,
    /// Say at its end how long it took, and how much CPU time it used at home and away
    #[arg(long)]
    pub time: bool,
    /// Of a run with --time
    #[arg(long, value_name = "NAME", hide = true)]
    pub run_name: Option<String>,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub command: Vec<OsString>,
}

/// Who may host a program and what it starts, and for how long without being heard of.
#[derive(Debug, Args)]
pub(crate) struct Hosts {
    /// Besides its home, only these nodes, or those with these labels, may host it
    #[arg(long, value_name = "A,B,@LABEL", value_delimiter = ',')]
    pub only: Vec<String>,
    /// These nodes, or those with these labels, may not host it
    #[arg(long, value_name = "A,@LABEL", value_delimiter = ',')]
    pub avoid: Vec<String>,
    /// Seconds without word between home and host after which a program that is away ends, or 'inf'
    #[arg(long, value_name = "S|inf")]
    pub lease: Option<LeaseChoice>,
}

#[derive(Debug, Args)]
pub(crate) struct Shelled {
    #[command(flatten)]
    pub hosts: Hosts,
    /// Arguments of the shell
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARG"
    )]
    pub arguments: Vec<OsString>,
}

impl Shelled {
    /// The user's own shell, as a program that may move: what it starts may as well.
    #[must_use]
    pub(crate) fn run(self) -> Run {
        let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
        let mut command = vec![shell.unwrap_or_else(|| "/bin/sh".into())];
        command.extend(self.arguments);
        Run {
            on: None,
            hosts: self.hosts,
            pin: false,
            class: None,
            portable: false,
            // All that is typed in it could not move, as long as it lives.
            strict: true,
            time: false,
            run_name: None,
            command,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct NodeOptions {
    /// Name of this node (default: the machine's)
    #[arg(long = "node", visible_alias = "name", value_name = "NAME")]
    pub node: Option<String>,
    /// HOST:PORT under which other nodes reach this one (may be repeated)
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Ca {
    /// Write a copy of the CA, with its key, into a new file: keep it off the cluster
    Backup {
        /// A new file; '-': standard output, which must not be a terminal
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Check a configuration without using it
    Check {
        /// Default: /etc/whim/config.toml; without root ~/.config/whim/config.toml
        file: Option<PathBuf>,
        /// Print what was found as one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// `--name L` of every verb of `whim lab`.
#[derive(Debug, Args)]
pub(crate) struct LabName {
    /// Name of the lab
    #[arg(long, value_name = "L", default_value = "lab")]
    pub name: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Make a lab and a cluster of its nodes
    Up(Box<LabUp>),
    /// Run a command, or a shell, on a node
    ///
    /// It starts in the current directory, if the node sees it, and else in $HOME or /. A node sees all directories but
    /// those below /tmp, /run and /dev/shm; of these, it sees those that 'whim lab up' was given by --share, and the one
    /// in which it was typed.
    Exec {
        #[command(flatten)]
        lab: LabName,
        /// As this user
        #[arg(long, value_name = "U")]
        user: Option<String>,
        /// A node of the lab
        node: String,
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "CMD"
        )]
        command: Vec<OsString>,
    },
    /// Let no packet pass between two nodes; neither is told
    Cut {
        #[command(flatten)]
        lab: LabName,
        /// A node of the lab
        one: String,
        /// Another one
        other: String,
    },
    /// Let packets pass again
    Heal {
        #[command(flatten)]
        lab: LabName,
        /// A node of the lab
        one: String,
        /// Another one
        other: String,
    },
    /// Give the link between two nodes these properties
    Link {
        #[command(flatten)]
        lab: LabName,
        /// A node of the lab
        one: String,
        /// Another one
        other: String,
        #[command(flatten)]
        settings: LinkOptions,
    },
    /// Switch a node off as a loss of power does
    Kill {
        #[command(flatten)]
        lab: LabName,
        /// A node of the lab
        node: String,
    },
    /// Switch a node on again, or start its daemon
    Start {
        #[command(flatten)]
        lab: LabName,
        /// A node of the lab
        node: String,
        /// The node is on: start only its daemon
        #[arg(long)]
        daemon: bool,
    },
    /// Stall a node
    Pause {
        #[command(flatten)]
        lab: LabName,
        /// A node of the lab
        node: String,
    },
    /// Let a paused node go on
    Resume {
        #[command(flatten)]
        lab: LabName,
        /// A node of the lab
        node: String,
    },
    /// Write down each second what the lab's programs do, for whim-sim
    Record {
        #[command(flatten)]
        lab: LabName,
        /// A new file; its name has to end in .jsonl
        file: PathBuf,
        /// End after S seconds; without it, when the lab or this command is ended
        #[arg(long, value_name = "S")]
        seconds: Option<u64>,
    },
    /// Say what the lab is like
    Status {
        #[command(flatten)]
        lab: LabName,
        #[arg(long)]
        json: bool,
    },
    /// List the labs of this machine
    List {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Print a link to a node's page for a browser of this machine, and lead the browser there until this
    /// command is ended
    Web {
        #[command(flatten)]
        lab: LabName,
        /// A node of the lab
        #[arg(default_value = "n1")]
        node: String,
    },
    /// End the lab and remove all of it
    Down {
        #[command(flatten)]
        lab: LabName,
    },
}

#[derive(Debug, Args)]
pub(crate) struct LabUp {
    #[command(flatten)]
    pub lab: LabName,
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub nodes: usize,
    /// CPUs of each node, such as 0.8,0.4 (the last counts for the rest)
    #[arg(long, value_delimiter = ',', value_name = "CPUS", value_parser = cpus)]
    pub cpu: Vec<f64>,
    /// Memory of each node, such as 2G
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    pub memory: Vec<String>,
    #[command(flatten)]
    pub link: LinkOptions,
    /// Directory below /tmp or /run that the nodes see too (may be repeated)
    #[arg(long, value_name = "DIR")]
    pub share: Vec<PathBuf>,
    /// Seconds by which each node's clock is ahead, such as 1000,0.08,-0.08
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "S",
        allow_hyphen_values = true,
        value_parser = clock
    )]
    pub clock: Vec<f64>,
    /// The daemon to start (default: the whimd beside this program)
    #[arg(long, value_name = "PATH")]
    pub daemon: Option<PathBuf>,
    /// One more argument for the daemons (may be repeated)
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub daemon_arg: Vec<String>,
    /// Start the daemons, but make no cluster of them
    #[arg(long)]
    pub no_cluster: bool,
}

fn cpus(text: &str) -> Result<f64, String> {
    number(text).ok_or_else(|| "give a number of CPUs for each node, such as 2 or 0.8,0.4".into())
}

fn clock(text: &str) -> Result<f64, String> {
    number(text).ok_or_else(|| "give seconds for each node, such as 1000 or 0.08,-0.08".into())
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

#[derive(Debug, Args)]
pub(crate) struct LinkOptions {
    /// Delay of a packet one way, such as 1ms
    #[arg(long, value_name = "TIME")]
    pub delay: Option<String>,
    /// Share of packets lost, such as 10%
    #[arg(long, value_name = "SHARE")]
    pub loss: Option<String>,
    /// Share of packets that later ones overtake
    #[arg(long, value_name = "SHARE")]
    pub reorder: Option<String>,
    /// Share of packets that arrive twice
    #[arg(long, value_name = "SHARE")]
    pub duplicate: Option<String>,
    /// Bits a second, such as 1gbit
    #[arg(long, value_name = "RATE")]
    pub rate: Option<String>,
    /// Largest packet in bytes
    #[arg(long, value_name = "BYTES")]
    pub mtu: Option<u32>,
    /// Equal seeds lose the same packets
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_starts_a_program_is_read_as_by_the_whole_definition() {
        let lines = [
            "run true",
            "run -- true",
            "run --on n2 --class batch -- sleep 3",
            "run --only a,@b --avoid c --lease inf --portable --strict --pin=x x",
            "run --only a,@b --avoid c --lease inf --portable --strict x --json -v --help",
            "run --socket /run/x --time --run-name y make -j 4 --on 3",
            "run --socket=/run/x -x",
            "run --unknown",
            "run",
            "run --help",
            "run -h",
            "run --version",
            "run --wait 3 true",
            "run --on a --pin true",
            "run --lease never true",
            "run --on",
            "run true -- --help",
            "run true --wait 3 --json",
        ];
        for line in lines {
            let words = std::iter::once("whim")
                .chain(line.split(' '))
                .map(OsString::from);
            let whole = Arguments::try_parse_from(words.clone()).ok();
            assert_eq!(
                format!("{:?}", started(words)),
                format!("{whole:?}"),
                "{line}"
            );
        }
        for line in ["", "ps", "--socket /x run true", "shell x", "rum x"] {
            let words = std::iter::once("whim")
                .chain(line.split(' '))
                .map(OsString::from);
            assert!(started(words).is_none(), "{line}");
        }
    }

    #[test]
    fn processes_are_named_by_pid_or_home_and_pid() {
        let name = |home: Option<&str>, pid| ProcessName {
            home: home.map(Into::into),
            pid,
        };
        assert_eq!("17".parse(), Ok(name(None, 17)));
        assert_eq!("n2:17".parse(), Ok(name(Some("n2"), 17)));
        for bad in ["", "0", "-3", "x", ":4", "n2:", "99999999999"] {
            assert!(bad.parse::<ProcessName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn times_ago_have_a_unit() {
        let ago = |milliseconds| Ok(Ago { milliseconds });
        assert_eq!("45s".parse(), ago(45_000));
        assert_eq!("2h".parse(), ago(7_200_000));
        assert_eq!("30d".parse(), ago(2_592_000_000));
        for bad in ["", "2", "h", "0m", "-1h", "1.5h", "2w", "99999999999999d"] {
            assert!(bad.parse::<Ago>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wrong_number_for_nodes_of_a_lab_is_told_how_it_is_written() {
        let said = |option: &str, value: &str| {
            let words = ["whim", "lab", "up", option, value];
            Arguments::try_parse_from(words).map_or_else(|error| error.to_string(), |_| "".into())
        };
        for value in ["abc", "nan", "0.5,", "2 CPUs"] {
            let cpu = said("--cpu", value);
            assert!(
                cpu.contains("give a number of CPUs for each node, such as 2 or"),
                "{cpu}"
            );
            let clock = said("--clock", value);
            assert!(
                clock.contains("give seconds for each node, such as"),
                "{clock}"
            );
        }
        assert_eq!(said("--cpu", "0.8,4") + &said("--clock", "1000,-0.08"), "");
    }

    #[test]
    fn the_programs_own_options_are_its_own() {
        let parsed = Arguments::try_parse_from(["whim", "run", "--pin", "ls", "-l", "--pin"]);
        let Verb::Run(run) = parsed.expect("parsed").verb else {
            panic!("not run")
        };
        assert!(run.pin);
        assert_eq!(run.command, ["ls", "-l", "--pin"]);
    }
}
