//! Words for completions that only a running system knows: nodes, programs, labels, keys of `tune`, labs.
//!
//! The scripts of `whim completions` ask `whim complete-words -- LINE...` at each press of the key, with the words of
//! the line up to the cursor. Here is decided what stands at that place, by the definition of the command line, so that
//! the scripts know nothing of verbs. Exit status 1: the place takes no such words, and the script goes on as without;
//! 3: it takes names of files; 4: it belongs to a program that is to be run, whose name is the word of the number told.

use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Arg, Command, CommandFactory, ValueHint};
use whim_control::client::ControlError;
use whim_control::protocol::{Answer, NodeRow, Request};
use whim_lab::Lab;

use crate::arguments::Arguments;
use crate::monitor::Connect;
use crate::output;

/// Whoever presses the key waits no longer for words, whatever the daemon does.
const PATIENCE: Duration = Duration::from_millis(200);
/// The most words that are told, and the most letters that are told about one.
const WORDS_MAX: usize = 1000;
const ABOUT_MAX: usize = 40;
/// The lab of verbs without `--name`.
const LAB: &str = "lab";

/// What is wanted at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A node.
    Node,
    /// A node, `@LABEL`, `best` or `home`.
    Target,
    /// As a target, but not home.
    Host,
    /// Nodes and `@LABEL`s with commas between them.
    Hosts,
    /// A program of this node.
    Program,
    /// A key of the configuration that may be changed.
    Key,
    Lab,
    /// A node of the lab that `--name` says.
    LabNode,
}

impl Kind {
    /// Words that need nobody to be asked.
    fn fixed(self) -> &'static [&'static str] {
        match self {
            Self::Target => &["home", "best"],
            Self::Host => &["best"],
            _ => &[],
        }
    }
}

/// What an argument of a verb (`lab cut`) takes, if only a running system knows its words.
fn kind(verb: &str, argument: &str) -> Option<Kind> {
    Some(match (verb, argument) {
        ("migrate" | "bring" | "go" | "why" | "log", "pid") | ("log", "calls") => Kind::Program,
        ("migrate", "to") => Kind::Target,
        ("run", "on") => Kind::Host,
        ("run" | "shell", "only" | "avoid") => Kind::Hosts,
        ("drain" | "undrain" | "remove", "node") => Kind::Node,
        ("tune", "key") => Kind::Key,
        // Its name is a new one.
        ("lab up", _) => return None,
        (verb, "name") if verb.starts_with("lab ") => Kind::Lab,
        (verb, "node" | "one" | "other") if verb.starts_with("lab ") => Kind::LabNode,
        _ => return None,
    })
}

/// Exit statuses beside those of all verbs.
const FILES: u8 = 3;
const OF_PROGRAM: u8 = 4;

/// What the end of a command line is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Words(Place),
    Files,
    /// A part of the command of a program whose name is the word of this number.
    Program(usize),
    /// Nothing of which only a running system knows.
    Other,
}

/// A place in the command line at which words are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    kind: Kind,
    /// What stands before the word and goes with it: `--only=n1,`.
    before: String,
    /// The beginning of the word.
    begun: String,
    lab: String,
}

impl End {
    /// That of `words`, the first of which is the program.
    fn of(whole: &Command, words: &[String]) -> Self {
        let Some((last, earlier)) = words.split_last() else {
            return Self::Other;
        };
        let mut reader = Reader::new(whole);
        for (number, word) in earlier.iter().enumerate().skip(1) {
            if reader.read(word).is_none() {
                return match reader.place() {
                    Some(_) => Self::Program(number),
                    None => Self::Other,
                };
            }
        }
        let Some((argument, before, begun)) = reader.at(last) else {
            return Self::Other;
        };
        if argument.is_trailing_var_arg_set() {
            return Self::Program(earlier.len());
        }
        let hint = argument.get_value_hint();
        match Place::at(&reader, argument, (before, begun)) {
            Some(place) => Self::Words(place),
            None if matches!(hint, ValueHint::AnyPath | ValueHint::FilePath) => Self::Files,
            None => Self::Other,
        }
    }
}

impl Place {
    fn at(reader: &Reader<'_>, argument: &Arg, (before, begun): (&str, &str)) -> Option<Self> {
        let kind = kind(&reader.verb, argument.get_id().as_str())?;
        let (mut before, mut begun) = (before.to_owned(), begun.to_owned());
        if let (Kind::Hosts, Some((listed, rest))) = (kind, begun.clone().rsplit_once(',')) {
            before = format!("{before}{listed},");
            rest.clone_into(&mut begun);
        }
        let lab = reader.lab.clone();
        Some(Self {
            kind,
            before,
            begun,
            lab,
        })
    }

