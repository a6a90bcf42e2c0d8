//! The Debian package on machines that boot: installed, used, upgraded and purged.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use whim_system_tests::container::{Container, USER, Yard};
use whim_system_tests::process::{eventually, succeed};
use whim_system_tests::{Case, Context, Result, bail, ensure, place};

/// Stripping and packing, on a machine that has much else to do.
const PACK_LIMIT: Duration = Duration::from_secs(900);
/// The balancer takes its time: a program has to be a second old, and a node's word some seconds.
const SOON: Duration = Duration::from_secs(180);
/// What is to be done at once.
const SHORT: Duration = Duration::from_secs(60);
/// Steps of the counter for each of its lines.
const STEPS: u64 = 20_000;

/// Prints, five times a second, a number that follows from all before it, until a file says so.
const COUNTER: &str = r#"
$| = 1;
my ($x, $n) = (0, 0);
until (-e "$ARGV[0].stop") {
    $x = ($x * 31 + $_) % 1000003 for 1 .. 20000;
    $n++;
    print "$n $x\n";
    select undef, undef, undef, 0.2;
}
print "end\n";
"#;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("packages::full::three_machines", |_| three_machines()),
        Case::new("packages::install_stays_below_its_prefix", |_| {
            install_stays_below_its_prefix()
        }),
        Case::new("packages::install_says_what_to_do_next", |_| {
            install_says_what_to_do_next()
        }),
        Case::new("packages::guests_inherit_no_filter", |_| {
            guests_inherit_no_filter()
        }),
    ]
}

/// The package, and the one that follows it.
struct Packages {
    first: PathBuf,
    next: PathBuf,
}

/// Packs what is built; the package's path.
pub(crate) fn pack(directory: &Path, revision: &str) -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/deb");
    let mut command = Command::new(script);
    command.arg(place::built()?).arg(directory).arg(revision);
    // Some containers unpack it, and nobody else.
    command.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip");
    command.env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    let said = succeed(&mut command, PACK_LIMIT)?;
    Ok(PathBuf::from(said.trim()))
}

impl Packages {
    fn make(directory: &Path) -> Result<Self> {
        Ok(Self {
            first: pack(directory, "1")?,
            next: pack(directory, "2")?,
        })
    }

    fn hand_to(&self, container: &Container) -> Result<()> {
        for (from, name) in [(&self.first, "first.deb"), (&self.next, "next.deb")] {
            fs::copy(from, container.root().join("root").join(name))?;
        }
        fs::write(container.home_of_user().join("count.pl"), COUNTER)?;
        Ok(())
    }
}

/// What is to be found on a machine, as far as a package has a hand in it.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    files: BTreeSet<String>,
    accounts: String,
}

impl Found {
    fn on(container: &Container) -> Result<Self> {
        // Logs of the system and what it notes about itself are no part of the package.
        let script = "find / /run -xdev \\( -path /home -o -path /var/log/journal -o -path /run/systemd \
             -o -path /run/user -o -path /run/credentials -o -path /run/dbus -o -path /run/log \
             -o -path /tmp -o -path /proc \\) -prune -o -print";
        let listed = container.run(script)?;
        Ok(Self {
            files: listed.lines().map(str::to_owned).collect(),
            accounts: container.run("cat /etc/passwd /etc/group /etc/shadow /etc/gshadow")?,
        })
    }
}

/// `make install PREFIX=DIR` wrote below /etc, too, and installed what only debuggers need.
fn install_stays_below_its_prefix() -> Result<()> {
    let built = place::built()?;
    let room = place::room()?.join(format!("install-{}", std::process::id()));
    let generated = room.join("generated");
    for kind in ["man", "completions"] {
        let mut command = Command::new(built.join("whim"));
        command.args(["generate", kind]).arg(generated.join(kind));
        succeed(&mut command, SHORT)?;
    }
    let done = installed(&built, &generated, &room);
    fs::remove_dir_all(&room)?;
    done
}

