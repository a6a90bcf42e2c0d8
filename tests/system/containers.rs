//! Programs in containers, each as its engine starts it by default: they move like others, one process at a time.

use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::time::Duration;

use whim_system_tests::{
    Case, Cluster, Context, Result, Talk, container::Yard, ensure, guest, process::eventually,
};

/// The user that owns nothing.
const NOBODY: &str = "nobody";
const STARTED_WITHIN: Duration = Duration::from_secs(120);
/// Where processes go, again and again.
const ROUTE: [&str; 4] = ["n2", "n3", "n2", "home"];
const MOVES: usize = 20;
const PROCESSES: usize = 2;
/// As a plain user.
const UNPRIVILEGED: [&str; 6] = [
    "setpriv",
    "--reuid",
    NOBODY,
    "--regid",
    "nogroup",
    "--clear-groups",
];
/// Where control groups of both versions are mounted, engines want to see one. What podman keeps goes with it; its
/// paths have to be short.
const ROOM_FOR_PODMAN: &str = "umount --recursive --lazy /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /mnt
install --directory --owner=$1 --mode=700 /mnt/own
shift
exec \"$@\"";
/// Its default profile is used, since nothing is said of another.
const PODMAN: &str = "env HOME=/mnt/own XDG_RUNTIME_DIR=/mnt/own podman --root=/mnt/own/store --runroot=/mnt/own/run
    --tmpdir=/mnt/own/tmp --cgroup-manager=cgroupfs --events-backend=none run --rm --interactive --network=none
    --cgroups=disabled --rootfs";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("containers::full::bubblewrap", 3, bubblewrap),
        Case::in_lab("containers::full::podman", 3, podman),
        Case::in_lab("containers::full::podman_without_root", 3, rootless),
        Case::in_lab("containers::full::nspawn", 3, nspawn),
    ]
}

/// The guest's processes, as n1 numbers them, the first one first.
fn processes(cluster: &Cluster) -> Result<Vec<i32>> {
    let program = program()?;
    let name = program.file_name().context("a name")?.to_string_lossy();
    // As much of it as the kernel keeps.
    let name: String = name.chars().take(15).collect();
    eventually(STARTED_WITHIN, "the container's processes", || {
        // Without any, it fails.
        let Ok(text) = cluster.run("n1", &["pgrep", "--exact", &name]) else {
            return Ok(None);
        };
        let found: Vec<i32> = text.lines().filter_map(|pid| pid.parse().ok()).collect();
        Ok((found.len() == PROCESSES).then_some(found))
    })
}

fn answers(talk: &mut Talk) -> Result<String> {
    talk.say("tell")?;
    talk.line()
}

/// Starts a container of two processes, moves each of them in turn, and lets it end.
fn moves(cluster: &Cluster, words: &[&str]) -> Result<()> {
    let mut talk = Talk::start(cluster, &mut cluster.command("n1", words))?.patient(STARTED_WITHIN);
    talk.ready()?;
    let expected = answers(&mut talk)?;
    println!("unmoved: {expected}");
    let pids = processes(cluster)?;
    for number in 0..MOVES {
        let pid = pids[number % PROCESSES];
        let node = ROUTE[number / PROCESSES % ROUTE.len()];
        let moved = cluster.move_to(pid, node);
        moved.with_context(|| format!("move {number}, of {pid}"))?;
        let found = answers(&mut talk)?;
        ensure!(found == expected, "{node}: {found}, unmoved {expected}");
    }
    talk.say("end")?;
    talk.succeed()
}

/// The guest, which needs nothing of its root.
fn program() -> Result<PathBuf> {
    guest::c_with("filters", &["-static"])
}

fn bubblewrap(cluster: &Cluster) -> Result<()> {
    let program = program()?.display().to_string();
    let engine = "bwrap --unshare-all --die-with-parent --ro-bind / / --proc /proc --dev /dev --";
    let mut words = UNPRIVILEGED.to_vec();
    words.extend(engine.split(' '));
    words.extend([program.as_str(), "confined", "pair"]);
    moves(cluster, &words)
}

/// Makes a root for a container of podman's, which is `user`'s.
fn root_of(cluster: &Cluster, user: &str) -> Result<PathBuf> {
    let root = cluster.directory().join(format!("root-of-{user}"));
    let directories = ["dev", "proc", "sys", "run", "tmp", "etc", "bin"];
    let all: Vec<PathBuf> = directories.iter().map(|name| root.join(name)).collect();
    for directory in &all {
        fs::create_dir_all(directory)?;
    }
    let program = program()?;
    let name = program.file_name().context("a name")?;
    fs::copy(&program, root.join("bin").join(name))?;
    let user = nix::unistd::User::from_name(user)?.context("a user")?;
    for path in all.iter().chain([&root]) {
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    Ok(root)
}

/// Runs the guest in a container of podman's.
fn podman_of(cluster: &Cluster, user: &str, begin: &[&str]) -> Result<()> {
    let root = root_of(cluster, user)?.display().to_string();
    let program = program()?;
    let name = program.file_name().context("a name")?.to_string_lossy();
    let program = format!("/bin/{name}");
    let mut words = vec![
        "unshare",
        "--mount",
        "sh",
        "-c",
        ROOM_FOR_PODMAN,
        "sh",
        user,
    ];
    words.extend(begin);
    words.extend(PODMAN.split_whitespace());
    words.extend([root.as_str(), program.as_str(), "none", "pair"]);
    moves(cluster, &words)
}

fn podman(cluster: &Cluster) -> Result<()> {
    podman_of(cluster, "root", &[])
}

fn rootless(cluster: &Cluster) -> Result<()> {
    podman_of(cluster, NOBODY, &UNPRIVILEGED)
}

fn nspawn(cluster: &Cluster) -> Result<()> {
    // A small Debian, made once, which is not changed.
    let base = Yard::open()?.archive().with_file_name("base");
    let base = base.display().to_string();
    let program = program()?;
    let directory = program.parent().context("a directory of guests")?.display();
    let name = program.file_name().context("a name")?.to_string_lossy();
    let (bind, program) = (
        format!("--bind-ro={directory}:/mnt"),
        format!("/mnt/{name}"),
    );
    let engine = "systemd-nspawn --quiet --register=no --keep-unit --read-only --pipe --directory";
    let mut words: Vec<&str> = engine.split(' ').collect();
    words.extend([&base, &bind, &program, "none", "pair"]);
    moves(cluster, &words)
}
