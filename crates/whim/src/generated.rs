//! Man pages and completions, from the definition that also parses the command line.

use clap::{Command, CommandFactory};
use clap_complete::{Generator, Shell};
use std::fs;
use std::io;
use std::path::Path;

use crate::arguments::{Arguments, MORE};
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
    let whole = Arguments::command();
    let kept: Vec<Command> = whole
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set())
        .cloned()
        .collect();
    let mut command = Command::new("whim").args(whole.get_arguments().cloned());
    if let Some(about) = whole.get_about() {
        command = command.about(about.clone());
    }
    command
        .version(env!("CARGO_PKG_VERSION"))
        .after_long_help(MORE)
        .subcommands(kept)
}

/// `whim.1`, `whim-run.1`, `whim-lab-up.1`, ..., `whimd.1` into `directory`.
///
/// # Errors
/// It cannot be written.
pub(crate) fn man_pages(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut command = visible().disable_help_subcommand(true);
    command.build();
    man_page(&command, "whim", directory)?;
    let mut daemon = whim_control::arguments::Arguments::command();
    daemon.build();
    man_page(&daemon, "whimd", directory)
}

fn man_page(command: &Command, name: &str, directory: &Path) -> io::Result<()> {
    let page = command
        .clone()
        .display_name(name.to_string())
        .bin_name(name.replace('-', " "));
    let page = clap_mangen::Man::new(page).title(name.to_uppercase());
    let mut text = Vec::new();
    page.render(&mut text)?;
    fs::write(directory.join(format!("{name}.1")), text)?;
    for verb in command
        .get_subcommands()
        .filter(|verb| verb.get_name() != "help")
    {
        man_page(verb, &format!("{name}-{}", verb.get_name()), directory)?;
    }
    Ok(())
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
    fn the_page_has_examples_exit_statuses_and_files() {
        let directory = tempfile::tempdir().expect("a directory");
        man_pages(directory.path()).expect("written");
        let page = fs::read_to_string(directory.path().join("whim.1")).expect("a page");
        for part in [
            "Examples:",
            "Exit status:",
            "Files:",
            "/etc/whim/config.toml",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }
}
