//! Programs with as many mappings and threads as the kernel's limits let them have: they travel under a
//! short lease, nothing of their journey is silent for long, and where there is a limit, it is said before
//! they are stopped.

use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use whim_system_tests::cluster::Moved;
use whim_system_tests::{Case, Cluster, Result, Running, Talk, bail, ensure, guest};

/// The program, and its words.
type Words = &'static [&'static str];

/// Under this lease, a quarter of which is far more than a crowded machine keeps a heartbeat waiting.
const LEASE_MS: u64 = 4000;
/// Between two looks at the sockets.
const LOOK_MS: u64 = 20;
const ROUNDS: usize = 10;
/// For a program to look at all that it has, on a crowded machine.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn cases() -> Vec<Case> {
    let round = |name: &str, words: Words| {
        Case::in_lab(format!("many::full::{name}"), 3, move |cluster| {
            rounds(cluster, words)
        })
    };
    vec![
        // Not a quick one: beside other work, programs that are not optimized come near a quarter of this lease.
        Case::in_lab("many::full::no_long_silence", 3, silence),
        Case::in_lab("many::more_mappings_than_may_leave", 2, mappings_stay),
        Case::in_lab("many::more_threads_than_a_host_allows", 3, threads_stay),
        round("20000_mappings", &["many", "20000"]),
        round("60000_mappings", &["many", "60000"]),
        round("20000_protections", &["vast", "0", "1", "20000", "3"]),
        round("60000_protections", &["vast", "0", "1", "60000", "3"]),
        round("4000_threads", &["vast", "0", "4000", "2", "3"]),
    ]
}

fn start(cluster: &Cluster, lease: &str, words: &[&str]) -> Result<(Talk, i32)> {
    let program = guest::c(words[0])?.display().to_string();
    let all: Vec<&str> = ["run", "--lease", lease, "--", &program]
        .into_iter()
        .chain(words[1..].iter().copied())
        .collect();
    let started = Talk::start(cluster, &mut cluster.whim_command("n1", &all))?;
    let mut talk = started.patient(PATIENCE);
    let pid = talk.ready()?;
    Ok((talk, pid))
}

/// Processes that want all of every CPU.
fn load() -> Result<Vec<Running>> {
    let busy = || Running::spawn(Command::new("sh").args(["-c", "while :; do :; done"]));
    (0..2).map(|_| busy()).collect()
}

/// Moves it. On a crowded machine the daemon may not see all of it in time; it is asked again then.
fn send(cluster: &Cluster, pid: i32, target: &str) -> Result<()> {
    let mut reason = String::new();
    for _ in 0..5 {
        match cluster.migrate(pid, target)? {
            Moved::Done(_) => return Ok(()),
            Moved::Refused(text) => reason = text,
        }
        let passes = ["just now", "cannot be stopped now"];
        if !passes.iter().any(|words| reason.contains(words)) {
            break;
        }
        println!("{reason}");
    }
    bail!("{pid} does not move to {target}: {reason}")
}

/// Out, onward and home, again and again, while others want the CPUs as well.
fn rounds(cluster: &Cluster, words: Words) -> Result<()> {
    let _load = load()?;
    let (mut talk, pid) = start(cluster, "2", words)?;
    for round in 1..=ROUNDS {
        for target in ["n2", "n3", "home"] {
            let begun = Instant::now();
            send(cluster, pid, target)?;
            let moved = begun.elapsed();
            talk.go()?;
            ensure!(talk.ready()? == pid, "Another pid on {target}");
            println!(
                "round {round}, {target}: {:.1} s, looked at after {:.1} s",
                moved.as_secs_f64(),
                begun.elapsed().as_secs_f64()
            );
        }
    }
    Ok(())
}

/// The sockets of our supervisors on a node, looked at again and again.
struct Ear {
    node: &'static str,
    listening: Running,
    file: std::path::PathBuf,
}

impl Ear {
    fn open(cluster: &Cluster, node: &'static str) -> Result<Self> {
        let file = cluster.directory().join(format!("heard-{node}"));
        let script = format!(
            "while :; do echo look; ss -tinpHO state established; sleep 0.{LOOK_MS:03}; done > {}",
            file.display()
        );
        let listening = Running::spawn(&mut cluster.command(node, &["sh", "-c", &script]))?;
        Ok(Self {
            node,
            listening,
            file,
        })
    }

