//! Man pages and completions, from the definition that also parses the command line.

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::fs;
use std::io;
use std::path::Path;

use crate::arguments::{Arguments, MORE};

/// Completions for `shell`, to standard output.
pub(crate) fn completions(shell: Shell) {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut visible(), "whim", &mut text);
    crate::output::line(String::from_utf8_lossy(&text).trim_end());
}

/// Completion files for the usual shells, into `directory`.
///
/// # Errors
/// It cannot be written.
pub(crate) fn completion_files(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut visible(), "whim", directory)?;
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