    /// The word as it is told, if it begins as what was typed. A word with other letters than names have is none: the
    /// shell puts it into the command line as it is.
    fn completed(&self, word: &str) -> Option<String> {
        let named = |byte: u8| byte.is_ascii_alphanumeric() || b"@._:-".contains(&byte);
        let is_name = word.bytes().all(named) && !word.starts_with('-');
        let listed = self.before.split([',', '=']).any(|earlier| earlier == word);
        let fits = is_name && !listed && word.starts_with(&self.begun);
        fits.then(|| format!("{}{word}", self.before))
    }
}

/// Reads a command line as far as it was typed.
struct Reader<'a> {
    command: &'a Command,
    verb: String,
    /// Arguments without a name that were read.
    places: usize,
    /// An option whose value comes next.
    open: Option<&'a Arg>,
    /// `--` was read.
    plain: bool,
    lab: String,
}

impl<'a> Reader<'a> {
    fn new(whole: &'a Command) -> Self {
        Self {
            command: whole,
            verb: String::new(),
            places: 0,
            open: None,
            plain: false,
            lab: LAB.to_owned(),
        }
    }

    /// The option of this name, if it takes a value.
    fn option(&self, name: &str) -> Option<&'a Arg> {
        // `get_opts` takes flags for options with values, as long as nothing was parsed.
        let mut arguments = self.command.get_arguments();
        arguments.find(|argument| {
            let aliases = argument.get_all_aliases().unwrap_or_default();
            let is_named = argument.get_long() == Some(name) || aliases.contains(&name);
            is_named && argument.get_action().takes_values()
        })
    }

    fn note(&mut self, option: Option<&Arg>, value: &str) {
        if option.is_some_and(|option| option.get_id() == "name") {
            value.clone_into(&mut self.lab);
        }
    }

    /// Takes the next word; nothing, if all that follows belongs to a program that is to be run.
    fn read(&mut self, word: &str) -> Option<()> {
        if let Some(option) = self.open.take() {
            self.note(Some(option), word);
        } else if !self.plain && word == "--" {
            self.plain = true;
        } else if let Some(name) = word.strip_prefix("--").filter(|_| !self.plain) {
            match name.split_once('=') {
                Some((name, value)) => self.note(self.option(name), value),
                None => self.open = self.option(name),
            }
        } else if !self.plain && word.starts_with('-') {
            // Options of one letter take no values.
        } else if let Some(verb) = self.below(word) {
            self.command = verb;
            let space = if self.verb.is_empty() { "" } else { " " };
            self.verb = format!("{}{space}{}", self.verb, verb.get_name());
        } else {
            self.place()
                .filter(|argument| !argument.is_trailing_var_arg_set())?;
            self.places += 1;
        }
        Some(())
    }

    fn below(&self, word: &str) -> Option<&'a Command> {
        let verb = self.command.find_subcommand(word);
        verb.filter(|_| self.places == 0 && !self.plain)
    }

    /// The argument without a name that comes next.
    fn place(&self) -> Option<&'a Arg> {
        self.command.get_positionals().nth(self.places)
    }

    /// What the last word, which is not whole, belongs to, and its two parts: what goes before, and the word itself.
    fn at<'b>(&self, last: &'b str) -> Option<(&'a Arg, &'b str, &'b str)> {
        if let Some(option) = self.open {
            return Some((option, "", last));
        }
        if self.plain || !last.starts_with('-') {
            return Some((self.place()?, "", last));
        }
        let (name, value) = last.strip_prefix("--")?.split_once('=')?;
        let (before, _) = last.split_at(last.len() - value.len());
        Some((self.option(name)?, before, value))
    }
}

