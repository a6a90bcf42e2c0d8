//! Nodes that are lost, links that are cut, and daemons that die while a guest runs.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use whim_system_tests::plans::{Plans, stopped};
use whim_system_tests::process::{self, eventually};
use whim_system_tests::{Case, Cluster, Context, Result, Running, Setting, Talk, ensure, guest};

use crate::exhaustion::mounted;

/// The lab's lease.
const LEASE: Duration = Duration::from_secs(2);
/// Half a lease: what takes longer was blocked.
const NOT_BLOCKED: Duration = Duration::from_secs(1);
/// Time for whatever follows a lease, on a busy machine.
const AFTER_LEASE: Duration = Duration::from_secs(20);

/// The calls of the guest `patient` in whose middle the link is cut.
const CALLS: &[&str] = &[
    "create",
    "append",
    "pipe",
    "getdents",
    "rename",
    "pread",
    "write_large",
    "recv",
    "nanosleep",
];

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, body: fn(&Cluster) -> Result<()>| {
        Case::in_lab(format!("losses::{name}"), 3, body)
    };
    vec![
        case("host_killed", host_killed),
        case("host_cut_off", host_cut_off),
        case("short_cut_is_survived", short_cut),
        case("home_killed", home_killed),
        case("cut_in_a_call_blocks_nobody", cut_in_calls),
        case("full::host_killed_in_a_call_blocks_nobody", kill_in_calls),
        case("daemons_restart", daemons_restart),
        case("daemons_killed_during_moves", daemons_killed_during_moves),
        case("killed_while_away", killed_while_away),
        case("host_stalls", host_stalls),
        case("next_host_out_of_reach", next_out_of_reach),
        case("homes_disk_stands_still", homes_disk_stands_still),
        case("hosts_disk_stands_still", hosts_disk_stands_still),
        case(
            "end_while_homes_disk_stands_still",
            end_while_disk_stands_still,
        ),
        Case::new("losses::home_is_busy_after_a_move", |_| {
            Plans::with_lab(3, busy_after_a_move)
        }),
        Case::new("losses::full::next_host_takes_nothing", next_takes_nothing),
    ]
}

pub(crate) fn patient(cluster: &Cluster, words: &[&str]) -> Result<(Talk, i32)> {
    patient_with(cluster, &[], words)
}

/// The same with these options of `whim run`.
fn patient_with(cluster: &Cluster, options: &[&str], words: &[&str]) -> Result<(Talk, i32)> {
    let program = guest::c("patient")?.display().to_string();
    Talk::run(cluster, options, &[&[program.as_str()][..], words].concat())
}

/// The program has ended as if by SIGKILL, and `ps` and `log` say why.
pub(crate) fn ended_by_loss(cluster: &Cluster, guest: &mut Talk, pid: i32) -> Result<()> {
    let status = guest.ended_within(LEASE + AFTER_LEASE)?;
    let status = status.context("The program has not ended although its host is lost")?;
    // The lab's stand-in for the command either dies by the same signal or says its number.
    ensure!(
        status.signal() == Some(9) || status.code() == Some(137),
        "It ended with {status}"
    );
    let row = cluster.ended_row(pid)?;
    let reason = row.reason.clone().unwrap_or_default();
    println!("ps: {reason}");
    ensure!(
        reason.contains("n2"),
        "`whim ps -a` does not say why: {row:?}"
    );
    let log = cluster.log()?;
    let about = |row: &&serde_json::Value| row["pid"] == pid && row.to_string().contains("n2");
    let line = log
        .iter()
        .rev()
        .find(about)
        .context("`whim log` does not say why")?;
    println!("log: {line}");
    Ok(())
}

fn host_killed(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = patient(cluster, &["counts"])?;
    cluster.move_to(pid, "n2")?;
    let begun = Instant::now();
    cluster.lab(&["kill", "n2"])?;
    ended_by_loss(cluster, &mut guest, pid)?;
    println!("after {:.1} s", begun.elapsed().as_secs_f64());
    // Home goes on as ever.
    let (_other, other) = patient(cluster, &["counts"])?;
    cluster.move_to(other, "n3")
}

fn host_cut_off(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = patient(cluster, &["counts"])?;
    cluster.move_to(pid, "n2")?;
    cluster.lab(&["cut", "n1", "n2"])?;
    ended_by_loss(cluster, &mut guest, pid)?;
    // Nothing of the guest is left on the host, whose link comes back too late.
    cluster.lab(&["heal", "n1", "n2"])?;
    no_guest_left(cluster, "n2")
}

