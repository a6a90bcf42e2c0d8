//! What a move needs is refused to those who carry it: the program goes on where it was, whatever
//! it is that is missing, and at whichever step.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use whim_system_tests::cluster::Moved;
use whim_system_tests::process::eventually;
use whim_system_tests::{Case, Cluster, Result, Talk, bail, ensure, guest};

use crate::bad_input::{counting, goes_on};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("faults::descriptors_at_home", |_| {
            limited(
                "whim-home",
                [6, 8, 10, 16, 26, 28, 30, 31, 32, 33, 34, 36, 38, 40, 48].into_iter(),
                "ulimit -n",
                "",
            )
        }),
        Case::new("faults::memory_at_home", |_| {
            limited(
                "whim-home",
                [8, 10, 11, 12, 13, 14, 40].into_iter(),
                "ulimit -v $((1024 * X)) #",
                "",
            )
        }),
        Case::new("faults::descriptors_at_the_host", |_| {
            limited(
                "whim-guest",
                [1000, 128, 127, 100, 60, 20, 14, 12, 8].into_iter(),
                "ulimit -n",
                "raise the limit of whimd (LimitNOFILE",
            )
        }),
        Case::in_lab("faults::limited_address_space", 2, address_space),
        Case::new("faults::processes_at_the_host", |_| processes()),
        Case::in_lab("faults::threads_of_a_guest", 2, threads),
    ]
}

/// Moves under each of these limits of one supervisor: it works whole, or not at all and with a
/// sentence that holds these words.
fn limited(
    program: &str,
    limits: impl Iterator<Item = u64>,
    line: &str,
    words: &str,
) -> Result<()> {
    let cluster = Cluster::up_limiting(2, program)?;
    cluster.explaining(|| {
        sweep(&cluster, limits, words, &|limit| {
            cluster.limit_programs(&format!("X={limit}; {line} {limit}\n"))
        })
    })
}

/// A host that has so many processes left.
fn processes() -> Result<()> {
    let cluster = Cluster::up(2)?;
    let Some(group) = cluster.group("pids", "n2") else {
        println!("skipped: no control group counts processes here");
        return Ok(());
    };
    cluster.explaining(|| {
        sweep(&cluster, 0..7, "", &|spare| {
            let now: u64 = fs::read_to_string(group.join("pids.current"))?
                .trim()
                .parse()?;
            Ok(fs::write(
                group.join("pids.max"),
                (now + spare).to_string(),
            )?)
        })
    })
}

/// What a host whose guests may have 16 threads each takes, and what holds there.
fn threads(cluster: &Cluster) -> Result<()> {
    cluster.configure("n2", "[guests]\npids = 16\n")?;
    cluster.restart_daemon("n2")?;
    let program = guest::c("crowd")?.display().to_string();
    let start = |threads: &str| {
        let words = [program.as_str(), threads, "17"];
        Talk::start(cluster, &mut cluster.run_command("n1", &words))
    };
    let mut few = start("10")?;
    let pid = few.ready()?;
    eventually(Duration::from_secs(30), "n2 takes guests", || {
        Ok(matches!(cluster.migrate(pid, "n2")?, Moved::Done(_)).then_some(()))
    })?;
    limit_holds(cluster)?;
    few.go()?;
    ensure!(few.line()? == "answers 10", "{:?}", few.said);
    drop(few);
    let mut full = start("16")?;
    let pid = full.ready()?;
    cluster.move_to(pid, "n2")?;
    full.go()?;
    ensure!(full.line()? == "answers 16", "{:?}", full.said);
    // One more than this host takes: it is made at home.
    full.go()?;
    ensure!(full.line()? == "answers 17", "{:?}", full.said);
    ensure!(
        cluster.row(pid)?.is_some_and(|row| row.place == "n1"),
        "A thread too many is made at home"
    );
    let mut many = start("17")?;
    let other = many.ready()?;
    for pid in [pid, other] {
        let sentence = cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
        ensure!(
            sentence.contains("admits 16 threads per guest, the process has 17"),
            "{sentence}"
        );
    }
    many.go()?;
    ensure!(many.line()? == "answers 17", "{:?}", many.said);
    many.go()?;
    ensure!(many.line()? == "answers 17", "{:?}", many.said);
    for guest in [&mut full, &mut many] {
        guest.go()?;
        guest.succeed()?;
    }
    Ok(())
}

