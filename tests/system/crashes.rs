//! The supervisors and the daemons die, at every numbered point of a journey and at random moments.
//! Before its commit the program goes on; after it the program has the promised end; its effects
//! happen once; and nothing of it is left anywhere.

pub(crate) mod scene;
pub(crate) mod workload;

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use scene::{Fate, SETTLED, Scene};
use whim_system_tests::process::{self, Running};
use whim_system_tests::random::Random;
use whim_system_tests::{Case, Cluster, Context, Result, Setting, Talk, ensure, guest, place};
use workload::Workload;

/// Armed with this number, points are counted and none is fatal.
const COUNT_ONLY: u32 = u32::MAX;
/// As in `whim_sys::crash`: what the numbers of a section of a journey begin from.
const SECTION: u32 = 1_000_000;
/// The full set is cut into this many tests by whose points are tried.
const SHARES: u32 = 4;
/// Journeys without a crash, whose points are counted.
const COUNTED: u32 = 3;
/// Random kills of the full set.
const KILLS: u32 = 200;
/// Random kills of the quick set.
const FEW_KILLS: u32 = 5;
/// Longest time from the begin of a move to a random kill, in milliseconds.
const KILL_WITHIN_MS: u64 = 150;

/// Who dies at a numbered point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Victim {
    node: &'static str,
    /// Part of the daemon's plan: `home`, `guest` or `whimd`.
    part: &'static str,
}

const HOME: Victim = Victim {
    node: "n1",
    part: "home",
};
const FIRST_GUEST: Victim = Victim {
    node: "n2",
    part: "guest",
};
const SECOND_GUEST: Victim = Victim {
    node: "n3",
    part: "guest",
};
const HOME_DAEMON: Victim = Victim {
    node: "n1",
    part: "whimd",
};
const HOST_DAEMON: Victim = Victim {
    node: "n2",
    part: "whimd",
};
const NEXT_DAEMON: Victim = Victim {
    node: "n3",
    part: "whimd",
};

pub(crate) fn cases() -> Vec<Case> {
    let quick = |name: &str, victims: &'static [(Victim, u32)]| {
        Case::new(format!("crashes::{name}"), move |_| {
            with_scene(|scene| {
                victims
                    .iter()
                    .try_for_each(|(victim, count)| at_points(scene, *victim, Points::Some(*count)))
            })
        })
    };
    let mut cases = vec![
        quick("home_supervisor", &[(HOME, 6)]),
        quick("guest_supervisors", &[(FIRST_GUEST, 2), (SECOND_GUEST, 2)]),
        quick("daemons", &[(HOME_DAEMON, 2), (HOST_DAEMON, 1)]),
        Case::new("crashes::raised_limits", |_| with_scene(raised_limits)),
        Case::new("crashes::sent_on_by_the_next_daemon", |_| {
            with_scene(sent_on)
        }),
        Case::new("crashes::raised_limits_without_a_daemon", |_| {
            let cluster = Cluster::up_with(2, &["--rate", "20mbit"])?;
            cluster.explaining(|| without_a_daemon(&cluster))
        }),
        Case::new("crashes::random", |setting| random(setting, FEW_KILLS)),
        Case::new("crashes::full::random", |setting| random(setting, KILLS)),
    ];
    let full = |name: String, victim: Victim, share: u32, of: u32| {
        Case::new(format!("crashes::full::{name}"), move |_| {
            with_scene(|scene| at_points(scene, victim, Points::Share(share, of)))
        })
    };
    for share in 0..SHARES {
        cases.push(full(
            format!("home_supervisor_{share}"),
            HOME,
            share,
            SHARES,
        ));
    }
    for (name, victim) in [
        ("first_guest_supervisor", FIRST_GUEST),
        ("second_guest_supervisor", SECOND_GUEST),
        ("home_daemon", HOME_DAEMON),
        ("host_daemon", HOST_DAEMON),
        ("next_daemon", NEXT_DAEMON),
    ] {
        cases.push(full(name.to_owned(), victim, 0, 1));
    }
    cases
}