/// Waits until a node has no guest, and no supervisor of one.
fn no_guest_left(cluster: &Cluster, node: &str) -> Result<()> {
    eventually(
        LEASE * 2 + AFTER_LEASE,
        &format!("no guest is left on {node}"),
        || {
            let left = cluster.run(
                node,
                &["sh", "-c", "ps -eo pid,comm | grep whim-guest || true"],
            )?;
            Ok(left.trim().is_empty().then_some(()))
        },
    )
}

/// A link that fails for less than the guest's share of the lease harms nothing.
fn short_cut(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = patient(cluster, &["counts"])?;
    cluster.move_to(pid, "n2")?;
    for _ in 0..3 {
        cluster.lab(&["cut", "n1", "n2"])?;
        cluster.lab(&["heal", "n1", "n2"])?;
        grows(cluster, pid)?;
    }
    cluster.move_to(pid, "home")?;
    finish(cluster, &mut guest, pid)
}

fn log_path(pid: i32) -> String {
    format!("/proc/{pid}/cwd/place/log")
}

/// Waits until what the program appends has grown.
pub(crate) fn grows(cluster: &Cluster, pid: i32) -> Result<()> {
    let size = || -> Result<u64> {
        Ok(cluster
            .run("n1", &["stat", "-Lc", "%s", &log_path(pid)])?
            .trim()
            .parse()?)
    };
    let before = size()?;
    eventually(Duration::from_secs(15), "the program goes on", || {
        Ok((size()? > before).then_some(()))
    })
}

/// Lets the counting program end; every number has to be there once.
pub(crate) fn finish(cluster: &Cluster, guest: &mut Talk, pid: i32) -> Result<()> {
    let text = cluster.run("n1", &["cat", &log_path(pid)])?;
    let good = text
        .lines()
        .enumerate()
        .all(|(line, number)| number.parse() == Ok(line));
    ensure!(good, "Numbers are missing, or there twice");
    cluster.run("n1", &["touch", &format!("/proc/{pid}/cwd/stop")])?;
    guest.until("ended")?;
    guest.succeed()
}

/// A guest that has lost its home is stopped within the lease.
fn home_killed(cluster: &Cluster) -> Result<()> {
    let (_guest, pid) = patient(cluster, &["counts"])?;
    cluster.move_to(pid, "n2")?;
    cluster.lab(&["kill", "n1"])?;
    let begun = Instant::now();
    // The CPU time of everything on n2 but the daemon stops growing.
    let ticks = || -> Result<u64> {
        let script = "cat /proc/[0-9]*/stat 2>/dev/null | awk '{ sub(/.*\\) /, \"\"); if ($3 != 0) t += $12 + $13 } END { print t + 0 }'";
        Ok(cluster.run("n2", &["sh", "-c", script])?.trim().parse()?)
    };
    let stopped = eventually(LEASE + AFTER_LEASE, "the guest is stopped", || {
        let before = ticks()?;
        std::thread::sleep(Duration::from_millis(400));
        // A computing guest uses 40 ticks in this time, and asking itself a few.
        Ok((ticks()?.saturating_sub(before) < 20).then(|| begun.elapsed()))
    })?;
    println!("stopped after {:.1} s", stopped.as_secs_f64());
    no_guest_left(cluster, "n2")
}

/// What an unrelated process does in the same places while the link is cut or the host is dead.
const UNRELATED: &str = "
    set -e
    cd \"$0/place\"
    : > unrelated-$$
    rm unrelated-$$
    echo unrelated >> log
    ls > /dev/null
    mv entry-2 entry-y
    mv entry-y entry-2
    cat large > /dev/null
    printf x | dd of=large conv=notrunc status=none
    dd if=/dev/zero of=fifo bs=512 count=1 oflag=nonblock status=none 2>/dev/null || true
";

fn unrelated_is_fast(cluster: &Cluster, directory: &str, title: &str) -> Result<()> {
    let begun = Instant::now();
    let words = ["sh", "-c", UNRELATED, directory];
    process::succeed(&mut cluster.command("n1", &words), Duration::from_secs(30))
        .with_context(|| format!("{title}: an unrelated process"))?;
    let took = begun.elapsed();
    println!(
        "{title}: an unrelated process took {:.0} ms",
        took.as_secs_f64() * 1e3
    );
    ensure!(
        took < NOT_BLOCKED,
        "{title}: an unrelated process was blocked for {took:?}"
    );
    Ok(())
}

fn cut_in_calls(cluster: &Cluster) -> Result<()> {
    in_calls(cluster, &["cut", "n1", "n2"], &["heal", "n1", "n2"])
}

