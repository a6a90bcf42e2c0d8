//! A program whose control group at home is frozen (`docker pause`, `systemctl freeze`) stands still wherever
//! it computes, for as long as that takes, and goes on when the group is thawed: nobody waits for it
//! meanwhile, and nobody takes it for lost. Groups of both versions, and groups above its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use whim_system_tests::cluster::Moved;
use whim_system_tests::plans::{Plans, stopped};
use whim_system_tests::process::{Running, eventually};
use whim_system_tests::random::Random;
use whim_system_tests::{
    Case, Cluster, Context, Result, Setting, Talk, anyhow, bail, ensure, guest,
};

/// The lease of a lab, after which a silent side is lost.
const LEASE: Duration = Duration::from_secs(2);
/// Within this time a freeze is seen.
const SEEN_WITHIN: Duration = Duration::from_millis(1000);
/// A freeze that is over soon.
const SHORT: Duration = Duration::from_millis(1500);
/// A refusal comes at once, also on a busy machine.
const AT_ONCE: Duration = Duration::from_millis(1500);
/// How long a freeze that nobody waits for may keep a move from ending.
const ENDS_WITHIN: Duration = Duration::from_secs(8);
/// The guest's words: one thread that keeps home busy.
const BUSY: &[&str] = &["1"];
/// The same with a seccomp filter, which refuses what is made of the program for its deputy.
const FILTERED: &[&str] = &["1", "filtered"];

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("freezers::away", 3, away),
        Case::in_lab("freezers::at_home", 2, at_home),
        Case::new("freezers::busy_with_home", |_| busy(1)),
        Case::new("freezers::before_the_commit", |_| {
            Plans::with_lab(2, |cluster, plans| {
                before_the_commit(cluster, plans, BUSY, &["identity-checked", "out-commit"])
            })
        }),
        Case::new("freezers::brief", |setting| brief(setting, 8)),
        Case::new("freezers::full::brief", |setting| brief(setting, 100)),
        Case::new("freezers::on_the_way_home", |_| {
            let phases = ["homeward-transfer"];
            Plans::with_lab(2, |cluster, plans| {
                later(cluster, plans, (BUSY, &[Version::Two]), &phases)
            })
        }),
        Case::new("freezers::full::before_the_commit", |_| {
            let phases = [
                "out-freeze",
                "out-capture",
                "out-transfer",
                "pages-sent",
                "out-rebuild",
            ];
            Plans::with_lab(2, |cluster, plans| {
                before_the_commit(cluster, plans, BUSY, &phases)
            })
        }),
        Case::new("freezers::full::after_the_commit", |_| {
            let phases = ["out-convert", "homeward-transfer", "homeward-rebuild"];
            Plans::with_lab(2, |cluster, plans| {
                later(cluster, plans, (BUSY, &VERSIONS), &phases)
            })
        }),
        Case::new("freezers::full::with_a_filter", |_| {
            Plans::with_lab(2, |cluster, plans| {
                before_the_commit(cluster, plans, FILTERED, &["out-rebuild"])?;
                later(cluster, plans, (FILTERED, &VERSIONS), &["out-convert"])
            })
        }),
        Case::new("freezers::full::busy_with_home", |_| busy(10)),
        Case::new("freezers::full::in_the_midst_of_a_move", |setting| {
            midst(setting, 60)
        }),
        Case::in_lab("freezers::full::of_the_guest", 2, of_the_guest),
    ]
}

#[derive(Clone, Copy, Debug)]
enum Version {
    One,
    Two,
}

const VERSIONS: [Version; 2] = [Version::Two, Version::One];

/// A group of a node's, and one in it, to be frozen and thawed.
struct Group {
    version: Version,
    outer: PathBuf,
}

impl Group {
    /// None where this machine has no such hierarchy.
    fn make(cluster: &Cluster, version: Version) -> Result<Option<Self>> {
        let (places, file): (&[&str], _) = match version {
            Version::One => (&["freezer"], "freezer.state"),
            Version::Two => (&["unified", ""], "cgroup.freeze"),
        };
        let node = cluster.node_groups("n1", places);
        let Some(node) = node.into_iter().find(|group| group.join(file).exists()) else {
            println!("no groups of version {version:?} can be frozen here");
            return Ok(None);
        };
        let outer = node.join("pause");
        fs::create_dir_all(outer.join("inner"))?;
        Ok(Some(Self { version, outer }))
    }

