//! Man pages and completions, from the definition that also parses the command line.

use clap::{Command, CommandFactory};
use clap_complete::{Generator, Shell};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs;
use std::io;
use std::path::Path;

use crate::arguments;
use crate::arguments::pages::{self, Page};
use crate::completion;

/// What asks for words that only a running system knows, in the languages of shells.
const BASH: &str = include_str!("completion/whim.bash");
const ZSH: &str = include_str!("completion/whim.zsh");
const FISH: &str = include_str!("completion/whim.fish");
/// What the script for zsh does at its end, when its functions are there.
const ZSH_END: &str = "if [ \"$funcstack[1]\" = \"_whim\" ]; then";

/// Completions for `shell`, to standard output.
pub(crate) fn completions(shell: Shell) {
    crate::output::line(script(shell).trim_end());
}

/// The script of a shell: what follows from the definition, and behind it what asks for more.
fn script(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut visible(), "whim", &mut text);
    let mut text = String::from_utf8_lossy(&text).into_owned();
    match shell {
        Shell::Bash => text.push_str(BASH),
        Shell::Zsh => text = text.replace(ZSH_END, &format!("{ZSH}{ZSH_END}")),
        Shell::Fish => {
            text.push_str(FISH);
            for option in completion::options() {
                let line = format!(
                    "complete -c whim -n __whim_words_here -l {option} -x -a '$__whim_words'\n"
                );
                text.push_str(&line);
            }
        }
        _ => {}
    }
    text
}

/// Completion files for the usual shells, into `directory`.
///
/// # Errors
/// It cannot be written.
pub(crate) fn completion_files(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        fs::write(directory.join(shell.file_name("whim")), script(shell))?;
    }
    Ok(())
}

/// The command line without what is hidden.
fn visible() -> Command {
    let whole = arguments::command();
    let kept: Vec<Command> = whole
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set())
        .cloned()
        .collect();
    let mut command = Command::new("whim").args(whole.get_arguments().cloned());
    if let Some(about) = whole.get_about() {
        command = command.about(about.clone());
    }
    command.version(env!("CARGO_PKG_VERSION")).subcommands(kept)
}

/// `whim.1`, `whim-run.1`, `whim-lab-up.1`, ..., `whimd.1` into `directory`.
///
/// # Errors
/// It cannot be written.
pub(crate) fn man_pages(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut command = visible().disable_help_subcommand(true);
    command.build();
    man_page(&command, "whim", "", directory)?;
    let mut daemon = whim_control::arguments::Arguments::command();
    daemon.build();
    write_page(&daemon, "whimd", None, directory)
}

fn man_page(command: &Command, name: &str, verb: &str, directory: &Path) -> io::Result<()> {
    write_page(command, name, pages::of(verb), directory)?;
    for below in command
        .get_subcommands()
        .filter(|below| below.get_name() != "help")
    {
        let below_name = format!("{name}-{}", below.get_name());
        let path = format!("{verb} {}", below.get_name());
        man_page(below, &below_name, path.trim_start(), directory)?;
    }
    Ok(())
}

/// A page, with what is said of its verb in sections of their own.
fn write_page(
    command: &Command,
    name: &str,
    said: Option<&Page>,
    directory: &Path,
) -> io::Result<()> {
    let command = command
        .clone()
        .display_name(name.to_string())
        .bin_name(name.replace('-', " "));
    let (verbs, version) = (
        command.has_subcommands(),
        command.get_version().is_some() || command.get_long_version().is_some(),
    );
    let page = Man::new(command).title(name.to_uppercase());
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if verbs {
        page.render_subcommands_section(&mut text)?;
    }
    for (title, entries) in said.into_iter().flat_map(Page::parts) {
        section(title, entries).to_writer(&mut text)?;
    }
    if version {
        page.render_version_section(&mut text)?;
    }
    fs::write(directory.join(format!("{name}.1")), text)
}

fn section(title: &str, entries: &[(&str, &str)]) -> Roff {
    let mut section = Roff::default();
    section.control("SH", [title.to_uppercase().as_str()]);
    for (word, said) in entries {
        section.control("TP", []);
        section.text([bold(*word)]);
        section.text([roman(*said)]);
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_ask_for_words() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            assert_eq!(
                script.matches("complete-words").count(),
                1,
                "{shell}: {script}"
            );
        }
    }

    #[test]
    fn pages_have_examples_exit_statuses_and_files() {
        let directory = tempfile::tempdir().expect("a directory");
        man_pages(directory.path()).expect("written");
        let read = |name: &str| {
            let text = fs::read_to_string(directory.path().join(name)).expect("a page");
            text.replace("\\*(Aq", "'").replace('\\', "")
        };
        for (name, parts) in [
            (
                "whim.1",
                &[
                    "whim migrate 4711 best",
                    "/etc/whim/config.toml",
                    ".SH VERSION",
                    "--wait",
                ][..],
            ),
            (
                "whim-drain.1",
                &["whim drain --wait n2", "/var/lib/whim/orders.json"],
            ),
            ("whim-run.1", &["whim run --on n2 -- make -j8", "125"]),
            ("whim-lab-up.1", &["whim lab up --nodes 4", "/run/whim-lab"]),
        ] {
            let page = read(name);
            let all = [parts, &[".SH EXAMPLES", ".SH \"EXIT STATUS\""]].concat();
            for part in all {
                assert!(page.contains(part), "{part} is not in {name}: {page}");
            }
        }
        assert!(read("whim-drain.1").contains(".SH FILES"));
        assert!(!read("whim-why.1").contains(".SH FILES"));
    }
}
