//! How the programs come to machines beside a package that is copied by hand: a repository for apt, an RPM, and a
//! role of Ansible's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use whim_system_tests::container::{Container, Yard};
use whim_system_tests::process::{eventually, output, succeed};
use whim_system_tests::{Case, Context, Result, ensure, place};

use crate::packages::pack;

/// Stripping and packing, and plays, on a machine that has much else to do.
const LIMIT: Duration = Duration::from_secs(900);
const SOON: Duration = Duration::from_secs(180);
/// The key that signs is of this test alone.
const SIGNER: &str = "repository@example.org";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("distribution::full::apt_repository", |_| apt_repository()),
        Case::new("distribution::full::rpm", |_| rpm()),
        Case::new("distribution::full::ansible", |_| ansible()),
    ]
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A key of gpg's, in a directory of its own, and what `scripts/apt-repo` makes with it.
struct Signer {
    home: PathBuf,
}

impl Signer {
    fn new(yard: &Yard) -> Result<Self> {
        let home = yard.directory().join("keys");
        fs::create_dir_all(&home)?;
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700))?;
        let mut make = Command::new("gpg");
        make.env("GNUPGHOME", &home)
            .args(["--batch", "--quiet", "--passphrase", ""]);
        make.args(["--quick-generate-key", SIGNER, "ed25519", "sign", "never"]);
        succeed(&mut make, LIMIT)?;
        Ok(Self { home })
    }

    fn publish(&self, packages: &Path, repository: &Path) -> Result<()> {
        let mut command = Command::new(checkout().join("scripts/apt-repo"));
        command.env("GNUPGHOME", &self.home);
        command.arg(packages).arg(repository).arg(SIGNER);
        succeed(&mut command, LIMIT).map(drop)
    }
}

impl Drop for Signer {
    /// An agent of gpg's holds the key otherwise, for nobody.
    fn drop(&mut self) {
        let mut end = Command::new("gpgconf");
        end.env("GNUPGHOME", &self.home).args(["--kill", "all"]);
        let _ = output(&mut end, LIMIT);
    }
}

/// A machine installs from a signed repository and upgrades from it, and believes no index that was changed.
fn apt_repository() -> Result<()> {
    let yard = Yard::open()?;
    let signer = Signer::new(&yard)?;
    let machine = yard.start("a", 1)?;
    let repository = machine.root().join("srv/whimbrel");
    fs::create_dir_all(&repository)?;
    let publish = |revision: &str| -> Result<()> {
        let room = yard.directory().join(format!("packages-{revision}"));
        pack(&room, revision)?;
        signer.publish(&room, &repository)
    };
    publish("1")?;
    let source = "deb [signed-by=/srv/whimbrel/whimbrel.gpg] file:/srv/whimbrel stable main";
    let list = "/etc/apt/sources.list.d/whimbrel.list";
    machine.run(&format!(
        "rm -f /etc/apt/sources.list && echo '{source}' >{list}"
    ))?;
    machine
        .run("apt-get update -q && apt-get install --yes -q --no-install-recommends whimbrel")?;
    machine.run("systemctl is-active whimd whim-evacuate && whim --wait 60 nodes")?;
    let version = || machine.run("dpkg-query -W -f '${Version}' whimbrel");
    ensure!(version()?.ends_with("-1"), "It has {}", version()?);
    publish("2")?;
    machine.run("apt-get update -q && apt-get upgrade --yes -q")?;
    ensure!(version()?.ends_with("-2"), "It has {}", version()?);
    let known = machine.run("apt-cache madison whimbrel")?;
    ensure!(
        known.lines().count() == 2,
        "The earlier one is gone: {known}"
    );
    tampered(&machine, &repository)
}

/// Whoever serves the repository cannot put something else into it.
fn tampered(machine: &Container, repository: &Path) -> Result<()> {
    let release = repository.join("dists/stable/InRelease");
    let text = fs::read_to_string(&release)?;
    ensure!(text.contains("Label: Whimbrel"), "{text}");
    fs::write(&release, text.replace("Label: Whimbrel", "Label: Whimbrex"))?;
    let said = machine.ask("apt-get update -q 2>&1")?.output;
    ensure!(
        said.contains("signature") || said.contains("NOSPLIT"),
        "{said}"
    );
    ensure!(
        said.contains("BADSIG") || said.contains("not signed"),
        "{said}"
    );
    Ok(())
}

