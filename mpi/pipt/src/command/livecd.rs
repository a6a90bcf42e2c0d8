//! `pipt experiment livecd`.

use super::{CommandError, path};
use crate::experiment::{Livecd, NODES, NODES_MAX, SMALL_NODES};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::path::PathBuf;

/// A process that moves more often fails the experiment, if nothing is said.
const MOVES: &str = "4";

pub(super) fn command() -> Command {
    let value = |name: &'static str, value: &'static str, about: &'static str| {
        Arg::new(name).long(name).value_name(value).help(about)
    };
    let directory = |name, about| {
        let arg = value(name, "DIR", about).required(true);
        arg.value_parser(value_parser!(PathBuf))
    };
    let nodes = u64::try_from(NODES_MAX).unwrap_or(u64::MAX);
    Command::new("experiment")
        .about(
            "Repeat the experiment of a paper: routines over images, by MPI and by processes that migrate, in a lab of \
             several nodes on this machine (as root)",
        )
        .arg(
            Arg::new("which")
                .value_name("WHICH")
                .required(true)
                .value_parser(PossibleValuesParser::new(["livecd"]))
                .help("\"Live cd cluster performance\", 2004"),
        )
        .arg(directory("images", "The images: .tif, .png and .jpg files of a directory"))
        .arg(directory("report", "The new directory of the report: report.md, figures, data.json"))
        .arg(
            value("nodes", "N", "Nodes of the lab [default: 5; of the small form 3]")
                .value_parser(value_parser!(u64).range(2..=nodes)),
        )
        .arg(
            value("routines", "N", "The eight of texture, or all fifteen of the paper")
                .value_parser(PossibleValuesParser::new(["8", "15"]))
                .default_value("8"),
        )
        .arg(
            Arg::new("small")
                .long("small")
                .action(ArgAction::SetTrue)
                .help("Images are cut to 1024 x 1024 pixels"),
        )
        .arg(
            value("cpu", "CPUS", "Of each node, such as 0.4 [default: all there are, shared equally]")
                .value_parser(value_parser!(f64)),
        )
        .arg(
            value("window", "PIXELS", "Of texture, medians and means, to a side")
                .value_parser(["3", "5", "7", "9", "11", "13", "15"])
                .default_value("15"),
        )
        .arg(
            value("levels", "N", "Grey levels of texture")
                .value_parser(value_parser!(u32).range(2..=256))
                .default_value("64"),
        )
        .arg(
            value("instructions", "SET", "Slower ones give processes more time to move")
                .value_parser(["scalar", "sse4.2", "avx2", "avx512"])
                .default_value("scalar"),
        )
        .arg(
            value("moves-max", "N", "A process that moves more often fails the experiment")
                .value_parser(value_parser!(u64).range(1..))
                .default_value(MOVES),
        )
}

pub(super) fn asked(words: &ArgMatches) -> Result<Livecd, CommandError> {
    let small = words.get_flag("small");
    let text = |name: &str| words.get_one::<String>(name).cloned().unwrap_or_default();
    let given = words.get_one::<u64>("nodes").copied();
    let given = given.and_then(|nodes| usize::try_from(nodes).ok());
    let cpu = words.get_one::<f64>("cpu").copied();
    if let Some(wrong) = cpu.filter(|cpu| !(0.05..=64.0).contains(cpu)) {
        return Err(CommandError::Cpu(wrong));
    }
    Ok(Livecd {
        images: path(words, "images"),
        nodes: given.unwrap_or(if small { SMALL_NODES } else { NODES }),
        all_routines: text("routines") == "15",
        small,
        cpu,
        report: path(words, "report"),
        window: text("window").parse().unwrap_or_default(),
        levels: words.get_one("levels").copied().unwrap_or_default(),
        instructions: text("instructions"),
        moves_max: words.get_one("moves-max").copied().unwrap_or_default(),
    })
}
