//! What runs in the simulated cluster: named scenarios, and jobs from distributions and files.

use crate::cluster::node::Machine;
use crate::cluster::program::{End, Phase, Spec};
use crate::cluster::{Micros, SECOND, Setting, micros};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::fmt;
use std::str::FromStr;

pub(crate) const GIB: f64 = (1u64 << 30) as f64;
pub(crate) const MB: f64 = 1e6;

/// A scenario by its name: `hogs`, `squares-10`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scenario {
    /// 16 programs of 10 CPU seconds begin on the first node: the acceptance test of the makespan.
    Hogs,
    /// The same, ten of them with 300 MB.
    HeavyHogs,
    /// One program more than nodes computes for ever; all begin on the first node.
    Crowd,
    /// The same, and each begins at a node by chance.
    Scattered,
    /// Twice as many programs as nodes compute and sleep by turns, each for half of so many seconds; all
    /// begin on the first node.
    Squares(f64),
    /// The same, and each begins at a node by chance.
    ScatteredSquares(f64),
    /// Three programs on the first node grow by 50 MB a second to 800 MB.
    Eaters,
    /// Programs that grow to sizes, at rates and from homes by chance; there is always room somewhere.
    Growers,
    /// The same, and together they fill nearly all memory that there is.
    Tight,
    /// Programs whose lifetimes are heavy-tailed, arriving at all nodes so that so much of the cluster's
    /// CPU is asked for.
    Lifetimes(f64),
    /// Programs by turns compute and read their home's disk, for 30 seconds each.
    Readers,
    /// Nothing: gossip alone.
    Idle,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hogs => f.write_str("hogs"),
            Self::HeavyHogs => f.write_str("heavy-hogs"),
            Self::Crowd => f.write_str("crowd"),
            Self::Scattered => f.write_str("scattered"),
            Self::Squares(period) => write!(f, "squares-{period}"),
            Self::ScatteredSquares(period) => write!(f, "scattered-squares-{period}"),
            Self::Eaters => f.write_str("eaters"),
            Self::Growers => f.write_str("growers"),
            Self::Tight => f.write_str("tight"),
            Self::Lifetimes(part) => write!(f, "lifetimes-{part}"),
            Self::Readers => f.write_str("readers"),
            Self::Idle => f.write_str("idle"),
        }
    }
}

/// All names, for the help.
pub(crate) const NAMES: &str = "hogs, heavy-hogs, crowd, scattered, squares-SECONDS, scattered-squares-SECONDS, eaters, growers, tight, lifetimes-PART, readers, idle";

impl FromStr for Scenario {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let unknown = || format!("There is no scenario '{name}': {NAMES}");
        let number = |text: &str| {
            let number = text.parse::<f64>().ok();
            number
                .filter(|number| (0.01..=1e5).contains(number))
                .ok_or_else(unknown)
        };
        if let Some(period) = name.strip_prefix("squares-") {
            return number(period).map(Self::Squares);
        }
        if let Some(period) = name.strip_prefix("scattered-squares-") {
            return number(period).map(Self::ScatteredSquares);
        }
        if let Some(part) = name.strip_prefix("lifetimes-") {
            return number(part).map(Self::Lifetimes);
        }
        match name {
            "hogs" => Ok(Self::Hogs),
            "heavy-hogs" => Ok(Self::HeavyHogs),
            "crowd" => Ok(Self::Crowd),
            "scattered" => Ok(Self::Scattered),
            "eaters" => Ok(Self::Eaters),
            "growers" => Ok(Self::Growers),
            "tight" => Ok(Self::Tight),
            "readers" => Ok(Self::Readers),
            "idle" => Ok(Self::Idle),
            _ => Err(unknown()),
        }
    }
}

/// The lab of the acceptance tests: shares of one core, 2 GiB each.
#[must_use]
pub(crate) fn lab() -> Vec<Machine> {
    let node = |cores| Machine {
        cores,
        speed: 1.0,
        memory: 2.0 * GIB,
    };
    [0.8, 0.4, 0.4, 0.2].map(node).into()
}

/// So many equal nodes.
#[must_use]
pub(crate) fn equal(nodes: usize) -> Vec<Machine> {
    let node = Machine {
        cores: 1.0,
        speed: 1.0,
        memory: 2.0 * GIB,
    };
    vec![node; nodes]
}

/// What the system itself has in use in the lab's nodes is little, and left out.
const HOG: f64 = 5.0 * MB;

