//! Every phase of a journey, every participant, every kind of fault: the promised end each time.
//!
//! The home supervisor stops itself at the beginning of a phase (`whim_sys::crash`); then somebody
//! is killed or paused, or a link is cut or begins to lose packets, and home goes on. What may become
//! of the program then says [`promised`]; what it has written shows that nothing happened twice. The
//! full set tries each cell with three programs: serial numbers, a ledger of two parties, a database.

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use whim_system_tests::process::{Running, eventually};
use whim_system_tests::{Case, Cluster, Context, Result, ensure};

use crate::crashes::scene::{Fate, SETTLED, Scene};
use crate::crashes::with_scene_of;
use crate::crashes::workload::Workload;

/// The lab's lease.
const LEASE: Duration = Duration::from_secs(2);
/// A link is cut for so many tenths of a lease.
const CUT: u32 = 30;
const LOSS: &str = "10%";
/// In tenths of the lab's lease.
const MINUTE: u32 = 300;

/// Phases of the three kinds of moves, as home's supervisor begins them, and the stay between them.
const PHASES: &[&str] = &[
    "out-admit",
    "out-freeze",
    "out-capture",
    "out-transfer",
    "out-rebuild",
    "out-commit",
    "out-convert",
    AWAY,
    "onward-admit",
    "onward-onward",
    "onward-commit",
    "homeward-freeze",
    "homeward-transfer",
    "homeward-rebuild",
];
const AWAY: &str = "away";

/// Who takes part in a journey from n1 by n2 to n3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Home,
    Host,
    Next,
    HomeDaemon,
    HostDaemon,
    NextDaemon,
}

impl Who {
    fn node(self) -> &'static str {
        match self {
            Self::Home | Self::HomeDaemon => "n1",
            Self::Host | Self::HostDaemon => "n2",
            Self::Next | Self::NextDaemon => "n3",
        }
    }

    fn is_daemon(self) -> bool {
        matches!(self, Self::HomeDaemon | Self::HostDaemon | Self::NextDaemon)
    }
}

/// Times are in tenths of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Killed(Who),
    Paused(Who, u32),
    Cut(&'static str, &'static str),
    Lossy(&'static str, &'static str),
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    phase: &'static str,
    fault: Fault,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.phase, self.fault)
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let workloads = [Workload::Serial, Workload::Ledger, Workload::Database];
    let full = PHASES.iter().map(move |phase| {
        Case::new(format!("matrix::full::{phase}"), move |_| {
            workloads
                .iter()
                .try_for_each(|workload| all(&cells(phase), *workload, "2"))
        })
    });
    let sample = || {
        let cell = |phase, fault| Cell { phase, fault };
        vec![
            cell("out-transfer", Fault::Paused(Who::Host, 15)),
            cell("out-commit", Fault::Killed(Who::Host)),
            cell(AWAY, Fault::Paused(Who::Home, 5)),
            cell("onward-onward", Fault::Killed(Who::Next)),
            cell("onward-onward", Fault::Killed(Who::Host)),
            cell("homeward-transfer", Fault::Killed(Who::HomeDaemon)),
        ]
    };
    let quick = Case::new("matrix::sample", move |_| {
        all(&sample(), Workload::Serial, "2")
    });
    full.chain([quick, Case::new("matrix::full::minute", |_| minute())])
        .collect()
}

/// Three pauses of a whole minute, for programs with the users' lease.
fn minute() -> Result<()> {
    let paused = |phase, who| {
        let fault = Fault::Paused(who, MINUTE);
        [Cell { phase, fault }]
    };
    all(&paused("out-transfer", Who::Host), Workload::Serial, "30")?;
    all(&paused(AWAY, Who::Host), Workload::Ledger, "30")?;
    let daemon = paused("homeward-transfer", Who::HomeDaemon);
    all(&daemon, Workload::Database, "30")
}

