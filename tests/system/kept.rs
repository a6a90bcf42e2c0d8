//! What the kernel keeps for a process and its threads is the same wherever it computes, and when it is
//! home again: what was set before it left, and what it sets while it is away.

use nix::sys::signal::Signal;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use whim_system_tests::process::{self, eventually};
use whim_system_tests::{Case, Cluster, Context, Result, Talk, bail, ensure, guest};

const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("kept::settings", 3, settings),
        Case::in_lab("kept::mappings", 3, mappings),
        Case::in_lab("kept::queues_of_signals", 3, queues),
        Case::in_lab("kept::memory_policies", 3, policies),
        Case::in_lab("kept::denied_memory", 3, denied_memory),
        Case::in_lab("kept::executed_memory", 3, executed_memory),
        Case::in_lab("kept::signals", 3, |cluster| signals(cluster, "queue some")),
        Case::in_lab("kept::full::thousands_of_signals", 3, |cluster| {
            signals(cluster, "queue many")
        }),
        Case::in_lab("kept::order_of_signals", 2, order_of_signals),
        Case::in_lab("kept::signals_of_two_kinds", 3, signals_of_two_kinds),
        Case::in_lab("kept::order_among_threads", 2, order_among_threads),
        Case::in_lab("kept::signals_of_calls", 3, signals_of_calls),
        Case::in_lab("kept::signals_during_a_call", 3, signals_during_a_call),
        Case::in_lab("kept::a_broken_pipe_s_signal", 3, broken_pipe),
        Case::in_lab("kept::masks_of_waits", 3, masks_of_waits),
        Case::in_lab("kept::what_waits_let_through_during_moves", 3, |cluster| {
            while_it_moves(cluster, "let_through", "0 wrong")
        }),
        Case::in_lab("kept::what_it_blocks_during_moves", 3, |cluster| {
            while_it_moves(cluster, "blocked", "0 wrong")
        }),
        Case::in_lab("kept::signals_of_descriptors", 3, |cluster| {
            while_it_moves(cluster, "owners", "0 wrong")
        }),
        Case::in_lab("kept::nothing_comes_behind_the_end", 2, behind_the_end),
        Case::in_lab("kept::faults_on_their_way", 3, |cluster| {
            while_it_moves_so_often(cluster, "faults", "0 wrong", 21)
        }),
        Case::in_lab("kept::a_trap_that_waits", 3, trap_that_waits),
        Case::in_lab("kept::opened_as_it_is_stopped", 2, opened_as_it_is_stopped),
        Case::in_lab("kept::handlers_begin_at_once", 3, |cluster| {
            while_it_moves(cluster, "prompt", "0 late")
        }),
        Case::in_lab("kept::another_alternate_stack", 3, another_alternate_stack),
        Case::in_lab("kept::denied_time_stamps", 3, denied_stamps),
        Case::in_lab("kept::signals_of_its_own_making", 3, |cluster| {
            let places = ["n1", "n2", "n3", "home"].map(|place| (place, "asks thread"));
            same(cluster, "keeps", &places)
        }),
        Case::in_lab("kept::what_waits_let_through", 3, |cluster| {
            let places = ["n1", "n2", "n3", "home"].map(|place| (place, "waits through"));
            same(cluster, "keeps", &places)
        }),
        Case::in_lab("kept::ready_before_a_signal", 3, |cluster| {
            let places = ["n1", "n2", "n3", "home"].map(|place| (place, "waits ready"));
            same(cluster, "keeps", &places)
        }),
        Case::in_lab("kept::actions_without_handlers", 3, |cluster| {
            let places = [
                ("n1", "actions set"),
                ("n2", "actions"),
                ("n3", "actions"),
                ("home", "actions"),
            ];
            same(cluster, "keeps", &places)
        }),
        Case::in_lab("kept::limits", 2, limits),
        Case::in_lab("kept::narrow_limits", 2, narrow_limits),
        Case::in_lab("kept::what_only_home_knows", 3, what_only_home_knows),
        Case::in_lab("kept::shares", 3, shares),
        Case::in_lab("kept::rights", 3, rights),
        Case::in_lab("kept::sandboxes", 2, sandboxes),
        Case::in_lab("kept::locks_and_names", 2, locks_and_names),
        Case::in_lab("kept::descriptors", 2, descriptors),
    ]
}

