//! Memory of special kinds, and memory that is not enough.

use std::fs;
use std::time::Duration;

use crate::kept::same;
use anyhow::Context;
use whim_system_tests::cluster::memory_limit;
use whim_system_tests::process::eventually;
use whim_system_tests::{Case, Cluster, Result, Talk, ensure, guest};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("memory::guard_pages", 3, guards),
        Case::in_lab("memory::buffers_out_of_reach", 3, buffers),
        Case::new("memory::two_guests_outgrow_their_host", |_| {
            let cluster = Cluster::up_with(2, &["--memory", "2G,200M"])?;
            cluster.explaining(|| {
                outgrow_together(&cluster, "0")?;
                outgrow_together(&cluster, "5000")
            })
        }),
        Case::new("memory::the_share_of_guests_changes", |_| {
            let cluster = Cluster::up_with(2, &["--memory", "2G,200M"])?;
            cluster.explaining(|| share_changes(&cluster))
        }),
        Case::in_lab("memory::almost_no_address_is_free", 3, crammed),
        Case::in_lab("memory::full::thread_sanitizer", 3, sanitized),
        Case::in_lab("memory::home_has_no_room", 2, home_has_no_room),
        Case::in_lab(
            "memory::home_makes_fewer_mappings",
            2,
            home_makes_fewer_mappings,
        ),
        Case::new("memory::a_guest_outgrows_its_host", |_| {
            let cluster = Cluster::up_with(2, &["--memory", "2G,160M"])?;
            cluster.explaining(|| {
                // As fast as it can, and slowly.
                outgrows(&cluster, "0")?;
                outgrows(&cluster, "5000")
            })
        }),
    ]
}

/// Pages that MADV_GUARD_INSTALL has closed stay closed, at the host and back at home; those that
/// are opened while it is away show what they show at home.
fn guards(cluster: &Cluster) -> Result<()> {
    let program = guest::c("guards")?.display().to_string();
    let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &[program]))?;
    let first = guest.line()?;
    if first.starts_with("impossible") {
        println!("skipped, this kernel does not have it: {first}");
        return Ok(());
    }
    let pid: i32 = first.trim_start_matches("ready ").parse()?;
    for place in ["n2", "n3", "home", "n2"] {
        cluster.move_to(pid, place)?;
        guest.go()?;
        guest.until("checked")?;
    }
    cluster.move_to(pid, "home")?;
    guest.go()?;
    guest.succeed()
}

/// What a call does whose buffer lies in memory that may not be touched, it does away as at home: it takes nothing
/// that it cannot deliver, and sends nothing that cannot be read.
fn buffers(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", "guard"),
        ("n2", "end of file"),
        ("n2", "guard"),
        ("n2", "read only"),
        ("n2", "closed"),
        ("n2", "unread"),
        ("n2", "unread guard"),
        ("n2", "unread end of file"),
        ("n2", "hole"),
        ("n2", "open"),
        ("n2", "new guard"),
        ("n2", "populate"),
        ("n3", "populate"),
        ("n3", "longer"),
        ("n3", "end of file"),
        ("n3", "guard"),
        ("home", "new guard"),
        ("n2", "new guard"),
        ("n2", "end of file"),
    ];
    same(cluster, "buffers", &steps)
}

/// What a program says that grows by so many megabytes at home.
fn unmoved(cluster: &Cluster, megabytes: &str, pause: &str) -> Result<String> {
    let mut unmoved = grow(cluster, megabytes, pause)?;
    unmoved.ready()?;
    unmoved.go()?;
    let sum = unmoved.until("sum ")?;
    unmoved.go()?;
    unmoved.succeed()?;
    Ok(sum)
}

fn grow(cluster: &Cluster, megabytes: &str, pause: &str) -> Result<Talk> {
    let program = guest::c("grow")?.display().to_string();
    let words = [program.as_str(), megabytes, pause];
    Talk::start(cluster, &mut cluster.run_command("n1", &words))
}

/// What a moved guest has computed is what an unmoved one has.
fn same_sum(guest: &mut Talk, expected: &str) -> Result<()> {
    let sum = guest.until("sum ")?;
    ensure!(
        sum == expected,
        "{sum} after a move, {expected} without one"
    );
    Ok(())
}

/// Waits until one of the two is home and says so; the pids of that one and of the other.
fn one_comes_home(cluster: &Cluster, pids: [i32; 2]) -> Result<(i32, i32)> {
    eventually(Duration::from_secs(20), "one guest is at home", || {
        for (one, other) in [(pids[0], pids[1]), (pids[1], pids[0])] {
            if cluster.place(one)? == "n1" {
                return Ok(Some((one, other)));
            }
        }
        Ok(None)
    })
}

