//! Nodes that are removed while they have guests, and members that reach for guests of others.

use std::fs;
use std::time::{Duration, Instant};

use whim_attempts::{Attempt, Party};
use whim_net::{State, unix_now};
use whim_system_tests::process::eventually;
use whim_system_tests::{Case, Cluster, Context, Cutter, Result, Talk, ensure};

use crate::losses::{ended_by_loss, finish, grows, patient};

/// The lab's lease.
const LEASE: Duration = Duration::from_secs(2);
/// What is promised of a removal: the last effect comes within a lease and this.
const BEYOND: Duration = Duration::from_secs(2);
/// A removal waits for nobody.
const AT_ONCE: Duration = Duration::from_secs(5);
/// Memory of the program that comes home over a slow link, and how slow that is.
const MEGABYTES: u64 = 24;
const SLOW: &str = "16mbit";

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, body: fn(&Cluster) -> Result<()>| {
        Case::in_lab(format!("removal::{name}"), 3, body)
    };
    vec![
        case("comes_home", comes_home),
        case("over_a_slow_link", over_a_slow_link),
        case("guest_supervisor_stopped", guest_supervisor_stopped),
        case("home_supervisor_stopped", home_supervisor_stopped),
        case("cut_off", cut_off),
        case("journey_of_another_home", journey_of_another_home),
    ]
}

fn remove(cluster: &Cluster, node: &str) -> Result<Instant> {
    let begun = Instant::now();
    cluster.whim("n1", &["remove", node])?;
    let took = begun.elapsed();
    ensure!(took < AT_ONCE, "The removal took {took:?}");
    Ok(begun)
}

fn signal(cluster: &Cluster, node: &str, signal: &str, pid: i32) -> Result<()> {
    let words = ["kill", signal, &pid.to_string()];
    cluster.run(node, &words).map(drop)
}

/// An honest host lets go of its guest, which goes on at home as if nothing had happened.
fn comes_home(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = patient(cluster, &["counts"])?;
    cluster.move_to(pid, "n2")?;
    remove(cluster, "n2")?;
    eventually(LEASE * 5, "it is at home", || {
        Ok((cluster.place(pid)? == "n1").then_some(()))
    })?;
    grows(cluster, pid)?;
    eventually(LEASE * 5, "why says what brought it home", || {
        let why = cluster.whim("n1", &["why", &pid.to_string()])?;
        Ok(why.contains("its host is no member any more").then_some(()))
    })?;
    finish(cluster, &mut guest, pid)
}

/// A return takes as long as it takes, if it gets on.
fn over_a_slow_link(cluster: &Cluster) -> Result<()> {
    let script = format!(
        "import os\nkept = os.urandom({MEGABYTES} << 20)\nprint('ready', os.getpid(), flush=True)\n\
         while not os.path.exists('stop'): sum(kept[:1000000])\nprint('ended', len(kept), flush=True)"
    );
    let mut guest = Talk::start(
        cluster,
        &mut cluster.short_command("n1", &["python3", "-c", &script]),
    )?;
    let pid = guest.ready()?;
    cluster.move_to(pid, "n2")?;
    cluster.lab(&["link", "n1", "n2", "--rate", SLOW])?;
    let begun = remove(cluster, "n2")?;
    eventually(Duration::from_secs(120), "it is at home", || {
        Ok((cluster.row(pid)?.context("It has ended")?.place == "n1").then_some(()))
    })?;
    let took = begun.elapsed();
    println!("{MEGABYTES} MiB came home in {took:.1?}");
    ensure!(took > LEASE + BEYOND, "Its return was not slow: {took:?}");
    fs::write(guest.directory().join("stop"), "")?;
    guest.until("ended")?;
    guest.succeed()
}

/// The guest's supervisor says nothing any more.
fn guest_supervisor_stopped(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = patient(cluster, &["counts"])?;
    cluster.move_to(pid, "n2")?;
    let row = cluster.row(pid)?.context("It is gone")?;
    let supervisor = row.guest_supervisor_pid.context("no guest supervisor")?;
    signal(cluster, "n2", "-STOP", supervisor)?;
    let begun = remove(cluster, "n2")?;
    ended_by_loss(cluster, &mut guest, pid)?;
    println!("ended after {:.1?}", begun.elapsed());
    signal(cluster, "n2", "-KILL", supervisor)
}