/// What the program says to these lines where nobody moves it.
fn unmoved(program: &str, lines: &[&str]) -> Result<Vec<String>> {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("its input")?;
    for line in lines {
        writeln!(input, "{line}")?;
    }
    drop(input);
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{}", output.status);
    let said = String::from_utf8(output.stdout)?;
    Ok(said.lines().skip(1).map(str::to_owned).collect())
}

/// The program says the same at these places as where nobody moves it.
pub(crate) fn same(cluster: &Cluster, program: &str, steps: &[(&str, &str)]) -> Result<()> {
    let program = guest::c(program)?.display().to_string();
    let lines: Vec<&str> = steps.iter().map(|(_, line)| *line).collect();
    let expected = unmoved(&program, &lines)?;
    let command = &mut cluster.run_command("n1", &[program.as_str()]);
    let mut talk = Talk::start(cluster, command)?;
    let pid = talk.ready()?;
    let mut place = "n1";
    for ((node, line), expected) in steps.iter().zip(&expected) {
        if *node != place {
            match cluster.move_to(pid, node) {
                // What it was told to do has brought it home.
                Err(error)
                    if *node == "home" && format!("{error:#}").contains("at home already") => {}
                moved => moved?,
            }
            place = node;
        }
        talk.say(line)?;
        let said = talk.line()?;
        println!("{node}, {line}: {said}");
        ensure!(
            said == *expected,
            "On {node}, {line}:\n{said}\n instead of\n{expected}"
        );
    }
    talk.say("end")?;
    talk.succeed()
}

fn settings(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "set 2"),
        ("n2", "tell"),
        ("n3", "tell"),
        ("n3", "set 3"),
        ("n2", "tell"),
        ("home", "tell"),
        ("n3", "set 4"),
        ("home", "tell"),
    ];
    same(cluster, "kept", &steps)
}

/// What was said of mappings holds again when they have been elsewhere.
fn mappings(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "set 1"),
        ("n1", "map"),
        ("n2", "tell"),
        ("home", "map"),
        ("n2", "tell"),
        ("n3", "tell"),
        // To look at its mappings it comes home.
        ("n3", "map"),
    ];
    same(cluster, "kept", &steps)
}

/// A signal that waits for a thread alone waits for it elsewhere, too, in its place among the others.
fn queues(cluster: &Cluster) -> Result<()> {
    let places = ["n2", "n3", "home", "n3", "n2", "home"];
    same(cluster, "queues", &places.map(|place| (place, "take")))
}

/// Where memory is to lie, of threads and of mappings: set at home, away, and taken back; nodes that nobody has
/// are refused, and nodes that a host may not have are home's to judge.
fn policies(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "policy 1"),
        ("n1", "other policy wrong"),
        ("n2", "policies"),
        ("n2", "other policies"),
        ("n3", "policies"),
        ("n3", "policy 2"),
        ("n2", "policies"),
        ("home", "policies"),
        ("home", "other policies"),
        ("n2", "policy wrong"),
        ("n3", "policies"),
        ("n3", "other policy default"),
        ("home", "policies"),
        ("home", "other policies"),
    ];
    same(cluster, "keeps", &steps)
}

/// A promise of security: what a program denies itself at home it is denied away, from its first instruction
/// there, and when it is home again.
fn denied_memory(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n2", "memory"),
        ("n2", "deny memory"),
        ("n2", "memory"),
        ("n3", "memory"),
        ("home", "memory"),
        ("n2", "memory"),
        ("home", "memory"),
    ];
    same(cluster, "keeps", &steps)
}

/// Memory that may be executed and nothing else can be read, but not where the kernel has taken a protection key
/// for it.
fn executed_memory(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "executed readable"),
        ("n1", "executed"),
        ("n2", "executed"),
        ("home", "executed"),
        ("n3", "executed only"),
        ("n3", "executed"),
        ("n2", "executed"),
        ("n2", "executed readable"),
        ("n3", "executed"),
        ("n3", "executed only"),
        ("home", "executed"),
    ];
    same(cluster, "keeps", &steps)
}

