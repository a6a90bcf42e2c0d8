//! The command line: its words are made of the tables of routines and parameters, so that help, man pages
//! and completions say what there is.

mod livecd;
mod size;

pub use size::bytes;

use crate::experiment;
use crate::job::{self, From, Image, Input, Job, Write};
use crate::parameter::{Kind, Parameter, ParameterError, Values};
use crate::routine::{self, Routine};
use crate::stop::Stop;
use crate::together::{Collect, Distribution};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use std::path::PathBuf;

/// What was asked for.
#[derive(Debug, PartialEq)]
pub enum Asked {
    /// All routines, or one of them.
    List {
        routine: Option<String>,
        json: bool,
    },
    Info {
        files: Vec<PathBuf>,
        json: bool,
    },
    /// Only what it would take.
    Plan(Work),
    Run(Work),
    Verify(Verify),
    /// The experiment of a paper again.
    Experiment(experiment::Livecd),
    /// A script that completes words.
    Completions(Shell),
    /// Man pages, into a directory.
    Man(PathBuf),
}

/// A job, and how it is to be done.
#[derive(Debug, PartialEq)]
pub struct Work {
    pub job: Job,
    pub how: How,
}

#[derive(Clone, Debug, PartialEq)]
pub struct How {
    /// None: one for each CPU.
    pub threads: Option<usize>,
    /// Bytes that may be used.
    pub memory: u64,
    /// Pixels to a side of what one thread works on at a time; None: what memory allows.
    pub tile: Option<u32>,
    /// None: the last that this machine has.
    pub instructions: Option<String>,
    /// Left, upper, right and lower end of the part that is wanted.
    pub part: Option<[f64; 4]>,
    pub json: bool,
    pub quiet: bool,
    /// Says on standard error how much is done, a number a line: for programs that show it themselves.
    pub percent: bool,
    pub overwrite: bool,
    /// Goes on where it was interrupted.
    pub resume: bool,
    /// Of several ranks.
    pub distribution: Distribution,
    pub collect: Collect,
    /// Set to end the work.
    pub stop: Stop,
}

#[derive(Debug, PartialEq)]
pub struct Verify {
    pub file: PathBuf,
    pub against: Option<PathBuf>,
    pub relative: f64,
    pub absolute: f64,
    pub json: bool,
}

/// Memory that is used if nothing is said.
const MEMORY: &str = "1G";

/// Routines of `pipt texture`, `median` and `noise`: the one of several shapes or kinds is chosen by a word.
const MEDIANS: [(&str, &str); 4] = [
    ("square", "SquareMedian"),
    ("cross", "CrossMedian"),
    ("square-mean", "ATrimmedSqMean"),
    ("cross-mean", "ATrimmedCrMean"),
];
const NOISES: [(&str, &str); 6] = [
    ("gaussian", "AddGaussian"),
    ("uniform", "AddUniform"),
    ("bit-error", "AddBitError"),
    ("salt-pepper", "AddSaltPepper"),
    ("laplacian", "AddLaplacian"),
    ("speckle", "AddSpeckle"),
];
const TEXTURES: [(&str, &str); 1] = [("all", "CoOccur")];

/// What the command's end says.
const ENDS: &str = "Exit status: 0 when all is done, 1 when it could not be done or `verify` found a difference, \
                    2 when it cannot be meant. A file has its name only when it is whole; what an interrupted \
                    run has left is NAME.part with its journal, and --resume goes on with it.";

/// The whole command.
#[must_use]
pub fn command() -> Command {
    Command::new("pipt")
        .about("Texture, medians and noise of images of any size")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("list")
                .about("Show all routines, or the parameters of one")
                .arg(Arg::new("routine").value_name("ROUTINE"))
                .arg(json()),
        )
        .subcommand(
            Command::new("info")
                .about("Show what images are: size, bands, type, layout, tags")
                .arg(files("files", "FILE").num_args(1..))
                .arg(json()),
        )
        .subcommand(how(Command::new("plan")
            .about("Show what a job would read, use and write, without doing it")
            .arg(files("job", "JOB"))))
        .subcommand(how(Command::new("run")
            .about("Do what a batch file says")
            .arg(files("job", "JOB"))))
        .subcommand(one(
            "texture",
            "Features of grey-level co-occurrence around each pixel",
            &TEXTURES,
        ))
        .subcommand(one(
            "median",
            "The median of each pixel's window, or the mean of its middle samples",
            &MEDIANS,
        ))
        .subcommand(one(
            "noise",
            "Add noise, the same however the work is divided",
            &NOISES,
        ))
        .subcommand(verify())
        .subcommand(livecd::command())
        .subcommand(
            Command::new("completions")
                .about("Print completions for a shell")
                .arg(
                    Arg::new("shell")
                        .value_name("SHELL")
                        .required(true)
                        .value_parser(value_parser!(Shell)),
                ),
        )
        .subcommand(
            Command::new("man")
                .about("Write the man pages into a directory")
                .hide(true)
                .arg(files("directory", "DIRECTORY")),
        )
        .after_help(ENDS)
}

