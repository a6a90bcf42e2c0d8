//! What runs out, on a side or between them: disk, quota, memory, processes, descriptors, time. Each
//! call and each move is right, or refused with a sentence, and the program goes on.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use whim_system_tests::cluster::{Moved, memory_limit};
use whim_system_tests::process::{self, eventually};
use whim_system_tests::{Case, Cluster, Context, Result, Talk, bail, ensure, guest};

use crate::bad_input::{counting, goes_on};
use crate::faults::sweep;

const PATIENCE: Duration = Duration::from_secs(60);
const STATE: &str = "/var/lib/whim";

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, body: fn(&Cluster) -> Result<()>| {
        Case::in_lab(format!("exhaustion::{name}"), 2, body)
    };
    vec![
        Case::in_lab("exhaustion::disk_of_home", 3, |cluster| disk(cluster, "n1")),
        Case::in_lab("exhaustion::full::disk_of_the_host", 3, |cluster| {
            disk(cluster, "n2")
        }),
        case("disk_of_the_program", disk_of_the_program),
        case("quota_of_the_program", quota_of_the_program),
        case("full::memory_of_the_host", memory_of_the_host),
        case("processes_at_home", processes_at_home),
        Case::new("exhaustion::processes_of_a_user", |_| processes_of_a_user()),
        case("descriptors_of_homes_daemon", |cluster| {
            descriptors_of_the_daemon(cluster, "n1")
        }),
        case("descriptors_of_the_hosts_daemon", |cluster| {
            descriptors_of_the_daemon(cluster, "n2")
        }),
        Case::new("exhaustion::small_packets", |_| {
            between(&["--mtu", "576"], "24", &["n2", "home", "n2"])
        }),
        Case::new("exhaustion::full::long_way", |_| {
            between(&["--delay", "200ms"], "24", &["n2", "home", "n2"])
        }),
    ]
}

/// A node's state gets a disk of its own, of two megabytes.
fn give_disk(cluster: &Cluster, node: &str) -> Result<()> {
    let script = format!(
        "cp -a {STATE} /tmp/kept && mount -t tmpfs -o size=2m,mode=711 tmpfs {STATE} && \
         cp -a /tmp/kept/. {STATE}"
    );
    cluster.run(node, &["sh", "-c", &script])?;
    cluster.restart_daemon(node)
}

/// Fills that disk but for so many pages.
fn leave_pages(cluster: &Cluster, node: &str, pages: u64) -> Result<()> {
    let script = format!(
        "cd {STATE}; rm -f filler; head -c 4M /dev/zero > filler 2>/dev/null; \
         truncate -s -{} filler",
        pages * 4096
    );
    cluster.run(node, &["sh", "-c", &script]).map(drop)
}

fn is_up(cluster: &Cluster) -> Result<()> {
    cluster.await_member(("n1", "n2"), ("state", "up"), PATIENCE)
}

fn is_sentence(text: &str) -> Result<()> {
    println!("{text}");
    ensure!(text.lines().count() == 1, "'{text}' is no sentence");
    Ok(())
}

/// Moves while a node has less and less room for journals and logs: out, and home again.
fn disk(cluster: &Cluster, node: &str) -> Result<()> {
    give_disk(cluster, node)?;
    is_up(cluster)?;
    let (_guest, pid) = counting(cluster)?;
    let (mut moved, mut refused) = (0, 0);
    for pages in [16, 3, 2, 1, 0, 64] {
        leave_pages(cluster, node, pages)?;
        match cluster.migrate(pid, "n2")? {
            Moved::Refused(text) => {
                refused += 1;
                is_sentence(&text).with_context(|| format!("{pages} pages"))?;
                each_has_a_journal(cluster).with_context(|| format!("{pages} pages"))?;
            }
            Moved::Done(_) => {
                moved += 1;
                goes_on(cluster, pid).with_context(|| format!("Away, {pages} pages"))?;
                // What is left is used up while it is away.
                leave_pages(cluster, node, 0)?;
                if let Moved::Refused(text) = cluster.migrate(pid, "home")? {
                    is_sentence(&text).with_context(|| format!("Home, {pages} pages"))?;
                    goes_on(cluster, pid).with_context(|| format!("Away still, {pages} pages"))?;
                    leave_pages(cluster, node, 64)?;
                    cluster.move_to(pid, "home")?;
                }
            }
        }
        goes_on(cluster, pid).with_context(|| format!("{pages} pages"))?;
    }
    println!("{moved} moves, {refused} refusals");
    ensure!(moved > 0, "It never moved");
    ensure!(refused > 0 || node == "n2", "It was never refused");
    cluster.run(node, &["rm", &format!("{STATE}/filler")])?;
    cluster.move_to(pid, "n2")?;
    from_host_to_host(cluster, node, pid)?;
    cluster.run(node, &["rm", &format!("{STATE}/filler")])?;
    cluster.move_to(pid, "home")?;
    goes_on(cluster, pid)
}

