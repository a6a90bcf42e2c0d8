//! Programs with seccomp filters of their own: they move like others, and their filters answer wherever they are.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::ExitStatus;
use std::time::Duration;

use crate::identity::come_round;
use whim_system_tests::plans::{Plans, stopped};
use whim_system_tests::process::eventually;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, anyhow, ensure, guest};

/// The user that owns nothing.
const NOBODY: &str = "nobody";
const STOPS_WITHIN: Duration = Duration::from_secs(30);
/// The capability with which filters are read, as the kernel counts.
const SYS_ADMIN: u32 = 21;

/// Filters that stay, and what is said of them.
const STAYING: &[(&str, &str)] = &[
    ("log", "Its seccomp filter has calls logged"),
    ("trace", "Its seccomp filter has calls decided by a tracer"),
    ("trap", "Its seccomp filter answers calls by a signal"),
    (
        "listener",
        "Its seccomp filter has calls decided by a listener",
    ),
    (
        "place",
        "Its seccomp filter looks at where in the program a call is made",
    ),
    ("differ", "Its threads have different seccomp filters"),
    ("no-mremap", "Its seccomp filter does not allow mremap"),
    (
        "no-execution",
        "Its seccomp filter does not allow mprotect to executable memory",
    ),
    (
        "deadly",
        "Its seccomp filter does not allow mmap of executable memory",
    ),
    (
        "no-policy",
        "Its seccomp filter does not allow set_mempolicy",
    ),
    (
        "no-barriers",
        "Its seccomp filter does not allow membarrier",
    ),
    (
        "no-restart",
        "Its seccomp filter does not allow restart_syscall",
    ),
];

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("filters::answer_alike_everywhere", 3, alike),
        Case::in_lab("filters::that_stay_say_why", 2, staying),
        Case::in_lab("filters::end_a_program_that_is_away", 2, ending),
        Case::new("filters::rights_are_for_them_and_end", |_| {
            Plans::with_lab(2, rights)
        }),
        Case::in_lab("filters::full::many_moves", 3, many),
        Case::new("filters::full::of_another_program_by_then", |_| {
            Plans::with_lab(2, becoming)
        }),
        Case::new("filters::full::of_another_process_by_then", |_| {
            Plans::with_lab(2, coming_round)
        }),
    ]
}

/// Starts it as a plain user's, whose supervisor has no right but those it is given for a moment.
fn start(cluster: &Cluster, filter: &str, moved: bool) -> Result<Talk> {
    let program = guest::c("filters")?.display().to_string();
    let whim = cluster.whim_path().display().to_string();
    let run: &[&str] = if moved { &[&whim, "run", "--"] } else { &[] };
    let words = [run, &[&program, filter]].concat();
    Talk::start(cluster, &mut cluster.command_as(NOBODY, "n1", &words))
}

fn answers(talk: &mut Talk) -> Result<String> {
    talk.say("tell")?;
    talk.line()
}

fn round(cluster: &Cluster, talk: &mut Talk, pid: i32, expected: &str) -> Result<()> {
    for node in ["n2", "n3", "n2", "home"] {
        cluster.move_to(pid, node)?;
        let found = answers(talk)?;
        ensure!(found == expected, "{node}: {found}, unmoved {expected}");
        let place = cluster.place(pid)?;
        let there = place == node || (node == "home" && place == "n1");
        ensure!(there, "It went to {place} by itself, from {node}");
    }
    Ok(())
}

fn alike(cluster: &Cluster) -> Result<()> {
    let mut unmoved = start(cluster, "confined", false)?;
    unmoved.ready()?;
    let expected = answers(&mut unmoved)?;
    let mut talk = start(cluster, "confined", true)?;
    let pid = talk.ready()?;
    round(cluster, &mut talk, pid, &expected)
}