fn installed(built: &Path, generated: &Path, room: &Path) -> Result<()> {
    for (system, outside) in [("no", Vec::new()), ("yes", vec!["etc"])] {
        let stage = room.join(system);
        let mut make = Command::new("make");
        make.args(["-s", "-C"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        make.args([
            "install-files",
            "PREFIX=/opt/whim",
            &format!("SYSTEM={system}"),
        ]);
        for (variable, path) in [
            ("DESTDIR", stage.as_path()),
            ("BUILT", built),
            ("GENERATED", generated),
        ] {
            make.arg(format!("{variable}={}", path.display()));
        }
        succeed(&mut make, SHORT)?;
        let mut above: Vec<String> = Vec::new();
        for entry in fs::read_dir(&stage)? {
            above.push(entry?.file_name().to_string_lossy().into_owned());
        }
        above.retain(|name| name != "opt");
        ensure!(above == outside, "SYSTEM={system} installs {above:?}");
        let program = stage.join("opt/whim/bin/whim");
        let (is, was) = (
            fs::metadata(&program)?.len(),
            fs::metadata(built.join("whim"))?.len(),
        );
        ensure!(is < was, "{is} bytes of {was} are installed");
        succeed(Command::new(&program).arg("--version"), SHORT)?;
    }
    Ok(())
}

/// What comes next, where programs are not on the path or the service manager does not look for the unit.
fn install_says_what_to_do_next() -> Result<()> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let makefile = fs::read_to_string(checkout.join("Makefile"))?;
    let (_, install) = makefile
        .split_once("\ninstall: ")
        .context("There is nothing to install")?;
    let (install, _) = install.split_once("\n\n").context("It has an end")?;
    ensure!(
        install.contains("@dist/say-next \"$(PREFIX)\" \"$(SYSTEM)\""),
        "'make install' says nothing at its end: {install}"
    );
    let next = |prefix: &str, system: &str| {
        let mut command = Command::new(checkout.join("dist/say-next"));
        command.args([prefix, system]);
        succeed(command.env("PATH", "/usr/local/bin:/usr/bin:/bin"), SHORT)
    };
    let here = next("/usr/local", "yes")?;
    let (path, unit) = ("PATH=/opt/whim/bin:$PATH", "systemctl link /opt/whim/lib");
    for always in ["whim lab up", "enable --now whimd", "whim doctor"] {
        ensure!(here.contains(always), "{always:?} is not in {here}");
    }
    ensure!(!here.contains("PATH=") && !here.contains("link"), "{here}");
    ensure!(!here.contains("SYSTEM=yes"), "{here}");
    let elsewhere = next("/opt/whim", "no")?;
    for more in [path, unit, "Nothing else was changed. With SYSTEM=yes"] {
        ensure!(elsewhere.contains(more), "{more:?} is not in {elsewhere}");
    }
    Ok(())
}

/// Guests inherit what the service manager does to the daemon: a filter of system calls ended each that had
/// waited in a call when it was moved, since the number by which it asks for that call's result is none of the
/// kernel's, and a mount namespace would hide files from programs at home.
fn guests_inherit_no_filter() -> Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist");
    for name in ["whimd.service", "whimd-user.service"] {
        let unit = fs::read_to_string(directory.join(name))?;
        let settings = unit.lines().filter(|line| !line.starts_with('#'));
        for line in settings {
            let filters = [
                "SystemCall",
                "Restrict",
                "Protect",
                "Private",
                "MemoryDeny",
                "Lock",
            ];
            let filters = filters.iter().any(|word| line.starts_with(word));
            ensure!(!filters, "{name}: {line}");
        }
    }
    Ok(())
}

/// Three machines get the package, make a cluster and use it, one goes down, two are upgraded, and nothing of
/// it is left in the end.
fn three_machines() -> Result<()> {
    let yard = Yard::open()?;
    let packages = Packages::make(yard.directory())?;
    let mut machines = Vec::new();
    for (name, number) in [("a", 1), ("b", 2), ("c", 3)] {
        let machine = yard.start(name, number)?;
        packages.hand_to(&machine)?;
        machines.push(machine);
    }
    let done = live(&mut machines);
    done.with_context(|| machines.iter().map(Container::explain).collect::<String>())
}

fn live(machines: &mut [Container]) -> Result<()> {
    let [a, b, c] = machines else {
        bail!("There are not three machines");
    };
    let before = (Found::on(a)?, Found::on(c)?);
    for machine in [&*a, &*b, &*c] {
        install(machine)?;
    }
    make_cluster(a, &[b, c])?;
    println!("the cluster is there");
    balances(a)?;
    println!("a hog was moved");
    upgrade(a, b)?;
    println!("upgraded");
    keeps_the_earlier(c)?;
    println!("not upgraded with a configuration that is not valid");
    power_off(a, b)?;
    println!("a machine has gone down and come again");
    refuses_to_go(a, c)?;
    println!("a guest that cannot leave has kept the package");
    leave(a, b, c)?;
    println!("purged");
    for (machine, before) in [(&*a, before.0), (&*c, before.1)] {
        nothing_is_left(machine, &before)?;
    }
    Ok(())
}