/// They are all there, as they were sent, and nobody is silent for them.
fn signals(cluster: &Cluster, queue: &str) -> Result<()> {
    same(cluster, "keeps", &[("n1", queue), ("n3", "take all")])?;
    let steps = [("n1", queue), ("n2", "shares"), ("n3", "take all")];
    same(cluster, "keeps", &steps)?;
    same(cluster, "keeps", &[("n2", queue), ("home", "take all")])
}

/// A program that takes 400 signals, its pid, and one that sends them.
fn four_hundred(cluster: &Cluster, takes: &str, sends: &str) -> Result<(Talk, i32, Child)> {
    let program = guest::c("order")?.display().to_string();
    let words = [program.as_str(), takes, "400"];
    let mut taker = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    let pid = taker.ready()?;
    let number = pid.to_string();
    let words = [program.as_str(), sends, &number, "400"];
    let sender = cluster.command("n1", &words).spawn()?;
    Ok((taker, pid, sender))
}

/// Signals that come during a return do not pass those that have waited away.
fn order_of_signals(cluster: &Cluster) -> Result<()> {
    let (mut taker, pid, mut sender) = four_hundred(cluster, "take", "send")?;
    for place in ["n2", "home", "n2", "home"] {
        cluster.move_to(pid, place)?;
    }
    let told = taker.line()?;
    ensure!(sender.wait()?.success(), "the sender failed");
    ensure!(told == "400 taken, 0 late", "{told}");
    taker.end().map(drop)
}

/// A write that ends the program is the last thing that it does: its next call is not made.
fn behind_the_end(cluster: &Cluster) -> Result<()> {
    let program = guest::c("behind")?.display().to_string();
    let others = ("others", Signal::SIGTERM);
    let ways = [
        ("pipe", Signal::SIGPIPE),
        others,
        ("size", Signal::SIGXFSZ),
        others,
    ];
    for round in 0..60 {
        let (how, signal) = ways[round % 4];
        let command = &mut cluster.run_command("n1", &[program.as_str(), how]);
        let mut talk = Talk::start(cluster, command)?;
        let pid = talk.ready()?;
        cluster.move_to(pid, "n2")?;
        talk.say("go")?;
        let status = talk.end()?;
        let died = [status.signal(), status.code().map(|code| code - 128)];
        ensure!(died.contains(&Some(signal as i32)), "{how}: {status}");
        let behind = fs::read(talk.directory().join("behind"))?;
        ensure!(
            behind.is_empty(),
            "{how}, round {round}: {} calls behind it",
            behind.len()
        );
    }
    Ok(())
}

/// Signals of two kinds come together: one a second thread waits for, of the other the first thread has a handler. None is
/// lost as the program moves on.
fn signals_of_two_kinds(cluster: &Cluster) -> Result<()> {
    let (mut taker, pid, mut sender) = four_hundred(cluster, "beside", "both")?;
    while sender.try_wait()?.is_none() {
        for place in ["n2", "n3"] {
            cluster.move_to(pid, place)?;
        }
    }
    let told = taker.line()?;
    ensure!(sender.wait()?.success(), "the sender failed");
    println!("{told}");
    ensure!(
        told.starts_with("400 taken") && told.contains("; 400 handled,"),
        "{told}"
    );
    taker.say("end")?;
    taker.succeed()
}

/// Signals that come while home is busy go to all threads of the program's half there. They are told in the order in
/// which they were sent; but the first two, where both threads had waited for a CPU, in that in which they got one.
fn order_among_threads(cluster: &Cluster) -> Result<()> {
    let program = guest::c("order")?.display().to_string();
    let words = [program.as_str(), "beside", "400"];
    let mut taker = Talk::start(cluster, &mut cluster.short_command("n1", &words))?;
    let pid = taker.ready()?;
    cluster.move_to(pid, "n2")?;
    let row = cluster.row(pid)?.context("It is gone")?;
    let supervisor = row.home_supervisor_pid.context("its supervisor")?;
    let send = |signal: &str| cluster.run("n1", &["kill", signal, &supervisor.to_string()]);
    // As long as a host hears nothing it holds its guest, whose thread goes on waiting for signals behind that.
    send("-STOP")?;
    let logs = cluster.state("n2").join("log");
    let held = eventually(PATIENCE, "the guest is held", || {
        let held =
            |path: &Path| fs::read_to_string(path).is_ok_and(|text| text.contains("hold=true"));
        let mut logs = fs::read_dir(&logs)?.flatten();
        Ok(logs.any(|log| held(&log.path())).then_some(()))
    });
    send("-CONT")?;
    held?;
    for first in (0..400).step_by(20) {
        send("-STOP")?;
        let (pid, first) = (pid.to_string(), first.to_string());
        let words = [program.as_str(), "both", &pid, "20", &first];
        let sent = cluster.run("n1", &words);
        send("-CONT")?;
        sent?;
    }
    let told = taker.line()?;
    let numbers: Vec<u32> = told
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    let [400, late_taken, 400, late_handled] = numbers[..] else {
        bail!("{told}");
    };
    ensure!((late_taken + late_handled) * 100 <= 800, "{told}");
    taker.say("end")?;
    taker.succeed()
}