/// A journey that never began is not noted: it has no journal.
fn each_has_a_journal(cluster: &Cluster) -> Result<()> {
    let script = format!(
        "cd {STATE}/journeys; for about in *.json; do id=${{about%.json}}; [ -e \"$about\" ] && ! [ -e \"$id.journal\" ] && echo \"$id\"; done; true"
    );
    let without = cluster.run("n1", &["sh", "-c", &script])?;
    ensure!(without.is_empty(), "Without a journal: {without}");
    Ok(())
}

/// A journey goes on and on while there is no room: what its journal lacks, the process does not.
fn from_host_to_host(cluster: &Cluster, node: &str, pid: i32) -> Result<()> {
    leave_pages(cluster, node, 0)?;
    let mut refused = 0;
    let most = if node == "n1" { 60 } else { 20 };
    for target in ["n3", "n2"].iter().cycle().take(most) {
        if refused > 3 {
            break;
        }
        match cluster.migrate(pid, target)? {
            Moved::Done(_) => {}
            Moved::Refused(text) => {
                refused += 1;
                is_sentence(&text)?;
            }
        }
    }
    goes_on(cluster, pid)?;
    println!("{refused} moves onward were refused");
    ensure!(
        refused > 0 || node != "n1",
        "The journal had room for all of them"
    );
    Ok(())
}

/// Rounds of the guest `fills` in this directory of n1, each begun where it says; what was told.
fn rounds(cluster: &Cluster, directory: &str, places: &[&str]) -> Result<Vec<Vec<String>>> {
    let program = guest::c("fills")?.display().to_string();
    let words = [program.as_str(), directory];
    let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    let mut told = Vec::new();
    for place in places {
        let pid = guest.ready()?;
        cluster.have_on(pid, place)?;
        let before = guest.said.len();
        guest.go()?;
        guest.until("end")?;
        told.push(guest.said[before..].to_vec());
        ensure!(cluster.place(pid)? == *place, "It did not stay on {place}");
    }
    guest.ready()?;
    guest.say("e")?;
    guest.succeed()?;
    Ok(told)
}

fn tells_of(cluster: &Cluster, directory: &str, words: &str) -> Result<()> {
    let told = rounds(cluster, directory, &["n1", "n2", "n2", "n1"])?;
    let full = told[0].iter().filter(|line| line.contains(words)).count();
    ensure!(full >= 5, "It was not full: {:#?}", told[0]);
    for (number, round) in told.iter().enumerate().skip(1) {
        ensure!(
            *round == told[0],
            "Round {number}: {round:#?}\nat home {:#?}",
            told[0]
        );
    }
    println!("{:#?}", told[0]);
    Ok(())
}

/// The program's own files find no room: the same errors, and the same contents, at home and away.
fn disk_of_the_program(cluster: &Cluster) -> Result<()> {
    let script = "mkdir /tmp/small && mount -t tmpfs -o size=1m tmpfs /tmp/small";
    cluster.run("n1", &["sh", "-c", script])?;
    tells_of(cluster, "/tmp/small", "No space left on device")
}