fn says_why(cluster: &Cluster, pid: i32) -> Result<()> {
    eventually(
        Duration::from_secs(10),
        "`whim why` tells of the limit",
        || {
            let why = cluster.whim("n1", &["why", &pid.to_string()])?;
            Ok(why.contains("memory limit").then_some(()))
        },
    )
}

/// Two guests, neither of which is too large for the host: when both together are, one goes home and
/// the other one stays.
fn outgrow_together(cluster: &Cluster, pause: &str) -> Result<()> {
    let expected = unmoved(cluster, "100", pause)?;
    let mut guests = [grow(cluster, "100", pause)?, grow(cluster, "100", pause)?];
    let mut pids = [0; 2];
    for (guest, pid) in guests.iter_mut().zip(&mut pids) {
        *pid = guest.ready()?;
        cluster.move_to(*pid, "n2")?;
    }
    for guest in &mut guests {
        guest.go()?;
    }
    for guest in &mut guests {
        same_sum(guest, &expected)?;
    }
    let (home, away) = one_comes_home(cluster, pids)?;
    says_why(cluster, home)?;
    ensure!(
        cluster.place(away)? == "n2",
        "Both have gone home, where one would have been enough"
    );
    for guest in &mut guests {
        guest.go()?;
        guest.succeed()?;
    }
    Ok(())
}

/// Guests are there when the daemon is started again with a smaller share for them: the larger one
/// goes home, and the limit holds from then on.
fn share_changes(cluster: &Cluster) -> Result<()> {
    let expected = [unmoved(cluster, "30", "0")?, unmoved(cluster, "60", "0")?];
    let mut guests = [grow(cluster, "30", "0")?, grow(cluster, "60", "0")?];
    let mut pids = [0; 2];
    for (guest, pid) in guests.iter_mut().zip(&mut pids) {
        *pid = guest.ready()?;
        cluster.move_to(*pid, "n2")?;
        guest.go()?;
    }
    for (guest, expected) in guests.iter_mut().zip(&expected) {
        let sum = guest.until("sum ")?;
        ensure!(
            sum == *expected,
            "{sum} after a move, {expected} without one"
        );
    }
    for pid in pids {
        ensure!(cluster.place(pid)? == "n2", "There was room for both");
    }
    cluster.configure("n2", "[guests]\nmemory_percent = 40\n")?;
    cluster.restart_daemon("n2")?;
    let (home, away) = one_comes_home(cluster, pids)?;
    ensure!(
        (home, away) == (pids[1], pids[0]),
        "{home} has gone home, but {} uses most",
        pids[1]
    );
    says_why(cluster, home)?;
    ensure!(cluster.place(away)? == "n2", "Both have gone home");
    let refused = cluster.refused("n1", &["migrate", &home.to_string(), "n2"])?;
    ensure!(refused.contains("has no room"), "{refused}");
    if let Some(group) = cluster.all_guests_group("n2") {
        // Not before the one that left has given its memory back.
        eventually(
            Duration::from_secs(10),
            "the kernel has the new limit",
            || {
                let limit = memory_limit(&group).context("No limit")?;
                let limit = fs::read_to_string(limit)?;
                Ok((limit.trim() == (80 << 20).to_string()).then_some(()))
            },
        )?;
    }
    for guest in &mut guests {
        guest.go()?;
        guest.succeed()?;
    }
    Ok(())
}

/// A program grows, while it is away, to more than its control group at home allows. Who asks for its
/// return is refused; what only home can do waits; both until the limit is raised.
fn home_has_no_room(cluster: &Cluster) -> Result<()> {
    let Some(node) = cluster.memory_group("n1") else {
        println!("skipped: no control group limits memory here");
        return Ok(());
    };
    let expected = unmoved(cluster, "200", "0")?;
    let group = node.join("small");
    fs::create_dir(&group)?;
    let limit = memory_limit(&group).context("No limit")?;
    let program = guest::c("grow")?.display().to_string();
    let whim = cluster.whim_path().display().to_string();
    let script = "echo 0 > \"$1/cgroup.procs\" && shift && exec \"$@\"";
    let place = group.display().to_string();
    for fork in [&[][..], &["fork"]] {
        fs::write(&limit, (100 << 20).to_string())?;
        let words = [
            "sh", "-c", script, "sh", &place, &whim, "run", "--", &program,
        ];
        let words: Vec<&str> = words.into_iter().chain(["200", "0"]).collect();
        let words = [&words[..], fork].concat();
        let mut guest = Talk::start(cluster, &mut cluster.command("n1", &words))?;
        let pid = guest.ready()?;
        cluster.move_to(pid, "n2")?;
        guest.go()?;
        same_sum(&mut guest, &expected)?;
        if fork.is_empty() {
            // Home learns of the growth by the next heartbeat.
            let grown = "home knows how large the guest is";
            eventually(Duration::from_secs(10), grown, || {
                let why = cluster.rows("n1", false)?;
                let row = why.iter().find(|row| row.pid == pid);
                Ok(row
                    .is_some_and(|row| row.memory_bytes > 200 << 20)
                    .then_some(()))
            })?;
            let sentence = cluster.refused("n1", &["migrate", &pid.to_string(), "home"])?;
            ensure!(
                sentence.contains("no room") && sentence.contains("100 MiB"),
                "{sentence}"
            );
            ensure!(cluster.place(pid)? == "n2", "It has moved");
            fs::write(&limit, (400 << 20).to_string())?;
            cluster.move_to(pid, "home")?;
            guest.go()?;
        } else {
            guest.go()?;
            eventually(
                Duration::from_secs(10),
                "`whim why` tells of the lack",
                || {
                    let why = cluster.whim("n1", &["why", &pid.to_string()])?;
                    Ok(
                        (why.contains("waits to come home") && why.contains("no room"))
                            .then_some(()),
                    )
                },
            )?;
            ensure!(cluster.place(pid)? == "n2", "It has moved");
            fs::write(&limit, (400 << 20).to_string())?;
            let child = guest.until("child ")?;
            ensure!(child == "1", "The child has seen {child}");
        }
        guest.succeed()?;
    }
    Ok(())
}

