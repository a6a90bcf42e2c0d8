//! Who is in the cluster, and who is reached: nodes that die, leave, return, are cut off, or lie.

use std::time::{Duration, Instant};

use whim_attempts::{Attempt, Party};
use whim_system_tests::process::eventually;
use whim_system_tests::{Case, Cluster, Context, Result, ensure};

/// A dead node is down everywhere within this time.
const DOWN: Duration = Duration::from_secs(10);
/// Whatever else is to come about, on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// Longer than it takes to hold a node for dead.
const LONG: Duration = Duration::from_secs(7);
/// Deaths in the full set.
const DEATHS: usize = 20;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, nodes, body: fn(&Cluster) -> Result<()>| {
        Case::new(format!("membership::{name}"), move |_| {
            let cluster = Cluster::up(nodes)?;
            cluster.explaining(|| body(&cluster))
        })
    };
    vec![
        case("a_dead_node_is_down", 3, |cluster| deaths(cluster, 1)),
        case("full::dead_nodes_are_down", 4, |cluster| {
            deaths(cluster, DEATHS)
        }),
        case("full::bad_links_part_nobody", 3, bad_links),
        case("leave_and_return", 3, leave_and_return),
        case("joined_without_datagrams", 2, joined_without_datagrams),
        case("removed_is_told", 3, removed),
        case("a_cut_that_others_bridge", 3, bridged),
        case("split_and_healed", 3, split),
        case("daemon_restarts_unnoticed", 3, restart),
        case("changed_address", 3, changed_address),
        case("strange_datagrams", 3, strange),
    ]
}

/// How node `on` has node `of`.
fn state(cluster: &Cluster, on: &str, of: &str) -> Result<String> {
    let rows = cluster.members(on)?;
    let row = rows.iter().find(|row| row["name"] == of);
    let state = row.map_or(Some("unknown"), |row| row["state"].as_str());
    Ok(state.context("A node without a state")?.to_owned())
}

fn becomes(cluster: &Cluster, on: &str, of: &str, wanted: &str, most: Duration) -> Result<()> {
    eventually(most, &format!("{of} is {wanted} on {on}"), || {
        Ok((state(cluster, on, of)? == wanted).then_some(()))
    })
}

fn names(cluster: &Cluster) -> Vec<String> {
    (1..=cluster.nodes())
        .map(|node| format!("n{node}"))
        .collect()
}

fn all_up(cluster: &Cluster) -> Result<()> {
    let names = names(cluster);
    for on in &names {
        for of in &names {
            becomes(cluster, on, of, "up", SOON)?;
        }
    }
    Ok(())
}

fn deaths(cluster: &Cluster, count: usize) -> Result<()> {
    let names = names(cluster);
    let mut worst = Duration::ZERO;
    for round in 0..count {
        all_up(cluster)?;
        let dead = &names[1 + round % (names.len() - 1)];
        cluster.lab(&["kill", dead])?;
        let killed = Instant::now();
        for on in names.iter().filter(|name| *name != dead) {
            let left = DOWN.saturating_sub(killed.elapsed());
            becomes(cluster, on, dead, "down", left)?;
        }
        worst = worst.max(killed.elapsed());
        println!("{dead} is down everywhere after {:?}", killed.elapsed());
        for on in names.iter().filter(|name| *name != dead) {
            for of in names.iter().filter(|name| *name != dead) {
                ensure!(state(cluster, on, of)? == "up", "{of} is not up on {on}");
            }
        }
        cluster.lab(&["start", dead])?;
    }
    println!("{count} deaths, noticed within {worst:?}");
    all_up(cluster)
}

fn leave_and_return(cluster: &Cluster) -> Result<()> {
    all_up(cluster)?;
    cluster.whim("n3", &["leave"])?;
    for on in ["n1", "n2"] {
        becomes(cluster, on, "n3", "unknown", SOON)?;
    }
    let token = cluster.whim("n1", &["token"])?;
    cluster.join("n3", "10.99.0.1", &token)?;
    // Who lists the nodes now does not see as down what has just joined.
    for (on, of) in [("n1", "n3"), ("n3", "n1")] {
        let state = state(cluster, on, of)?;
        ensure!(state == "up", "{of} is {state} on {on}");
    }
    all_up(cluster)
}