fn install(machine: &Container) -> Result<()> {
    machine.run("dpkg -i ~/first.deb")?;
    machine.run("systemctl is-enabled whimd whim-evacuate")?;
    machine.run("systemctl is-active whimd whim-evacuate")?;
    machine.run("getent group whim-admin")?;
    machine.run("whim config check")?;
    let doctor = machine.ask("whim doctor")?.output;
    ensure!(!doctor.contains("under a filter"), "{doctor}");
    machine.run("zcat /usr/share/man/man1/whim-migrate.1.gz | grep -q migrate")?;
    let options = machine.run("whim --wait 30 nodes --json && journalctl -u whimd -o cat")?;
    ensure!(
        options.contains(" ready "),
        "The journal has no word of the daemon: {options}"
    );
    let refused = machine.run_as_user("whim tune && ! whim tune balance.fair true 2>&1")?;
    ensure!(
        refused.contains("balance.fair") && refused.contains("only root or a member of whim-admin"),
        "{refused}"
    );
    let changed = machine.run("whim tune balance.fair true && whim tune balance.fair false")?;
    ensure!(changed.contains("balance.fair is true now"), "{changed}");
    Ok(())
}

fn make_cluster(first: &Container, others: &[&mut Container]) -> Result<()> {
    first.run(&format!("whim init --advertise {}:7946", first.address()))?;
    for other in others {
        let token = first.run("whim token")?;
        let (token, at) = (token.trim(), other.address());
        other.run(&format!(
            "umask 077 && echo {token} >/run/token && \
             whim join {} --token-file /run/token --advertise {at}:7946 && rm /run/token",
            first.address()
        ))?;
    }
    let count = others.len() + 1;
    for machine in std::iter::once(first).chain(others.iter().map(|other| &**other)) {
        eventually(SOON, "all know each other", || {
            let rows = machine.run("whim nodes --json")?;
            Ok((rows.matches("\"state\":\"up\"").count() == count).then_some(()))
        })?;
    }
    Ok(())
}

/// The row of a process, as its home shows it to root.
fn row(home: &Container, pid: &str) -> Result<Option<Value>> {
    let number: i64 = pid.parse()?;
    let said = home.run("whim ps --all --json")?;
    for line in said.lines() {
        let row: Value = serde_json::from_str(line)?;
        if row["pid"] == number && row["home"] == home.name {
            return Ok(Some(row));
        }
    }
    Ok(None)
}

fn is_on(home: &Container, pid: &str, node: &str) -> Result<bool> {
    let row = row(home, pid)?.with_context(|| format!("{} has no process {pid}", home.name))?;
    Ok(row["where"] == node)
}

/// Starts a program of the user that may move; its pid.
fn start(home: &Container, command: &str, output: &str) -> Result<String> {
    let pid = home.run_as_user(&format!("whim run -- {command} >{output} 2>&1 & echo $!"))?;
    let pid = pid.trim().to_owned();
    eventually(SOON, "the program is known", || row(home, &pid))?;
    Ok(pid)
}

/// More programs than CPUs on one machine: one goes to another by itself.
fn balances(home: &Container) -> Result<()> {
    let cpus: usize = home.run("nproc")?.trim().parse()?;
    let mut hogs = Vec::new();
    for _ in 0..cpus + 2 {
        hogs.push(start(home, "perl -e \"1 while 1\"", "/dev/null")?);
    }
    eventually(
        SOON,
        "a program goes where there is less to wait for",
        || {
            let mut away = Vec::new();
            for hog in &hogs {
                away.push(!is_on(home, hog, &home.name)?);
            }
            Ok(away.contains(&true).then_some(()))
        },
    )?;
    let log = home.run("whim log --json")?;
    ensure!(log.contains("\"decided\""), "Nothing was decided: {log}");
    home.run(&format!("kill {}", hogs.join(" ")))?;
    eventually(SOON, "their guests have ended", || {
        let rows = home.run("whim ps --json")?;
        Ok((!rows.contains("1 while 1")).then_some(()))
    })
}

