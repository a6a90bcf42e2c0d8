//! The report: Markdown, figures, and all data as JSON.

use super::error::ExperimentError;
use super::figures::{self, mean};
use super::record::{Outcome, Run};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// # Errors
///
/// The directory has something in it already.
pub fn is_free(directory: &Path) -> Result<(), ExperimentError> {
    match fs::read_dir(directory) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(ExperimentError::Taken(directory.to_owned())),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(ExperimentError::file("read", directory, error)),
    }
}

/// Writes `report.md`, `data.json` and the figures into a directory.
///
/// # Errors
///
/// It cannot be written.
pub fn write(directory: &Path, outcome: &Outcome) -> Result<(), ExperimentError> {
    fs::create_dir_all(directory)
        .map_err(|error| ExperimentError::file("made", directory, error))?;
    let data = serde_json::to_string_pretty(outcome).unwrap_or_default() + "\n";
    let mut files = vec![("data.json".to_owned(), data)];
    let figures = figures(outcome);
    files.push(("report.md".to_owned(), markdown(outcome, &figures)));
    files.extend(figures.into_iter().map(|figure| (figure.file, figure.svg)));
    for (name, text) in files {
        super::jobs::write(&directory.join(name), &text)?;
    }
    Ok(())
}

/// A figure, and what stands below it.
pub struct Figure {
    pub file: String,
    pub svg: String,
    pub about: String,
}

/// Like the paper's: 1 to 3 the times, 4 and 5 who ran where, 6 all moves.
#[must_use]
pub fn figures(outcome: &Outcome) -> Vec<Figure> {
    let nodes = outcome.setting.nodes;
    let mut all = Vec::new();
    let mut add = |number: usize, svg: String, about: &str| {
        all.push(Figure {
            file: format!("figure-{number}.svg"),
            svg,
            about: format!("Figure {number}: {about}"),
        });
    };
    let mut sorted = outcome.plain.clone();
    sorted.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let title = "Mean time for an image, one process";
    add(
        1,
        figures::bars(title, &sorted),
        "all routines by one process, outside of the lab, the quickest first",
    );
    let title = "Mean time for an image, manager and workers over MPI";
    add(
        2,
        figures::bars(title, &outcome.ranks),
        "the routines with manager and workers over MPI",
    );
    let title = "Mean time for an image, processes that may move";
    add(
        3,
        figures::bars(title, &outcome.spread.runs),
        "the routines as processes that the balancer spreads",
    );
    let groups = outcome.spread.groups.len();
    for (number, group) in [(4, 0), (5, groups.saturating_sub(1))] {
        if let Some(look) = figures::spread_out(&outcome.spread, group) {
            let which = if number == 4 { "first" } else { "last" };
            let title = format!("Who ran where: the {which} group, when it was spread out");
            let about = format!(
                "a snapshot of the {which} routines that were started together, all on n1; dotted lines lead to those away"
            );
            add(number, figures::snapshot(&title, nodes, look), &about);
        }
    }
    let title = "Where each process was, and its moves";
    add(
        6,
        figures::moves(title, nodes, outcome),
        "all processes over time, and each move as an arrow",
    );
    all
}

fn duration(seconds: f64) -> String {
    match seconds {
        short if short < 120.0 => format!("{short:.1} s"),
        long => format!("{:.0} min {:.0} s", (long / 60.0).floor(), long % 60.0),
    }
}

fn markdown(outcome: &Outcome, figures: &[Figure]) -> String {
    let mut text = String::from(
        "# \"Live cd cluster performance\", repeated\n\nThe experiment of H. Estevez (Columbia University, 10 May 2004): \
         routines of image processing over a set of images, once with a manager and workers over MPI, once as \
         independent processes that were started on one node and that the cluster spreads.\n\n",
    );
    checks(&mut text, outcome);
    setting(&mut text, outcome);
    totals(&mut text, outcome);
    routines(&mut text, outcome);
    moved(&mut text, outcome);
    text.push_str("## Figures\n\n");
    for figure in figures {
        let _ = writeln!(
            text,
            "![{}]({})\n\n{}.\n",
            figure.about, figure.file, figure.about
        );
    }
    images(&mut text, outcome);
    text
}

fn checks(text: &mut String, outcome: &Outcome) {
    text.push_str("| check | passed | found |\n|---|---|---|\n");
    for check in &outcome.checks {
        let passed = if check.passed { "yes" } else { "**no**" };
        let _ = writeln!(text, "| {} | {passed} | {} |", check.what, check.found);
    }
}

