//! Words that are completed while somebody types, in real shells at a terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use whim_system_tests::process::eventually;
use whim_system_tests::terminal::Terminal;
use whim_system_tests::{Case, Cluster, Result, Running, ensure};

const SHORT: Duration = Duration::from_secs(30);
/// What a shell takes for a line and its answer, before the key is pressed again: on a busy machine words may come later
/// than whoever completes is patient.
const ANSWERED: Duration = Duration::from_secs(3);
const PRESSES: usize = 10;
const PROMPT: &str = "at-the-prompt ";
/// Empties the line.
const EMPTY: &str = "\x15";
/// Lies where shells would find it if they completed names of files.
const FILE: &str = "unwanted-name";

/// A shell that has the completions of a file, and nothing of this machine's: its start file, and how it is started.
struct Shell {
    name: &'static str,
    file: &'static str,
    start: &'static str,
    words: fn(&str) -> Vec<String>,
}

const SHELLS: [Shell; 3] = [
    Shell {
        name: "bash",
        file: "bashrc",
        start: "PS1='PROMPT'\nbind 'set bell-style none'\n",
        words: |directory| {
            let start = format!("{directory}/bashrc");
            ["bash", "--noprofile", "--rcfile", &start, "-i"]
                .map(String::from)
                .into()
        },
    },
    Shell {
        name: "zsh",
        file: ".zshrc",
        start: "PS1='PROMPT'\nunsetopt beep\nbindkey -e\nautoload -U compinit\ncompinit -u -D\n",
        words: |directory| {
            let place = format!("ZDOTDIR={directory}");
            ["env", &place, "zsh", "-d", "-i"].map(String::from).into()
        },
    },
    Shell {
        name: "fish",
        file: "start.fish",
        start: "function fish_prompt\n    echo -n 'PROMPT'\nend\nset -g fish_autosuggestion_enabled 0\n",
        words: |directory| {
            let home = format!("HOME={directory}");
            let start = format!("source {directory}/start.fish");
            ["env", &home, "fish", "--no-config", "-i", "-C", &start]
                .map(String::from)
                .into()
        },
    },
];

pub(crate) fn cases() -> Vec<Case> {
    let cases = SHELLS.into_iter().map(|shell| {
        let name = format!("completions::full::{}", shell.name);
        Case::in_lab(name, 2, move |cluster| typed(cluster, &shell))
    });
    cases.collect()
}

fn start(cluster: &Cluster, shell: &Shell) -> Result<Terminal> {
    let directory = cluster.directory();
    let script = directory.join("completions");
    fs::write(&script, cluster.whim("n1", &["completions", shell.name])?)?;
    let start = shell.start.replace("PROMPT", PROMPT);
    let text = format!("{start}source {}\n", script.display());
    fs::write(directory.join(shell.file), text)?;
    fs::write(directory.join(FILE), "")?;
    let words = (shell.words)(&directory.display().to_string());
    let mut terminal = Terminal::start(&cluster.command("n1", &words))?;
    terminal.wait_for(PROMPT)?;
    Ok(terminal)
}

/// Completes a line, goes on with the rest of it, and waits for what the whole of it says.
fn complete(terminal: &mut Terminal, line: &str, rest: &str, said: &str) -> Result<()> {
    for _ in 1..PRESSES {
        terminal.press(&format!("{EMPTY}{line}\t{rest}\r"))?;
        if terminal.wait_within(said, ANSWERED).is_ok() {
            return Ok(());
        }
    }
    terminal
        .ask(&format!("{EMPTY}{line}\t{rest}\r"), said)
        .map(drop)
}

fn typed(cluster: &Cluster, shell: &Shell) -> Result<()> {
    cluster.configure("n2", "labels = [\"fast\"]\n")?;
    cluster.restart_daemon("n2")?;
    eventually(SHORT, "n1 knows the label", || {
        Ok(cluster
            .whim("n1", &["nodes"])?
            .contains("fast")
            .then_some(()))
    })?;
    let _program = Running::spawn(&mut cluster.run_command("n1", &["sleep", "1000"]))?;
    cluster.find("sleep 1000")?;
    let mut terminal = start(cluster, shell)?;
    // What is waited for is in no line that is typed: it comes of a line that was completed.
    complete(&mut terminal, "whim tune balance.fai", "", "as configured")?;
    complete(
        &mut terminal,
        "whim tune 'guests.own_vd",
        "",
        "as configured",
    )?;
    complete(&mut terminal, "whim bring ", "", "is at home")?;
    complete(
        &mut terminal,
        "whim run --on @fa",
        "-- echo arri''ved",
        "arrived",
    )?;
    complete(
        &mut terminal,
        "whim run --avoid n1,@fa",
        "-- echo listed'', too",
        "listed, too",
    )?;
    complete(&mut terminal, "whim undr", "n2", "takes guests again")?;
    // A name that is several words to whoever does not quote it.
    let odd = cluster.directory().join("odd  name");
    fs::write(&odd, "nothing of that kind\n")?;
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o600))?;
    let joins = "whim join --token-file od";
    complete(&mut terminal, joins, "n2", "This is no token")?;
    // Whatever a program takes, it takes none of our options.
    terminal.press("whim run -- echo --str\t\t")?;
    terminal.press(&format!("{EMPTY}echo op''tions\r"))?;
    let shown = terminal.wait_for("options\r\n")?;
    let shown = String::from_utf8_lossy(&shown);
    ensure!(!shown.contains("--strict"), "it is ours: {shown}");
    terminal.ask(
        "export WHIM_SOCKET=/nonexistent; echo with''out\r",
        "without\r\n",
    )?;
    terminal.press("whim drain \t\t")?;
    terminal.press(&format!("{EMPTY}echo qui''et\r"))?;
    let shown = terminal.wait_for("quiet\r\n")?;
    let shown = String::from_utf8_lossy(&shown);
    for unwanted in ["No daemon", "whim:", FILE] {
        ensure!(!shown.contains(unwanted), "{unwanted} is shown: {shown}");
    }
    Ok(())
}