/// A guest that has all mappings that a kernel gives cannot come home, where its deputy needs some as well. That
/// is known only when it has been sent: it goes on where it is, and comes home when it has fewer.
fn home_makes_fewer_mappings(cluster: &Cluster) -> Result<()> {
    let program = guest::c("mappings")?.display().to_string();
    let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &[program]))?;
    let pid = guest.ready()?;
    cluster.move_to(pid, "n2")?;
    guest.go()?;
    let taken: u32 = guest.until("taken ")?.parse()?;
    if taken == 1 << 20 {
        println!("skipped: the kernel here gives more");
        return Ok(());
    }
    for _ in 0..2 {
        let sentence = cluster.refused("n1", &["migrate", &pid.to_string(), "home"])?;
        ensure!(sentence.contains("vm.max_map_count"), "{sentence}");
        ensure!(cluster.place(pid)? == "n2", "It has moved");
    }
    guest.go()?;
    let wrong = guest.until("wrong ")?;
    ensure!(wrong == "0", "{wrong} of {taken} mappings are wrong");
    cluster.move_to(pid, "home")?;
    guest.go()?;
    guest.succeed()
}

/// A program that leaves 64 GiB in a piece free, and little else, moves: home takes a part of what is left.
fn crammed(cluster: &Cluster) -> Result<()> {
    let program = guest::c("crammed")?.display().to_string();
    travels(cluster, &[&program, "64"])
}

/// One that ThreadSanitizer watches has terabytes of its shadow, and holes of a terabyte.
fn sanitized(cluster: &Cluster) -> Result<()> {
    let options = ["-g", "-fsanitize=thread", "-pthread"];
    let program = guest::c_with("races", &options)?.display().to_string();
    travels(cluster, &[&program])
}

/// What a program says at home it says away, and at home again.
fn travels(cluster: &Cluster, words: &[&str]) -> Result<()> {
    let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", words))?;
    let Ok(first) = guest.line() else {
        // An old ThreadSanitizer does not start where the kernel's chances lay its libraries.
        println!("skipped, it does not run here: {}", guest.errors());
        return Ok(());
    };
    if first.starts_with("impossible") {
        println!("skipped, this machine does not let it: {first}");
        return Ok(());
    }
    let pid: i32 = first.trim_start_matches("ready ").parse()?;
    guest.go()?;
    let expected = guest.until("sum ")?;
    for place in ["n2", "n3", "home", "n2"] {
        cluster.move_to(pid, place)?;
        guest.go()?;
        same_sum(&mut guest, &expected)?;
        let is_there = cluster.place(pid)? == place.replace("home", "n1");
        ensure!(is_there, "It did not work on {place}");
    }
    cluster.move_to(pid, "home")?;
    guest.go()?;
    same_sum(&mut guest, &expected)
}

/// A guest that comes near the limit of its host goes home, and goes on there, rather than be killed.
fn outgrows(cluster: &Cluster, pause: &str) -> Result<()> {
    let expected = unmoved(cluster, "300", pause)?;
    let mut guest = grow(cluster, "300", pause)?;
    let pid = guest.ready()?;
    cluster.move_to(pid, "n2")?;
    guest.go()?;
    same_sum(&mut guest, &expected)?;
    let row = cluster.row(pid)?;
    ensure!(
        row.as_ref().is_some_and(|row| row.place == "n1"),
        "It is not at home: {row:?}"
    );
    let log = cluster.whim("n1", &["log"])?;
    ensure!(
        log.contains("memory limit"),
        "The log does not say why: {log}"
    );
    guest.go()?;
    guest.succeed()
}
