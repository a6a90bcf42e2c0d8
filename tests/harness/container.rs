//! Containers with an init of their own (systemd-nspawn): what installs, boots and goes down as a machine
//! does, on this machine's kernel. `scripts/containers` makes what they start from.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::place;
use crate::process::{Running, eventually, output, succeed};
use crate::version_1::{OfCpu, PLACE};

/// Fetching and unpacking the base.
const MAKE_LIMIT: Duration = Duration::from_secs(1200);
/// From power on until all units are started, and from the word to the end.
const BOOT_LIMIT: Duration = Duration::from_secs(240);
/// A usual command.
const PATIENCE: Duration = Duration::from_secs(240);
/// Containers see each other as 10.77.0.1, 10.77.0.2, ..., and nothing else.
const NETWORK: &str = "10.77.0.";
/// The user in each container.
pub const USER: &str = "worker";
/// Begins a session of the user's, in whose directory the command runs.
const SESSION: [&str; 8] = [
    "systemd-run",
    "--quiet",
    "--pipe",
    "--wait",
    "--collect",
    "--property=User=worker",
    "--property=PAMName=login",
    "--property=WorkingDirectory=~",
];

/// What containers start from, and the network that is theirs alone.
#[derive(Debug)]
pub struct Yard {
    base: PathBuf,
    directory: PathBuf,
    network: String,
    groups: PathBuf,
    cpu: Option<OfCpu>,
}

/// A container; dropping it switches it off.
#[derive(Debug)]
pub struct Container {
    pub name: String,
    number: u8,
    root: PathBuf,
    log: PathBuf,
    group: PathBuf,
    /// Its group in a hierarchy of version 1, and how that is mounted.
    cpu: Option<(PathBuf, String)>,
    network: PathBuf,
    power: Option<Power>,
}

/// One that is switched on.
#[derive(Debug)]
struct Power {
    running: Running,
    /// The pid of its init, as this machine counts.
    init: i32,
}

/// How a command has ended there.
#[derive(Clone, Debug, Default)]
pub struct Said {
    pub success: bool,
    pub output: String,
    pub errors: String,
}

impl Yard {
    /// Makes the base, if it is not there yet, and the network.
    ///
    /// # Errors
    /// Without root, or when the archive cannot be reached.
    pub fn open() -> Result<Self> {
        let made = made()?;
        let name = format!("whim-yard-{}", std::process::id());
        let yard = Self {
            base: made.join("base"),
            directory: made.join(&name),
            groups: unified_groups()?.join(&name),
            cpu: OfCpu::here()?,
            network: name,
        };
        fs::create_dir_all(&yard.directory)?;
        fs::create_dir_all(&yard.groups)?;
        let script = "ip netns add $1 && ip -n $1 link add bridge type bridge && \
                      ip -n $1 link set bridge up && ip -n $1 link set lo up";
        let mut lay = Command::new("sh");
        lay.args(["-c", script, "sh", &yard.network]);
        succeed(&mut lay, PATIENCE)?;
        Ok(yard)
    }

    /// The distribution's packages that a test lets its machines fetch, with an index for apt.
    #[must_use]
    pub fn archive(&self) -> PathBuf {
        self.base.with_file_name("archive")
    }

    /// The address of the container of this number.
    #[must_use]
    pub fn address(number: u8) -> String {
        format!("{NETWORK}{number}")
    }

    /// A directory for files of the test.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A new container, switched on.
    ///
    /// # Errors
    /// When it does not start, with what it says on its console.
    pub fn start(&self, name: &str, number: u8) -> Result<Container> {
        let root = self.directory.join(name);
        copy_root(&self.base, &root, (name, number))?;
        let network = format!(
            "[Match]\nName=host0\n[Network]\nAddress={NETWORK}{number}/24\nLinkLocalAddressing=no\n"
        );
        fs::write(root.join("etc/systemd/network/10-host0.network"), network)?;
        let mut container = Container {
            name: name.to_owned(),
            number,
            log: self.directory.join(format!("{name}.console")),
            group: self.groups.join(name),
            cpu: self.cpu.as_ref().map(|cpu| {
                let group = cpu.root.join(&self.network).join(name);
                (group, cpu.options.clone())
            }),
            network: Path::new("/run/netns").join(&self.network),
            root,
            power: None,
        };
        container.switch_on()?;
        Ok(container)
    }
}

/// Where what containers start from is; it is made if it is not there yet.
fn made() -> Result<PathBuf> {
    let made = place::room()?.with_file_name("containers");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/containers");
    succeed(Command::new(script).arg(&made), MAKE_LIMIT)?;
    Ok(made)
}