/// A counter whose output is looked at.
struct Counter<'a> {
    home: &'a Container,
    pid: String,
    name: &'static str,
}

impl<'a> Counter<'a> {
    fn start(home: &'a Container, name: &'static str) -> Result<Self> {
        let pid = start(home, &format!("perl count.pl {name}"), name)?;
        let counter = Self { home, pid, name };
        counter.goes_on()?;
        Ok(counter)
    }

    fn output(&self) -> Result<String> {
        let path = self.home.home_of_user().join(self.name);
        Ok(fs::read_to_string(path)?)
    }

    fn goes_on(&self) -> Result<()> {
        let before = self.output()?.len();
        eventually(SOON, "the program goes on", || {
            Ok((self.output()?.len() > before).then_some(()))
        })
    }

    fn migrate(&self, node: &str) -> Result<()> {
        let Self { home, pid, .. } = self;
        home.run(&format!("whim migrate {pid} {node}"))?;
        let there = if node == "home" { &home.name } else { node };
        ensure!(is_on(home, pid, there)?, "It is not on {node}");
        self.goes_on()
    }

    /// Ends it, and looks whether each line is there, and is right.
    fn end(self) -> Result<()> {
        self.home
            .run(&format!("touch ~{USER}/{}.stop", self.name))?;
        let text = eventually(SOON, "the program ends", || {
            let text = self.output()?;
            Ok(text.ends_with("end\n").then_some(text))
        })?;
        let mut x = 0;
        let mut expected = String::new();
        for n in 1..text.lines().count() {
            for step in 1..=STEPS {
                x = (x * 31 + step) % 1_000_003;
            }
            expected.push_str(&format!("{n} {x}\n"));
        }
        expected.push_str("end\n");
        ensure!(text == expected, "The output is not what it should be");
        println!("{}: {} lines are right", self.name, text.lines().count());
        Ok(())
    }
}

fn daemon_of(machine: &Container) -> Result<String> {
    machine.run("systemctl show --value -p MainPID whimd")
}

/// Both sides of a moved program are upgraded: it is where it was, and so is its supervisor.
fn upgrade(home: &Container, host: &Container) -> Result<()> {
    let counter = Counter::start(home, "upgraded")?;
    counter.migrate(&host.name)?;
    let of_guest = |row: Option<Value>| {
        row.map(|row| (row["guest_supervisor_pid"].clone(), row["moves"].clone()))
    };
    let before = of_guest(row(home, &counter.pid)?);
    home.run("sed -i '1i labels = [\"kept\"]' /etc/whim/config.toml")?;
    for machine in [host, home] {
        let daemon = daemon_of(machine)?;
        machine.run("dpkg -i ~/next.deb")?;
        machine.run("systemctl is-active whimd whim-evacuate && whim --wait 60 nodes")?;
        ensure!(
            daemon != daemon_of(machine)?,
            "{}: the daemon is the earlier one",
            machine.name
        );
        counter.goes_on()?;
    }
    eventually(SOON, "the new daemons know where it is", || {
        let now = row(home, &counter.pid)?;
        Ok(now.filter(|row| row["where"] == host.name && row["state"] == "away"))
    })?;
    ensure!(
        of_guest(row(home, &counter.pid)?) == before,
        "It was moved, or has another supervisor than before: {before:?}"
    );
    let version = home.run("dpkg-query -W -f '${Version}' whimbrel")?;
    ensure!(version.ends_with("-2"), "The version is {version}");
    let nodes = home.run("whim nodes --json")?;
    ensure!(
        nodes.contains("\"kept\""),
        "The configuration is not read: {nodes}"
    );
    counter.migrate("home")?;
    counter.end()
}

/// A daemon that could not start with the configuration as it is does not replace one that runs.
fn keeps_the_earlier(machine: &Container) -> Result<()> {
    let daemon = daemon_of(machine)?;
    machine.run("sed -i '1i colour = \"blue\"' /etc/whim/config.toml")?;
    let said = machine.ask("dpkg -i ~/next.deb")?;
    ensure!(
        said.success
            && said
                .errors
                .contains("/etc/whim/config.toml is not valid: line 1: ")
            && said
                .errors
                .contains("the daemon of the earlier version goes on"),
        "{said:?}"
    );
    ensure!(daemon == daemon_of(machine)?, "The daemon is another one");
    machine.run("whim nodes")?;
    machine.run(
        "sed -i 1d /etc/whim/config.toml && systemctl restart whimd && whim --wait 60 nodes",
    )?;
    Ok(())
}