/// Fills a setting with programs.
pub(crate) fn fill(setting: &mut Setting, scenario: Scenario) {
    let mut chance = Pcg64Mcg::seed_from_u64(setting.seed ^ 0x0077_6869_6d00_0000);
    let nodes = setting.machines.len();
    setting.programs = match scenario {
        Scenario::Hogs => hogs(&mut chance, 0),
        Scenario::HeavyHogs => hogs(&mut chance, 10),
        Scenario::Crowd => endless(&mut chance, nodes + 1, |_| 0),
        Scenario::Scattered => endless(&mut chance, nodes + 1, |chance| {
            chance.random_range(0..nodes)
        }),
        Scenario::Squares(period) => squares(&mut chance, 2 * nodes, period, |_| 0),
        Scenario::ScatteredSquares(period) => squares(&mut chance, 2 * nodes, period, |chance| {
            chance.random_range(0..nodes)
        }),
        Scenario::Eaters => eaters(),
        Scenario::Growers => growers(&mut chance, &setting.machines, 0.5),
        Scenario::Tight => growers(&mut chance, &setting.machines, 0.95),
        Scenario::Lifetimes(part) => lifetimes(&mut chance, setting, part),
        Scenario::Readers => readers(&mut chance, nodes),
        Scenario::Idle => Vec::new(),
    };
    setting.programs.sort_by_key(|spec| spec.arrives);
    // The cluster has been there for a while: that nodes have come is no news any more.
    for spec in &mut setting.programs {
        spec.arrives += UP;
    }
    setting.until += UP;
}

/// How long nodes have been up when programs begin.
pub(crate) const UP: Micros = 40 * SECOND;

fn spec(arrives: Micros, home: usize, memory: f64, phases: &[Phase]) -> Spec {
    Spec {
        arrives,
        home,
        memory,
        phases: phases.into(),
        repeats: false,
    }
}

fn within(chance: &mut Pcg64Mcg, from: f64, to: f64) -> f64 {
    from + (to - from) * chance.random::<f64>()
}

fn hogs(chance: &mut Pcg64Mcg, heavy: usize) -> Vec<Spec> {
    let hog = |number: usize| {
        // A shell starts them one after the other.
        let arrives = micros(0.01 * number as f64 + within(chance, 0.0, 0.01));
        let memory = if number < heavy { 300.0 * MB } else { HOG };
        spec(arrives, 0, memory, &[Phase::compute(End::Work(10.0))])
    };
    (0..16).map(hog).collect()
}

fn endless(
    chance: &mut Pcg64Mcg,
    count: usize,
    home: impl Fn(&mut Pcg64Mcg) -> usize,
) -> Vec<Spec> {
    let hog = |_| {
        let arrives = micros(within(chance, 0.0, 1.0));
        let memory = within(chance, 5.0, 100.0) * MB;
        let phases = [Phase::compute(End::Work(1e9))];
        spec(arrives, home(chance), memory, &phases)
    };
    (0..count).map(hog).collect()
}

fn squares(
    chance: &mut Pcg64Mcg,
    count: usize,
    period: f64,
    home: impl Fn(&mut Pcg64Mcg) -> usize,
) -> Vec<Spec> {
    let square = |_| {
        // Their phases differ, and their periods a little: they run into each other in all ways.
        let half = 0.5 * period * within(chance, 0.98, 1.02);
        let arrives = micros(within(chance, 0.0, period.min(10.0)));
        let memory = within(chance, 5.0, 100.0) * MB;
        let phases = [Phase::compute(End::Time(half)), Phase::sleep(half)];
        Spec {
            repeats: true,
            ..spec(arrives, home(chance), memory, &phases)
        }
    };
    (0..count).map(square).collect()
}

fn eaters() -> Vec<Spec> {
    let eater = |number: u64| {
        let grows = Phase {
            growth: 50.0 * MB,
            most: 800.0 * MB,
            ..Phase::compute(End::Time(60.0))
        };
        spec(number * SECOND / 10, 0, HOG, &[grows])
    };
    (0..3).map(eater).collect()
}

