//! Emulated machines (QEMU, by software: slow, and the same everywhere): other kernels and other CPUs than
//! this machine's. `scripts/machines` makes what they start from.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::process::{Running, eventually, succeed};
use crate::{guest, place};

/// Fetching kernels, and making the root.
const MAKE_LIMIT: Duration = Duration::from_secs(600);
/// From power on to the first command.
const BOOT_LIMIT: Duration = Duration::from_secs(240);
/// A usual command.
const PATIENCE: Duration = Duration::from_secs(120);
const MEMORY: &str = "1G";
/// Where a machine that sees the outside is there, and how it calls this machine.
const OUTSIDE: &str = "10.0.2.15";
pub const THIS_MACHINE: &str = "10.0.2.2";

/// What machines start from, and where they meet.
#[derive(Debug)]
pub struct Workshop {
    made: PathBuf,
    /// Short: it holds sockets, whose names are limited.
    directory: PathBuf,
}

/// How a machine is to be.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    pub name: &'a str,
    /// A directory of `scripts/machines`: `debian-12`.
    pub kernel: &'a str,
    /// As QEMU names it.
    pub cpu: &'a str,
    /// The first machine or the second: they see each other as 10.0.0.1 and 10.0.0.2.
    pub number: u8,
    /// A port of this machine's loopback device that leads to the machine's port 7946.
    pub outside: Option<u16>,
}