/// A host is switched off as its administrator does it: its guest has left before. It comes again as a node of
/// its cluster.
fn power_off(home: &Container, host: &mut Container) -> Result<()> {
    let counter = Counter::start(home, "spared")?;
    counter.migrate(&host.name)?;
    // The answer may be lost with the machine.
    let _ = host.ask("systemctl poweroff");
    host.wait_off()?;
    ensure!(
        !is_on(home, &counter.pid, &host.name)?,
        "It is on a machine that is off"
    );
    counter.goes_on()?;
    host.switch_on()?;
    host.run("systemctl is-active whimd whim-evacuate")?;
    let said = host.run("journalctl --no-pager -o cat -u whim-evacuate")?;
    println!("{said}");
    eventually(SOON, "it takes guests again", || {
        let moved = home.ask(&format!("whim migrate {} {}", counter.pid, host.name))?;
        Ok(moved.success.then_some(()))
    })?;
    counter.end()
}

/// A guest that cannot leave, since the daemon of its home is stopped, keeps the package where it is.
fn refuses_to_go(home: &Container, host: &Container) -> Result<()> {
    let counter = Counter::start(home, "kept")?;
    counter.migrate(&host.name)?;
    home.run("systemctl stop whimd")?;
    let script = "/var/lib/dpkg/info/whimbrel.prerm";
    host.run(&format!("sed -i.kept s/^limit=.*/limit=3/ {script}"))?;
    let said = host.ask("dpkg --remove whimbrel")?;
    host.run(&format!("mv {script}.kept {script}"))?;
    ensure!(
        !said.success && said.errors.contains("remove the package later"),
        "{said:?}"
    );
    counter.goes_on()?;
    host.run("systemctl is-active whimd whim-evacuate")?;
    // It is still wanted to go, and is whole.
    let status = host.run("dpkg-query -W -f '${Status}' whimbrel")?;
    ensure!(status == "deinstall ok installed", "{status}");
    home.run("systemctl start whimd && whim --wait 60 nodes")?;
    eventually(SOON, "its home knows where it is", || {
        Ok(is_on(home, &counter.pid, &host.name)?.then_some(()))
    })?;
    eventually(SOON, "guests are admitted again", || {
        let rows = host.run("whim nodes --json")?;
        Ok((!rows.contains("\"blocked\":true")).then_some(()))
    })?;
    counter.end()
}

/// The package is purged where a guest is, and where a program is that is away.
fn leave(home: &Container, host: &Container, leaving: &Container) -> Result<()> {
    let counter = Counter::start(home, "left")?;
    counter.migrate(&leaving.name)?;
    leaving.run("dpkg --purge whimbrel")?;
    ensure!(
        !is_on(home, &counter.pid, &leaving.name)?,
        "It is on a machine without the package"
    );
    counter.goes_on()?;
    // It went home, or to where there was less to wait for.
    if !is_on(home, &counter.pid, &host.name)? {
        counter.migrate(&host.name)?;
    }
    home.run("dpkg --purge whimbrel")?;
    // Without anything of ours it goes on, at home.
    counter.goes_on()?;
    let guests = host.run("whim ps --all --json")?;
    ensure!(
        !guests.contains("\"state\":\"away\""),
        "A guest is left: {guests}"
    );
    counter.end()
}

fn nothing_is_left(machine: &Container, before: &Found) -> Result<()> {
    let after = Found::on(machine)?;
    let left: Vec<&String> = after.files.difference(&before.files).collect();
    let lost: Vec<&String> = before.files.difference(&after.files).collect();
    ensure!(
        left.is_empty() && lost.is_empty(),
        "{}: left: {left:#?}, lost: {lost:#?}",
        machine.name
    );
    ensure!(
        after.accounts == before.accounts,
        "{}: the accounts are {}, they were {}",
        machine.name,
        after.accounts,
        before.accounts
    );
    let running = machine.ask("pgrep -a whim")?.output;
    ensure!(running.is_empty(), "{}: {running}", machine.name);
    let groups = machine.run("find /sys/fs/cgroup -name 'whim*'")?;
    ensure!(groups.is_empty(), "{}: {groups}", machine.name);
    let units = machine.run("systemctl list-units --all --no-legend 'whim*'")?;
    ensure!(units.is_empty(), "{}: {units}", machine.name);
    Ok(())
}