fn setting(text: &mut String, outcome: &Outcome) {
    let setting = &outcome.setting;
    let small = match setting.small {
        true => format!(
            "This is the small form: each image is cut to {0} x {0} pixels. ",
            super::SMALL_SIDE
        ),
        false => String::new(),
    };
    let _ = writeln!(
        text,
        "\n## How to read it\n\n{small}The {} nodes are a lab: namespaces of one machine, which has {} CPUs; each node may \
         use {:.2} of one. They share its memory, its caches and its disk, and their network is a bridge in the kernel. \
         **So the times show the shape of the experiment, and not the speed of a cluster**: nothing here says that one \
         way is faster on machines of their own.\n\nTexture, medians and trimmed means have windows of {3} x {3} \
         instead of the paper's unknown ones; texture has {4} grey levels. All processes have one thread and the \
         instruction set `{5}` (pipt {6}).\n",
        setting.nodes,
        setting.cpus_of_machine,
        setting.cpus_of_node,
        setting.window,
        setting.levels,
        setting.instructions,
        setting.version
    );
}

fn totals(text: &mut String, outcome: &Outcome) {
    let groups = outcome
        .spread
        .groups
        .iter()
        .map(|group| duration(group.seconds));
    let groups: Vec<String> = groups.collect();
    let _ = writeln!(
        text,
        "## Totals\n\n| | here | the paper's, on its machines of 2004 |\n|---|---|---|\n\
         | manager and workers over MPI | {} | about 3 h 10 min |\n\
         | processes that migrate | {} | about 3 h 4 min |\n\n\
         The first is the sum over the routines, one after the other, in each of which all nodes work on each image. The \
         second is that of the groups of routines that were started together ({}): the slowest of each counts. {}\n",
        duration(outcome.ranks_seconds()),
        duration(outcome.spread_seconds()),
        groups.join(" and "),
        match outcome.setting.all_routines {
            true => "The paper's are of the eight routines of texture alone.",
            false => "Both are of the eight routines of texture, as the paper's.",
        }
    );
}

fn routines(text: &mut String, outcome: &Outcome) {
    text.push_str(
        "## Routines\n\nSeconds for all images, from the start of the program or the launcher to its end, and in \
         parentheses the mean for an image.\n\n| routine | one process | over MPI | migrating |\n|---|---|---|---|\n",
    );
    let cell = |runs: &[Run], routine: &str| {
        let run = runs.iter().find(|run| run.routine == routine);
        run.map_or("-".to_owned(), |run| {
            format!("{:.2} ({:.3})", run.seconds, mean(run))
        })
    };
    for run in &outcome.plain {
        let name = &run.routine;
        let (ranks, spread) = (cell(&outcome.ranks, name), cell(&outcome.spread.runs, name));
        let _ = writeln!(
            text,
            "| {name} | {:.2} ({:.3}) | {ranks} | {spread} |",
            run.seconds,
            mean(run)
        );
    }
    text.push_str(
        "\nOne process runs outside of the lab, where it has a whole CPU. Over MPI a routine has all nodes for itself; a \
         process that migrates has one node, or a part of it, which is why its own time is longer, as the paper's are.\n",
    );
}

fn moved(text: &mut String, outcome: &Outcome) {
    let limit = outcome.setting.moves_max;
    let _ = writeln!(
        text,
        "\n## Moves\n\nAll processes were started on n1. In the paper one process moved 51 times between two nodes before \
         it ended; here more than {limit} moves of a process fail the experiment.\n\n\
         | process | moves | seconds |\n|---|---|---|"
    );
    for process in &outcome.spread.processes {
        let _ = writeln!(
            text,
            "| {} | {} | {:.1} |",
            process.routine, process.moves, process.seconds
        );
    }
    let _ = writeln!(
        text,
        "\n| at | process | from | to | why | MiB | stood still | in all |\n|---|---|---|---|---|---|---|---|"
    );
    let from = outcome
        .spread
        .groups
        .first()
        .map_or(0, |group| group.begin_ms);
    for one in &outcome.spread.moves {
        let after = std::time::Duration::from_millis(one.time_ms.saturating_sub(from));
        let _ = writeln!(
            text,
            "| {:.1} s | {} | {} | {} | {} | {} | {:.0} ms | {:.0} ms |",
            after.as_secs_f64(),
            one.routine,
            one.from,
            one.to,
            one.cause,
            one.bytes >> 20,
            one.freeze_ms,
            one.total_ms
        );
    }
    text.push('\n');
}

fn images(text: &mut String, outcome: &Outcome) {
    text.push_str(
        "## Images\n\n| image | pixels | bands | type | bytes |\n|---|---|---|---|---|\n",
    );
    for one in &outcome.images {
        let _ = writeln!(
            text,
            "| {} | {} x {} | {} | {} | {} |",
            one.image, one.width, one.height, one.bands, one.kind, one.bytes
        );
    }
    text.push_str(
        "\nAll numbers, with times and SHA-256 of each file, are in [data.json](data.json).\n",
    );
}