/// A port that is open for TCP alone is told by the join, not only by nodes that stay down.
fn joined_without_datagrams(cluster: &Cluster) -> Result<()> {
    all_up(cluster)?;
    cluster.whim("n2", &["leave"])?;
    becomes(cluster, "n1", "n2", "unknown", SOON)?;
    // Those of the other way come.
    for family in ["-4", "-6"] {
        let rule = ["rule", "add", "ipproto", "udp", "pref", "1", "blackhole"];
        cluster.run("n2", &[&["ip", family][..], &rule].concat())?;
    }
    let token = cluster.whim("n1", &["token"])?;
    let said = cluster.join("n2", "10.99.0.1", &token)?;
    ensure!(said.contains("have not heard of each other"), "{said}");
    ensure!(said.contains("n2 is a member of a cluster of 2"), "{said}");
    let again = cluster.refused_fed("n2", &["join", "10.99.0.1"], &token)?;
    ensure!(
        again.contains("is a member of a cluster already, as n2"),
        "{again}"
    );
    Ok(())
}

/// A removed node that does not reach the node with the CA hears of it from any other, knows it over a
/// restart, does not try again and again, and may come back.
fn removed(cluster: &Cluster) -> Result<()> {
    all_up(cluster)?;
    cluster.lab(&["cut", "n1", "n3"])?;
    cluster.whim("n1", &["remove", "n3"])?;
    for on in ["n1", "n2"] {
        becomes(cluster, on, "n3", "unknown", SOON)?;
    }
    let refuses = |of: &str| {
        let sentence = format!("{of} refuses this node: it was removed on 20");
        eventually(SOON, &format!("n3 says that {of} refuses it"), || {
            let doctor = cluster.whim("n3", &["doctor"])?;
            let nodes = cluster.whim("n3", &["nodes"])?;
            let down = doctor.contains("It is down");
            Ok(
                (doctor.contains(&sentence) && nodes.contains(&sentence) && !down)
                    .then_some(doctor),
            )
        })
    };
    refuses("n2")?;
    // The CA has said it: it is true of all members, also of those that are not reached.
    println!("{}", refuses("n1")?);
    cluster.lab(&["heal", "n1", "n3"])?;
    cluster.restart_daemon("n3")?;
    refuses("n1")?;
    refuses("n2")?;
    let refusals = || -> Result<usize> {
        let logs = ["n1", "n2"].map(|node| {
            let log = cluster.state(node).with_file_name("daemon.log");
            std::fs::read_to_string(log)
        });
        let logs = logs.into_iter().collect::<std::io::Result<String>>()?;
        Ok(logs.matches("n3 was removed from the cluster").count())
    };
    let before = refusals()?;
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        refuses("n1")?;
    }
    let tries = refusals()? - before;
    println!("n3 has tried {tries} times in {LONG:?}");
    ensure!(tries <= 4, "n3 tries again and again: {tries} times");
    cluster.whim("n3", &["leave"])?;
    let token = cluster.whim("n1", &["token"])?;
    cluster.join("n3", "10.99.0.1", &token)?;
    all_up(cluster)?;
    eventually(SOON, "nothing is refused any more", || {
        let nodes = cluster.whim("n3", &["nodes"])?;
        Ok((!nodes.contains("refuses")).then_some(()))
    })
}

/// Two nodes that do not reach each other are up for each other while a third one reaches both.
fn bridged(cluster: &Cluster) -> Result<()> {
    all_up(cluster)?;
    cluster.lab(&["cut", "n1", "n2"])?;
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        for (on, of) in [("n1", "n2"), ("n2", "n1"), ("n3", "n1"), ("n3", "n2")] {
            let state = state(cluster, on, of)?;
            ensure!(state != "down", "{of} is {state} on {on}");
        }
    }
    cluster.lab(&["heal", "n1", "n2"])?;
    all_up(cluster)
}

/// Long ways, small packets, and one in ten lost: for a minute nobody is held for dead, and next to never
/// is anybody suspected.
fn bad_links(cluster: &Cluster) -> Result<()> {
    all_up(cluster)?;
    for (a, b) in [("n1", "n2"), ("n1", "n3"), ("n2", "n3")] {
        let link = ["link", a, b, "--loss", "10%", "--delay", "200ms"];
        cluster.lab(&[&link[..], &["--mtu", "576"]].concat())?;
    }
    let begun = Instant::now();
    let (mut looks, mut suspicions) = (0, 0);
    while begun.elapsed() < Duration::from_secs(60) {
        for (on, of) in [("n1", "n2"), ("n2", "n3"), ("n3", "n1")] {
            let seen = state(cluster, on, of)?;
            ensure!(seen != "down", "{of} is {seen} on {on}");
            looks += 1;
            suspicions += u32::from(seen == "suspect");
        }
    }
    println!("{suspicions} of {looks} looks saw a suspicion");
    ensure!(
        looks > 60 && suspicions * 20 < looks,
        "{suspicions} of {looks}"
    );
    all_up(cluster)
}

