//! Connections that break while a guest runs or moves: nobody above them notices, as long as the
//! lease lasts.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use whim_system_tests::process::{self, eventually};
use whim_system_tests::{Case, Cluster, Context, Cutter, Result, Talk, bail, ensure, guest};

use crate::losses::{ended_by_loss, finish, grows, patient};

/// The lab's lease.
const LEASE: Duration = Duration::from_secs(2);
/// One of which the verbs of a lab take no great part, even on a busy machine.
const LONG_LEASE: Duration = Duration::from_secs(8);
/// Memory of the program whose moves are disturbed: its way takes long enough to be hit.
const MEGABYTES: &str = "96";
/// Rounds of the program that makes eight calls in each: a run takes a few seconds even where to wake up
/// takes long.
const ROUNDS: &str = "600";
/// So many connections break at least while it runs, in no more than so many runs.
const BROKEN_MIN: usize = 10;
const RUNS_MAX: u32 = 8;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, body: fn(&Cluster) -> Result<()>| {
        Case::in_lab(format!("breaks::{name}"), 3, body)
    };
    vec![
        case("in_calls", in_calls),
        case("on_the_way_out", on_the_way_out),
        case("on_the_way_home", on_the_way_home),
        case("on_the_way_onward", on_the_way_onward),
        case("for_half_a_lease", for_half_a_lease),
        case("for_longer_than_the_lease", for_longer),
    ]
}

/// Does something while connections break again and again; how many broke.
fn breaking<T>(
    cutters: &[Cutter],
    pause: Duration,
    body: impl FnOnce() -> Result<T>,
) -> Result<(T, usize)> {
    let (over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            for cutter in cutters.iter().cycle() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                count.fetch_add(cutter.cut().unwrap_or(0), Ordering::SeqCst);
                thread::sleep(pause);
            }
        });
        let result = body();
        over.store(true, Ordering::SeqCst);
        result
    });
    Ok((result?, count.into_inner()))
}

fn both_sides(cluster: &Cluster) -> Result<[Cutter; 2]> {
    Ok([
        Cutter::new(cluster, "n1", "whim-home")?,
        Cutter::new(cluster, "n2", "whim-guest")?,
    ])
}

/// A program whose every call has an effect ends as it does unmoved.
fn in_calls(cluster: &Cluster) -> Result<()> {
    let program = guest::c("serial")?.display().to_string();
    let words = [program.as_str(), ROUNDS];
    let unmoved = cluster.directory().join("unmoved");
    fs::create_dir_all(&unmoved)?;
    let mut command = cluster.command("n1", &words);
    command.current_dir(&unmoved);
    let expected = process::succeed(&mut command, Duration::from_secs(60))?;
    let cutters = both_sides(cluster)?;
    let mut broken = 0;
    // A busy machine may leave whoever breaks connections too little time in one run.
    for _ in 0..RUNS_MAX {
        let script = format!("echo ready $$; read word; exec {program} {ROUNDS}");
        let mut command = cluster.run_command("n1", &["sh", "-c", &script]);
        let mut moved = Talk::start(cluster, &mut command)?;
        let pid = moved.ready()?;
        moved.go()?;
        if cluster.move_to(pid, "n2").is_err() {
            // It was done before it could move.
            moved.succeed()?;
            continue;
        }
        let (_, count) = breaking(&cutters, Duration::from_millis(60), || moved.end())?;
        moved.succeed()?;
        println!("{count} connections broke");
        let said: String = moved.said.iter().map(|line| format!("{line}\n")).collect();
        ensure!(said == expected, "It said {said:?} instead of {expected:?}");
        for file in ["serial", "offsets"] {
            let (left, right) = (unmoved.join(file), moved.directory().join(file));
            ensure!(
                fs::read(left)? == fs::read(right)?,
                "The file '{file}' differs"
            );
        }
        broken += count;
        if broken >= BROKEN_MIN {
            return Ok(());
        }
    }
    bail!("Only {broken} connections broke")
}

fn holding(cluster: &Cluster) -> Result<(Talk, i32)> {
    let program = guest::c("patient")?.display().to_string();
    let words = [program.as_str(), "holds", MEGABYTES];
    let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    let pid = guest.ready()?;
    Ok((guest, pid))
}

/// Moves it while connections break; it has to arrive, and something has to break.
fn moved_breaking(cluster: &Cluster, cutters: &[Cutter], pid: i32, target: &str) -> Result<()> {
    let pause = Duration::from_millis(25);
    let (_, broken) = breaking(cutters, pause, || cluster.move_to(pid, target))?;
    println!("to {target}: {broken} connections broke");
    ensure!(broken > 0, "Nothing broke on the way to {target}");
    Ok(())
}

/// Its memory is as it was, and it ends well.
fn intact(guest: &mut Talk) -> Result<()> {
    guest.say("e")?;
    guest.until("intact")?;
    guest.succeed()
}

/// From the image on: before it nothing is frozen, and a move that fails there is refused.
fn on_the_way_out(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = holding(cluster)?;
    moved_breaking(cluster, &both_sides(cluster)?, pid, "n2")?;
    intact(&mut guest)
}

fn on_the_way_home(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = holding(cluster)?;
    cluster.move_to(pid, "n2")?;
    moved_breaking(cluster, &both_sides(cluster)?, pid, "home")?;
    intact(&mut guest)
}

/// Home's connections to both hosts break.
fn on_the_way_onward(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = holding(cluster)?;
    cluster.move_to(pid, "n2")?;
    let home = [Cutter::new(cluster, "n1", "whim-home")?];
    moved_breaking(cluster, &home, pid, "n3")?;
    intact(&mut guest)
}

/// The guest is stopped after a third of the lease, and goes on.
fn for_half_a_lease(cluster: &Cluster) -> Result<()> {
    let program = guest::c("patient")?.display().to_string();
    let lease = LONG_LEASE.as_secs().to_string();
    let words = ["run", "--lease", &lease, "--", &program, "counts"];
    let mut guest = Talk::start(cluster, &mut cluster.whim_command("n1", &words))?;
    let pid = guest.ready()?;
    cluster.move_to(pid, "n2")?;
    for cutter in both_sides(cluster)? {
        let begun = Instant::now();
        cluster.lab(&["cut", "n1", "n2"])?;
        ensure!(cutter.cut()? >= 2, "There was nothing to break");
        thread::sleep((LONG_LEASE / 2).saturating_sub(begun.elapsed()));
        cluster.lab(&["heal", "n1", "n2"])?;
        println!("healed after {:?}", begun.elapsed());
        grows(cluster, pid)?;
    }
    cluster.move_to(pid, "home")?;
    finish(cluster, &mut guest, pid)
}

fn for_longer(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = patient(cluster, &["counts"])?;
    cluster.move_to(pid, "n2")?;
    let begun = Instant::now();
    cluster.lab(&["cut", "n1", "n2"])?;
    for cutter in both_sides(cluster)? {
        ensure!(cutter.cut()? >= 2, "There was nothing to break");
    }
    ended_by_loss(cluster, &mut guest, pid)?;
    ensure!(
        begun.elapsed() >= LEASE,
        "It ended before the lease was over"
    );
    cluster.lab(&["heal", "n1", "n2"])?;
    eventually(LEASE * 12, "no guest is left on n2", || {
        let left = Cutter::new(cluster, "n2", "whim-guest")?.cut()?;
        Ok((left == 0).then_some(()))
    })
    .context("after the link has come back")
}