impl Workshop {
    /// Fetches what is not there yet, and packs the programs under test.
    ///
    /// # Errors
    /// When a program is missing, or the archive cannot be reached.
    pub fn open() -> Result<Self> {
        let made = place::room()?.with_file_name("machines");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/machines");
        succeed(Command::new(script).arg(&made), MAKE_LIMIT)?;
        let directory = std::env::temp_dir().join(format!("whim-machines-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        let workshop = Self { made, directory };
        workshop.pack()?;
        Ok(workshop)
    }

    fn initial(&self) -> PathBuf {
        self.directory.join("initrd")
    }

    /// The root, and behind it what changes from run to run: archives of the kernel's kind follow each
    /// other.
    fn pack(&self) -> Result<()> {
        let own = self.directory.join("own");
        let (programs, guests) = (own.join("opt/whim"), own.join("opt/guests"));
        fs::create_dir_all(&programs)?;
        fs::create_dir_all(&guests)?;
        let built = place::built()?;
        for name in ["whim", "whimd", "whim-home", "whim-guest"] {
            strip(&built.join(name), &programs.join(name))?;
        }
        for name in ["library", "expiry", "in_vdso", "become", "elevate"] {
            strip(&guest::c(name)?, &guests.join(name))?;
        }
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("machines");
        fs::copy(scripts.join("init"), own.join("init"))?;
        for name in ["travel", "users"] {
            fs::copy(scripts.join(name), programs.join(name))?;
        }
        for name in ["hides.py", "watches.py"] {
            fs::copy(guest::source(name), guests.join(name))?;
        }
        for kernel in ["debian-12", "debian-13"] {
            let directory = self.made.join(kernel);
            let release = fs::read_to_string(directory.join("release"))?;
            let module = format!("opt/e1000-{}.ko", release.trim());
            fs::copy(directory.join("e1000.ko"), own.join(module))?;
        }
        fs::copy(self.made.join("root.cpio"), self.initial())?;
        let script = "cd \"$1\" && find . | cpio --quiet -o -H newc -R 0:0 >> \"$2\"";
        let mut append = Command::new("sh");
        append.args(["-c", script, "sh"]);
        append.arg(&own).arg(self.initial());
        succeed(&mut append, PATIENCE)?;
        fs::remove_dir_all(&own)?;
        Ok(())
    }

    /// Starts a machine, and waits until it takes commands.
    ///
    /// # Errors
    /// When it does not start, with what it says on its console.
    pub fn start(&self, plan: Plan<'_>) -> Result<Machine> {
        let place = |what: &str| self.directory.join(format!("{}.{what}", plan.name));
        let wire = |number: u8| self.directory.join(format!("wire-{number}"));
        let (own, other) = (wire(plan.number), wire(3 - plan.number));
        let mut words = format!(
            "-accel tcg -m {MEMORY} -smp 1 -cpu {} -nodefaults -no-reboot -display none \
             -chardev file,id=console,path={} -serial chardev:console \
             -chardev socket,id=agent,path={},server=on,wait=off -serial chardev:agent \
             -netdev dgram,id=inside,local.type=unix,local.path={},remote.type=unix,remote.path={} \
             -device e1000,netdev=inside,mac=52:54:00:00:00:0{}",
            plan.cpu,
            place("console").display(),
            place("agent").display(),
            own.display(),
            other.display(),
            plan.number
        );
        let mut address = format!("10.0.0.{}", plan.number);
        if let Some(port) = plan.outside {
            words.push_str(&format!(
                " -netdev user,id=outside,hostfwd=tcp:127.0.0.1:{port}-{OUTSIDE}:7946 \
                 -device e1000,netdev=outside"
            ));
            address.push_str(&format!(" {OUTSIDE}"));
        }
        let mut command = Command::new("nice");
        command.args(["-n", "19", "qemu-system-x86_64"]);
        command.args(words.split_whitespace());
        command
            .arg("-kernel")
            .arg(self.made.join(plan.kernel).join("vmlinuz"));
        command.arg("-initrd").arg(self.initial());
        command.arg("-append").arg(format!(
            "console=ttyS0 quiet panic=-1 rdinit=/init whim {} {address}",
            plan.name
        ));
        command.stderr(File::create(place("log"))?);
        let running = Running::spawn(&mut command)?;
        let agent = eventually(PATIENCE, "QEMU opens its sockets", || {
            Ok(UnixStream::connect(place("agent")).ok())
        });
        let mut machine = Machine {
            name: plan.name.to_owned(),
            console: place("console"),
            log: place("log"),
            agent: BufReader::new(agent.with_context(|| said(&place("log")))?),
            _running: running,
        };
        let ready = machine.line(BOOT_LIMIT)?;
        let release = fs::read_to_string(self.made.join(plan.kernel).join("release"))?;
        ensure!(
            ready.strip_prefix("ready ") == Some(release.trim()),
            "{} says '{ready}'",
            plan.name
        );
        Ok(machine)
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        if std::env::var_os("WHIM_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

fn strip(from: &Path, to: &Path) -> Result<()> {
    succeed(Command::new("strip").arg("-o").arg(to).arg(from), PATIENCE).map(drop)
}

fn said(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// A machine that runs; dropping it switches it off.
#[derive(Debug)]
pub struct Machine {
    name: String,
    console: PathBuf,
    log: PathBuf,
    agent: BufReader<UnixStream>,
    _running: Running,
}

/// How a command has ended there.
#[derive(Clone, Debug, Default)]
pub struct Said {
    pub status: i32,
    pub output: String,
    pub errors: String,
}

impl Machine {
    fn line(&mut self, limit: Duration) -> Result<String> {
        self.agent.get_ref().set_read_timeout(Some(limit))?;
        let mut line = Vec::new();
        let read = self.agent.read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) || line.pop() != Some(b'\n') {
            bail!(
                "{} says nothing for {limit:?}; its console: {}; QEMU: {}",
                self.name,
                said(&self.console),
                said(&self.log)
            );
        }
        Ok(String::from_utf8_lossy(&line)
            .trim_end_matches('\r')
            .to_owned())
    }

    /// Runs a line of shell there.
    ///
    /// # Errors
    /// When it takes longer than `limit`.
    pub fn ask(&mut self, command: &str, limit: Duration) -> Result<Said> {
        ensure!(!command.contains('\n'), "Not one line: {command}");
        self.agent
            .get_mut()
            .write_all(format!("{command}\n").as_bytes())?;
        let mut said = Said::default();
        loop {
            let line = self.line(limit)?;
            match line.split_at_checked(1) {
                Some(("o", rest)) => said.output.extend([rest, "\n"]),
                Some(("e", rest)) => said.errors.extend([rest, "\n"]),
                Some(("=", rest)) => {
                    said.status = rest.parse().map_err(|_| anyhow!("No status: '{line}'"))?;
                    return Ok(said);
                }
                _ => bail!("{} says '{line}' to '{command}'", self.name),
            }
        }
    }

    /// Runs a line of shell that has to succeed; its output.
    ///
    /// # Errors
    /// When it does not.
    pub fn run(&mut self, command: &str) -> Result<String> {
        let said = self.ask(command, PATIENCE)?;
        ensure!(
            said.status == 0,
            "{}: '{command}' ends with {}: {}{}",
            self.name,
            said.status,
            said.output,
            said.errors
        );
        Ok(said.output)
    }

    /// Starts the daemon, and waits until it answers.
    ///
    /// # Errors
    /// When it does not.
    pub fn start_daemon(&mut self) -> Result<()> {
        self.run("setsid whimd --no-balance >/run/whimd.log 2>&1 & whim --wait 60 nodes >/dev/null")
            .map(drop)
    }

    /// What its daemon has said last, for the explanation of a failure.
    pub fn explain(&mut self) -> String {
        let shown = self.ask(
            "whim nodes; whim ps -a; whim log | tail -n 20; tail -n 20 /run/whimd.log; \
             for file in /var/lib/whim/log/*; do echo \"-- $file\"; tail -n 5 \"$file\"; done",
            PATIENCE,
        );
        match shown {
            Ok(said) => format!("--- {}\n{}{}", self.name, said.output, said.errors),
            Err(error) => format!("--- {}: {error}", self.name),
        }
    }
}
