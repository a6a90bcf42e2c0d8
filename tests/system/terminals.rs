//! Programs with a person at the keys: vim, less, and job control.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use whim_system_tests::case::Setting;
use whim_system_tests::mover::{self, Moves, Plan};
use whim_system_tests::process::eventually;
use whim_system_tests::random::Random;
use whim_system_tests::terminal::Terminal;
use whim_system_tests::{Case, Cluster, Context, Result, anyhow, ensure, guest};

/// For what a shell does at once, on a busy machine.
const SHORT: Duration = Duration::from_secs(30);
const PROMPT: &str = "whim> ";
const SUSPEND: &str = "\x1a";
const INTERRUPT: &str = "\x03";
/// What vim shows last when it waits for a key.
const CURSOR_SHOWN: &str = "\x1b[?25h";
const ESCAPE: &str = "\x1b";
/// Makes less draw its screen again.
const REDRAW: &str = "\x0c";

/// What a person does, round by round as long as the last argument says, and what of it has to be
/// the same for the moved and the unmoved run.
type Script = fn(&mut Terminal, &str, &mut dyn FnMut(u32) -> bool) -> Result<Vec<String>>;

/// More rounds than any machine needs for the moves that are asked for.
const ROUNDS_MAX: u32 = 2000;

/// A program at a terminal.
#[derive(Clone, Copy)]
struct Session {
    name: &'static str,
    script: Script,
    /// Rounds of the script in a quick and in a full run.
    rounds: (u32, u32),
    focus: &'static [&'static str],
}

const SESSIONS: &[Session] = &[
    Session {
        name: "vim",
        script: vim,
        rounds: (3, 20),
        focus: &["vim"],
    },
    Session {
        name: "less",
        script: less,
        rounds: (3, 20),
        focus: &["less"],
    },
    Session {
        name: "shell",
        script: shell,
        rounds: (3, 20),
        focus: &[],
    },
];

pub(crate) fn cases() -> Result<Vec<Case>> {
    let runs = whim_system_tests::case::number("WHIM_RUNS")?.unwrap_or(5);
    let minimum = whim_system_tests::case::number("WHIM_MOVES")?.unwrap_or(20);
    let mut cases = vec![
        Case::new("terminals::background_processes", |_| background()),
        Case::new("terminals::keys_reach_a_program_away", |_| keys()),
        Case::in_lab("terminals::jobs_away", 2, jobs),
        Case::in_lab("terminals::waiting_job_away", 2, waiting_job),
    ];
    for session in SESSIONS {
        let name = format!("terminals::{}", session.name);
        cases.push(Case::new(name, |setting| {
            session.run(setting, session.rounds.0, 3)
        }));
        for run in 1..=runs {
            let name = format!("terminals::full::{}::run_{run}", session.name);
            cases.push(Case::new(name, move |setting| {
                let seed = setting.seed.wrapping_add(u64::from(run));
                session.run(
                    &Setting {
                        seed,
                        ..setting.clone()
                    },
                    session.rounds.1,
                    minimum,
                )
            }));
        }
    }
    Ok(cases)
}

/// An interactive shell at a terminal on n1, in a directory of its own.
fn open_shell(cluster: &Cluster, directory: &Path, through_whim: bool) -> Result<Terminal> {
    fs::create_dir_all(directory)?;
    let words = ["bash", "--norc", "--noprofile", "-i"];
    let mut command: Command = if through_whim {
        cluster.run_command("n1", &words)
    } else {
        cluster.command("n1", &words)
    };
    command
        .current_dir(directory)
        .env("PS1", PROMPT)
        .env_remove("PROMPT_COMMAND");
    command
        .env("HISTFILE", "/dev/null")
        .env("INPUTRC", "/dev/null")
        .env("VIMINIT", "");
    let mut terminal = Terminal::start(&command)?;
    terminal.wait_for(PROMPT)?;
    // Else the shell asks the terminal for bracketed paste before each line.
    terminal.ask("bind 'set enable-bracketed-paste off'\r", PROMPT)?;
    Ok(terminal)
}

impl Session {
    fn run(&self, setting: &Setting, rounds: u32, minimum: u32) -> Result<()> {
        let cluster = Cluster::up(3)?;
        cluster.explaining(|| {
            let mut made = 0;
            let (shown, moves) = self.moved(&cluster, setting.seed, |round, completed| {
                made = round;
                (round < rounds || completed < minimum) && round < ROUNDS_MAX
            })?;
            let directory = |run: &str| cluster.directory().join(run);
            let mut plain = open_shell(&cluster, &directory("unmoved"), false)?;
            let mut same = |round| round < made;
            let expected = (self.script)(&mut plain, "", &mut same).context("unmoved")?;
            println!("{}: {made} rounds, {moves}", self.name);
            ensure!(expected == shown, "unmoved {expected:#?}\nmoved {shown:#?}");
            ensure!(
                moves.completed >= minimum,
                "Only {} moves: {moves}",
                moves.completed
            );
            same_files(&directory("unmoved"), &directory("moved"))
        })
    }