fn many(cluster: &Cluster) -> Result<()> {
    let mut talk = start(cluster, "confined", true)?;
    let pid = talk.ready()?;
    let expected = answers(&mut talk)?;
    for _ in 0..25 {
        round(cluster, &mut talk, pid, &expected)?;
    }
    Ok(())
}

fn staying(cluster: &Cluster) -> Result<()> {
    for (filter, sentence) in STAYING {
        let mut talk = start(cluster, filter, true)?;
        let pid = talk.ready()?;
        let before = answers(&mut talk)?;
        let said = cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
        ensure!(said.contains(sentence), "{filter}: {said}");
        let after = answers(&mut talk).with_context(|| format!("{filter}, once refused"))?;
        ensure!(after == before, "{filter}: {after}, before {before}");
    }
    Ok(())
}

/// How it ends by a call that its filter kills for, at home or on another node.
fn ended(cluster: &Cluster, how: &str, moved: bool) -> Result<ExitStatus> {
    let mut talk = start(cluster, "confined", moved)?;
    let pid = talk.ready()?;
    if moved {
        cluster.move_to(pid, "n2")?;
    }
    talk.say(how)?;
    talk.end()
}

fn ending(cluster: &Cluster) -> Result<()> {
    for how in ["killed at home", "killed here"] {
        let expected = ended(cluster, how, false)?;
        let found = ended(cluster, how, true)?;
        ensure!(!expected.success(), "{how}: the filter does nothing");
        ensure!(found == expected, "{how}: {found}, unmoved {expected}");
    }
    Ok(())
}

/// What a process may do beyond its user's rights, as the kernel lists it: one set for each thread.
fn capabilities(cluster: &Cluster, pid: &str, set: &str) -> Result<Vec<u64>> {
    let script = format!("cat /proc/{pid}/task/*/status | sed -n 's/^{set}:\t//p'");
    let text = cluster.run("n1", &["sh", "-c", &script])?;
    let sets = text.lines().map(|line| u64::from_str_radix(line, 16));
    Ok(sets.collect::<Result<_, _>>()?)
}