/// Programs whose final sizes fill a part of the cluster, and each no more than a third of the smallest
/// node: where it is half of the cluster, room can always be made. Half of them hardly run: for their sake
/// alone nothing would be moved.
fn growers(chance: &mut Pcg64Mcg, machines: &[Machine], part: f64) -> Vec<Spec> {
    let sizes = machines.iter().map(|machine| machine.memory);
    let smallest = sizes.clone().fold(f64::INFINITY, f64::min);
    let mut left = part * sizes.sum::<f64>();
    let mut programs = Vec::new();
    // Most begin at one node, so that it runs out.
    let crowded = chance.random_range(0..machines.len());
    while programs.len() < 40 {
        let most = within(chance, 0.02, 0.33) * smallest;
        left -= most;
        if left < 0.0 {
            break;
        }
        let home = match chance.random::<f64>() < 0.7 {
            true => crowded,
            false => chance.random_range(0..machines.len()),
        };
        let begins = within(chance, 0.0, 0.2) * most;
        let cpu = match chance.random::<bool>() {
            true => within(chance, 0.01, 0.2),
            false => within(chance, 0.2, 1.0),
        };
        let grows = Phase {
            cpu,
            // A move carries 100 MB a second: what several of them take at once can still be carried away.
            growth: within(chance, 1.0, 25.0) * MB,
            most,
            ..Phase::compute(End::Time(within(chance, 30.0, 200.0)))
        };
        let arrives = micros(within(chance, 0.0, 120.0));
        programs.push(spec(arrives, home, begins, &[grows]));
    }
    programs
}

/// Lifetimes of Unix processes: of those that live for a second, one in t lives for t (Harchol-Balter,
/// Downey 1996), here up to ten minutes; a third end within the second.
fn lifetimes(chance: &mut Pcg64Mcg, setting: &Setting, part: f64) -> Vec<Spec> {
    const LONGEST: f64 = 600.0;
    let cpu = |machine: &Machine| machine.cores * machine.speed;
    let capacity: f64 = setting.machines.iter().map(cpu).sum();
    let mean = (1.0 + LONGEST.ln()) * 2.0 / 3.0 + 0.505 / 3.0;
    let every = mean / (part * capacity);
    let mut programs = Vec::new();
    let mut now = 0.0;
    // A fifth of the nodes have half of the users, beside their part of the others.
    let nodes = setting.machines.len();
    let busy = nodes.div_ceil(5);
    loop {
        now += -every * (1.0 - chance.random::<f64>()).ln();
        if micros(now) >= setting.until {
            return programs;
        }
        let work = match chance.random::<f64>() < 1.0 / 3.0 {
            true => within(chance, 0.01, 1.0),
            false => (1.0 / (1.0 - chance.random::<f64>())).min(LONGEST),
        };
        let among = if chance.random::<bool>() { busy } else { nodes };
        let home = chance.random_range(0..among);
        let memory = 2.0 * MB / within(chance, 0.01, 1.0);
        let phases = [Phase::compute(End::Work(work))];
        programs.push(spec(micros(now), home, memory, &phases));
    }
}

fn readers(chance: &mut Pcg64Mcg, nodes: usize) -> Vec<Spec> {
    let reader = |_| {
        let phases = [
            Phase::compute(End::Time(30.0)),
            Phase::read(End::Time(30.0)),
        ];
        let arrives = micros(within(chance, 0.0, 20.0));
        Spec {
            repeats: true,
            ..spec(arrives, 0, 20.0 * MB, &phases)
        }
    };
    (0..nodes + 2).map(reader).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in NAMES.split(", ") {
            let name = name.replace("SECONDS", "10").replace("PART", "0.7");
            let scenario: Scenario = name.parse().expect("a scenario");
            assert_eq!(scenario.to_string(), name);
        }
        for odd in ["", "squares", "squares-", "squares-x", "lifetimes-0"] {
            assert!(odd.parse::<Scenario>().is_err(), "{odd}");
        }
    }

    #[test]
    fn lifetimes_ask_for_as_much_as_they_should() {
        let mut setting = Setting::new(1, equal(8), 100_000.0);
        fill(&mut setting, Scenario::Lifetimes(0.5));
        let work: f64 = setting.programs.iter().map(Spec::alone).sum();
        let part = work / (8.0 * 100_000.0);
        assert!((part - 0.5).abs() < 0.03, "{part}");
    }

    #[test]
    fn growers_leave_room() {
        for seed in 0..50 {
            let mut setting = Setting::new(seed, equal(4), 300.0);
            fill(&mut setting, Scenario::Growers);
            let sum: f64 = setting.programs.iter().map(|p| p.phases[0].most).sum();
            assert!(sum <= 0.5 * 4.0 * 2.0 * GIB && !setting.programs.is_empty());
        }
    }
}