fn kill_in_calls(cluster: &Cluster) -> Result<()> {
    in_calls(cluster, &["kill", "n2"], &["start", "n2"])
}

fn in_calls(cluster: &Cluster, fault: &[&str], cure: &[&str]) -> Result<()> {
    for call in CALLS {
        let (mut guest, pid) = patient(cluster, &[call])?;
        let directory = cluster
            .run("n1", &["readlink", &format!("/proc/{pid}/cwd")])?
            .trim()
            .to_owned();
        eventually(Duration::from_secs(30), "the guest is on n2", || {
            Ok(cluster.move_to(pid, "n2").is_ok().then_some(()))
        })?;
        cluster.lab(fault)?;
        unrelated_is_fast(cluster, &directory, call)?;
        ended_by_loss(cluster, &mut guest, pid)?;
        unrelated_is_fast(cluster, &directory, call)?;
        cluster.lab(cure)?;
    }
    Ok(())
}

fn daemons_restart(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = patient(cluster, &["counts"])?;
    cluster.move_to(pid, "n2")?;
    for node in ["n1", "n2"] {
        cluster.restart_daemon(node)?;
        grows(cluster, pid)?;
        let row = cluster.await_state(pid, "away")?;
        ensure!(row.place == "n2", "After the restart on {node}: {row:?}");
    }
    eventually(
        Duration::from_secs(30),
        "an onward move after the restarts",
        || Ok(cluster.move_to(pid, "n3").is_ok().then_some(())),
    )?;
    cluster.restart_daemon("n1")?;
    cluster.restart_daemon("n3")?;
    grows(cluster, pid)?;
    cluster.move_to(pid, "home")?;
    finish(cluster, &mut guest, pid)
}

/// Daemons die in the middle of moves: the program never does.
fn daemons_killed_during_moves(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = patient(cluster, &["counts"])?;
    for (node, target) in [
        ("n1", "n2"),
        ("n2", "home"),
        ("n1", "n3"),
        ("n3", "home"),
        ("n2", "n2"),
    ] {
        let number = pid.to_string();
        let mut command = cluster.whim_command("n1", &["migrate", &number, target]);
        let mut moving = Running::spawn(&mut command)?;
        cluster.restart_daemon(node)?;
        moving.wait(Duration::from_secs(60))?;
        grows(cluster, pid)?;
    }
    let mut last = String::new();
    eventually(Duration::from_secs(60), "it comes home", || {
        let row = cluster
            .row(pid)?
            .context("It is not in `whim ps` any more")?;
        if row.place != "n1" {
            let answer = cluster.migrate(pid, "home")?;
            last = format!("{row:?}: {answer:?}");
        }
        Ok((row.place == "n1" && row.state == "home").then_some(()))
    })
    .with_context(|| last)?;
    finish(cluster, &mut guest, pid)
}

/// SIGKILL at home ends both halves.
fn killed_while_away(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = patient(cluster, &["counts"])?;
    cluster.move_to(pid, "n2")?;
    cluster.run("n1", &["kill", "-KILL", &pid.to_string()])?;
    let status = guest.end()?;
    ensure!(
        status.signal() == Some(9) || status.code() == Some(137),
        "{status}"
    );
    no_guest_left(cluster, "n2")
}

/// A host that stalls for longer than the lease has lost its guest, also when it goes on.
fn host_stalls(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = patient(cluster, &["counts"])?;
    cluster.move_to(pid, "n2")?;
    cluster.lab(&["pause", "n2"])?;
    ended_by_loss(cluster, &mut guest, pid)?;
    cluster.lab(&["resume", "n2"])?;
    no_guest_left(cluster, "n2")
}

/// The host cannot reach the next one, and tries for longer than a lease: home hears from it
/// meanwhile, and the program goes on where it is.
fn next_out_of_reach(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = patient(cluster, &["counts"])?;
    cluster.move_to(pid, "n2")?;
    cluster.lab(&["cut", "n2", "n3"])?;
    let begun = Instant::now();
    let reason = cluster.refused("n1", &["migrate", &pid.to_string(), "n3"])?;
    println!("after {:.1} s: {reason}", begun.elapsed().as_secs_f64());
    ensure!(
        begun.elapsed() > LEASE,
        "It took no longer than a lease, so this shows nothing"
    );
    cluster.lab(&["heal", "n2", "n3"])?;
    grows(cluster, pid)?;
    cluster.move_to(pid, "n3")?;
    cluster.move_to(pid, "home")?;
    finish(cluster, &mut guest, pid)
}