/// The RPM holds what belongs to it, and a machine that knows of rpm installs it, uses it, and is rid of it. Of the
/// distribution's own packages rpm knows nothing there, so it is told not to ask for them.
fn rpm() -> Result<()> {
    let yard = Yard::open()?;
    let mut command = Command::new(checkout().join("scripts/rpm"));
    command.arg(place::built()?).arg(yard.directory()).arg("1");
    let made = PathBuf::from(succeed(&mut command, LIMIT)?.trim());
    let ask = |what: &str| succeed(Command::new("rpm").args(["-qp", what]).arg(&made), LIMIT);
    let files = ask("--list")?;
    for name in [
        "/usr/bin/whim-guest",
        "whimd.service",
        "whim-migrate.1.gz",
        "/etc/whim/config.toml",
    ] {
        ensure!(files.contains(name), "{name} is not in it: {files}");
    }
    let needs = ask("--requires")?;
    ensure!(
        needs.contains("libc.so.6"),
        "It needs no C library: {needs}"
    );
    let configured = ask("--configfiles")?;
    ensure!(configured.trim() == "/etc/whim/config.toml", "{configured}");
    let machine = yard.start("a", 1)?;
    fs::copy(&made, machine.root().join("root/whimbrel.rpm"))?;
    machine.run("rpm --install --nodeps ~/whimbrel.rpm")?;
    machine.run("systemctl is-enabled whimd whim-evacuate && getent group whim-admin")?;
    machine.run("systemctl is-active whimd whim-evacuate && whim --wait 60 nodes")?;
    machine.run("rpm --erase whimbrel")?;
    let left = machine.run("find /usr /etc -xdev -name 'whim*' -o -xdev -name '_whim'")?;
    ensure!(left.trim().is_empty(), "Something is left: {left}");
    ensure!(
        machine.ask("pgrep -a whim")?.output.is_empty(),
        "The daemon runs on"
    );
    Ok(())
}

/// Three machines become a cluster by one play; the same play once more changes nothing.
fn ansible() -> Result<()> {
    let yard = Yard::open()?;
    let package = pack(yard.directory(), "1")?;
    let machines = [("a", 1), ("b", 2), ("c", 3)].map(|(name, number)| yard.start(name, number));
    let machines = machines.into_iter().collect::<Result<Vec<Container>>>()?;
    write_plays(&yard, &package, &machines)?;
    let done = played(&yard, &machines);
    done.with_context(|| machines.iter().map(Container::explain).collect::<String>())
}

fn played(yard: &Yard, machines: &[Container]) -> Result<()> {
    println!("{}", play(yard)?);
    for machine in machines {
        eventually(SOON, "all know each other", || {
            let rows = machine.run("whim nodes --json")?;
            Ok((rows.matches("\"state\":\"up\"").count() == machines.len()).then_some(()))
        })?;
        machine.run("test ! -e /run/whim-token")?;
    }
    let again = play(yard)?;
    ensure!(
        again.matches("changed=0").count() == machines.len(),
        "{again}"
    );
    let log = machines[0].run("whim log")?;
    ensure!(
        log.matches(" joined").count() == machines.len() - 1,
        "{log}"
    );
    Ok(())
}

/// The inventory, and what Ansible calls in place of ssh: the machines of this test have no network but their own.
fn write_plays(yard: &Yard, package: &Path, machines: &[Container]) -> Result<()> {
    let room = yard.directory();
    let mut ssh = String::from(
        "#!/bin/sh\n# The last two words are the machine and the command; options of ssh mean nothing here.\n\
         while [ $# -gt 2 ]; do shift; done\ncase $1 in\n",
    );
    let mut inventory = String::from("[whimbrel]\n");
    for machine in machines {
        let (address, way) = (machine.address(), machine.way_in()?.join(" "));
        ssh.push_str(&format!("{address}) exec {way} sh -c \"$2\" ;;\n"));
        inventory.push_str(&format!("{} ansible_host={address}\n", machine.name));
    }
    ssh.push_str("esac\n");
    inventory.push_str(&format!(
        "[whimbrel:vars]\nansible_connection=ssh\nansible_ssh_executable={}\n\
         ansible_python_interpreter=/usr/bin/python3\nwhimbrel_package={}\n",
        room.join("ssh").display(),
        package.display(),
    ));
    fs::write(room.join("inventory"), inventory)?;
    fs::write(room.join("ssh"), ssh)?;
    fs::set_permissions(room.join("ssh"), fs::Permissions::from_mode(0o755))?;
    Ok(fs::write(
        room.join("ansible.cfg"),
        "[defaults]\nhost_key_checking = False\n[ssh_connection]\ntransfer_method = piped\npipelining = True\n",
    )?)
}

fn play(yard: &Yard) -> Result<String> {
    let room = yard.directory();
    let mut command = Command::new("ansible-playbook");
    command
        .env("HOME", room)
        .env("ANSIBLE_CONFIG", room.join("ansible.cfg"));
    command.env("LC_ALL", "C.UTF-8");
    command.arg("--inventory").arg(room.join("inventory"));
    command.arg(checkout().join("dist/ansible/site.yml"));
    succeed(&mut command, LIMIT)
}