fn cells(phase: &'static str) -> Vec<Cell> {
    let onward = phase.starts_with("onward");
    let mut faults = Vec::new();
    for who in [
        Who::Home,
        Who::Host,
        Who::Next,
        Who::HomeDaemon,
        Who::HostDaemon,
        Who::NextDaemon,
    ] {
        // Elsewhere the next host has no supervisor.
        if who != Who::Next || onward {
            faults.push(Fault::Killed(who));
            faults.extend([5, 15, 50].map(|tenths| Fault::Paused(who, tenths)));
        }
    }
    let mut links = vec![("n1", "n2")];
    if onward {
        links.extend([("n1", "n3"), ("n2", "n3")]);
    }
    for (one, other) in links {
        faults.extend([Fault::Cut(one, other), Fault::Lossy(one, other)]);
    }
    faults
        .into_iter()
        .map(|fault| Cell { phase, fault })
        .collect()
}

/// What may become of the program, as the user guide promises ("When something fails").
fn promised(cell: Cell) -> &'static [Fate] {
    const GOES_ON: &[Fate] = &[Fate::Home];
    const ENDS: &[Fate] = &[Fate::Ended];
    const EITHER: &[Fate] = &[Fate::Home, Fate::Ended];
    let Cell { phase, fault } = cell;
    let out = phase.starts_with("out-") && phase != "out-convert";
    let whose = match fault {
        Fault::Lossy(..) | Fault::Paused(_, 5) => return GOES_ON,
        Fault::Killed(who) | Fault::Paused(who, _) if who.is_daemon() => return GOES_ON,
        // Before the commit nothing is lost, and until it is acknowledged the original is whole.
        _ if out => return GOES_ON,
        Fault::Killed(who) | Fault::Paused(who, _) => who,
        // Whoever is cut off from home is as good as dead; between hosts only the move fails.
        Fault::Cut("n1", "n2") => Who::Host,
        Fault::Cut(..) => Who::Next,
    };
    let paused_shortly = matches!(fault, Fault::Paused(_, 15));
    match (phase, whose) {
        // The original may be given up, or not yet; the next host may have it, or not yet; home may
        // have all of it, if only in its sockets, or not yet.
        ("out-convert" | "onward-commit" | "homeward-transfer" | "homeward-rebuild", _) => EITHER,
        // The next host may have all of it already.
        ("onward-onward", Who::Host) => EITHER,
        // A guest lives for two leases without home.
        (_, Who::Home) if paused_shortly => EITHER,
        (_, Who::Home | Who::Host) => ENDS,
        (_, _) => GOES_ON,
    }
}

/// `lease`: the program's, in seconds.
fn all(cells: &[Cell], workload: Workload, lease: &'static str) -> Result<()> {
    println!("{workload:?}");
    with_scene_of(workload, lease, |scene| {
        for cell in cells {
            let fate = one(scene, *cell).with_context(|| cell.to_string())?;
            println!("{cell}: {fate:?}");
            ensure!(
                promised(*cell).contains(&fate),
                "{cell}: {fate:?}, and promised is {:?}",
                promised(*cell)
            );
        }
        scene.finish()
    })
}

/// One journey with one fault.
fn one(scene: &mut Scene<'_>, cell: Cell) -> Result<Fate> {
    let pid = scene.program()?;
    let (cluster, phase) = (scene.cluster, cell.phase);
    let (direction, _) = phase.split_once('-').unwrap_or((phase, ""));
    match direction {
        "out" => scene.plan_stop(phase)?,
        _ => scene.depart(pid, (phase != AWAY).then_some(phase))?,
    }
    let target = match direction {
        "out" => Some("n2"),
        "onward" => Some("n3"),
        "homeward" => Some("home"),
        _ => None,
    };
    let (moving, home) = match target {
        Some(target) => {
            let (moving, home) = scene.until_stopped(pid, target, phase)?;
            (Some(moving), home)
        }
        None => (None, supervisor(cluster, Who::Home)?),
    };
    befall(cluster, cell, &home)?;
    if let Some(mut moving) = moving {
        moving.wait(SETTLED * 2)?;
    }
    for who in [Who::HomeDaemon, Who::HostDaemon, Who::NextDaemon] {
        if cell.fault == Fault::Killed(who) {
            scene.restart_daemon(who.node())?;
        }
    }
    let fate = scene.settle(true)?;
    scene.nothing_is_left()?;
    if let Fault::Lossy(one, other) = cell.fault {
        cluster.lab(&["link", one, other, "--loss", "0%"])?;
    }
    Ok(fate)
}