/// A signal that a call of the program brings upon itself is handled before that call returns, also when the program
/// moves on meanwhile.
fn signals_of_calls(cluster: &Cluster) -> Result<()> {
    let program = guest::c("order")?.display().to_string();
    let words = [program.as_str(), "cause"];
    let mut talk = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    let pid = talk.ready()?;
    for _ in 0..8 {
        for place in ["n2", "n3"] {
            cluster.move_to(pid, place)?;
        }
    }
    cluster.move_to(pid, "home")?;
    cluster.run("n1", &["kill", "-USR2", &pid.to_string()])?;
    let told = talk.line()?;
    ensure!(told == "0 late", "{told}");
    talk.succeed()
}

/// Signals that calls bring about, and that wait for the process, are not taken for what the call in flight has
/// brought: another thread takes them. A SIGCONT that waits, of which the kernel tells whoever traces a thread, keeps
/// nothing from moving.
fn signals_during_a_call(cluster: &Cluster) -> Result<()> {
    let program = guest::c("order")?.display().to_string();
    let words = [program.as_str(), "wait"];
    let mut talk = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    let pid = talk.ready()?;
    for place in ["n2", "n3", "home", "n3", "home", "n2"] {
        cluster.move_to(pid, place)?;
        talk.say("take")?;
        let told = talk.line()?;
        // SIGPIPE, SIGCONT and SIGXFSZ.
        ensure!(told == " 13 18 25", "on {place}:{told}");
    }
    talk.say("end")?;
    talk.succeed()
}

/// The signal of a broken pipe is for the thread that writes, also if it comes while the program stands still.
fn broken_pipe(cluster: &Cluster) -> Result<()> {
    let program = guest::c("pipes")?.display().to_string();
    let mut talk = Talk::start(cluster, &mut cluster.run_command("n1", &[&program]))?;
    let pid = talk.ready()?;
    for place in ["n2", "n3", "home"].into_iter().cycle().take(24) {
        cluster.move_to(pid, place)?;
    }
    talk.say("end")?;
    for told in ["no signal 0, a second one 0", "for the process 0"] {
        let line = talk.line()?;
        ensure!(line == told, "{line}");
    }
    talk.succeed()
}

/// A signal that a call's own mask keeps away waits until the call has ended, however often the program moves
/// meanwhile: it does not end the program, and its handler does not run before that of the signal that ends the
/// call.
fn masks_of_waits(cluster: &Cluster) -> Result<()> {
    let sent_at_home = [
        ("n1", "wait"),
        ("n1", "send"),
        ("n2", "look"),
        ("home", "look"),
        ("n3", "wake"),
    ];
    same(cluster, "masks", &sent_at_home)?;
    let sent_away = [
        ("n1", "wait"),
        ("n2", "send"),
        ("n3", "look"),
        ("home", "wake"),
    ];
    same(cluster, "masks", &sent_away)?;
    let fatal = [
        ("n1", "default"),
        ("n1", "wait"),
        ("n2", "send"),
        ("n3", "look"),
        ("home", "look"),
    ];
    same(cluster, "masks", &fatal)
}

/// What a program says at its end that has moved sixty times.
fn while_it_moves(cluster: &Cluster, program: &str, says: &str) -> Result<()> {
    while_it_moves_so_often(cluster, program, says, 60)
}

