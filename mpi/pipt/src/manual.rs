//! Man pages and completions, of the definition that also parses the command line, and of the table of
//! routines.

use crate::command::command;
use crate::job::{INPUT, OUTPUT};
use crate::parameter::Parameter;
use crate::routine;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs;
use std::io;
use std::path::Path;

/// The name of the page about routines, and its section.
const ROUTINES: (&str, &str) = ("pipt-routines", "7");

/// What a batch file looks like.
const JOB: &[&str] = &[
    "foreach scenes/*.tif as scene",
    "in scene",
    "calm = SquareMedian scene size=15",
    "rough = CoOccurEntropy calm window=9 levels=64",
    "write rough results/{scene}-entropy.tif compress=zstd tile=512",
];

/// Completions for a shell.
#[must_use]
pub fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut visible(), "pipt", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes `pipt.1`, `pipt-texture.1` and so on, and `pipt-routines.7`, into a directory.
///
/// # Errors
///
/// It cannot be written.
pub fn write(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut command = visible().disable_help_subcommand(true);
    command.build();
    page(&command, "pipt", directory)?;
    for verb in command.get_subcommands() {
        page(verb, &format!("pipt-{}", verb.get_name()), directory)?;
    }
    let (name, section) = ROUTINES;
    fs::write(directory.join(format!("{name}.{section}")), routines())
}

/// The command line without what is hidden.
fn visible() -> Command {
    let whole = command();
    let kept = whole.get_subcommands().filter(|verb| !verb.is_hide_set());
    let kept: Vec<Command> = kept.cloned().collect();
    let mut visible = Command::new("pipt")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommands(kept);
    if let Some(about) = whole.get_about() {
        visible = visible.about(about.clone());
    }
    match whole.get_after_help() {
        Some(text) => visible.after_help(text.clone()),
        None => visible,
    }
}

fn page(command: &Command, name: &str, directory: &Path) -> io::Result<()> {
    let page = command
        .clone()
        .display_name(name.to_owned())
        .bin_name(name.replacen('-', " ", 1));
    let mut text = Vec::new();
    clap_mangen::Man::new(page)
        .title(name.to_uppercase())
        .render(&mut text)?;
    fs::write(directory.join(format!("{name}.1")), text)
}

/// The page about batch files and routines with their parameters.
fn routines() -> String {
    let mut page = Roff::new();
    let (name, section) = ROUTINES;
    page.control("TH", [name.to_uppercase().as_str(), section]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{name} - batch files and routines of pipt"))]);
    page.control("SH", ["BATCH FILES"]);
    page.text([roman(
        "A statement a line: images are read, routines make others of them, and images are written. \
         It is read as a whole before anything is done.",
    )]);
    page.control("nf", []);
    for line in JOB {
        page.text([roman(*line)]);
    }
    page.control("fi", []);
    for (verb, about) in [(INPUT, "in"), (OUTPUT, "write")] {
        page.control("SS", [about]);
        parameters(&mut page, verb);
    }
    let mut family = None;
    for routine in routine::listed() {
        if family != Some(routine.family) {
            page.control("SH", [routine.family.about()]);
            family = Some(routine.family);
        }
        page.control("SS", [routine.name]);
        page.text([roman(routine.about)]);
        parameters(&mut page, routine.parameters);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("pipt-list"),
        roman("(1), "),
        bold("pipt-run"),
        roman("(1)"),
    ]);
    page.render()
}

fn parameters(page: &mut Roff, parameters: &[Parameter]) {
    for parameter in parameters {
        let default = match parameter.default {
            Some("") => String::new(),
            Some(default) => format!(" [{default}]"),
            None => " (has to be given)".to_owned(),
        };
        page.control("TP", []);
        page.text([
            bold(parameter.name),
            roman(format!("={}{default}", parameter.kind)),
        ]);
        page.text([roman(parameter.about)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page without what roff puts before a hyphen, and for an apostrophe.
    fn plain(text: &str) -> String {
        text.replace("\\*(Aq", "'").replace('\\', "")
    }

    #[test]
    fn everything_has_its_page() {
        let directory = tempfile::tempdir().expect("a directory");
        let pages = directory.path().join("new/man");
        write(&pages).expect("written");
        let read = |name: &str| {
            let text = fs::read_to_string(pages.join(name));
            plain(&text.unwrap_or_else(|error| panic!("{name}: {error}")))
        };
        let all = read("pipt.1");
        assert!(all.contains("Exit status: 0 when all is done"), "{all}");
        for verb in command().get_subcommands() {
            let name = verb.get_name();
            let page = format!("pipt-{name}.1");
            if verb.is_hide_set() {
                assert!(
                    !pages.join(&page).exists() && !all.contains(&page),
                    "{page}"
                );
                continue;
            }
            let text = read(&page);
            let about = verb
                .get_about()
                .expect("it says what it is for")
                .to_string();
            assert!(text.contains(&about), "{page}: {text}");
            assert!(all.contains(&format!("pipt-{name}(1)")), "{name}: {all}");
            for option in verb.get_arguments().filter_map(|arg| arg.get_long()) {
                assert!(text.contains(&format!("--{option}")), "{page}: --{option}");
            }
        }
        let text = read("pipt-routines.7");
        for routine in routine::listed() {
            assert!(text.contains(&format!(".SS {}\n", routine.name)), "{text}");
            for parameter in routine.parameters {
                assert!(text.contains(parameter.about), "{}", parameter.name);
            }
        }
    }

    #[test]
    fn words_are_completed() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completions(shell);
            for word in ["texture", "write-thresholds", "compress"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
            assert!(!script.contains("Write the man pages"), "{shell}");
        }
    }
}