/// Lets it happen while home's supervisor stands at the phase's beginning, which then goes on.
fn befall(cluster: &Cluster, cell: Cell, home: &str) -> Result<()> {
    let goes_on = || signal(cluster, "n1", "CONT", home);
    match cell.fault {
        Fault::Killed(who) => {
            signal(cluster, who.node(), "KILL", &victim(cluster, who, home)?)?;
            // Nobody is there any more if it was home's own.
            if who != Who::Home {
                goes_on()?;
            }
        }
        Fault::Paused(who, tenths) => {
            let pid = victim(cluster, who, home)?;
            signal(cluster, who.node(), "STOP", &pid)?;
            if who != Who::Home {
                goes_on()?;
            }
            std::thread::sleep(LEASE * tenths / 10);
            signal(cluster, who.node(), "CONT", &pid)?;
        }
        Fault::Cut(one, other) => {
            cluster.lab(&["cut", one, other])?;
            goes_on()?;
            std::thread::sleep(LEASE * CUT / 10);
            cluster.lab(&["heal", one, other])?;
        }
        Fault::Lossy(one, other) => {
            cluster.lab(&["link", one, other, "--loss", LOSS])?;
            goes_on()?;
        }
    }
    Ok(())
}

/// The supervisor has ended already if it had nothing more to do: that is no error.
fn signal(cluster: &Cluster, node: &str, name: &str, pid: &str) -> Result<()> {
    let script = format!("kill -{name} {pid} 2>/dev/null || true");
    cluster.run(node, &["sh", "-c", &script]).map(drop)
}

fn victim(cluster: &Cluster, who: Who, home: &str) -> Result<String> {
    match who {
        Who::Home => Ok(home.to_owned()),
        who if who.is_daemon() => cluster.daemon_pid(who.node()),
        who => supervisor(cluster, who),
    }
}

fn supervisor(cluster: &Cluster, who: Who) -> Result<String> {
    let name = if who == Who::Home {
        "whim-home"
    } else {
        "whim-guest"
    };
    eventually(SETTLED, &format!("{who:?} has a supervisor"), || {
        process_of(cluster, who.node(), name, "")
    })
}

/// The oldest process of this name in this state, as ps(1) writes it.
fn process_of(cluster: &Cluster, node: &str, name: &str, state: &str) -> Result<Option<String>> {
    let script = format!(
        "ps -eo pid=,stat=,comm= | awk '$3 == \"{name}\" && $2 ~ /^{state}/ {{ print $1 }}' | head -n 1"
    );
    let pid = cluster.run(node, &["sh", "-c", &script])?;
    let pid = pid.trim().to_owned();
    Ok((!pid.is_empty()).then_some(pid))
}

impl Scene<'_> {
    /// The home supervisor that is started next stops at the beginning of this phase.
    fn plan_stop(&self, phase: &str) -> Result<()> {
        self.plan_of("n1", "home", &format!("stop {phase}"))
    }

    /// The first move of a journey that is to stop later; again if threads still stand in what the
    /// journey before has left.
    fn depart(&self, pid: i32, stop: Option<&str>) -> Result<()> {
        eventually(SETTLED, "the program moves", || {
            if let Some(phase) = stop {
                self.plan_stop(phase)?;
            }
            Ok(self.try_move(pid, "n2")?.then_some(()))
        })
    }

    /// Asks for a move, and waits until home's supervisor has stopped in it: the request, and that
    /// supervisor.
    fn until_stopped(&mut self, pid: i32, target: &str, phase: &str) -> Result<(Running, String)> {
        let number = pid.to_string();
        let ask = || {
            let mut command = self
                .cluster
                .whim_command("n1", &["migrate", &number, target]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            Running::spawn(&mut command)
        };
        let mut moving = ask()?;
        let home = eventually(SETTLED, &format!("home stops at {phase}"), || {
            if let Some(home) = process_of(self.cluster, "n1", "whim-home", "T")? {
                return Ok(Some(home));
            }
            if moving.wait_up_to(Duration::ZERO)?.is_some() {
                // Refused, as above.
                self.plan_stop(phase)?;
                moving = ask()?;
            }
            Ok(None)
        })?;
        Ok((moving, home))
    }
}