/// Where a home keeps its journals, and a node the logs of its supervisors.
const JOURNEYS: &str = "/var/lib/whim/journeys";
const LOGS: &str = "/var/lib/whim/log";

/// Gives a directory of a node a disk of its own; false if this machine cannot do that.
fn has_own_disk(cluster: &Cluster, node: &str, directory: &str) -> Result<bool> {
    let script = format!(
        r#"mkfs.ext4 -q "$1" || exit 1
         mount -o loop "$1" {directory} || exit 9
         chmod 700 {directory}"#
    );
    mounted(cluster, node, 32 << 20, &script)
}

/// A file system on which no write ends.
struct Frozen<'a> {
    cluster: &'a Cluster,
    node: &'a str,
    directory: &'a str,
}

impl<'a> Frozen<'a> {
    fn begin(cluster: &'a Cluster, node: &'a str, directory: &'a str) -> Result<Self> {
        cluster.run(node, &["fsfreeze", "--freeze", directory])?;
        Ok(Self {
            cluster,
            node,
            directory,
        })
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let thaw = ["fsfreeze", "--unfreeze", self.directory];
        if let Err(error) = self.cluster.run(self.node, &thaw) {
            eprintln!("{} stays frozen: {error}", self.directory);
        }
    }
}

/// Home's disk takes nothing for longer than a lease, when a program is to move on: home is heard of
/// meanwhile, and the program goes on where it is.
fn homes_disk_stands_still(cluster: &Cluster) -> Result<()> {
    if !has_own_disk(cluster, "n1", JOURNEYS)? {
        return Ok(());
    }
    let (mut guest, pid) = patient(cluster, &["counts"])?;
    cluster.move_to(pid, "n2")?;
    {
        let _frozen = Frozen::begin(cluster, "n1", JOURNEYS)?;
        let begun = Instant::now();
        let reason = cluster.refused("n1", &["migrate", &pid.to_string(), "n3"])?;
        println!("after {:.1} s: {reason}", begun.elapsed().as_secs_f64());
        ensure!(reason.contains("This node's disk"), "{reason}");
        ensure!(
            begun.elapsed() >= LEASE,
            "It took no longer than a lease, so this shows nothing"
        );
        // A guest ends when home has been silent for two leases.
        eventually(AFTER_LEASE, "three leases have passed", || {
            grows(cluster, pid)?;
            Ok((begun.elapsed() > LEASE * 3).then_some(()))
        })?;
    }
    grows(cluster, pid)?;
    cluster.move_to(pid, "n3")?;
    let mut returning = {
        let _frozen = Frozen::begin(cluster, "n1", JOURNEYS)?;
        let number = pid.to_string();
        let returning = Running::spawn(&mut cluster.whim_command("n1", &["bring", &number]))?;
        // What others ask for does not wait for that disk.
        let begun = Instant::now();
        eventually(AFTER_LEASE, "a lease has passed", || {
            cluster.whim("n1", &["ps"])?;
            cluster.whim("n1", &["run", "--", "true"])?;
            Ok((begun.elapsed() > LEASE).then_some(()))
        })?;
        ensure!(begun.elapsed() < LEASE * 4, "Others have waited");
        returning
    };
    let status = returning.wait(AFTER_LEASE)?;
    ensure!(status.success(), "It has not come home: {status}");
    finish(cluster, &mut guest, pid)
}

/// A program comes home and ends there while home's disk takes nothing: its supervisor is left alone until it has noted
/// that.
fn end_while_disk_stands_still(cluster: &Cluster) -> Result<()> {
    /// The daemon waits for 2 s for a supervisor that listens to nobody.
    const LONGER: Duration = Duration::from_secs(5);
    if !has_own_disk(cluster, "n1", JOURNEYS)? {
        return Ok(());
    }
    let (mut guest, pid) = patient(cluster, &["holds", "1"])?;
    cluster.move_to(pid, "n2")?;
    let number = pid.to_string();
    let mut returning = {
        let _frozen = Frozen::begin(cluster, "n1", JOURNEYS)?;
        let returning = Running::spawn(&mut cluster.whim_command("n1", &["bring", &number]))?;
        let status = format!("/proc/{number}/status");
        eventually(AFTER_LEASE, "it is at home", || {
            let text = cluster.run("n1", &["cat", &status])?;
            Ok(text.contains("TracerPid:\t0\n").then_some(()))
        })?;
        guest.say("end")?;
        guest.succeed()?;
        let begun = Instant::now();
        eventually(LONGER + AFTER_LEASE, "the daemon has looked", || {
            let reason = cluster.ended_row(pid)?.reason.unwrap_or_default();
            ensure!(!reason.contains("without a word"), "{reason}");
            Ok((begun.elapsed() > LONGER).then_some(()))
        })?;
        returning
    };
    returning.wait(AFTER_LEASE)?;
    eventually(AFTER_LEASE, "its end has been noted", || {
        let reason = cluster.ended_row(pid)?.reason.unwrap_or_default();
        ensure!(!reason.contains("without a word"), "{reason}");
        Ok((reason == "It ended at home").then_some(()))
    })
}