    /// Goes through the script while processes are moved; `more` is told the number of the next
    /// round and of the moves that are completed.
    fn moved(
        &self,
        cluster: &Cluster,
        seed: u64,
        mut more: impl FnMut(u32, u32) -> bool,
    ) -> Result<(Vec<String>, Moves)> {
        // The shell itself is a candidate only where it shall move as well.
        let whole = self.focus.is_empty();
        let run = format!("{} run -- ", cluster.whim_path().display());
        let prefix = if whole { "" } else { run.as_str() };
        let mut terminal = open_shell(cluster, &cluster.directory().join("moved"), whole)?;
        let (end, ended) = channel();
        let limit = Duration::from_secs(900);
        let plan = Plan {
            focus: self.focus,
            gap: Duration::from_millis(150),
            limit,
        };
        let completed = Arc::new(AtomicU32::new(0));
        let progress = Arc::clone(&completed);
        let mut random = Random::new(seed);
        std::thread::scope(|scope| {
            let mover = scope
                .spawn(move || mover::drive_until(cluster, &ended, &plan, &mut random, progress));
            let mut go_on = |round| more(round, completed.load(Ordering::Relaxed));
            let shown = (self.script)(&mut terminal, prefix, &mut go_on).context("moved");
            drop(end);
            let moves = mover.join().map_err(|_| anyhow!("The mover panicked"))??;
            if shown.is_err() {
                mover::print_history(&moves);
            }
            Ok((shown?, moves))
        })
    }
}

fn same_files(left: &Path, right: &Path) -> Result<()> {
    for entry in fs::read_dir(left)? {
        let name = entry?.file_name();
        let (one, two) = (fs::read(left.join(&name))?, fs::read(right.join(&name))?);
        ensure!(one == two, "The file {} differs", name.display());
    }
    Ok(())
}

/// What was shown, without what moves the cursor and colours the text.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\x1b' {
            out.push(character);
            continue;
        }
        if characters.next() == Some('[') {
            characters.by_ref().find(|next| ('@'..='~').contains(next));
        }
    }
    out
}

/// Writes, changes and saves a text; interrupts a command; suspends vim and brings it back.
fn vim(
    terminal: &mut Terminal,
    prefix: &str,
    more: &mut dyn FnMut(u32) -> bool,
) -> Result<Vec<String>> {
    let mut seen = Vec::new();
    let command = format!("{prefix}vim -N -u NONE -i NONE -n text\r");
    terminal.ask(&command, "[New]")?;
    for round in (0..).take_while(|round| more(*round)) {
        terminal.press("Go")?;
        for line in 0..5 {
            terminal.press(&format!(
                "Line {line} of round {round}, some words to change\r"
            ))?;
        }
        terminal.press(ESCAPE)?;
        terminal.press(":%s/some words/other words/ge\r:g/Line 3/m0\r")?;
        terminal.press("ggyy3pGkdd:undo\r:1,3>\r")?;
        let echo = |what: &str| format!(":echo 'ro'.'und' {round} {what}\r");
        terminal.press(&echo("line('$') len(join(getline(1,'$')))"))?;
        terminal.wait_for(&format!("round {round} "))?;
        // A command without end, which only an interrupt ends.
        terminal.ask(":echo 'lo'.'op' | redraw | while 1 | endwhile\r", "loop")?;
        terminal.ask(INTERRUPT, CURSOR_SHOWN)?;
        terminal.press(&format!(":echo 'al'.'ive' {round}\r"))?;
        terminal.wait_for(&format!("alive {round}"))?;
        if round % 2 == 1 {
            suspend(terminal, ESCAPE)?;
            terminal.wait_for(PROMPT)?;
            let shown = terminal.ask("jobs; echo in-$((40+2))\r", "in-42")?;
            ensure!(plain(&shown).contains("Stopped"), "jobs: {}", plain(&shown));
            terminal.wait_for(PROMPT)?;
            // Back in vim, the screen is drawn again.
            terminal.ask("fg\r", &format!("of round {round}"))?;
        }
        terminal.press(&format!(":w | echo 'wri'.'tten' {round}\r"))?;
        terminal.wait_for(&format!("written {round}"))?;
    }
    terminal.press(":q\r")?;
    terminal.wait_for(PROMPT)?;
    let shown = terminal.ask("echo status $?; cksum text\r", " text\r\n")?;
    seen.push(plain(&shown).lines().skip(1).collect::<Vec<_>>().join("\n"));
    terminal.press("exit\r")?;
    terminal.end()?;
    Ok(seen)
}