    fn inner(&self) -> PathBuf {
        self.outer.join("inner")
    }

    /// Puts a process of n1 into the inner group.
    fn take(&self, cluster: &Cluster, pid: i32) -> Result<()> {
        put(cluster, "n1", &self.inner(), pid)
    }

    fn set(&self, group: &Path, frozen: bool) -> Result<()> {
        let (file, value) = match (self.version, frozen) {
            (Version::One, true) => ("freezer.state", "FROZEN"),
            (Version::One, false) => ("freezer.state", "THAWED"),
            (Version::Two, true) => ("cgroup.freeze", "1"),
            (Version::Two, false) => ("cgroup.freeze", "0"),
        };
        fs::write(group.join(file), value).with_context(|| group.display().to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for group in [self.inner(), self.outer.clone()] {
            let _ = self.set(&group, false);
        }
    }
}

fn put(cluster: &Cluster, node: &str, group: &Path, pid: i32) -> Result<()> {
    let line = format!("echo {pid} > {}/cgroup.procs", group.display());
    cluster.run(node, &["sh", "-c", &line]).map(drop)
}

/// How long the program stood still at most, since it was asked last.
fn gap(talk: &mut Talk) -> Result<Duration> {
    talk.say("gap")?;
    Ok(Duration::from_millis(talk.line()?.parse()?))
}

fn seen(cluster: &Cluster, pid: i32, group: &Path) -> Result<()> {
    let begun = Instant::now();
    loop {
        let row = cluster.row(pid)?.context("it is gone")?;
        let reason = row.reason.or(row.stay).unwrap_or_default();
        if reason.contains(&format!("{} is frozen", group.display())) {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < SEEN_WITHIN,
            "Nobody sees the freeze: {reason}"
        );
        sleep(Duration::from_millis(20));
    }
}

fn refused_at_once(cluster: &Cluster, pid: i32, target: &str) -> Result<()> {
    let begun = Instant::now();
    let Moved::Refused(text) = cluster.migrate(pid, target)? else {
        bail!("A program in a frozen group has moved to {target}");
    };
    let took = begun.elapsed();
    ensure!(text.contains("is frozen; thaw that"), "{target}: {text}");
    ensure!(took < AT_ONCE, "{target}: only after {took:?}");
    Ok(())
}

fn away(cluster: &Cluster) -> Result<()> {
    let program = guest::c("freezes")?.display().to_string();
    let (mut talk, pid) = Talk::run(cluster, &[], &[program.as_str()])?;
    let mut kinds = 0;
    for version in VERSIONS {
        let Some(group) = Group::make(cluster, version)? else {
            continue;
        };
        group.take(cluster, pid)?;
        cluster.move_to(pid, "n2")?;
        // Longer than a lease, once.
        let long = if kinds == 0 { LEASE * 2 } else { SHORT };
        for (frozen, lasts) in [(group.inner(), SHORT), (group.outer.clone(), long)] {
            gap(&mut talk)?;
            let begun = Instant::now();
            group.set(&frozen, true)?;
            seen(cluster, pid, &frozen)?;
            refused_at_once(cluster, pid, "home")?;
            refused_at_once(cluster, pid, "n3")?;
            let told = cluster.whim("n1", &["why", &pid.to_string()])?;
            ensure!(told.contains("is frozen"), "{told}");
            sleep(lasts.saturating_sub(begun.elapsed()));
            group.set(&frozen, false)?;
            let stood = gap(&mut talk)?;
            println!(
                "{version:?}, {}: stood still for {stood:?}",
                frozen.display()
            );
            ensure!(
                stood + SEEN_WITHIN > lasts,
                "It computed on: it stood still for {stood:?} of {lasts:?}"
            );
            ensure!(cluster.place(pid)? == "n2", "It is not where it was");
        }
        cluster.move_to(pid, "home")?;
        kinds += 1;
    }
    ensure!(kinds > 0, "Nothing can be frozen on this machine");
    talk.say("end")?;
    talk.succeed()
}

fn at_home(cluster: &Cluster) -> Result<()> {
    let program = guest::c("freezes")?.display().to_string();
    let (mut talk, pid) = Talk::run(cluster, &[], &[program.as_str()])?;
    for version in VERSIONS {
        let Some(group) = Group::make(cluster, version)? else {
            continue;
        };
        group.take(cluster, pid)?;
        for frozen in [group.inner(), group.outer.clone()] {
            group.set(&frozen, true)?;
            seen(cluster, pid, &frozen)?;
            refused_at_once(cluster, pid, "n2")?;
            group.set(&frozen, false)?;
            gap(&mut talk)?;
        }
        cluster.move_to(pid, "n2")?;
        cluster.move_to(pid, "home")?;
    }
    talk.say("end")?;
    talk.succeed()
}

/// The group freezes while home does for the program what it does at once, and for longer than a lease.
fn busy(times: u32) -> Result<()> {
    let cluster = Cluster::up(2)?;
    cluster.explaining(|| {
        let program = guest::c("freezes")?.display().to_string();
        let (mut talk, pid) = Talk::run(&cluster, &[], &[program.as_str(), "3"])?;
        let mut random = Random::new(1);
        cluster.move_to(pid, "n2")?;
        for time in 0..times {
            let version = if time % 2 == 0 {
                Version::Two
            } else {
                Version::One
            };
            let Some(group) = Group::make(&cluster, version)? else {
                continue;
            };
            group.take(&cluster, pid)?;
            talk.say("busy")?;
            let before: u64 = talk.line()?.parse()?;
            sleep(Duration::from_micros(random.below(100_000)));
            group.set(&group.inner(), true)?;
            sleep(LEASE * 5 / 2);
            refused_at_once(&cluster, pid, "home")?;
            group.set(&group.inner(), false)?;
            let after = eventually(ENDS_WITHIN, "it goes on", || {
                talk.say("busy")?;
                let now: u64 = talk.line()?.parse()?;
                Ok((now > before + 100).then_some(now))
            })?;
            println!("{version:?}: {before} rounds, then {after}");
        }
        cluster.move_to(pid, "home")?;
        talk.say("end")?;
        talk.succeed()
    })
}

/// A move in which the supervisor stops, at a place that `plan` has noted. Again if threads still stand in
/// what the try before has left.
fn until_stopped(
    cluster: &Cluster,
    (pid, target): (i32, &str),
    plan: &dyn Fn() -> Result<()>,
) -> Result<(Running, String)> {
    let ask = || {
        plan()?;
        let mut command = cluster.whim_command("n1", &["migrate", &pid.to_string(), target]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::spawn(&mut command)
    };
    let mut moving = ask()?;
    let supervisor = eventually(ENDS_WITHIN * 2, "home's supervisor stops", || {
        let stopped = stopped(cluster, "whim-home")?;
        if stopped.is_none() && moving.wait_up_to(Duration::ZERO)?.is_some() {
            moving = ask()?;
        }
        Ok(stopped)
    })?;
    Ok((moving, supervisor))
}

/// Freezes the group of a program while the supervisor stands in the midst of its move; says whether the move
/// came about, and how long that took from there. The group is thawed when the move is over, or after so long.
fn frozen_midway(
    cluster: &Cluster,
    (mut moving, supervisor): (Running, String),
    group: &Group,
    thawed_after: Duration,
) -> Result<(bool, Duration)> {
    group.set(&group.inner(), true)?;
    let begun = Instant::now();
    cluster.run("n1", &["kill", "-CONT", &supervisor])?;
    let ended = moving.wait_up_to(thawed_after)?;
    let took = begun.elapsed();
    group.set(&group.inner(), false)?;
    let status = match ended {
        Some(status) => status,
        None => moving.wait(ENDS_WITHIN)?,
    };
    Ok((status.success(), took))
}

/// The group freezes when the move has begun and has not been committed: it is refused, while the group is
/// still frozen, and the program goes on as if nothing had been.
fn before_the_commit(
    cluster: &Cluster,
    plans: &Plans,
    words: &[&str],
    phases: &[&str],
) -> Result<()> {
    let program = guest::c("freezes")?.display().to_string();
    let (mut talk, pid) = Talk::run(cluster, &[], &[&[program.as_str()], words].concat())?;
    for version in VERSIONS {
        let Some(group) = Group::make(cluster, version)? else {
            continue;
        };
        group.take(cluster, pid)?;
        for phase in phases {
            let plan = || plans.stop("home", phase);
            let moving = until_stopped(cluster, (pid, "n2"), &plan)?;
            let (moved, took) = frozen_midway(cluster, moving, &group, ENDS_WITHIN)?;
            println!("{version:?}, {phase}: {took:?}");
            ensure!(!moved, "{phase}: it has moved");
            ensure!(took < AT_ONCE * 2, "{phase}: it took {took:?}");
            gap(&mut talk)?;
            ensure!(cluster.place(pid)? == "n1", "It is not at home");
        }
        cluster.have_on(pid, "n2")?;
        cluster.have_on(pid, "home")?;
    }
    talk.say("end")?;
    talk.succeed()
}

/// The group freezes when there is no way back, for longer than a host waits for a home that says nothing:
/// the move ends when the group is thawed.
fn later(
    cluster: &Cluster,
    plans: &Plans,
    (words, versions): (&[&str], &[Version]),
    phases: &[&str],
) -> Result<()> {
    let program = guest::c("freezes")?.display().to_string();
    let (mut talk, pid) = Talk::run(cluster, &[], &[&[program.as_str()], words].concat())?;
    for version in versions {
        let Some(group) = Group::make(cluster, *version)? else {
            continue;
        };
        group.take(cluster, pid)?;
        for phase in phases {
            let plan = || plans.stop("home", phase);
            let homeward = phase.starts_with("homeward");
            let moving = if homeward {
                eventually(ENDS_WITHIN, "it leaves", || {
                    plan()?;
                    Ok(matches!(cluster.migrate(pid, "n2")?, Moved::Done(_)).then_some(()))
                })?;
                until_stopped(cluster, (pid, "home"), &|| Ok(()))?
            } else {
                until_stopped(cluster, (pid, "n2"), &plan)?
            };
            let (moved, took) = frozen_midway(cluster, moving, &group, LEASE * 5 / 2)?;
            println!("{version:?}, {phase}: {took:?}");
            ensure!(moved, "{phase}: it has not moved");
            gap(&mut talk)?;
            cluster.have_on(pid, "home")?;
        }
    }
    talk.say("end")?;
    talk.succeed()
}

/// The group freezes at any moment of a move: that ends soon, one way or the other, and does no harm.
fn midst(setting: &Setting, times: u32) -> Result<()> {
    let cluster = Cluster::up(2)?;
    cluster.explaining(|| {
        let program = guest::c("freezes")?.display().to_string();
        let (mut talk, pid) = Talk::run(&cluster, &[], &[program.as_str(), "1"])?;
        let mut random = Random::new(setting.seed);
        let mut refused = 0;
        for time in 0..times {
            let version = if time % 2 == 0 {
                Version::Two
            } else {
                Version::One
            };
            let Some(group) = Group::make(&cluster, version)? else {
                continue;
            };
            group.take(&cluster, pid)?;
            let target = match cluster.place(pid)?.as_str() {
                "n1" => "n2",
                _ => "home",
            };
            let wait = Duration::from_micros(random.below(120_000));
            let lasts = if time % 4 < 2 {
                LEASE * 5 / 2
            } else {
                LEASE / 4
            };
            let (moved, took) = std::thread::scope(|scope| {
                let freezing = scope.spawn(|| {
                    sleep(wait);
                    group.set(&group.inner(), true)?;
                    sleep(lasts);
                    group.set(&group.inner(), false)
                });
                let begun = Instant::now();
                let moved = cluster.migrate(pid, target);
                let took = begun.elapsed();
                let frozen = freezing.join();
                (
                    frozen
                        .map_err(|_| "a panic")
                        .map(|frozen| frozen.and(moved)),
                    took,
                )
            });
            let moved = moved.map_err(|error| anyhow!(error))??;
            println!(
                "{version:?} to {target}, frozen after {wait:?} for {lasts:?}: {moved:?}, {took:?}"
            );
            ensure!(took < ENDS_WITHIN, "The move took {took:?}");
            refused += u32::from(matches!(moved, Moved::Refused(_)));
            gap(&mut talk)?;
        }
        println!("{refused} of {times} were refused");
        cluster.have_on(pid, "home")?;
        talk.say("end")?;
        talk.succeed()
    })
}

/// A group is frozen for moments, again and again, while its program comes home: its waits with a time end as they
/// should.
fn brief(setting: &Setting, times: u32) -> Result<()> {
    /// Longest freeze, and longest time from one to the next, in microseconds.
    const FROZEN: u64 = 10_000;
    const THAWED: u64 = 20_000;
    let cluster = Cluster::up(2)?;
    cluster.explaining(|| {
        let program = guest::c("freezes")?.display().to_string();
        let (mut talk, pid) = Talk::run(&cluster, &[], &[program.as_str(), "0", "waits"])?;
        let Some(group) = Group::make(&cluster, Version::Two)? else {
            return Ok(());
        };
        group.take(&cluster, pid)?;
        let mut random = Random::new(setting.seed);
        for _ in 0..times {
            cluster.move_to(pid, "n2")?;
            gap(&mut talk)?;
            let returned = AtomicBool::new(false);
            std::thread::scope(|scope| -> Result<()> {
                let freezing = scope.spawn(|| -> Result<u32> {
                    let mut frozen = 0;
                    while !returned.load(Ordering::Relaxed) {
                        group.set(&group.inner(), true)?;
                        sleep(Duration::from_micros(random.below(FROZEN)));
                        group.set(&group.inner(), false)?;
                        sleep(Duration::from_micros(random.below(THAWED)));
                        frozen += 1;
                    }
                    Ok(frozen)
                });
                let moved = eventually(ENDS_WITHIN, "it comes home between two freezes", || {
                    Ok(matches!(cluster.migrate(pid, "home")?, Moved::Done(_)).then_some(()))
                });
                returned.store(true, Ordering::Relaxed);
                let frozen = freezing.join().map_err(|_| anyhow!("a panic"))??;
                println!("frozen {frozen} times");
                moved
            })?;
            gap(&mut talk)?;
        }
        talk.say("end")?;
        talk.succeed()
    })
}

fn descendants(cluster: &Cluster, of: i32) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        let children = format!("cat /proc/{parent}/task/*/children");
        for child in cluster
            .run("n2", &["sh", "-c", &children])?
            .split_whitespace()
        {
            found.push(child.parse()?);
            parents.push(child.parse()?);
        }
    }
    Ok(found)
}