fn json() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print JSON, an object a line")
}

fn files(name: &'static str, value: &'static str) -> Arg {
    Arg::new(name)
        .value_name(value)
        .required(true)
        .value_parser(value_parser!(PathBuf))
}

fn verify() -> Command {
    let number = |name: &'static str, about: &'static str, default: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("NUMBER")
            .value_parser(value_parser!(f64))
            .default_value(default)
            .requires("against")
            .help(about)
    };
    Command::new("verify")
        .about("Read every sample of an image and print a sum of them, or compare it with another image")
        .arg(files("file", "FILE"))
        .arg(
            Arg::new("against")
                .long("against")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("The image that it should be equal to"),
        )
        .arg(number("relative", "Differences up to this part of the greater sample are none", "0"))
        .arg(number("absolute", "Differences up to this are none", "0"))
        .arg(json())
}

/// How the work is done.
fn how(command: Command) -> Command {
    let flag = |name: &'static str, about: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(about)
    };
    let value = |name: &'static str, value: &'static str, about: &'static str| {
        Arg::new(name).long(name).value_name(value).help(about)
    };
    let whole = |arg: Arg| arg.value_parser(value_parser!(u32).range(1..));
    command
        .arg(whole(value(
            "threads",
            "N",
            "Threads that compute [default: one for each CPU]",
        )))
        .arg(value("ram", "BYTES", "Memory that may be used, as 512M or 4G").default_value(MEMORY))
        .arg(whole(value(
            "work-tile",
            "PIXELS",
            "What a thread works on at a time [default: as memory allows]",
        )))
        .arg(value(
            "instructions",
            "SET",
            "scalar, sse4.2, avx2 or avx512 [default: the best there is]",
        ))
        .arg(
            value(
                "bbox",
                "LEFT,UPPER,RIGHT,LOWER",
                "Only this part: in the units of the map, or in pixels where there is none",
            )
            .allow_hyphen_values(true),
        )
        .arg(word(
            "distribute",
            "HOW",
            Distribution::ALL.map(Distribution::name).as_slice(),
            Distribution::default().name(),
            "What each rank of an MPI job computes: equal slices of rows, tiles by turns, slices weighted by \
             the measured speed of each, some more whenever it asks (dynamic), or whole files of foreach",
        ))
        .arg(word(
            "collect",
            "HOW",
            Collect::ALL.map(Collect::name).as_slice(),
            Collect::default().name(),
            "How it comes into files: each rank writes its tiles into the one file (direct), sends them to \
             rank 0 (gather), or writes a file of its own, with a VRT over all (parts)",
        ))
        .arg(flag("plan", "Show what it would take, and do nothing"))
        .arg(flag("overwrite", "Replace files that are there"))
        .arg(flag("resume", "Go on where the same work was interrupted"))
        .arg(flag("quiet", "No progress"))
        .arg(flag("percent", "Print to standard error how much is done, a number of percent a line, for other programs"))
        .arg(json())
}

/// An option that is one of some words.
fn word(
    name: &'static str,
    value: &'static str,
    words: &[&'static str],
    default: &'static str,
    about: &'static str,
) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name(value)
        .value_parser(clap::builder::PossibleValuesParser::new(words.to_vec()))
        .default_value(default)
        .help(about)
}

/// A command that does one thing to one image. Of several routines each has its own parameters; one that
/// several have is one option.
fn one(
    name: &'static str,
    about: &'static str,
    kinds: &'static [(&'static str, &'static str)],
) -> Command {
    let mut command = Command::new(name)
        .about(about)
        .arg(files("input", "INPUT").help("The image that is read"))
        .arg(files("output", "OUTPUT").help("The TIFF file that is written"));
    if let [(first, _), _, ..] = kinds {
        let words = kinds.iter().map(|(word, _)| *word);
        command = command.arg(
            Arg::new("kind")
                .long("kind")
                .value_parser(clap::builder::PossibleValuesParser::new(words))
                .default_value(*first)
                .help("Which"),
        );
    }
    let mut known: Vec<&str> = Vec::new();
    let parameters = kinds.iter().filter_map(|(_, name)| routine::of(name));
    let parameters = parameters.flat_map(|routine| routine.parameters);
    for parameter in parameters.chain(job::INPUT).chain(job::OUTPUT) {
        if !known.contains(&parameter.name) {
            known.push(parameter.name);
            command = command.arg(option(parameter));
        }
    }
    how(command)
}