/// Pages, searches and jumps; interrupts a wait; suspends less and brings it back.
fn less(
    terminal: &mut Terminal,
    prefix: &str,
    more: &mut dyn FnMut(u32) -> bool,
) -> Result<Vec<String>> {
    let mut seen = Vec::new();
    terminal.ask("seq -f 'number %06g' 20000 > numbers\r", PROMPT)?;
    terminal.ask(&format!("{prefix}less numbers\r"), "number 000023")?;
    for round in (0..).take_while(|round| more(*round)) {
        let start = 1000 + round % 100 * 100;
        for (keys, sign) in [
            (format!("{start}g"), format!("number {:06}", start + 22)),
            (" ".to_owned(), format!("number {:06}", start + 45)),
            ("b".to_owned(), format!("number {start:06}")),
            (
                format!("/{:06}\r", start + 50),
                format!("number {:06}", start + 72),
            ),
            ("G".to_owned(), "(END)".to_owned()),
            ("g".to_owned(), "number 000023".to_owned()),
        ] {
            let shown = terminal.ask(&keys, &sign)?;
            let lines = plain(&shown).matches("number ").count();
            ensure!(lines >= 1, "Nothing was shown for {keys:?}");
            seen.push(format!("{keys:?} {sign}"));
        }
        // Waits for the file to grow until it is interrupted.
        terminal.ask("F", "interrupt to abort")?;
        // An interrupt drops the keys that have not been read yet: none may follow too soon.
        terminal.ask(INTERRUPT, "(END)")?;
        terminal.ask("g", "number 000023")?;
        if round % 2 == 1 {
            suspend(terminal, REDRAW)?;
            terminal.wait_for(PROMPT)?;
            terminal.ask("echo in-$((40+2))\r", "in-42")?;
            terminal.wait_for(PROMPT)?;
            terminal.ask("fg\r", "number 000023")?;
        }
    }
    terminal.ask("q", PROMPT)?;
    let shown = terminal.ask("echo status $?\r", "status 0")?;
    seen.push(plain(&shown).lines().count().to_string());
    terminal.press("exit\r")?;
    terminal.end()?;
    Ok(seen)
}

/// Presses Ctrl-Z, and a key without effect where that alone did not stop the program.
///
/// Both less and vim have races of their own in which a Ctrl-Z waits for the next key. less: when it
/// comes between the last output and the wait for a key (without moves, 5 of 1,000 times). vim: in
/// its first two seconds it looks for answers of the terminal before it stops itself, for 0 ms from
/// one look at the clock to the next; where a millisecond passes between the two, the time that is
/// left is negative, which to its `select` means "for ever" (`inchar_loop` in vim 9.0's ui.c). A vim
/// that never moved, with a `gettimeofday` slowed by 2 ms, does it 5 of 5 times, and shows the very
/// same bytes; a move brings the time in by a page that is fetched between the two looks.
fn suspend(terminal: &mut Terminal, without_effect: &str) -> Result<()> {
    terminal.press(SUSPEND)?;
    if terminal
        .wait_within("Stopped", Duration::from_secs(3))
        .is_err()
    {
        terminal.ask(without_effect, "Stopped")?;
    }
    Ok(())
}

/// Says when it is in the foreground, so that no key is pressed too soon.
const JOB: &str = "perl -e '$|=1; $SIG{CONT}=sub{print \"resu\",\"med\\n\"}; \
                   print \"star\",\"ted\\n\"; sleep 1 while 1'\r";