/// As [`with_scene_of`], without a lease: whatever follows a death, no lease has brought it about.
fn with_scene(body: impl FnOnce(&mut Scene<'_>) -> Result<()>) -> Result<()> {
    with_scene_of(Workload::Serial, "inf", body)
}

/// Runs a body in a lab whose daemons follow the plans of crashes in the lab's directory; the
/// program's lease is so many seconds.
pub(crate) fn with_scene_of(
    workload: Workload,
    lease: &'static str,
    body: impl FnOnce(&mut Scene<'_>) -> Result<()>,
) -> Result<()> {
    let plans = place::room()?.join(format!("plans-{}", std::process::id()));
    fs::create_dir_all(&plans)?;
    let option = format!("--daemon-arg=--crash-plan={}/{{node}}", plans.display());
    let share = format!("--share={}", plans.display());
    let cluster = Cluster::up_with(3, &[&option, &share])?;
    let result = cluster.explaining(|| body(&mut Scene::new(&cluster, &plans, (workload, lease))?));
    drop(cluster);
    fs::remove_dir_all(plans)?;
    result
}

/// Which of a victim's points are tried.
#[derive(Clone, Copy, Debug)]
enum Points {
    /// So many, spread evenly.
    Some(u32),
    /// Every n-th, beginning with the k-th (k, n).
    Share(u32, u32),
}

impl Points {
    /// Of all these.
    fn of(self, all: &[u32]) -> Vec<u32> {
        match self {
            Self::Some(wanted) => (0..wanted as usize)
                .filter_map(|index| all.get((2 * index + 1) * all.len() / (2 * wanted as usize)))
                .copied()
                .collect(),
            Self::Share(share, of) => all
                .iter()
                .skip(share as usize)
                .step_by(of as usize)
                .copied()
                .collect(),
        }
    }
}

fn at_points(scene: &mut Scene<'_>, victim: Victim, points: Points) -> Result<()> {
    let all = all_points(scene, victim)?;
    let numbers = points.of(&all);
    println!(
        "{victim:?}: {} points, {} of them are tried",
        all.len(),
        numbers.len()
    );
    let (mut went_on, mut ended, mut missed) = (0, 0, 0);
    for number in &numbers {
        let title = format!("{} of {} at point {number}", victim.part, victim.node);
        let fate = at_point(scene, victim, *number).with_context(|| title.clone())?;
        println!("{title}: {fate:?}");
        match fate {
            None => missed += 1,
            Some(Fate::Home) => went_on += 1,
            Some(Fate::Ended) => ended += 1,
            Some(Fate::Away) => unreachable!("it was brought home"),
        }
    }
    println!("{victim:?}: went on {went_on}, ended {ended}, not reached {missed}");
    ensure!(
        missed * 5 <= u32::try_from(numbers.len())?,
        "{missed} of {} points were not reached",
        numbers.len()
    );
    scene.finish()
}

/// The daemon dies between the start of a supervisor and its order: the next one sends the same supervisor
/// away, and brings the program home by it.
fn sent_on(scene: &mut Scene<'_>) -> Result<()> {
    let Victim { node, part } = HOME_DAEMON;
    count(scene, HOME_DAEMON)?;
    let mut points = Vec::new();
    for name in ["supervisor-noted", "after-home-started"] {
        let first = scene.numbers_of(node, part, name)?.into_iter().next();
        points.push((name, first.with_context(|| format!("No point {name}"))?));
    }
    for (name, number) in points {
        let pid = scene.program()?;
        depart(scene, pid, HOME_DAEMON, number)?;
        scene.restart_daemon(node)?;
        ensure!(
            scene.disarm(node, part, number)?,
            "It has not died at {name}"
        );
        process::eventually(SETTLED, "the next daemon sends it away", || {
            Ok(scene.try_move(pid, "n3")?.then_some(()))
        })
        .context(name)?;
        let fate = scene.settle(true).context(name)?;
        ensure!(fate == Fate::Home, "{name}: {fate:?}");
    }
    // That nothing is left behind such deaths is seen where each point is tried.
    Ok(())
}

/// The home supervisor dies while limits of the program are raised: it gets them back.
fn raised_limits(scene: &mut Scene<'_>) -> Result<()> {
    count(scene, HOME)?;
    let mut numbers = Vec::new();
    for name in [
        "limit-raised",
        "pages-sent",
        "before-commit",
        "after-commit-entry",
    ] {
        let found = scene.numbers_of(HOME.node, HOME.part, name)?;
        println!("{name}: {found:?}");
        ensure!(!found.is_empty(), "There is no crash point {name}");
        // Those of the way out.
        numbers.extend(found.into_iter().filter(|number| *number < SECTION));
    }
    for number in numbers {
        let fate = at_point(scene, HOME, number)?;
        ensure!(fate == Some(Fate::Home), "At point {number}: {fate:?}");
    }
    scene.finish()
}

/// The same when the daemon has died as well: the next one puts the limits back.
fn without_a_daemon(cluster: &Cluster) -> Result<()> {
    let program = guest::c("patient")?.display().to_string();
    let script = "ulimit -S -v 4000000 && exec \"$0\" holds 20";
    let words = ["sh", "-c", script, &program];
    let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    let pid = guest.ready()?;
    let limit = || -> Result<String> {
        let text = cluster.run("n1", &["cat", &format!("/proc/{pid}/limits")])?;
        let line = text.lines().find(|line| line.starts_with("Max address"));
        Ok(line.context("a limit of the address space")?.to_owned())
    };
    let before = limit()?;
    let target = pid.to_string();
    let mut moving = cluster.whim_command("n1", &["migrate", &target, "n2"]);
    moving.stdout(Stdio::null()).stderr(Stdio::null());
    let mut moving = Running::spawn(&mut moving)?;
    process::eventually(SETTLED, "its limit is raised", || {
        Ok((limit()? != before).then_some(()))
    })?;
    let raised = limit()?;
    let supervisor = "ps -eo pid,comm | awk '$2 == \"whim-home\" { print $1 }'";
    let daemon = cluster.daemon_pid("n1")?;
    let kill = format!("kill -KILL {daemon} $({supervisor})");
    cluster.run("n1", &["sh", "-c", &kill])?;
    moving.wait(SETTLED)?;
    ensure!(limit()? == raised, "Who has put it back? {raised}");
    cluster.lab(&["start", "--daemon", "n1"])?;
    process::eventually(SETTLED, "the next daemon puts the limit back", || {
        Ok((limit()? == before).then_some(()))
    })?;
    guest.go()?;
    ensure!(guest.ready()? == pid, "another pid");
    guest.go()?;
    guest.ready().map(drop)
}

/// The numbers of the points of a journey without a crash.
fn all_points(scene: &mut Scene<'_>, victim: Victim) -> Result<Vec<u32>> {
    let mut ends = count(scene, victim)?;
    if victim == HOME {
        // While it serves the program, it passes more or fewer points: those that it always passes.
        for _ in 1..COUNTED {
            let more = count(scene, victim)?;
            ensure!(more.len() == ends.len(), "Sections: {ends:?} and {more:?}");
            for (end, another) in ends.iter_mut().zip(more) {
                *end = another.min(*end);
            }
        }
    }
    println!("{victim:?}: the sections end at {ends:?}");
    Ok(ends
        .into_iter()
        .flat_map(|end| end / SECTION * SECTION + 1..=end)
        .collect())
}

fn count(scene: &mut Scene<'_>, victim: Victim) -> Result<Vec<u32>> {
    let pid = scene.program()?;
    scene.arm(victim.node, victim.part, COUNT_ONLY)?;
    for target in ["n2", "n3", "home"] {
        scene.cluster.move_to(pid, target)?;
    }
    scene.settle(true)?;
    scene.nothing_is_left()?;
    scene.passed(victim.node, victim.part)
}

/// One journey with a crash; nothing if the point was not reached.
fn at_point(scene: &mut Scene<'_>, victim: Victim, number: u32) -> Result<Option<Fate>> {
    let pid = scene.program()?;
    depart(scene, pid, victim, number)?;
    for target in ["n3", "home"] {
        // Refused or broken off when the victim has died; what became of the program is judged below.
        if scene.crashed(victim.node, victim.part, number)? || !scene.try_move(pid, target)? {
            break;
        }
    }
    let daemon = victim.part == "whimd";
    if daemon {
        scene.restart_daemon(victim.node)?;
    }
    let fate = scene.settle(true)?;
    if fate == Fate::Ended {
        ensure!(!daemon, "The death of a daemon ended the program");
        scene.may_have_ended(pid, victim.node, victim.part)?;
    }
    scene.nothing_is_left_by(daemon.then_some(victim.node))?;
    let crashed = scene.disarm(victim.node, victim.part, number)?;
    if fate == Fate::Home && daemon {
        // What the new daemon knows is enough for another journey.
        scene.cluster.move_to(pid, "n2")?;
        scene.cluster.move_to(pid, "home")?;
        scene.nothing_is_left()?;
    }
    ensure!(
        crashed || fate == Fate::Home,
        "The program ended without a crash"
    );
    Ok(crashed.then_some(fate))
}

/// The first move of a journey. It is refused as long as a thread still stands in the code that the
/// crash before this one has left in it; by itself it leaves that after a second or two.
fn depart(scene: &mut Scene<'_>, pid: i32, victim: Victim, number: u32) -> Result<()> {
    process::eventually(SETTLED, "the program moves after the crash", || {
        scene.arm(victim.node, victim.part, number)?;
        let done = scene.try_move(pid, "n2")? || scene.crashed(victim.node, victim.part, number)?;
        Ok(done.then_some(()))
    })
}

/// Who dies at a random moment: a node, the name of its processes, and which of them.
const MORTALS: &[(&str, &str, &str)] = &[
    ("n1", "whim-home", "head"),
    ("n2", "whim-guest", "head"),
    ("n3", "whim-guest", "head"),
    ("n2", "whim-guest", "tail"),
    ("n1", "whimd", "head"),
    ("n2", "whimd", "head"),
    ("n3", "whimd", "head"),
];

fn random(setting: &Setting, kills: u32) -> Result<()> {
    let mut random = Random::new(setting.seed);
    println!("seed {}", setting.seed);
    with_scene(|scene| {
        let (mut done, mut ended) = (0, 0);
        // Home may notice the death of a host's supervisor only in the next round.
        let mut before = None;
        while done < kills {
            let &(node, name, which) = random.pick(MORTALS).context("somebody")?;
            let &target = random.pick(&["n2", "n3", "home"]).context("somewhere")?;
            let delay = random.below(KILL_WITHIN_MS);
            let pid = scene.program()?;
            let title = format!("{name} of {node} killed {delay} ms after a move to {target}");
            let mut killer = killer(scene.cluster, (node, name, which), delay)?;
            scene.try_move(pid, target)?;
            let hit = killer.wait(Duration::from_secs(30))?.success();
            if name == "whimd" {
                scene.restart_daemon(node)?;
            }
            let fate = scene.settle(false).context(title.clone())?;
            println!("{title}: {hit}, {fate:?}");
            done += u32::from(hit);
            if fate == Fate::Ended {
                let now = (hit && name != "whimd").then_some((node, name));
                let victims: Vec<_> = now.into_iter().chain(before).collect();
                may_have_ended(scene, pid, &victims).context(title.clone())?;
                ended += 1;
            }
            before = (hit && name == "whim-guest").then_some((node, name));
            if fate != Fate::Away {
                scene.nothing_is_left().context(title)?;
            }
        }
        println!("{done} kills; the program ended {ended} times");
        scene.program()?;
        scene.settle(true)?;
        scene.finish()
    })
}

/// Checks that one of these deaths explains the program's end.
fn may_have_ended(scene: &Scene<'_>, pid: i32, victims: &[(&str, &str)]) -> Result<()> {
    let allowed = |(node, name): &(&str, &str)| {
        let part = if *name == "whim-home" {
            "home"
        } else {
            "guest"
        };
        scene.may_have_ended(pid, node, part)
    };
    let mut looked = victims.iter().map(allowed).collect::<Vec<_>>();
    ensure!(!looked.is_empty(), "Nobody died, but the program ended");
    if looked.iter().any(Result::is_ok) {
        return Ok(());
    }
    looked.swap_remove(0)
}

/// Kills a process of a node after a while; its exit status says whether there was one.
fn killer(
    cluster: &Cluster,
    (node, name, which): (&str, &str, &str),
    delay_ms: u64,
) -> Result<Running> {
    let script = format!(
        "sleep {}.{:03}; pid=$(ps -eo pid=,comm= | awk '$2 == \"{name}\" {{ print $1 }}' | {which} -n 1)
         test -n \"$pid\" && kill -KILL $pid",
        delay_ms / 1000,
        delay_ms % 1000
    );
    Running::spawn(&mut cluster.command(node, &["sh", "-c", &script]))
}