/// A parameter as an option. Its value is read by the parameter itself, as in a batch file.
fn option(parameter: &Parameter) -> Arg {
    let default = parameter.default.filter(|default| !default.is_empty());
    let default = default.map_or(String::new(), |default| format!(" [default: {default}]"));
    let value = match parameter.kind {
        Kind::Whole(..) | Kind::Odd(..) | Kind::Number(..) => "NUMBER",
        Kind::Choice(_) | Kind::YesNo => "WORD",
        Kind::Offsets | Kind::Words(_) | Kind::Numbers => "LIST",
        Kind::Range(_) => "RANGE",
        Kind::Text => "TEXT",
    };
    Arg::new(parameter.name)
        .long(parameter.name)
        .value_name(value)
        .allow_hyphen_values(true)
        .help(format!("{}: {}{default}", parameter.about, parameter.kind))
}

/// Why a command line cannot be followed.
#[derive(Debug)]
pub enum CommandError {
    Parameter(ParameterError),
    /// A size of memory, or a part of an image, cannot be read: what was given.
    Memory(String),
    Part(String),
    /// The batch file cannot be read.
    Job(PathBuf, std::io::Error),
    Faults(PathBuf, job::Faults),
    /// Only UTF-8 can be written into a job.
    Name(PathBuf),
    /// No share of CPUs: what was given.
    Cpu(f64),
}

impl std::fmt::Display for CommandError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Parameter(error) => write!(to, "{error}"),
            Self::Memory(given) => write!(
                to,
                "--ram {given} is no number of bytes: write 800M or 4G, at least 16M"
            ),
            Self::Cpu(given) => write!(
                to,
                "--cpu {given} is no share of CPUs: write a number from 0.05 to 64, such as 0.4"
            ),
            Self::Part(given) => write!(
                to,
                "--bbox {given} is no part of an image: write four numbers, LEFT,UPPER,RIGHT,LOWER"
            ),
            Self::Job(path, error) => write!(to, "{} cannot be read: {error}", path.display()),
            Self::Faults(path, faults) => write!(to, "{}:\n{faults}", path.display()),
            Self::Name(path) => write!(
                to,
                "The name {} is no UTF-8: rename the file, or make a link to it",
                path.display()
            ),
        }
    }
}

impl std::error::Error for CommandError {}

/// What is asked for by words that [`command`] has taken.
///
/// # Errors
///
/// A value cannot be read, or a batch file is not what it should be.
pub fn asked(matches: &ArgMatches) -> Result<Asked, CommandError> {
    let Some((verb, words)) = matches.subcommand() else {
        return Ok(Asked::List {
            routine: None,
            json: false,
        });
    };
    match verb {
        "list" => Ok(Asked::List {
            routine: words.get_one("routine").cloned(),
            json: words.get_flag("json"),
        }),
        "info" => Ok(Asked::Info {
            files: words
                .get_many("files")
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
            json: words.get_flag("json"),
        }),
        "verify" => Ok(Asked::Verify(Verify {
            file: path(words, "file"),
            against: words.get_one("against").cloned(),
            relative: words.get_one("relative").copied().unwrap_or(0.0),
            absolute: words.get_one("absolute").copied().unwrap_or(0.0),
            json: words.get_flag("json"),
        })),
        "experiment" => Ok(Asked::Experiment(livecd::asked(words)?)),
        "completions" => {
            let shell = words.get_one("shell").copied();
            Ok(Asked::Completions(shell.expect("it is required")))
        }
        "man" => Ok(Asked::Man(path(words, "directory"))),
        _ => {
            let job = match verb {
                "plan" | "run" => read_job(path(words, "job"))?,
                _ => job_of(verb, words)?,
            };
            let how = how_of(words)?;
            let work = Work { job, how };
            Ok(match verb == "plan" || words.get_flag("plan") {
                true => Asked::Plan(work),
                false => Asked::Run(work),
            })
        }
    }
}