/// A shell with job control that moves itself, with its jobs.
fn shell(
    terminal: &mut Terminal,
    _: &str,
    more: &mut dyn FnMut(u32) -> bool,
) -> Result<Vec<String>> {
    let mut seen = Vec::new();
    for round in (0..).take_while(|round| more(*round)) {
        terminal.ask(
            &format!("x=0; for i in {{1..50000}}; do x=$((x+i*{round})); done; echo =$x=\r"),
            "\n=",
        )?;
        seen.push(plain(&terminal.wait_for(PROMPT)?));
        // A job that is stopped, goes on in the background, and is ended there.
        terminal.ask(JOB, "\nstarted\r\n")?;
        terminal.ask(SUSPEND, "Stopped")?;
        terminal.wait_for(PROMPT)?;
        terminal.ask("bg\r", "resumed\r\n")?;
        terminal.ask("jobs -r | wc -l\r", "\n1\r\n")?;
        terminal.ask("kill %1; wait %1; echo ended-$?\r", "ended-143")?;
        terminal.wait_for(PROMPT)?;
        // One that is stopped, comes back to the foreground, and is interrupted there.
        terminal.ask(JOB, "\nstarted\r\n")?;
        terminal.ask(SUSPEND, "Stopped")?;
        terminal.wait_for(PROMPT)?;
        terminal.ask("fg\r", "resumed\r\n")?;
        terminal.ask(INTERRUPT, PROMPT)?;
        seen.push(plain(&terminal.ask("echo status $?\r", "status 130")?));
        terminal.wait_for(PROMPT)?;
        // Each says when the line editor has left the terminal to it.
        terminal.ask("echo go-$((1)); read line; echo got-$line\r", "\ngo-1\r\n")?;
        terminal.ask("some words\r", "got-some words")?;
        terminal.wait_for(PROMPT)?;
        terminal.ask("echo go-$((2)); cat > file; cat file\r", "\ngo-2\r\n")?;
        terminal.ask("typed text\r", "typed text\r\n")?;
        terminal.ask("\x04", "typed text")?;
        terminal.wait_for(PROMPT)?;
        // Erases with the terminal's own line editor.
        terminal.ask("exec 3>&1; stty -a | grep -c icanon\r", "\n1\r\n")?;
        terminal.wait_for(PROMPT)?;
    }
    terminal.press("exit 5\r")?;
    seen.push(terminal.end()?.to_string());
    Ok(seen)
}

/// The guest `tty`: background processes and the terminal, as home's kernel sees them.
fn background() -> Result<()> {
    let cluster = Cluster::up(2)?;
    cluster.explaining(|| {
        let program = guest::c("tty")?.display().to_string();
        let mut results = Vec::new();
        for moves in [false, true] {
            let directory = cluster.directory().join(format!("tty-{moves}"));
            let mut terminal = open_shell(&cluster, &directory, false)?;
            let whim = cluster.whim_path().display().to_string();
            let line = if moves {
                format!("{whim} run -- {program}\r")
            } else {
                format!("{program}\r")
            };
            terminal.press(&line)?;
            let mut shown = String::new();
            for sign in ["continued: y\r\n", "quiet\r\n"] {
                terminal.wait_for("ready ")?;
                let pid = String::from_utf8_lossy(&terminal.wait_for("\r\n")?)
                    .trim()
                    .to_owned();
                if moves {
                    let pid: i32 = pid.parse().with_context(|| format!("'{pid}' is no pid"))?;
                    cluster.move_to(pid, "n2")?;
                }
                shown += &plain(&terminal.ask("\r", sign)?);
            }
            shown += &plain(&terminal.ask("hidden\r", "done")?);
            terminal.ask("\r", PROMPT)?;
            results.push(shown);
        }
        println!("{}", results[1]);
        ensure!(
            !results[1].contains("hidden"),
            "What was typed without echo is shown"
        );
        ensure!(
            results[0] == results[1],
            "unmoved {:?}\nmoved {:?}",
            results[0],
            results[1]
        );
        Ok(())
    })
}

/// The pid that a job says first.
fn pid_of(terminal: &mut Terminal) -> Result<i32> {
    terminal.wait_for("\npid=")?;
    let text = terminal.wait_for("\r\n")?;
    Ok(String::from_utf8_lossy(&text).trim().parse()?)
}