    /// How long a supervisor here has heard nothing from another node, at most, in milliseconds.
    ///
    /// There are two connections between two of them, one for calls and one for pages; whoever is heard on
    /// one of them is not silent. Where there is but one, it is not made yet, or about to be closed: there is
    /// nothing to be heard on the one for pages alone.
    fn longest(self) -> Result<(u64, String)> {
        drop(self.listening);
        let text = fs::read_to_string(&self.file)?;
        let mut longest = (0, String::new());
        let mut looks = 0;
        for look in text.split("look\n").skip(1) {
            looks += 1;
            let mut heard: HashMap<(String, &str), Vec<u64>> = HashMap::new();
            for line in look.lines().filter(|line| line.contains("\"whim-")) {
                let words: Vec<&str> = line.split_whitespace().collect();
                let (Some(peer), Some(whose)) = (words.get(3), words.get(4)) else {
                    continue;
                };
                let node = node_of(peer);
                // users:(("NAME",pid=NUMBER,fd=NUMBER))
                let whose = whose.split_once(",fd=").map_or(*whose, |(whose, _)| whose);
                let whose = whose.trim_start_matches("users:((");
                // From the host to which it sends its guest, a supervisor expects nothing.
                if whose.contains("guest") && node != "n1" {
                    continue;
                }
                // What is 0 is not shown.
                let last = words.iter().find_map(|word| word.strip_prefix("lastrcv:"));
                let last = last.unwrap_or("0").parse()?;
                heard.entry((node, whose)).or_default().push(last);
            }
            for ((node, whose), connections) in heard {
                let silent = connections.iter().min().copied().unwrap_or(0);
                if connections.len() > 1 && silent > longest.0 {
                    longest = (silent, format!("{whose} on {} hears {node}", self.node));
                }
            }
        }
        ensure!(looks > 50, "Only {looks} looks on {}", self.node);
        Ok(longest)
    }
}

/// The node of a socket's peer: its number ends the address in the lab's networks, whichever of the two it
/// is (the two connections between two supervisors may well take one each).
fn node_of(peer: &str) -> String {
    let address = peer.rsplit_once(':').map_or(peer, |(address, _)| address);
    let address = address.trim_end_matches(']');
    let number = address.rsplit(['.', ':']).next().unwrap_or(address);
    format!("n{number}")
}

/// Nothing of a journey is silent for longer than a quarter of the lease, also while others want the CPUs.
fn silence(cluster: &Cluster) -> Result<()> {
    let _load = load()?;
    let lease = (LEASE_MS / 1000).to_string();
    // Few of their pages have to travel: what is in the way of others waits for nobody's lease.
    let (mut talk, pid) = start(cluster, &lease, &["many", "60000", "31"])?;
    let ears = ["n1", "n2", "n3"].map(|node| Ear::open(cluster, node));
    for target in ["n2", "n3", "home"] {
        let begun = Instant::now();
        send(cluster, pid, target)?;
        println!("{target}: {:.1} s", begun.elapsed().as_secs_f64());
        talk.go()?;
        ensure!(talk.ready()? == pid, "Another pid on {target}");
    }
    for ear in ears {
        let (silent, who) = ear?.longest()?;
        println!("{who}: {silent} ms");
        ensure!(
            silent <= LEASE_MS / 4,
            "{who}: {silent} ms of silence, with a lease of {LEASE_MS} ms"
        );
    }
    Ok(())
}

/// It stays, before it is stopped, and both numbers are said.
fn refused(cluster: &Cluster, pid: i32, target: &str, numbers: &[&str]) -> Result<()> {
    let sentence = cluster.refused("n1", &["migrate", &pid.to_string(), target])?;
    println!("{sentence}");
    for number in numbers {
        ensure!(sentence.contains(number), "No {number}: {sentence}");
    }
    Ok(())
}

fn mappings_stay(cluster: &Cluster) -> Result<()> {
    let limit = fs::read_to_string("/proc/sys/vm/max_map_count")?;
    let limit: u64 = limit.trim().parse()?;
    if limit > 100_000 {
        println!("skipped: the kernel here lets a program have {limit}");
        return Ok(());
    }
    let (mut talk, pid) = start(cluster, "2", &["many", &(limit - 50).to_string()])?;
    let allowed = (limit - 64).to_string();
    refused(cluster, pid, "n2", &[" mappings", &allowed])?;
    let why = cluster.whim("n1", &["why", &pid.to_string()])?;
    ensure!(why.contains(&allowed), "{why}");
    talk.go()?;
    ensure!(talk.ready()? == pid, "Another pid");
    Ok(())
}

/// What its host allows a guest is asked before it is stopped, at home as well as away.
fn threads_stay(cluster: &Cluster) -> Result<()> {
    let Some(group) = cluster.group("pids", "n3") else {
        println!("skipped: no control group counts processes here");
        return Ok(());
    };
    let now = fs::read_to_string(group.join("pids.current"))?;
    let limit = now.trim().parse::<u64>()? + 150;
    fs::write(group.join("pids.max"), limit.to_string())?;
    let (mut talk, pid) = start(cluster, "2", &["vast", "0", "300", "2", "3"])?;
    refused(
        cluster,
        pid,
        "n3",
        &["301 threads; node n3 allows a guest 1"],
    )?;
    cluster.move_to(pid, "n2")?;
    refused(
        cluster,
        pid,
        "n3",
        &["301 threads; node n3 allows a guest 1"],
    )?;
    ensure!(cluster.place(pid)? == "n2", "It has moved");
    talk.go()?;
    ensure!(talk.ready()? == pid, "Another pid");
    cluster.move_to(pid, "home")?;
    talk.go()?;
    ensure!(talk.ready()? == pid, "Another pid");
    Ok(())
}