fn path(words: &ArgMatches, name: &str) -> PathBuf {
    words.get_one::<PathBuf>(name).cloned().unwrap_or_default()
}

fn read_job(path: PathBuf) -> Result<Job, CommandError> {
    let text = std::fs::metadata(&path).and_then(|about| {
        // Longer ones are refused by the parser; this much is enough for it to see that.
        let most = job::BYTES_MAX as u64 + 1;
        match about.len() > most {
            true => Ok("#".repeat(job::BYTES_MAX + 1)),
            false => std::fs::read_to_string(&path),
        }
    });
    let text = text.map_err(|error| CommandError::Job(path.clone(), error))?;
    job::parse(&text).map_err(|faults| CommandError::Faults(path, faults))
}

fn how_of(words: &ArgMatches) -> Result<How, CommandError> {
    let given: &String = words.get_one("ram").expect("it has a default");
    let memory = bytes(given).ok_or_else(|| CommandError::Memory(given.clone()))?;
    let whole = |name: &str| words.get_one::<u32>(name).copied();
    let part = words.get_one::<String>("bbox");
    let part = part.map(|given| part_of(given).ok_or_else(|| CommandError::Part(given.clone())));
    Ok(How {
        threads: whole("threads").map(|count| count as usize),
        memory,
        tile: whole("work-tile"),
        instructions: words.get_one("instructions").cloned(),
        part: part.transpose()?,
        json: words.get_flag("json"),
        quiet: words.get_flag("quiet"),
        percent: words.get_flag("percent"),
        overwrite: words.get_flag("overwrite"),
        resume: words.get_flag("resume"),
        distribution: chosen(
            words,
            "distribute",
            &Distribution::ALL.map(|of| (of.name(), of)),
        ),
        collect: chosen(words, "collect", &Collect::ALL.map(|of| (of.name(), of))),
        stop: Stop::default(),
    })
}

fn chosen<T: Copy + Default>(words: &ArgMatches, name: &str, all: &[(&str, T)]) -> T {
    let word = words.get_one::<String>(name);
    let found = all
        .iter()
        .find(|(name, _)| word.is_some_and(|word| word == name));
    found.map(|(_, chosen)| *chosen).unwrap_or_default()
}

fn part_of(given: &str) -> Option<[f64; 4]> {
    let numbers: Vec<f64> = given
        .split(',')
        .map(|number| number.trim().parse().ok().filter(|n: &f64| n.is_finite()))
        .collect::<Option<_>>()?;
    numbers.try_into().ok()
}

/// A job of one routine.
fn job_of(verb: &str, words: &ArgMatches) -> Result<Job, CommandError> {
    let kinds: &[(&str, &str)] = match verb {
        "median" => &MEDIANS,
        "noise" => &NOISES,
        _ => &TEXTURES,
    };
    let kind = words.try_get_one::<String>("kind").ok().flatten();
    let chosen = kinds
        .iter()
        .find(|(word, _)| kind.is_none_or(|kind| kind == word));
    let chosen = chosen.and_then(|(_, name)| routine::of(name));
    let routine: &'static Routine = chosen.expect("each of them is in the table");
    let text = |name: &str| {
        let path = path(words, name);
        path.to_str()
            .map(str::to_owned)
            .ok_or(CommandError::Name(path))
    };
    let input = Input {
        path: Some(text("input")?),
        values: values(words, job::INPUT)?,
        bands: None,
    };
    let bands = input.values.word("bands").map(job::bands).transpose();
    let bands =
        bands.map_err(|what| CommandError::Faults(path(words, "input"), job::Faults::one(what)))?;
    let source = Image {
        name: "input".to_owned(),
        line: 0,
        from: From::File(Input { bands, ..input }),
    };
    let result = Image {
        name: "output".to_owned(),
        line: 0,
        from: From::Routine {
            routine,
            images: vec![0],
            values: values(words, routine.parameters)?,
        },
    };
    let write = Write {
        line: 0,
        image: 1,
        path: text("output")?,
        values: values(words, job::OUTPUT)?,
    };
    Ok(Job {
        foreach: None,
        images: vec![source, result],
        writes: vec![write],
    })
}

fn values(words: &ArgMatches, parameters: &[Parameter]) -> Result<Values, CommandError> {
    let given = parameters.iter().filter_map(|parameter| {
        let value = words.try_get_one::<String>(parameter.name).ok().flatten()?;
        Some((parameter.name, value.as_str()))
    });
    Values::read(parameters, given).map_err(CommandError::Parameter)
}

#[cfg(test)]
mod tests;