/// A program that is away, as a job of a shell: stopped by a key, it does not move and says why; it
/// goes on in the background and in the foreground, where it is, and moves again.
fn jobs(cluster: &Cluster) -> Result<()> {
    let whim = cluster.whim_path().display().to_string();
    let mut shown = Vec::new();
    for moves in [false, true] {
        let directory = cluster.directory().join(format!("jobs-{moves}"));
        let mut terminal = open_shell(cluster, &directory, false)?;
        let prefix = if moves {
            format!("{whim} run -- ")
        } else {
            String::new()
        };
        // What was stopped and goes on is no error that a program has ever seen.
        let job = "perl -e '$|=1; $SIG{CONT}=sub{print \"resu\",\"med\\n\"}; \
                   print \"pid=$$\\n\"; while (1) { select(undef,undef,undef,0.1) >= 0 \
                   or $!{EINTR} or die \"odd \", $!+0 }'";
        terminal.press(&format!("{prefix}{job}\r"))?;
        let pid = pid_of(&mut terminal)?;
        let mut seen = Vec::new();
        for way in ["bg", "fg"] {
            if moves {
                cluster.have_on(pid, "n2")?;
            }
            terminal.ask(SUSPEND, "Stopped")?;
            terminal.wait_for(PROMPT)?;
            // One that has a tracer is stopped with a small letter.
            seen.push(
                state_of(cluster, pid)?
                    .to_uppercase()
                    .chars()
                    .take(1)
                    .collect(),
            );
            if moves {
                let row = cluster.await_state(pid, "stopped")?;
                ensure!(row.place == "n2", "The stopped job is on {}", row.place);
                let sentence = cluster.refused("n1", &["migrate", &pid.to_string(), "home"])?;
                ensure!(sentence.contains("stopped"), "{sentence}");
            }
            terminal.ask("jobs -s | wc -l\r", "\n1\r\n")?;
            terminal.ask(&format!("{way}\r"), "resumed\r\n")?;
            if way == "bg" {
                terminal.ask("jobs -r | wc -l\r", "\n1\r\n")?;
                terminal.ask("fg\r", "perl")?;
                in_front(cluster, pid)?;
            }
            if moves {
                cluster.await_state(pid, "away")?;
            }
            seen.push(way.to_owned());
        }
        if moves {
            cluster.move_to(pid, "home")?;
        }
        terminal.ask(INTERRUPT, PROMPT)?;
        seen.push(plain(&terminal.ask("echo status $?\r", "status 130")?));
        terminal.press("exit 0\r")?;
        terminal.end()?;
        shown.push(seen);
    }
    ensure!(
        shown[0] == shown[1],
        "unmoved {:?}\nmoved {:?}",
        shown[0],
        shown[1]
    );
    Ok(())
}

/// A job that waits in a call which every stop ends: it sees an error that it knows, or none.
fn waiting_job(cluster: &Cluster) -> Result<()> {
    let whim = cluster.whim_path().display().to_string();
    let directory = cluster.directory().join("waiting");
    let mut terminal = open_shell(cluster, &directory, false)?;
    let job = "python3 -c 'import os, select; e = select.epoll(); print(f\"pid={os.getpid()}\", flush=True)
while True: e.poll(0.5); print(\"wai\" \"ted\", flush=True)'";
    terminal.press(&format!("{whim} run -- {job}\r"))?;
    let pid = pid_of(&mut terminal)?;
    cluster.move_to(pid, "n2")?;
    for _ in 0..3 {
        terminal.wait_for("waited\r\n")?;
        terminal.ask(SUSPEND, "Stopped")?;
        terminal.wait_for(PROMPT)?;
        cluster.await_state(pid, "stopped")?;
        terminal.ask("fg\r", "python3")?;
    }
    terminal.wait_for("waited\r\n")?;
    ensure!(cluster.place(pid)? == "n2", "It went home by itself");
    in_front(cluster, pid)?;
    terminal.ask(INTERRUPT, PROMPT)?;
    Ok(())
}

/// Waits until a job has its terminal: the shell names it before that, and keys would be the shell's.
fn in_front(cluster: &Cluster, pid: i32) -> Result<()> {
    eventually(SHORT, "the job has the terminal", || {
        Ok(state_of(cluster, pid)?.contains('+').then_some(()))
    })
}

/// As ps(1) shows it at home.
fn state_of(cluster: &Cluster, pid: i32) -> Result<String> {
    cluster.run("n1", &["ps", "-o", "stat=", "-p", &pid.to_string()])
}

/// Interrupt, quit and hang-up reach a program that computes or waits away.
fn keys() -> Result<()> {
    let cluster = Cluster::up(2)?;
    cluster.explaining(|| {
        let whim = cluster.whim_path().display().to_string();
        for moves in [false, true] {
            let directory = cluster.directory().join(format!("keys-{moves}"));
            let mut terminal = open_shell(&cluster, &directory, false)?;
            let prefix = if moves {
                format!("{whim} run -- ")
            } else {
                String::new()
            };
            for (what, command) in [
                ("computes", "while :; do :; done"),
                ("reads", "read x; echo not reached"),
            ] {
                for (key, number) in [(INTERRUPT, 130), ("\x1c", 131)] {
                    let line = format!("{prefix}dash -c 'echo pid=$$; {command}'\r");
                    terminal.press(&line)?;
                    let pid = pid_of(&mut terminal)?;
                    if moves {
                        cluster.move_to(pid, "n2")?;
                    }
                    let title = || format!("a shell that {what}, status {number}, moves {moves}");
                    terminal.ask(key, PROMPT).with_context(title)?;
                    terminal.ask("echo status=$?\r", &format!("status={number}"))?;
                    terminal.wait_for(PROMPT)?;
                }
            }
        }
        Ok(())
    })
}