/// Makes a file system of this name and number that can boot, for a test that starts it by itself.
///
/// # Errors
/// Without root, or when the archive cannot be reached.
pub fn copy_of_base(root: &Path, identity: (&str, u8)) -> Result<()> {
    copy_root(&made()?.join("base"), root, identity)
}

fn copy_root(base: &Path, root: &Path, (name, number): (&str, u8)) -> Result<()> {
    let mut copy = Command::new("cp");
    copy.args(["-a", "--reflink=auto"]).arg(base).arg(root);
    succeed(&mut copy, PATIENCE)?;
    // One that boots for the first time asks who it is.
    fs::write(root.join("etc/machine-id"), format!("{number:032x}\n"))?;
    Ok(fs::write(root.join("etc/hostname"), format!("{name}\n"))?)
}

impl Drop for Yard {
    fn drop(&mut self) {
        let mut remove = Command::new("ip");
        let _ = output(
            remove.args(["netns", "delete", &self.network]),
            Duration::from_secs(30),
        );
        remove_groups(&self.groups);
        if let Some(cpu) = &self.cpu {
            remove_groups(&cpu.root.join(&self.network));
        }
        if std::env::var_os("WHIM_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// Where the control groups of version 2 are: at the top, or beside those of version 1.
fn unified_groups() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mut lines = mounts.lines().map(|line| line.split(' '));
    let found = lines.find_map(|mut words| {
        let place = words.nth(1)?;
        (words.next() == Some("cgroup2")).then(|| PathBuf::from(place))
    });
    found.context(
        "No control groups of version 2 are mounted here, which systemd needs in a container",
    )
}

/// Removes a control group: it can be removed when those below it are.
pub fn remove_groups(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// The child that is the init of a pid namespace.
fn init_of(nspawn: i32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{nspawn}/task/{nspawn}/children")).ok()?;
    let mut pids = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    pids.find(|pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        inner.is_some_and(|numbers| {
            numbers.split_whitespace().count() > 1 && numbers.split_whitespace().last() == Some("1")
        })
    })
}

impl Drop for Power {
    /// Without its init nothing of it goes on; systemd-nspawn alone could be killed and leave it.
    fn drop(&mut self) {
        if matches!(self.running.wait_up_to(Duration::ZERO), Ok(None)) {
            let _ = kill(Pid::from_raw(self.init), Signal::SIGKILL);
            let _ = self.running.wait_up_to(Duration::from_secs(30));
        }
    }
}

impl Container {
    /// Its address in the network of containers.
    #[must_use]
    pub fn address(&self) -> String {
        Yard::address(self.number)
    }

    /// Its file system, seen from here.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Boots it, and waits until all units are started.
    ///
    /// # Errors
    /// When that does not happen, with what it says on its console.
    pub fn switch_on(&mut self) -> Result<()> {
        let lent = self.cpu.as_ref().map(|(group, _)| group);
        let groups: Vec<&PathBuf> = std::iter::once(&self.group).chain(lent).collect();
        for group in &groups {
            fs::create_dir_all(group)?;
        }
        let script = "while [ \"$1\" != -- ]; do echo $$ >\"$1/cgroup.procs\" || exit; shift; done
shift; exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).args(groups).arg("--");
        command.arg("nsenter");
        command.arg(format!("--net={}", self.network.display()));
        command.args([
            "systemd-nspawn",
            "--quiet",
            "--boot",
            "--register=no",
            "--keep-unit",
        ]);
        command.args(["--console=pipe", "--resolv-conf=off", "--timezone=off"]);
        command.args(["--network-bridge=bridge", "--capability=all"]);
        command.arg(format!("--hostname={}", self.name));
        // The name of its network device is made of it.
        command.arg(format!("--machine=w{}", self.number));
        command.arg("--directory").arg(&self.root);
        // As on a machine: its own groups, and no filter of system calls, which programs would inherit.
        command.env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1");
        command.env("SYSTEMD_SECCOMP", "0");
        let log = File::create(&self.log)?;
        command.stdin(std::process::Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let running = Running::spawn(&mut command)?;
        let nspawn = running.pid();
        let init = eventually(BOOT_LIMIT, "the container has an init", || {
            Ok(init_of(nspawn))
        })
        .with_context(|| self.console())?;
        self.power = Some(Power { running, init });
        eventually(BOOT_LIMIT, "the container has started its units", || {
            let said = self.ask("systemctl is-active multi-user.target network-online.target")?;
            Ok(said.output.starts_with("active\n").then_some(()))
        })
        .with_context(|| self.console())?;
        self.lend_cpu()
    }

    /// Mounts the controller that its own groups do not have.
    fn lend_cpu(&mut self) -> Result<()> {
        let Some((_, options)) = &self.cpu else {
            return Ok(());
        };
        let script = format!("mkdir -p {PLACE} && mount -t cgroup -o {options} cgroup {PLACE}");
        let said = self.ask(&script)?;
        ensure!(said.success, "The CPU controller is not lent: {said:?}");
        Ok(())
    }

    /// Waits until it has switched itself off.
    ///
    /// # Errors
    /// When it does not.
    pub fn wait_off(&mut self) -> Result<()> {
        if let Some(mut power) = self.power.take() {
            let ended = power.running.wait(BOOT_LIMIT);
            ended.with_context(|| self.console())?;
        }
        Ok(())
    }

    fn console(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        format!("{}: {}", self.name, String::from_utf8_lossy(&text))
    }

    /// What stands in front of a command of root's there, for programs that reach it by themselves.
    ///
    /// # Errors
    /// When it is off.
    pub fn way_in(&self) -> Result<Vec<String>> {
        let command = self.command(&[])?;
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        Ok(words
            .map(|word| word.to_string_lossy().into_owned())
            .collect())
    }

    /// A command of root's there.
    ///
    /// # Errors
    /// When it is off.
    fn command(&self, words: &[&str]) -> Result<Command> {
        let power = self.power.as_ref().context("The container is off")?;
        let mut command = Command::new("nsenter");
        command.args(["--all", "--target", &power.init.to_string()]);
        command.args(["env", "-i", "HOME=/root", "LC_ALL=C.UTF-8"]);
        command.arg("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.arg("DEBIAN_FRONTEND=noninteractive").args(words);
        Ok(command)
    }

    /// Runs a shell's script there as root.
    ///
    /// # Errors
    /// When it cannot be run, or takes too long.
    pub fn ask(&self, script: &str) -> Result<Said> {
        let mut command = self.command(&["sh", "-c", script])?;
        let output = output(&mut command, PATIENCE)?;
        Ok(Said {
            success: output.status.success(),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs a shell's script there as root that has to succeed; its output.
    ///
    /// # Errors
    /// When it does not.
    pub fn run(&self, script: &str) -> Result<String> {
        let said = self.ask(script)?;
        ensure!(
            said.success,
            "{}: '{script}' fails: {}{}",
            self.name,
            said.output,
            said.errors
        );
        Ok(said.output)
    }

    /// Runs a shell's script in a session of the user, as after a login; what it starts in the background
    /// goes on. Its output.
    ///
    /// # Errors
    /// When it fails.
    pub fn run_as_user(&self, script: &str) -> Result<String> {
        ensure!(!script.contains('\''), "Not to be quoted: {script}");
        self.run(&format!("{} sh -c '{script}'", SESSION.join(" ")))
    }

    /// A shell of the user's, in such a session, that reads what it is to do from a pipe and ends with the
    /// first command that fails. It has a directory of the user's, which is given, too.
    ///
    /// # Errors
    /// When the machine is off.
    pub fn shell_of_user(&self) -> Result<(Command, PathBuf)> {
        let command = self.command(&[&SESSION[..], &["sh", "-e"]].concat())?;
        Ok((command, self.home_of_user()))
    }

    /// The same of root's.
    ///
    /// # Errors
    /// When the machine is off.
    pub fn shell_of_root(&self) -> Result<(Command, PathBuf)> {
        let command = self.command(&["sh", "-c", "cd && exec sh -e"])?;
        Ok((command, self.root.join("root")))
    }

    /// It ends in the middle of what it does, as a machine whose power fails.
    pub fn cut_power(&mut self) {
        self.power = None;
    }

    /// The user's directory, seen from here.
    #[must_use]
    pub fn home_of_user(&self) -> PathBuf {
        self.root.join("home").join(USER)
    }

    /// What its daemon has said last, for the explanation of a failure.
    #[must_use]
    pub fn explain(&self) -> String {
        let shown = self.ask(
            "whim nodes; whim ps -a; whim log | tail -n 30; journalctl --no-pager -n 40 -u whimd \
             -u whim-evacuate; for file in /var/lib/whim/log/*.guest.log /var/lib/whim/log/*.home.log; do \
             echo \"-- $file\"; tail -n 5 \"$file\"; done",
        );
        match shown {
            Ok(said) => format!("--- {}\n{}{}\n", self.name, said.output, said.errors),
            Err(error) => format!("--- {}: {error}\n", self.name),
        }
    }
}
