//! Programs in containers, each as its engine starts it by default: they move like others, one process at a time.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use whim_system_tests::{
    Case, Cluster, Context, Result, Talk, cluster::Moved, container, container::Yard, ensure,
    guest, process, process::Running, process::eventually,
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

/// From a place in a control group, as which the container's init needs one.
const IN_GROUP: &str = "echo $$ >\"$1/cgroup.procs\" && shift && exec \"$@\"";
/// With the engine's own filter, which is the default.
const BOOT: &str =
    "env SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 systemd-nspawn --quiet --boot --register=no --keep-unit
    --console=pipe --resolv-conf=off --timezone=off --private-network --machine=booted";
/// How systemd confines the service. `MemoryDenyWriteExecute=` is not among it: before systemd 253 it is a filter
/// that stays.
const CONFINED: &str = "systemd-run --quiet --pipe --wait --collect --property=User=worker
    --property=NoNewPrivileges=yes --property=SystemCallFilter=@system-service
    --property=SystemCallArchitectures=native --property=RestrictNamespaces=yes --property=RestrictRealtime=yes
    --property=RestrictSUIDSGID=yes --property=LockPersonality=yes --property=ProtectSystem=strict
    --property=ProtectHome=yes --property=PrivateTmp=yes --property=PrivateDevices=yes
    --property=ProtectKernelTunables=yes --property=ProtectKernelModules=yes --property=ProtectControlGroups=yes";
const BOOTED_WITHIN: Duration = Duration::from_secs(240);
/// Refusals that pass are tried again so often.
const TRIES: usize = 10;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("containers::full::bubblewrap", 3, bubblewrap),
        Case::in_lab("containers::full::podman", 3, podman),
        Case::in_lab("containers::full::podman_without_root", 3, rootless),
        Case::in_lab("containers::full::nspawn", 3, nspawn),
        Case::in_lab("containers::full::nspawn_booted", 3, booted),
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
    moves_of(cluster, &mut cluster.command("n1", words), (MOVES, false))
}

/// Moves the two processes that this starts so often, in turn, and has them adopted before if so told.
fn moves_of(cluster: &Cluster, start: &mut Command, (moves, adopt): (usize, bool)) -> Result<()> {
    let mut talk = Talk::start(cluster, start)?.patient(STARTED_WITHIN);
    talk.ready()?;
    let expected = answers(&mut talk)?;
    println!("unmoved: {expected}");
    let pids = processes(cluster)?;
    for pid in pids.iter().filter(|_| adopt) {
        cluster.whim("n1", &["adopt", &pid.to_string()])?;
    }
    let mut tries = 0;
    for number in 0..moves {
        let pid = pids[number % PROCESSES];
        let node = ROUTE[number / PROCESSES % ROUTE.len()];
        let moved = tries_to(cluster, pid, node);
        tries += moved.with_context(|| format!("move {number}, of {pid}"))?;
        let found = answers(&mut talk)?;
        ensure!(found == expected, "{node}: {found}, unmoved {expected}");
    }
    println!("{moves} moves in {tries} tries");
    talk.say("end")?;
    talk.succeed()
}

/// How many tries it took to move it there: a host that has much else to do may not be ready in time.
fn tries_to(cluster: &Cluster, pid: i32, node: &str) -> Result<usize> {
    for tries in 1..=TRIES {
        let Moved::Refused(reason) = cluster.migrate(pid, node)? else {
            return Ok(tries);
        };
        let passing = ["cannot be stopped now", "was not ready within"];
        let passes = passing.iter().any(|sentence| reason.contains(sentence));
        ensure!(passes && tries < TRIES, "to {node}: {reason}");
    }
    Ok(TRIES)
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

/// A container with an init of its own, which runs on n1. Dropping it ends it.
struct Booted<'a> {
    cluster: &'a Cluster,
    group: PathBuf,
    console: PathBuf,
    /// The pid of its init, as n1 counts.
    init: String,
    running: Option<Running>,
}

impl<'a> Booted<'a> {
    /// Boots a copy of the base with this directory below `/mnt`.
    fn start(cluster: &'a Cluster, directory: &Path) -> Result<Self> {
        let root = cluster.directory().join("booted");
        container::copy_of_base(&root, ("booted", 1))?;
        // There is no network that would come up.
        let unit = "etc/systemd/system/systemd-networkd-wait-online.service";
        std::os::unix::fs::symlink("/dev/null", root.join(unit))?;
        let groups = cluster.node_groups("n1", &["unified", ""]);
        let unified = groups
            .into_iter()
            .find(|group| group.join("cgroup.controllers").exists());
        let unified = unified.context("n1 has no control group of version 2, as systemd needs")?;
        let mut booted = Self {
            cluster,
            group: unified.join("booted"),
            console: cluster.directory().join("booted.console"),
            init: String::new(),
            running: None,
        };
        fs::create_dir_all(&booted.group)?;
        let result = booted.boot(&root, directory);
        let console = fs::read(&booted.console).unwrap_or_default();
        result.with_context(|| String::from_utf8_lossy(&console).into_owned())?;
        Ok(booted)
    }

    fn boot(&mut self, root: &Path, directory: &Path) -> Result<()> {
        let group = self.group.display().to_string();
        let bind = format!("--bind-ro={}:/mnt", directory.display());
        let root = format!("--directory={}", root.display());
        let mut words = vec!["sh", "-c", IN_GROUP, "sh", &group];
        words.extend(BOOT.split_whitespace());
        words.extend([bind.as_str(), &root]);
        let log = fs::File::create(&self.console)?;
        let mut command = self.cluster.command("n1", &words);
        command.stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        self.running = Some(Running::spawn(&mut command)?);
        let init =
            "pgrep --parent \"$(pgrep --delimiter , --exact systemd-nspawn)\" --exact systemd";
        self.init = eventually(BOOTED_WITHIN, "the container has an init", || {
            Ok(self.cluster.run("n1", &["sh", "-c", init]).ok())
        })?
        .trim()
        .to_owned();
        eventually(BOOTED_WITHIN, "its units are started", || {
            let units = ["systemctl", "is-active", "multi-user.target", "dbus.socket"];
            Ok(process::succeed(&mut self.command(&units), STARTED_WITHIN).ok())
        })
        .map(drop)
    }

    /// A command of root's in it.
    fn command(&self, words: &[&str]) -> Command {
        let enter = ["nsenter", "--all", "--target", &self.init, "env", "-i"];
        let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let all = [&enter[..], &[path], words].concat();
        self.cluster.command("n1", &all)
    }
}

impl Drop for Booted<'_> {
    fn drop(&mut self) {
        if !self.init.is_empty() {
            let _ = self.cluster.run("n1", &["kill", "-KILL", &self.init]);
        }
        if let Some(running) = &mut self.running {
            let _ = running.wait_up_to(Duration::from_secs(30));
        }
        container::remove_groups(&self.group);
    }
}

/// A service in it that systemd confines: each of its two processes moves so often, adopted from outside.
fn booted(cluster: &Cluster) -> Result<()> {
    let program = program()?;
    let directory = program.parent().context("a directory of guests")?;
    let name = program.file_name().context("a name")?.to_string_lossy();
    let container = Booted::start(cluster, directory)?;
    let program = format!("/mnt/{name}");
    let mut words: Vec<&str> = CONFINED.split_whitespace().collect();
    words.extend([program.as_str(), "none", "pair"]);
    let moves = MOVES * PROCESSES;
    moves_of(cluster, &mut container.command(&words), (moves, true))
}