/// Whether no thread of a process may do anything beyond its user's rights.
fn has_no_rights(cluster: &Cluster, pid: &str) -> Result<bool> {
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        let sets = capabilities(cluster, pid, set)?;
        if sets.is_empty() || sets.iter().any(|set| *set != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The supervisor of a program with filters alone may read them, and none has a right left when a host is first heard.
fn rights(cluster: &Cluster, plans: &Plans) -> Result<()> {
    let host = cluster.daemon_pid("n2")?;
    for (filter, expected) in [("confined", true), ("none", false)] {
        let mut talk = start(cluster, filter, true)?;
        let pid = talk.ready()?;
        plans.stop("home", "subject-checked")?;
        std::thread::scope(|scope| {
            let moving = scope.spawn(|| cluster.move_to(pid, "n2"));
            let supervisor = eventually(STOPS_WITHIN, "home's supervisor stops", || {
                stopped(cluster, "whim-home")
            })?;
            let sets = capabilities(cluster, &supervisor, "CapEff")?;
            let reads = |set: &u64| set & (1 << SYS_ADMIN) != 0;
            ensure!(sets.iter().any(reads) == expected, "{filter}: {sets:x?}");
            // The host says nothing meanwhile.
            cluster.run("n2", &["kill", "-STOP", &host])?;
            cluster.run("n1", &["kill", "-CONT", &supervisor])?;
            let given_up = eventually(STOPS_WITHIN, "it has given up its rights", || {
                Ok(has_no_rights(cluster, &supervisor)?.then_some(()))
            });
            cluster.run("n2", &["kill", "-CONT", &host])?;
            given_up?;
            moving.join().map_err(|_| anyhow!("a panic"))?
        })?;
        answers(&mut talk)?;
    }
    Ok(())
}

/// What it has mapped.
fn maps(cluster: &Cluster, pid: i32) -> Result<String> {
    cluster.run("n1", &["cat", &format!("/proc/{pid}/maps")])
}

/// The program executes another one while home's supervisor stands at this point; how its move is refused, and
/// what it has mapped before and after that.
fn become_at(
    cluster: &Cluster,
    plans: &Plans,
    (point, program): (&str, &str),
) -> Result<(String, [String; 2])> {
    let mut talk = start(cluster, "confined", true)?;
    let pid = talk.ready()?;
    plans.stop("home", point)?;
    let number = pid.to_string();
    let (said, before) = std::thread::scope(|scope| {
        let moving = scope.spawn(|| cluster.refused("n1", &["migrate", &number, "n2"]));
        let supervisor = eventually(STOPS_WITHIN, "home's supervisor stops", || {
            stopped(cluster, "whim-home")
        })?;
        talk.say(&format!("become {program}"))?;
        ensure!(talk.ready()? == pid, "It is another process");
        let before = maps(cluster, pid)?;
        cluster.run("n1", &["kill", "-CONT", &supervisor])?;
        let said = moving.join().map_err(|_| anyhow!("a panic"))??;
        Ok((said, before))
    })?;
    let after = maps(cluster, pid)?;
    answers(&mut talk)?;
    Ok((said, [before, after]))
}

/// What a program has become by the time that it is stopped may not be its user's to trace: nothing is made in it.
/// A thread of it waits for some time, so that to let it go unnoticed would take memory in it.
fn becoming(cluster: &Cluster, plans: &Plans) -> Result<()> {
    let plain = guest::c("filters")?;
    let hidden = cluster.directory().join("hidden");
    fs::copy(&plain, &hidden)?;
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o711))?;
    let (plain, hidden) = (plain.display().to_string(), hidden.display().to_string());
    let untraceable = "does not let itself be traced";
    for (point, program, sentence) in [
        ("files-opened", &hidden, untraceable),
        ("files-opened", &plain, "began to execute another program"),
    ] {
        let (said, [before, after]) = become_at(cluster, plans, (point, program))?;
        ensure!(before == after, "{point}: it had\n{before}and has\n{after}");
        ensure!(said.contains(sentence), "{point}: {said}");
    }
    Ok(())
}

/// The program has ended, and another one of its user's has its number, with a filter that stays: nothing is made
/// in that, although a thread of it waits for some time.
fn coming_round(cluster: &Cluster, plans: &Plans) -> Result<()> {
    let program = guest::c("filters")?.display().to_string();
    let input = cluster.directory().join("input").display().to_string();
    cluster.run("n1", &["mkfifo", &input])?;
    let script = format!(
        "exec setpriv --reuid={NOBODY} --regid=nogroup --clear-groups {program} deadly <>{input}"
    );
    let mut talk = start(cluster, "confined", true)?;
    let pid = talk.ready()?;
    let number = pid.to_string();
    plans.stop("home", "subject-checked")?;
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| cluster.refused("n1", &["migrate", &number, "n2"]));
        let supervisor = eventually(STOPS_WITHIN, "home's supervisor stops", || {
            stopped(cluster, "whim-home")
        })?;
        talk.say("end")?;
        talk.succeed()?;
        let _other = come_round(cluster, pid, &["sh", "-c", &script])?;
        let threads = format!("test $(ls /proc/{pid}/task | wc -l) -eq 2");
        eventually(STOPS_WITHIN, "the number has come round", || {
            Ok(cluster.run("n1", &["sh", "-c", &threads]).ok())
        })?;
        let before = maps(cluster, pid)?;
        cluster.run("n1", &["kill", "-CONT", &supervisor])?;
        let said = moving.join().map_err(|_| anyhow!("a panic"))??;
        let after = maps(cluster, pid)?;
        ensure!(before == after, "It had\n{before}and has\n{after}{said}");
        ensure!(said.contains("has ended"), "{said}");
        Ok(())
    })
}
