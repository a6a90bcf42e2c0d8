//! What help and man pages say of each verb behind its options: examples, how it ends, and files.

/// What is said of one verb.
#[derive(Debug)]
pub(crate) struct Page {
    /// Its words behind `whim`: `lab up`; empty: the whole command line.
    verb: &'static str,
    /// Commands, and what they do.
    examples: &'static [Entry],
    /// Words of its answers, under this title.
    explained: (&'static str, &'static [Entry]),
    /// Exit statuses, where they are not those of most verbs.
    ends: &'static [Entry],
    files: &'static [Entry],
}

/// A word or a command, and what is said of it.
type Entry = (&'static str, &'static str);

/// How verbs end of which nothing else is said.
const ENDS: &[Entry] = &[
    ("0", "done"),
    ("1", "refused or failed; standard error says why"),
    ("2", "the command line was not understood"),
];
/// How verbs end that become another program.
const ENDS_AS_PROGRAM: &[Entry] = &[
    (
        "125",
        "the program was not started; standard error says why",
    ),
    ("126", "the program cannot be executed"),
    ("127", "there is no such program"),
    ("else", "as the program ends"),
];
const ENDS_OF_DOCTOR: &[Entry] = &[
    ("0", "programs can move, perhaps with restrictions"),
    (
        "1",
        "something keeps them from moving, or no daemon answers",
    ),
    ("2", "the command line was not understood"),
];
const ENDS_OF_EXEC: &[Entry] = &[
    (
        "125",
        "the command was not started; standard error says why",
    ),
    ("else", "as the command ends"),
];
const CONFIGURATION: Entry = (
    "/etc/whim/config.toml",
    "configuration (of a plain user's daemon ~/.config/whim/config.toml)",
);
const KEPT: Entry = (
    "/var/lib/whim",
    "what the daemon keeps (~/.local/state/whim)",
);
const SOCKETS: Entry = ("/run/whim", "its sockets ($XDG_RUNTIME_DIR/whim)");
const LABS: Entry = (
    "/run/whim-lab",
    "labs of root; of other users $XDG_RUNTIME_DIR/whim-lab",
);
const ORDERS: Entry = (
    "/var/lib/whim/orders.json",
    "what the node was told; it holds after a restart, too",
);
const IDENTITY: Entry = (
    "/var/lib/whim/identity",
    "key and certificate of this node, and the CA where it is held",
);

/// What `whim migrate` prints, in its order. A return has freeze, transfer and rebuild alone.
const PHASES: &[Entry] = &[
    (
        "admit",
        "the other node finds room, and both sides make ready; the program runs",
    ),
    ("freeze", "its threads are stopped"),
    (
        "capture",
        "what it is beside its memory is read: registers, descriptors, mappings",
    ),
    ("transfer", "that travels, and its pages"),
    ("rebuild", "the other node has made it anew"),
    (
        "commit",
        "home notes where it is, and it goes on; what fails before that leaves it where it was",
    ),
    (
        "convert",
        "what stays at home becomes its deputy, which calls the kernel for it",
    ),
    (
        "onward",
        "from one host to another: freeze, capture, transfer and rebuild in one",
    ),
];
const COLUMNS_OF_PROGRAMS: &[Entry] = &[
    (
        "state",
        "home, away, moving, stopped (by job control), in-doubt (of a move nobody has said yet how it went), or ended",
    ),
    ("moves", "how often it has moved"),
    (
        "stay",
        "why it cannot move now; of a program that has ended, how ('whim why' tells all of it)",
    ),
];
const COLUMNS: &[Entry] = &[
    (
        "load",
        "threads that run or wait for a CPU; it rises at once, and falls for half a minute after work has ended",
    ),
    ("cpus", "cores that the node may use"),
    ("speed", "of a core, as measured; 1 is an ordinary one"),
    (
        "guests",
        "programs of other nodes, as of the last second or two",
    ),
];

const fn page(verb: &'static str, examples: &'static [Entry]) -> Page {
    Page {
        verb,
        examples,
        explained: ("", &[]),
        ends: ENDS,
        files: &[],
    }
}

impl Page {
    const fn files(mut self, files: &'static [Entry]) -> Self {
        self.files = files;
        self
    }

    const fn explained(mut self, explained: (&'static str, &'static [Entry])) -> Self {
        self.explained = explained;
        self
    }

    const fn ends(mut self, ends: &'static [Entry]) -> Self {
        self.ends = ends;
        self
    }