/// Makes a file system in a file, and mounts it on a node, by a script that is given the file's path;
/// whether this machine can do that, or else the script ends with 9.
pub(crate) fn mounted(cluster: &Cluster, node: &str, bytes: u64, script: &str) -> Result<bool> {
    let image = cluster.directory().join("file-system.img");
    fs::File::create(&image)?.set_len(bytes)?;
    let image = image.display().to_string();
    let mut make = cluster.command(node, &["sh", "-c", script, "sh", &image]);
    let made = process::output(&mut make, PATIENCE)?;
    let errors = String::from_utf8_lossy(&made.stderr).into_owned();
    if made.status.code() == Some(9) {
        println!("skipped: this machine cannot make or mount such a file system: {errors}");
        return Ok(false);
    }
    ensure!(made.status.success(), "No file system: {errors}");
    Ok(true)
}

/// The same with a quota. Of the file systems that have one, this machine may have btrfs
/// (btrfs-progs, CONFIG_BTRFS_FS).
fn quota_of_the_program(cluster: &Cluster) -> Result<()> {
    let script = r#"command -v mkfs.btrfs >/dev/null || exit 9
         set -e
         mkfs.btrfs -q -m single "$1"
         mkdir /tmp/quota
         mount -o loop "$1" /tmp/quota || exit 9
         btrfs quota enable /tmp/quota
         btrfs subvolume create /tmp/quota/own
         btrfs qgroup limit 2m /tmp/quota/own"#;
    if !mounted(cluster, "n1", 128 << 20, script)? {
        return Ok(());
    }
    tells_of(cluster, "/tmp/quota/own", "Disk quota exceeded")
}

/// The cached bytes of this control group that the kernel takes back first.
fn inactive_cache(group: &Path) -> Result<u64> {
    let stat = fs::read_to_string(group.join("memory.stat"))?;
    let field = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name));
    let bytes = field("total_inactive_file ").or_else(|| field("inactive_file "));
    Ok(bytes.context("No inactive_file")?.parse()?)
}

/// A host that has less and less memory left.
fn memory_of_the_host(cluster: &Cluster) -> Result<()> {
    let Some(group) = cluster.memory_group("n2") else {
        println!("skipped: no control group limits memory here");
        return Ok(());
    };
    let limit = memory_limit(&group).context("No limit")?;
    let used = ["memory.usage_in_bytes", "memory.current"];
    let used = used.iter().map(|name| group.join(name));
    let used = used.into_iter().find(|path| path.exists());
    let used = used.context("Nothing counts memory")?;
    let kibibytes = [65536, 32768, 24576, 16384, 8192, 4096, 2048, 1024, 512];
    sweep(cluster, kibibytes.into_iter(), "has no room", &|spare| {
        // The daemon measures each second.
        eventually(PATIENCE, "n2 has noticed", || {
            // What is only cached does not count as used, for the daemon neither.
            let _ = fs::write(group.join("memory.force_empty"), "0");
            let now = fs::read_to_string(&used)?.trim().parse::<u64>()? - inactive_cache(&group)?;
            // What the node uses changes until the daemon looks: an eighth is for that.
            fs::write(&limit, (now + (spare << 10) / 8 * 7).to_string())?;
            let row = cluster.member("n1", "n2")?;
            let left = row["memory_available_bytes"].as_u64().unwrap_or(u64::MAX);
            Ok((left <= spare << 10).then_some(()))
        })
    })
}

/// The control socket of a node as this machine sees it: commands in the node would take processes of
/// the node's.
fn socket(cluster: &Cluster, node: &str) -> Result<String> {
    let group = cluster.group("pids", node).context("No group")?;
    let mut places = vec![group];
    while let Some(place) = places.pop() {
        for pid in fs::read_to_string(place.join("cgroup.procs"))?.lines() {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if name.trim() == "whimd" {
                return Ok(format!("/proc/{pid}/root/run/whim/control.sock"));
            }
        }
        for entry in fs::read_dir(&place)?.flatten() {
            if entry.path().is_dir() {
                places.push(entry.path());
            }
        }
    }
    bail!("{node} has no daemon")
}