/// Among the processes of a guest of 10 threads on n2 a stranger, who is the eleventh, can start as
/// many as are missing to 16, and no more.
fn limit_holds(cluster: &Cluster) -> Result<()> {
    let mut groups = cluster.guest_groups("n2").into_iter();
    let Some(group) = groups.find(|group| group.join("pids.max").exists()) else {
        println!("not tried: no control group counts processes here");
        return Ok(());
    };
    let script = "
import errno, os, signal, sys
with open(sys.argv[1] + '/cgroup.procs', 'w') as group:
    group.write('0')
made = []
try:
    while len(made) < 100:
        made.append(os.fork())
        if made[-1] == 0:
            signal.pause()
    print('no limit')
except OSError as error:
    print('started', len(made), errno.errorcode[error.errno])
for pid in made:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
";
    let group = group.display().to_string();
    let said = cluster.run("n2", &["/usr/bin/python3", "-c", script, &group])?;
    ensure!(said.trim() == "started 5 EAGAIN", "{said}");
    Ok(())
}

/// A program whose own address space is limited has no room for the window: either its limit can be
/// raised for the time away, or it stays.
fn address_space(cluster: &Cluster) -> Result<()> {
    let program = guest::c("patient")?.display().to_string();
    let whim = cluster.whim_path().display().to_string();
    for (user, limit, moves) in [
        ("root", "ulimit -S -v 1000000", Some(true)),
        // Whether root may raise a hard limit is up to the machine.
        ("root", "ulimit -v 1000000", None),
        ("root", "ulimit -d 1000000", None),
        ("nobody", "ulimit -S -v 1000000", Some(true)),
        ("nobody", "ulimit -v 1000000", Some(false)),
    ] {
        let place = cluster
            .directory()
            .join(format!("{user} {limit}").replace(' ', "_"));
        fs::create_dir_all(&place)?;
        fs::set_permissions(&place, fs::Permissions::from_mode(0o777))?;
        let script = format!("cd {} && {limit} && exec {program} counts", place.display());
        let words = [whim.as_str(), "run", "--", "sh", "-c", &script];
        let mut guest = Talk::start(cluster, &mut cluster.command_as(user, "n1", &words))?;
        let pid = guest.ready()?;
        let limits = || cluster.run("n1", &["cat", &format!("/proc/{pid}/limits")]);
        let before = limits()?;
        let moved = cluster.migrate(pid, "n2")?;
        println!("{user}, {limit}: {moved:?}");
        match &moved {
            Moved::Done(_) => cluster.move_to(pid, "home")?,
            Moved::Refused(sentence) => {
                ensure!(sentence.contains("address space"), "{sentence}");
                let why = cluster.whim("n1", &["why", &pid.to_string()])?;
                ensure!(
                    why.contains("on its address space"),
                    "`whim why` says '{why}'"
                );
                let stay = cluster.row(pid)?.and_then(|row| row.stay);
                let told = stay.is_some_and(|stay| stay.contains("on its address space"));
                ensure!(told, "`whim ps` does not tell why it stays");
            }
        }
        ensure!(
            moves.is_none_or(|moves| matches!(moved, Moved::Done(_)) == moves),
            "{user}, {limit}: {moved:?}"
        );
        goes_on(cluster, pid)?;
        ensure!(limits()? == before, "{user}, {limit}: other limits");
    }
    Ok(())
}

pub(crate) fn sweep(
    cluster: &Cluster,
    limits: impl Iterator<Item = u64>,
    words: &str,
    set: &dyn Fn(u64) -> Result<()>,
) -> Result<()> {
    let (_guest, pid) = counting(cluster)?;
    let (mut moved, mut refused) = (0, 0);
    for limit in limits {
        set(limit)?;
        match cluster.migrate(pid, "n2")? {
            Moved::Done(_) => {
                moved += 1;
                cluster.move_to(pid, "home")?;
            }
            Moved::Refused(sentence) => {
                println!("{limit}: {sentence}");
                ensure!(
                    sentence.lines().count() == 1,
                    "{limit}: '{sentence}' is no sentence"
                );
                ensure!(sentence.contains(words), "{limit}: '{sentence}'");
                refused += 1;
            }
        }
        if let Err(error) = goes_on(cluster, pid) {
            bail!("{limit}: {error:#}");
        }
    }
    println!("{moved} moves, {refused} refusals");
    ensure!(moved > 0 && refused > 0, "Not all of it was tried");
    Ok(())
}