    /// The parts that are not empty, with their titles.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&'static str, &'static [Entry])> {
        let parts = [
            ("Examples", self.examples),
            self.explained,
            ("Exit status", self.ends),
            ("Files", self.files),
        ];
        parts.into_iter().filter(|(_, entries)| !entries.is_empty())
    }

    /// All of it, as `--help` shows it.
    pub(crate) fn text(&self) -> String {
        let parts = self.parts().map(|(title, entries)| {
            let width = entries
                .iter()
                .map(|(word, _)| word.len())
                .max()
                .unwrap_or(0);
            let lines = entries
                .iter()
                .map(|(word, said)| format!("\n  {word:width$}  {said}"));
            format!("{title}:{}", lines.collect::<String>())
        });
        parts.collect::<Vec<_>>().join("\n\n")
    }
}

/// What is said of a verb.
pub(crate) fn of(verb: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.verb == verb)
}

static PAGES: &[Page] = &[
    Page {
        verb: "",
        examples: &[
            ("whim lab up", "three nodes on this machine, to try it out"),
            ("whim run -- ./simulation", "a program that may move"),
            ("whim ps", "where programs are"),
            (
                "whim migrate 4711 best",
                "process 4711 to the least loaded node",
            ),
            ("whim migrate 4711 home", "and back"),
            ("whim why 4711", "why it is where it is, or stays"),
        ],
        explained: ("", &[]),
        ends: &[
            ("0", "done"),
            ("1", "refused or failed; standard error says why"),
            ("2", "the command line was not understood"),
            (
                "125",
                "'run' and 'shell': the program was not started; 126, 127: it cannot be executed, there is none; \
                 else they end as the program does",
            ),
        ],
        files: &[CONFIGURATION, KEPT, SOCKETS],
    },
    page(
        "run",
        &[
            (
                "whim run -- ./simulation --steps 1000",
                "it may go wherever there is room",
            ),
            (
                "whim run --on n2 -- make -j8",
                "it begins on its way to n2; what it starts may move, too",
            ),
            (
                "whim run --only n1,@fast --time -- ./simulation",
                "on n1 and fast nodes alone; says how long it took",
            ),
        ],
    )
    .ends(ENDS_AS_PROGRAM),
    page(
        "shell",
        &[(
            "whim shell --avoid n3",
            "whatever is typed in it may move, but not to n3",
        )],
    )
    .ends(ENDS_AS_PROGRAM),
    page(
        "adopt",
        &[(
            "whim adopt 4711",
            "process 4711 and what it starts may move from now on",
        )],
    ),
    page(
        "migrate",
        &[
            ("whim migrate 4711 n2", "process 4711 goes on at n2"),
            ("whim migrate 4711 best", "at the least loaded node"),
            (
                "whim migrate 4711 @fast --json",
                "at a node with that label; the report is an object",
            ),
        ],
    )
    .explained(("Phases", PHASES)),
    page(
        "bring",
        &[
            ("whim bring 4711", "process 4711 comes home"),
            (
                "whim bring --hold 4711",
                "and stays, for strace or gdb, until 'whim go 4711'",
            ),
            (
                "whim bring",
                "all of this node's processes come home and stay, until 'whim go'",
            ),
        ],
    ),
    page(
        "go",
        &[
            ("whim go 4711", "after 'whim bring --hold 4711'"),
            ("whim go", "after 'whim stay' and 'whim bring'"),
        ],
    )
    .files(&[ORDERS]),
    page(
        "stay",
        &[(
            "whim stay",
            "this node's own processes remain on it, until 'whim go'",
        )],
    )
    .files(&[ORDERS]),
    page(
        "block",
        &[(
            "whim block",
            "guests that are here may stay; others are refused",
        )],
    )
    .files(&[ORDERS]),
    page(
        "unblock",
        &[("whim unblock", "after 'whim block' and 'whim expel'")],
    )
    .files(&[ORDERS]),
    page("expel", &[("whim expel", "returns when no guest is left")]).files(&[ORDERS]),
    page(
        "evacuate",
        &[
            (
                "whim evacuate",
                "before a shutdown; the unit whim-evacuate does it",
            ),
            ("whim evacuate --undo", "the node does not go down"),
        ],
    ),
    page(
        "drain",
        &[
            (
                "whim drain n2",
                "on any node; when it returns, all nodes that are reached know it",
            ),
            (
                "whim drain --wait n2",
                "until n2's own processes have ended, too",
            ),
        ],
    )
    .files(&[ORDERS]),
    page("undrain", &[("whim undrain n2", "n2 takes guests again")]).files(&[ORDERS]),
    page(
        "ps",
        &[
            ("whim ps", "programs that may move, and where they are"),
            ("whim ps --all --json", "ended ones, too, as objects"),
        ],
    )
    .explained(("Columns", COLUMNS_OF_PROGRAMS)),
    page(
        "why",
        &[(
            "whim why 4711",
            "what keeps process 4711, or where it is and why",
        )],
    ),
    page(
        "log",
        &[
            ("whim log", "what moved, and why"),
            (
                "whim log --calls 4711",
                "which system calls process 4711 sent home",
            ),
        ],
    )
    .files(&[KEPT]),
    page(
        "history",
        &[
            ("whim history", "the last two hours"),
            ("whim history --since 7d --json", "a week, as objects"),
        ],
    )
    .files(&[KEPT]),
    page(
        "top",
        &[
            ("whim top", "programs, live; '?' lists the keys"),
            ("whim top --once", "one table, for a script"),
        ],
    )
    .explained(("Columns", COLUMNS_OF_PROGRAMS)),
    page(
        "mon",
        &[
            ("whim mon", "nodes, live"),
            ("whim mon --json", "the feed, for other programs"),
            ("whim mon --from feed.jsonl", "a feed that was recorded so"),
        ],
    )
    .explained(("Columns", COLUMNS)),
    page(
        "web",
        &[("whim web", "a link, for a browser that reaches this node")],
    ),
    page(
        "nodes",
        &[
            ("whim nodes", "the nodes of the cluster, and their load"),
            ("whim nodes --json", "an object for each"),
        ],
    )
    .explained(("Columns", COLUMNS)),
    page(
        "lab",
        &[
            ("whim lab up", "three nodes, n1 to n3"),
            ("whim lab exec n1 -- whim nodes", "a command on the first"),
            ("whim lab down", "all of it is removed"),
        ],
    )
    .files(&[LABS]),
    page(
        "lab up",
        &[
            ("whim lab up --nodes 4", "four nodes"),
            (
                "whim lab up --cpu 0.8,0.4 --memory 2G",
                "of different strength",
            ),
            (
                "whim lab up --name slow --delay 20ms --loss 1%",
                "another lab, with bad links",
            ),
        ],
    )
    .files(&[LABS]),
    page(
        "lab exec",
        &[
            ("whim lab exec n1", "a shell on n1"),
            ("whim lab exec n1 -- whim ps", "a command there"),
            ("whim lab exec --user nobody n2 -- id", "as another user"),
        ],
    )
    .ends(ENDS_OF_EXEC),
    page(
        "lab cut",
        &[("whim lab cut n1 n2", "they do not hear each other any more")],
    ),
    page(
        "lab heal",
        &[("whim lab heal n1 n2", "after 'whim lab cut n1 n2'")],
    ),
    page(
        "lab link",
        &[
            (
                "whim lab link n1 n2 --delay 50ms --rate 10mbit",
                "a slow link",
            ),
            ("whim lab link n1 n2", "a plain one again"),
        ],
    ),
    page("lab kill", &[("whim lab kill n3", "as a loss of power")]),
    page(
        "lab start",
        &[
            ("whim lab start n3", "after 'whim lab kill n3'"),
            ("whim lab start --daemon n3", "its daemon has ended"),
        ],
    ),
    page(
        "lab pause",
        &[("whim lab pause n2", "nothing on n2 goes on")],
    ),
    page(
        "lab resume",
        &[("whim lab resume n2", "after 'whim lab pause n2'")],
    ),
    page(
        "lab record",
        &[(
            "whim lab record load.jsonl --seconds 60",
            "a minute of what programs do, for whim-sim",
        )],
    ),
    page(
        "lab status",
        &[
            ("whim lab status", "nodes, daemons and links"),
            ("whim lab status --json", "and where logs are"),
        ],
    )
    .files(&[LABS]),
    page("lab list", &[("whim lab list", "labs of all users")]).files(&[LABS]),
    page(
        "lab web",
        &[(
            "whim lab web n2",
            "n2's page, until the command is interrupted",
        )],
    ),
    page(
        "lab down",
        &[
            ("whim lab down", "removes the lab 'lab'"),
            ("whim lab down --name slow", "removes the lab 'slow'"),
        ],
    )
    .files(&[LABS]),
    page(
        "init",
        &[
            (
                "whim init",
                "a cluster of this node, under the machine's name",
            ),
            (
                "whim init --node n1 --advertise n1.example:7946",
                "under these names",
            ),
            (
                "whim init --restore ca.backup",
                "the CA of a lost node is held here now",
            ),
        ],
    )
    .files(&[IDENTITY]),
    page(
        "token",
        &[(
            "whim token",
            "prints a token; 'whim join HOST' on the new node asks for it",
        )],
    ),
    page(
        "join",
        &[
            ("whim join n1", "asks for a token of n1's"),
            (
                "whim join n1.example:7946 --token-file token",
                "reads it from a file that nobody else may read",
            ),
        ],
    )
    .files(&[IDENTITY]),
    page(
        "leave",
        &[
            ("whim leave", "asks, and leaves"),
            ("whim leave --force --yes", "asks nothing, whatever is lost"),
        ],
    )
    .files(&[IDENTITY]),
    page(
        "remove",
        &[("whim remove n3", "asks, and puts n3 out of the cluster")],
    ),
    page(
        "ca",
        &[("whim ca backup ca.backup", "a copy, to be kept elsewhere")],
    )
    .files(&[IDENTITY]),
    page(
        "ca backup",
        &[
            (
                "whim ca backup ca.backup",
                "'whim init --restore ca.backup' takes it up",
            ),
            (
                "whim ca backup -",
                "to standard output, for another program; 'whim init --restore -' takes it up",
            ),
        ],
    )
    .files(&[IDENTITY]),
    page(
        "doctor",
        &[
            ("whim doctor", "what hinders programs, and how to mend it"),
            ("whim doctor --json", "an object for each finding"),
        ],
    )
    .ends(ENDS_OF_DOCTOR)
    .files(&[CONFIGURATION, SOCKETS]),
    page(
        "config",
        &[("whim config check", "the configuration of this node")],
    )
    .files(&[CONFIGURATION]),
    page(
        "config check",
        &[
            ("whim config check", "the configuration of this node"),
            (
                "whim config check new.toml",
                "one that is to take its place",
            ),
        ],
    )
    .files(&[CONFIGURATION]),
    page(
        "tune",
        &[
            ("whim tune", "all keys and their values"),
            ("whim tune balance.fair", "one of them"),
            (
                "whim tune balance.fair true",
                "until the daemon ends; the configuration is left as it is",
            ),
        ],
    )
    .files(&[CONFIGURATION]),
    page(
        "completions",
        &[
            (
                "whim completions bash",
                "source <(whim completions bash) in ~/.bashrc",
            ),
            (
                "whim completions zsh",
                "into _whim in a directory of $fpath",
            ),
            (
                "whim completions fish",
                "whim completions fish | source in config.fish",
            ),
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, command};
    use clap::{Command, Parser};

    fn each(command: &Command, verb: &str, see: &mut dyn FnMut(&str, &Command)) {
        see(verb, command);
        for below in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let path = format!("{verb} {}", below.get_name());
            each(below, path.trim_start(), see);
        }
    }

    #[test]
    fn every_verb_has_examples_and_says_how_it_ends() {
        let mut seen = 0;
        each(&command(), "", &mut |verb, command| {
            let page = of(verb).unwrap_or_else(|| panic!("'{verb}' has no page"));
            assert!(!page.ends.is_empty(), "{verb}");
            let most = if verb.is_empty() { 6 } else { 3 };
            assert!((1..=most).contains(&page.examples.len()), "{verb}");
            let help = command.get_after_long_help().expect("a help").to_string();
            assert!(help.starts_with("Examples:\n  whim "), "{verb}: {help}");
            seen += 1;
        });
        assert_eq!(seen, PAGES.len(), "a page of no verb, or two of one");
    }

    #[test]
    fn examples_are_understood_and_are_of_their_verb() {
        for page in PAGES {
            for (example, _) in page.examples {
                let words = example.split(' ');
                if let Err(error) = Arguments::try_parse_from(words) {
                    panic!("{example}: {error}");
                }
                let start = format!("whim {}", page.verb);
                let rest = example.strip_prefix(start.trim_end());
                let whole = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
                assert!(whole, "'{example}' is no example of '{}'", page.verb);
            }
        }
    }
}