fn while_it_moves_so_often(
    cluster: &Cluster,
    program: &str,
    says: &str,
    moves: usize,
) -> Result<()> {
    let program = guest::c(program)?.display().to_string();
    let mut talk = Talk::start(cluster, &mut cluster.run_command("n1", &[&program]))?;
    let pid = talk.ready()?;
    for place in ["n2", "n3", "home"].into_iter().cycle().take(moves) {
        cluster.move_to(pid, place)?;
    }
    talk.say("end")?;
    let line = talk.line()?;
    ensure!(line == says, "{line}");
    talk.succeed()
}

/// What the deputy would show of itself may have been opened since the program was looked at.
fn opened_as_it_is_stopped(cluster: &Cluster) -> Result<()> {
    let program = guest::c("shows")?.display().to_string();
    let mut talk = Talk::start(cluster, &mut cluster.run_command("n1", &[&program]))?;
    let pid = talk.ready()?.to_string();
    for _ in 0..60 {
        // It may have it open when it is looked at, and is back by itself as soon as it opens it.
        process::output(
            &mut cluster.whim_command("n1", &["migrate", &pid, "n2"]),
            PATIENCE,
        )?;
    }
    talk.say("end")?;
    let line = talk.line()?;
    ensure!(line == "0 wrong", "{line}");
    talk.succeed()
}

/// Blocks SIGTRAP, sends it to itself, and takes it, as it is told.
const TRAPS: &str = "import os, signal, sys
trap = {signal.SIGTRAP}
signal.pthread_sigmask(signal.SIG_BLOCK, trap)
print('ready', os.getpid(), flush=True)
for line in iter(sys.stdin.readline, 'end\\n'):
    if line == 'send\\n':
        os.kill(os.getpid(), signal.SIGTRAP)
    waits = [int(one) for one in signal.sigpending()]
    taken = signal.sigtimedwait(trap, 0) if line == 'take\\n' else None
    print(waits, taken and (taken.si_code, taken.si_pid == os.getpid()), flush=True)";

/// A SIGTRAP that it blocks comes home with it, is there, and has it stay until it has received it.
fn trap_that_waits(cluster: &Cluster) -> Result<()> {
    let program = ["/usr/bin/python3", "-c", TRAPS];
    let mut talk = Talk::start(cluster, &mut cluster.run_command("n1", &program))?;
    let pid = talk.ready()?;
    let told = |talk: &mut Talk, line: &str, expected: &str| -> Result<()> {
        talk.say(line)?;
        let told = talk.line()?;
        ensure!(told == expected, "{line}: {told}");
        Ok(())
    };
    for place in ["n2", "n3"] {
        cluster.move_to(pid, place)?;
        told(&mut talk, "look", "[] None")?;
        told(&mut talk, "send", "[5] None")?;
        // Nothing calls it home later; but its supervisor may be too busy to say where it is.
        eventually(PATIENCE, "it is at home with its signal", || {
            Ok((cluster.place(pid)? == "n1").then_some(()))
        })?;
        let refused = cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
        ensure!(refused.contains("A SIGTRAP waits"), "{refused}");
        told(&mut talk, "take", "[5] (0, True)")?;
        cluster.move_to(pid, place)?;
        cluster.run("n1", &["sh", "-c", &format!("kill -TRAP {pid}")])?;
        eventually(PATIENCE, "it has come home with it", || {
            Ok((cluster.place(pid)? == "n1").then_some(()))
        })?;
        told(&mut talk, "take", "[5] (0, False)")?;
    }
    cluster.move_to(pid, "n2")?;
    told(&mut talk, "take", "[] None")?;
    talk.say("end")?;
    talk.succeed()
}

/// It leaves in a handler on one stack, and comes home with another one.
fn another_alternate_stack(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "enter"),
        ("n2", "leave"),
        ("n2", "second stack"),
        ("n2", "which stack"),
        ("n3", "which stack"),
        ("home", "which stack"),
    ];
    same(cluster, "keeps", &steps)
}