/// The host's disk takes nothing when its supervisor has something to write into its log: home hears of the guest
/// all the same.
fn hosts_disk_stands_still(cluster: &Cluster) -> Result<()> {
    /// The guest is held when home has been silent for a third of it, and says so in its log.
    const LONGER: Duration = Duration::from_secs(6);
    if !has_own_disk(cluster, "n2", LOGS)? {
        return Ok(());
    }
    let lease = format!("--lease={}s", LONGER.as_secs());
    let (mut guest, pid) = patient_with(cluster, &[&lease], &["counts"])?;
    cluster.move_to(pid, "n2")?;
    {
        let _frozen = Frozen::begin(cluster, "n2", LOGS)?;
        cluster.lab(&["cut", "n1", "n2"])?;
        let begun = Instant::now();
        let silence = LONGER / 2;
        eventually(LONGER, "the guest has been held", || {
            cluster.run("n2", &["true"])?;
            Ok((begun.elapsed() > silence).then_some(()))
        })?;
        cluster.lab(&["heal", "n1", "n2"])?;
        ensure!(begun.elapsed() < LONGER, "The silence was too long");
        let healed = Instant::now();
        eventually(LONGER + AFTER_LEASE, "two leases have passed", || {
            grows(cluster, pid)?;
            Ok((healed.elapsed() > LONGER * 2).then_some(()))
        })?;
    }
    cluster.move_to(pid, "home")?;
    finish(cluster, &mut guest, pid)
}

/// Home's supervisor has told of a move, and answers nobody then, as it may where there is much to do: it goes on to
/// the next host all the same.
fn busy_after_a_move(cluster: &Cluster, plans: &Plans) -> Result<()> {
    let (mut guest, pid) = patient(cluster, &["counts"])?;
    plans.stop("home", "departure-told")?;
    cluster.move_to(pid, "n2")?;
    let supervisor = stopped(cluster, "whim-home")?.context("Home has not stopped")?;
    let mut command = cluster.whim_command("n1", &["migrate", &pid.to_string(), "n3"]);
    let mut moving = Running::spawn(&mut command)?;
    eventually(AFTER_LEASE, "n3 has room for it", || {
        let log = cluster.whim("n3", &["log"])?;
        Ok(log.contains("admitted").then_some(()))
    })?;
    cluster.run("n1", &["kill", "-CONT", &supervisor])?;
    let status = moving.wait(AFTER_LEASE)?;
    ensure!(status.success(), "It has not moved on: {status}");
    grows(cluster, pid)?;
    cluster.move_to(pid, "home")?;
    finish(cluster, &mut guest, pid)
}

/// The next host stops taking anything, in the middle of the transfer of more than fits the sockets.
fn next_takes_nothing(_: &Setting) -> Result<()> {
    let cluster = &Cluster::up_with(3, &["--rate", "100mbit"])?;
    cluster.explaining(|| {
        let (mut guest, pid) = patient(cluster, &["counts", "60"])?;
        cluster.move_to(pid, "n2")?;
        let sent = || -> Result<u64> {
            let script = "awk 'NR > 2 { n += $10 } END { print n }' /proc/net/dev";
            Ok(cluster.run("n2", &["sh", "-c", script])?.trim().parse()?)
        };
        let before = sent()?;
        let number = pid.to_string();
        let mut command = cluster.whim_command("n1", &["migrate", &number, "n3"]);
        let mut moving = Running::spawn(&mut command)?;
        eventually(Duration::from_secs(10), "n2 sends the program", || {
            Ok((sent()? > before + (8 << 20)).then_some(()))
        })?;
        cluster.lab(&["cut", "n2", "n3"])?;
        let begun = Instant::now();
        let status = moving.wait(Duration::from_secs(100))?;
        println!("after {:.1} s: {status}", begun.elapsed().as_secs_f64());
        ensure!(!status.success(), "It moved although nothing got through");
        cluster.lab(&["heal", "n2", "n3"])?;
        grows(cluster, pid)?;
        cluster.move_to(pid, "home")?;
        finish(cluster, &mut guest, pid)
    })
}