/// Tells the words for the end of a command line, one a line, each with a tab and what it is about where that helps.
pub(crate) fn answer(line: &[String], connect: Connect) -> ExitCode {
    let place = match End::of(&Arguments::command(), line) {
        End::Words(place) => place,
        End::Files => return ExitCode::from(FILES),
        End::Program(number) => {
            output::line(&number.to_string());
            return ExitCode::from(OF_PROGRAM);
        }
        End::Other => return ExitCode::FAILURE,
    };
    let deadline = Instant::now() + PATIENCE;
    let (sender, found) = channel();
    let asked = place.clone();
    // A daemon that does not answer is left alone with its question when this program ends.
    thread::spawn(move || {
        // Nobody is there to be told why there are no words.
        let _ = find(&asked, &connect, &sender);
    });
    let mut told: Vec<String> = Vec::new();
    let mut tell = |word: &str, about: Option<&str>| {
        let Some(text) = place.completed(word) else {
            return;
        };
        if told.contains(&text) || told.len() >= WORDS_MAX {
            return;
        }
        match about {
            Some(about) => output::line(&format!("{text}\t{about}")),
            None => output::line(&text),
        }
        told.push(text);
    };
    place.kind.fixed().iter().for_each(|word| tell(word, None));
    let left = || deadline.saturating_duration_since(Instant::now());
    while let Ok((word, about)) = found.recv_timeout(left()) {
        tell(&word, about.as_deref());
    }
    ExitCode::SUCCESS
}

/// A word, and what it is about.
type Found = (String, Option<String>);

fn find(place: &Place, connect: &Connect, found: &Sender<Found>) -> Result<(), ControlError> {
    let tell = |word: &str| {
        // Nobody listens any more when the time is over.
        let _ = found.send((word.to_owned(), None));
    };
    match place.kind {
        Kind::Node => nodes(connect)?.iter().for_each(|row| tell(&row.name)),
        Kind::Target | Kind::Host | Kind::Hosts => {
            let rows = nodes(connect)?;
            rows.iter().for_each(|row| tell(&row.name));
            let labels = rows.iter().flat_map(|row| row.labels.iter().flatten());
            labels.for_each(|label| tell(&format!("@{label}")));
        }
        Kind::Program => programs(place, connect, found)?,
        Kind::Key => {
            let every = Request::Tune {
                key: None,
                value: None,
            };
            connect()?.ask(&every, |answer| {
                if let Answer::Knob(knob) = answer {
                    tell(&knob.key);
                }
            })?;
        }
        Kind::Lab => Lab::list()
            .into_iter()
            .flatten()
            .for_each(|name| tell(&name)),
        Kind::LabNode => {
            let status = Lab::status_of(&place.lab).ok();
            let nodes = status.into_iter().flat_map(|status| status.nodes);
            nodes.for_each(|node| tell(&node.name));
        }
    }
    Ok(())
}

fn nodes(connect: &Connect) -> Result<Vec<NodeRow>, ControlError> {
    let mut rows = Vec::new();
    connect()?.ask(&Request::Nodes, |answer| {
        if let Answer::Node(row) = answer {
            rows.push(row);
        }
    })?;
    Ok(rows)
}

/// Programs whose home this is: by their numbers, or with the name of the node, as they were begun.
fn programs(place: &Place, connect: &Connect, found: &Sender<Found>) -> Result<(), ControlError> {
    let own = nodes(connect)?.into_iter().next().map(|row| row.name);
    let with_home = place
        .begun
        .contains(|letter: char| !letter.is_ascii_digit());
    connect()?.ask(&Request::Processes { all: false }, |answer| {
        let Answer::Process(row) = answer else {
            return;
        };
        if own.as_ref() != Some(&row.home) {
            return;
        }
        let about: String = row.command.chars().take(ABOUT_MAX).collect();
        let word = if with_home {
            format!("{}:{}", row.home, row.pid)
        } else {
            row.pid.to_string()
        };
        let _ = found.send((word, Some(about)));
    })?;
    Ok(())
}

/// Options that take such words, for shells that are told of each.
#[must_use]
pub(crate) fn options() -> Vec<String> {
    let mut options = Vec::new();
    each_argument(&Arguments::command(), "", &mut |verb, argument| {
        let id = argument.get_id().as_str();
        if let Some(long) = argument.get_long().filter(|_| kind(verb, id).is_some()) {
            options.push(long.to_owned());
        }
    });
    options.sort();
    options.dedup();
    options
}