/// An administrator of its host may freeze the guest as well: it stands still, and goes on.
fn of_the_guest(cluster: &Cluster) -> Result<()> {
    let program = guest::c("freezes")?.display().to_string();
    let (mut talk, pid) = Talk::run(cluster, &[], &[program.as_str()])?;
    cluster.move_to(pid, "n2")?;
    let places = cluster.node_groups("n2", &["unified", ""]);
    let can = |group: &&PathBuf| group.join("cgroup.freeze").exists();
    let Some(node) = places.iter().find(can) else {
        println!("no groups of version 2 can be frozen here");
        return Ok(());
    };
    let group = Group {
        version: Version::Two,
        outer: node.join("pause"),
    };
    fs::create_dir_all(group.inner())?;
    let row = cluster.row(pid)?.context("it is gone")?;
    let supervisor = row.guest_supervisor_pid.context("no supervisor")?;
    for guest in descendants(cluster, supervisor)? {
        put(cluster, "n2", &group.inner(), guest)?;
    }
    gap(&mut talk)?;
    group.set(&group.inner(), true)?;
    sleep(LEASE * 2);
    group.set(&group.inner(), false)?;
    let stood = gap(&mut talk)?;
    ensure!(stood + SEEN_WITHIN > LEASE * 2, "{stood:?}");
    cluster.move_to(pid, "home")?;
    talk.say("end")?;
    talk.succeed()
}