fn split(cluster: &Cluster) -> Result<()> {
    all_up(cluster)?;
    for other in ["n1", "n3"] {
        cluster.lab(&["cut", other, "n2"])?;
    }
    for (on, of) in [("n1", "n2"), ("n3", "n2"), ("n2", "n1"), ("n2", "n3")] {
        becomes(cluster, on, of, "down", SOON)?;
    }
    ensure!(state(cluster, "n1", "n3")? == "up");
    for other in ["n1", "n3"] {
        cluster.lab(&["heal", other, "n2"])?;
    }
    all_up(cluster)
}

fn restart(cluster: &Cluster) -> Result<()> {
    all_up(cluster)?;
    cluster.restart_daemon("n2")?;
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        let seen = state(cluster, "n1", "n2")?;
        ensure!(seen != "down", "n2 is {seen} on n1");
    }
    all_up(cluster)
}

/// A node loses the address by which the others speak to it, and has another one.
fn changed_address(cluster: &Cluster) -> Result<()> {
    all_up(cluster)?;
    let addresses = cluster.run("n2", &["ip", "-o", "addr", "show", "dev", "eth0"])?;
    if !addresses.contains("fd99::2") {
        println!("left out: this machine has no IPv6");
        return Ok(());
    }
    cluster.run("n2", &["ip", "addr", "del", "10.99.0.2/32", "dev", "eth0"])?;
    let begun = Instant::now();
    for (on, of) in [("n1", "n2"), ("n2", "n1"), ("n3", "n2"), ("n2", "n3")] {
        eventually(
            SOON,
            &format!("{on} hears {of} at its other address"),
            || {
                // By then it would be down, were it not found.
                Ok((begun.elapsed() > LONG && state(cluster, on, of)? == "up").then_some(()))
            },
        )?;
    }
    calm(cluster)
}

/// Whoever has no key is not listened to, and what is repeated from elsewhere does nothing.
fn strange(cluster: &Cluster) -> Result<()> {
    all_up(cluster)?;
    let flood = r#"
import os, random, socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
random.seed(7)
end = time.time() + 2
sent = 0
while time.time() < end:
    kind = random.choice([b"\x01", b"\x02", b"\x00", os.urandom(1)])
    out.sendto(kind + os.urandom(random.randrange(0, 700)), ("10.99.0.1", 7946))
    sent += 1
    if sent % 50 == 0:
        time.sleep(0.01)
print(sent)
"#;
    let noise = Attempt::new(
        Party::ForeignNode,
        "by datagrams: drown a member in noise, so that others hold it for dead",
    );
    let sent = cluster.run("n3", &["python3", "-c", flood])?;
    println!("{} datagrams", sent.trim());
    let repeat = r#"
import socket, sys, time
tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
tap.settimeout(0.2)
seen = []
begun = time.time()
# Members of an idle cluster say little, now and then less.
while time.time() < begun + 2 or len(seen) < 8 and time.time() < begun + 20:
    try:
        packet = tap.recv(2048)
    except TimeoutError:
        continue
    header = (packet[0] & 15) * 4
    udp = packet[header:]
    if packet[9] == 17 and udp[2:4] == (7946).to_bytes(2, "big"):
        seen.append((socket.inet_ntoa(packet[16:20]), udp[8:]))
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for turn in range(20):
    for to, text in seen:
        out.sendto(text, (to, 7946))
        out.sendto(text, ("10.99.0.3", 7946))
    time.sleep(0.05)
print(len(seen))
"#;
    let repetition = Attempt::new(
        Party::ForeignNode,
        "by datagrams: repeat those of members from another address and port",
    );
    let heard = cluster.run("n1", &["python3", "-c", repeat])?;
    ensure!(
        heard.trim().parse::<u32>()? > 4,
        "nothing was heard: {heard}"
    );
    calm(cluster)?;
    noise.failed("all stay up");
    repetition.failed("all stay up, and hear each other where they are");
    Ok(())
}

/// For longer than it takes to hold a node for dead, nobody does.
fn calm(cluster: &Cluster) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        for on in ["n1", "n2", "n3"] {
            for of in ["n1", "n2", "n3"] {
                let seen = state(cluster, on, of)?;
                ensure!(seen != "down", "{of} is {seen} on {on}");
            }
        }
    }
    all_up(cluster)
}