fn denied_stamps(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "deny stamps"),
        ("n2", "stamps"),
        ("n2", "other stamps"),
        ("n3", "stamps"),
        ("n3", "other deny stamps"),
        ("n2", "other stamps"),
        ("home", "stamps"),
        ("n2", "allow stamps"),
        ("n3", "stamps"),
        ("home", "stamps"),
        ("home", "other stamps"),
    ];
    same(cluster, "keeps", &steps)
}

/// Limits that it sets while it is away are its limits when it is home again.
fn limits(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "limits 1"),
        ("n2", "limits"),
        ("n2", "limits 2"),
        ("n2", "limits"),
        ("home", "limits"),
        ("n2", "limits"),
    ];
    same(cluster, "keeps", &steps)
}

/// With hardly any room left it has that much room everywhere, and our own work needs none of it. A stack that
/// has not grown is not longer for that it was elsewhere.
fn narrow_limits(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "narrow"),
        ("n1", "room"),
        ("n2", "room"),
        ("home", "room"),
        ("n2", "room"),
        ("home", "no lock right"),
        ("home", "other no lock right"),
        ("home", "narrow locks"),
        ("home", "room"),
        ("n2", "limits"),
        ("home", "room"),
        ("n2", "limits"),
        ("home", "limits"),
    ];
    same(cluster, "keeps", &steps)?;
    let data = [
        ("n1", "narrow data"),
        ("n1", "room"),
        ("n2", "room"),
        ("n2", "limits"),
        ("home", "room"),
        ("n2", "room"),
        ("home", "limits"),
    ];
    same(cluster, "keeps", &data)
}

/// What the mapping of a file may become, and what is there beside memory that grows or is to be locked, a host's
/// kernel does not know.
fn what_only_home_knows(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "asks prepare"),
        ("n2", "asks write"),
        ("n3", "asks second"),
        ("n2", "asks several"),
        ("n3", "asks shorter"),
        ("n2", "asks longer"),
        ("n3", "asks advice"),
        ("n2", "asks room"),
        ("n3", "grow"),
        ("n2", "asks growing"),
        ("home", "asks locked"),
        ("n3", "asks dropped"),
        ("home", "asks dropped"),
    ];
    same(cluster, "keeps", &steps)
}

fn shares(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "share 1"),
        ("n2", "shares"),
        ("n2", "other shares"),
        ("n2", "other share 2"),
        ("n3", "other shares"),
        ("n3", "other shares of new"),
        ("n3", "shares of new"),
        ("n3", "share 2"),
        ("n2", "shares"),
        ("home", "shares"),
        ("home", "other shares"),
        ("n2", "slack 1"),
        ("n2", "slack of new"),
        ("n3", "other slack first"),
        ("n2", "slack of new"),
        ("home", "slack of new"),
    ];
    same(cluster, "keeps", &steps)
}

fn rights(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "own 1"),
        ("n2", "own"),
        ("n2", "other own"),
        ("n2", "own 2"),
        ("n3", "own"),
        ("n3", "other own 1"),
        ("home", "own"),
        ("n2", "own"),
        ("home", "other own"),
    ];
    same(cluster, "keeps", &steps)
}

/// What a program may not do at home it may not do away, nor may threads that it makes there.
fn sandboxes(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "files"),
        ("n2", "sandbox"),
        ("n2", "files"),
        ("n2", "files in new thread"),
        ("n2", "other files"),
        ("home", "files"),
        ("n2", "files"),
        ("home", "files in new thread"),
    ];
    same(cluster, "keeps", &steps)
}

fn locks_and_names(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "lock 1"),
        ("n1", "grow"),
        ("n1", "name"),
        ("n1", "bind grown"),
        ("n2", "grow"),
        ("n2", "policy grown"),
        ("n2", "locks"),
        ("n2", "names"),
        ("n2", "lock 2"),
        ("n2", "grow"),
        ("home", "grow"),
        ("home", "policy grown"),
        ("home", "locks"),
        ("n2", "locks"),
        ("n2", "grow"),
        ("home", "names"),
    ];
    same(cluster, "keeps", &steps)
}

/// Descriptors of the kernel's own making that mean nothing of the process itself work away.
fn descriptors(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "open"),
        ("n2", "use"),
        ("n2", "use"),
        ("home", "use"),
        ("n2", "open"),
        ("home", "use"),
    ];
    same(cluster, "keeps", &steps)
}