/// Its user has stopped the supervisor at home, and so nobody acts on the removal: the daemon does.
fn home_supervisor_stopped(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = patient(cluster, &["counts"])?;
    cluster.move_to(pid, "n2")?;
    let row = cluster.row(pid)?.context("It is gone")?;
    let supervisor = row.home_supervisor_pid.context("no home supervisor")?;
    let attempt = Attempt::new(
        Party::LocalUser,
        "keep a program at a node that is removed, by stopping its home supervisor",
    );
    signal(cluster, "n1", "-STOP", supervisor)?;
    let begun = remove(cluster, "n2")?;
    ended_by_loss(cluster, &mut guest, pid)?;
    println!("ended after {:.1?}", begun.elapsed());
    attempt.failed("the daemon ends the supervisor, and the program with it");
    Ok(())
}

/// The host does not even hear of it.
fn cut_off(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = patient(cluster, &["counts"])?;
    cluster.move_to(pid, "n2")?;
    cluster.lab(&["cut", "n1", "n2"])?;
    let begun = remove(cluster, "n2")?;
    ended_by_loss(cluster, &mut guest, pid)?;
    println!("ended after {:.1?}", begun.elapsed());
    Ok(())
}

/// Asks n2 for room in the name of n3, for a journey that has the name of one of n1's.
const TAKE_OVER: &str = r#"
import json, socket, ssl, struct, sys
directory, journey = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
context.set_alpn_protocols(["whim/1"])
context.load_cert_chain(directory + "/chain.pem", directory + "/key.pem")
plain = socket.create_connection(("10.99.0.2", 7946))
tls = context.wrap_socket(plain, server_hostname="node.whim")

def ask(request):
    body = json.dumps(request).encode()
    tls.sendall(struct.pack("<I", len(body)) + body)
    def read(length):
        got = b""
        while len(got) < length:
            piece = tls.recv(length - len(got))
            if not piece:
                raise SystemExit("n2 has hung up")
            got += piece
        return got
    return json.loads(read(struct.unpack("<I", read(4))[0]))

about = ask({"ask": "about"})["about"]
print(ask({"ask": "admit", "request": {
    "journey": journey, "epoch": 1000, "home": "n3", "pid": 4711, "uid": 0, "threads": 1,
    "memory_bytes": 1 << 20, "class": about["class"], "portable": None, "lease_ms": 600000}}))
"#;

/// A member that was a host of it once knows a journey's name: its own of that name is another one.
fn journey_of_another_home(cluster: &Cluster) -> Result<()> {
    let (mut guest, pid) = patient(cluster, &["counts"])?;
    cluster.move_to(pid, "n2")?;
    let sockets = cluster.run("n1", &["sh", "-c", "ls -d /run/whim/journeys/*.home"])?;
    let journey = sockets.trim().rsplit('/').next().context("no journey")?;
    let journey = journey.trim_end_matches(".home");
    let own = cluster.directory().join("n3");
    copy(&cluster.state("n3").join("identity"), &own)?;
    let credentials = State::open(&own)?.credentials(unix_now())?;
    fs::write(own.join("chain.pem"), &credentials.chain_pem)?;
    fs::write(own.join("key.pem"), &credentials.key_pem)?;
    let attempt = Attempt::new(
        Party::Member,
        "take over a journey at its host: have a higher epoch of its name admitted there, and break its connections",
    );
    let directory = own.display().to_string();
    let words = ["python3", "-c", TAKE_OVER, &directory, journey];
    let said = cluster.run("n3", &words)?;
    println!("{}", said.trim());
    ensure!(said.contains("'slot'"), "n2 does not admit it: {said}");
    let cutter = Cutter::new(cluster, "n1", "whim-home")?;
    for _ in 0..3 {
        let broken = cutter.cut()?;
        ensure!(broken > 0, "Nothing broke");
        grows(cluster, pid)?;
    }
    attempt.failed("each connection goes to the stay of its home, and the program goes on");
    cluster.move_to(pid, "home")?;
    finish(cluster, &mut guest, pid)
}

fn copy(from: &std::path::Path, to: &std::path::Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