fn each_argument(command: &Command, verb: &str, see: &mut dyn FnMut(&str, &Arg)) {
    for argument in command.get_arguments() {
        see(verb, argument);
    }
    for below in command.get_subcommands() {
        let name = below.get_name();
        let path = if verb.is_empty() {
            name.to_owned()
        } else {
            format!("{verb} {name}")
        };
        each_argument(below, &path, see);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(line: &str) -> End {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        End::of(&Arguments::command(), &words)
    }

    fn at(line: &str) -> Option<Place> {
        match end(line) {
            End::Words(place) => Some(place),
            _ => None,
        }
    }

    #[test]
    fn files_and_programs_are_left_to_the_shell() {
        for (line, expected) in [
            ("whim run ", End::Program(2)),
            ("whim run --on n1 -- vi", End::Program(5)),
            ("whim run --pin vim --on ", End::Program(3)),
            ("whim run -- cat drain ", End::Program(3)),
            ("whim lab exec --name l n1 -- ls -", End::Program(7)),
            ("whim top --from ", End::Files),
            ("whim join --token-file x", End::Files),
            ("whim config check ", End::Files),
            ("whim run -", End::Other),
            ("whim drain n1 n2 ", End::Other),
        ] {
            assert_eq!(end(line), expected, "{line}");
        }
    }

    #[test]
    fn what_stands_at_a_place_follows_from_the_words_before_it() {
        for (line, kind, before, begun) in [
            ("whim drain ", Kind::Node, "", ""),
            ("whim drain --wait n", Kind::Node, "", "n"),
            ("whim undrain n", Kind::Node, "", "n"),
            ("whim migrate 4", Kind::Program, "", "4"),
            ("whim migrate 4 @f", Kind::Target, "", "@f"),
            ("whim migrate --json 4 ", Kind::Target, "", ""),
            ("whim log --calls n1:", Kind::Program, "", "n1:"),
            ("whim run --on ", Kind::Host, "", ""),
            ("whim run --on=b", Kind::Host, "--on=", "b"),
            ("whim run --pin --only n1,@f", Kind::Hosts, "n1,", "@f"),
            ("whim shell --avoid=n1,", Kind::Hosts, "--avoid=n1,", ""),
            ("whim tune balance.", Kind::Key, "", "balance."),
            ("whim lab cut n1 ", Kind::LabNode, "", ""),
            ("whim lab down --name l", Kind::Lab, "", "l"),
            ("whim remove -y -- n", Kind::Node, "", "n"),
        ] {
            let place = at(line).unwrap_or_else(|| panic!("{line}: no words"));
            let found = (place.kind, place.before.as_str(), place.begun.as_str());
            assert_eq!(found, (kind, before, begun), "{line}");
        }
        let place = at("whim lab exec --name other n").expect("a node of a lab");
        assert_eq!((place.kind, place.lab.as_str()), (Kind::LabNode, "other"));
    }

    #[test]
    fn all_other_places_are_left_to_the_definition() {
        for line in [
            "whim",
            "whim dr",
            "whim drain --",
            "whim drain n1 ",
            "whim run ",
            "whim run --only n1 vim ",
            "whim run -- cat drain ",
            "whim run --lease ",
            "whim tune balance.fair ",
            "whim lab up --name ",
            "whim lab ",
            "whim adopt ",
            "whim no-such-verb ",
        ] {
            assert_eq!(at(line), None, "{line}");
        }
    }

    /// A verb that is added says here whether it takes such words.
    #[test]
    fn whatever_is_called_as_such_words_takes_them() {
        let names = [
            "pid", "to", "on", "only", "avoid", "node", "one", "other", "key", "calls", "name",
        ];
        // They name what nobody knows yet, or nothing that is there.
        let new = [
            "adopt pid",
            "init node",
            "join node",
            "lab up name",
            "run run_name",
        ];
        let mut taken = 0;
        each_argument(&Arguments::command(), "", &mut |verb, argument| {
            let id = argument.get_id().as_str();
            let known = kind(verb, id).is_some();
            let expected = names.contains(&id) && !new.contains(&format!("{verb} {id}").as_str());
            assert_eq!(known, expected, "{verb} {id}");
            taken += usize::from(known);
        });
        assert!(taken > 30, "{taken}");
        assert_eq!(options(), ["avoid", "calls", "name", "on", "only"]);
    }

    #[test]
    fn words_that_a_shell_would_understand_otherwise_are_none() {
        let place = at("whim run --only=n1,").expect("nodes");
        assert_eq!(place.completed("n2").as_deref(), Some("--only=n1,n2"));
        assert_eq!(place.completed("@fast").as_deref(), Some("--only=n1,@fast"));
        assert_eq!(place.completed("n1"), None, "it is in the list");
        for odd in ["$(reboot)", "a b", "a;b", "`x`", "-rf", "a\nb", "n/../x"] {
            assert_eq!(place.completed(odd), None, "{odd}");
        }
        let begun = at("whim drain n1").expect("nodes");
        assert_eq!(begun.completed("n10").as_deref(), Some("n10"));
        assert_eq!(begun.completed("n2"), None);
    }
}