/// A home that may start so many processes and threads more.
fn processes_at_home(cluster: &Cluster) -> Result<()> {
    let Some(group) = cluster.group("pids", "n1") else {
        println!("skipped: no control group counts processes here");
        return Ok(());
    };
    let socket = socket(cluster, "n1")?;
    let (_guest, pid) = counting(cluster)?;
    let pid_text = pid.to_string();
    // None if it has moved, or why not.
    let try_to = |spare: u64, target: &str| -> Result<Option<String>> {
        let count = || -> Result<u64> {
            Ok(fs::read_to_string(group.join("pids.current"))?
                .trim()
                .parse()?)
        };
        fs::write(group.join("pids.max"), (count()? + spare).to_string())?;
        let mut command = Command::new(cluster.whim_path());
        command.args(["--socket", &socket, "migrate", &pid_text, target]);
        let output = process::output(&mut command, PATIENCE);
        fs::write(group.join("pids.max"), "max")?;
        let output = output?;
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Ok((!output.status.success()).then_some(text))
    };
    let (mut moved, mut refused) = (0, 0);
    for spare in 0..9 {
        for target in ["n2", "home"] {
            if target == "home" && cluster.place(pid)? == "n1" {
                continue;
            }
            match try_to(spare, target)? {
                None => moved += 1,
                Some(text) => {
                    refused += 1;
                    is_sentence(&text).with_context(|| format!("To {target} with {spare}"))?;
                }
            }
            goes_on(cluster, pid).with_context(|| format!("To {target} with {spare}"))?;
        }
        cluster.have_on(pid, "home")?;
    }
    println!("{moved} moves, {refused} refusals");
    ensure!(moved > 0 && refused > 0, "Not all of it was tried");
    Ok(())
}

/// A plain user who may have so many processes and threads more: the limit counts all of them, the
/// program's and ours.
fn processes_of_a_user() -> Result<()> {
    let cluster = Cluster::up_of_users()?;
    cluster.explaining(|| {
        let account = cluster.account("n1").context("accounts")?;
        let daemon = fs::read_to_string(account.daemon_number())?;
        let uid = account.uid.to_string();
        sweep(&cluster, [40, 8, 4, 2, 1, 0].into_iter(), "", &|spare| {
            let threads = cluster.run("n1", &["ps", "-L", "-U", &uid, "-o", "lwp="])?;
            // ps itself is one of them.
            let now = u64::try_from(threads.lines().count())? - 1;
            let limit = format!("--nproc={}:", now + spare);
            let words = ["prlimit", "--pid", daemon.trim(), &limit];
            cluster.run("n1", &words).map(drop)
        })
    })
}

/// A daemon that may have so many files open.
fn descriptors_of_the_daemon(cluster: &Cluster, node: &str) -> Result<()> {
    let daemon = cluster.daemon_pid(node)?;
    let open = cluster.run(node, &["ls", &format!("/proc/{daemon}/fd")])?;
    let least: u64 = open.lines().count().try_into()?;
    sweep(cluster, [40, 12, 8, 5, 2, 1, 0].into_iter(), "", &|spare| {
        // What connections of the last move still hold is not for the next one.
        let limit = format!("--nofile={}:", least + spare);
        cluster
            .run(node, &["prlimit", "--pid", &daemon, &limit])
            .map(drop)
    })
}

/// Moves over a link that is not like others: memory comes whole, calls and signals work.
fn between(link: &[&str], megabytes: &str, targets: &[&str]) -> Result<()> {
    let cluster = Cluster::up_with(2, link)?;
    cluster.explaining(|| {
        is_up(&cluster)?;
        let program = guest::c("patient")?.display().to_string();
        let words = [program.as_str(), "holds", megabytes];
        let mut holder = Talk::start(&cluster, &mut cluster.run_command("n1", &words))?;
        let held = holder.ready()?;
        let words = [program.as_str(), "counts"];
        let mut counter = Talk::start(&cluster, &mut cluster.run_command("n1", &words))?;
        let counting = counter.ready()?;
        for target in targets {
            cluster.move_to(held, target)?;
            cluster.move_to(counting, target)?;
            goes_on(&cluster, counting)?;
            holder.go()?;
            ensure!(holder.ready()? == held, "Another process answers");
        }
        holder.say("e")?;
        ensure!(holder.line()? == "intact", "{:?}", holder.said);
        holder.succeed()
    })
}
