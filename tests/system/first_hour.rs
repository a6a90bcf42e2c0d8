//! The commands of `docs/first-hour.md`, as they stand there, on three machines that boot.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use whim_system_tests::container::{Container, USER, Yard};
use whim_system_tests::process::succeed;
use whim_system_tests::{Case, Context, Result, Talk, bail, ensure};

use crate::packages::pack;

const DOCUMENT: &str = "docs/first-hour.md";
const MACHINES: [&str; 3] = ["n1", "n2", "n3"];
/// A block of commands has said its next line within this time, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(900);
const END: &str = "the block has ended";
/// What the document fetches from the distribution, and where its copy is on a machine.
const ARCHIVE: &str = "opt/archive";

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("first_hour::full::commands", |_| {
        let yard = Yard::open()?;
        let package = pack(yard.directory(), "1")?;
        let mut machines = Vec::new();
        for (name, number) in MACHINES.into_iter().zip(1..) {
            let machine = yard.start(name, number)?;
            equip(&yard, &machine, &package)?;
            machines.push(machine);
        }
        let done = commands(&yard, &machines);
        done.with_context(|| machines.iter().map(Container::explain).collect::<String>())
    })]
}

/// What the document takes for granted, and the distribution's programs that it fetches: containers have no way
/// out.
fn equip(yard: &Yard, machine: &Container, package: &Path) -> Result<()> {
    let name = package.file_name().context("The package has no name")?;
    fs::copy(package, machine.home_of_user().join(name))?;
    let archive = machine.root().join(ARCHIVE);
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(yard.archive()).arg(&archive);
    succeed(&mut copy, PATIENCE)?;
    fs::write(
        machine.root().join("etc/apt/sources.list"),
        format!("deb [trusted=yes] file:/{ARCHIVE} ./\n"),
    )?;
    fs::write(
        machine.root().join("etc/sudoers.d/user"),
        format!("{USER} ALL = NOPASSWD: ALL\n"),
    )?;
    let names = MACHINES.into_iter().zip(1..);
    let names = names.map(|(name, number)| format!("{} {name}\n", Yard::address(number)));
    let hosts = format!("127.0.0.1 localhost\n{}", names.collect::<String>());
    fs::write(machine.root().join("etc/hosts"), hosts)?;
    Ok(())
}

/// Commands, and the machines that they are for.
struct Block {
    machines: Vec<String>,
    text: String,
}

/// The blocks that the document's first comment promises to be run.
fn blocks(text: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("\n```sh ") {
        let (machine, after) = after.split_once('\n').context("A block has no lines")?;
        let (block, after) = after.split_once("\n```\n").context("A block has no end")?;
        let machines: Vec<String> = match machine {
            "all" => MACHINES.map(str::to_owned).to_vec(),
            known if MACHINES.contains(&known) => vec![known.to_owned()],
            other => bail!("A block is for {other:?}, which is no machine"),
        };
        let text = format!("{block}\n");
        blocks.push(Block { machines, text });
        rest = after;
    }
    Ok(blocks)
}

/// The users' shells on the machines.
struct Shells<'a> {
    yard: &'a Yard,
    machines: &'a [Container],
    by_machine: HashMap<String, Talk>,
    token: String,
}

impl Shells<'_> {
    fn open(&self, name: &str) -> Result<Talk> {
        let mut machines = self.machines.iter();
        let machine = machines.find(|machine| machine.name == name);
        let (mut command, directory) = machine.context("No such machine")?.shell_of_user()?;
        let errors = self.yard.directory().join(format!("{name}.err"));
        let mut talk = Talk::start_at(directory, errors, &mut command)?.patient(PATIENCE);
        talk.say("exec 2>&1")?;
        Ok(talk)
    }

    fn run(&mut self, machine: &str, text: &str) -> Result<()> {
        if !self.by_machine.contains_key(machine) {
            let shell = self.open(machine)?;
            self.by_machine.insert(machine.to_owned(), shell);
        }
        let shell = self.by_machine.get_mut(machine).context("No shell")?;
        println!("{machine}: {text}");
        // No command may read what is for the shell: what is typed is the token, where it is asked for.
        let typed = if text.contains("whim join") {
            self.token.as_str()
        } else {
            ""
        };
        shell.say(&format!(
            "{{ {text}\n}} <<'TYPED'\n{typed}\nTYPED\necho {END}"
        ))?;
        let mut said = String::new();
        loop {
            let line = shell.line()?;
            if line == END {
                break;
            }
            println!("    {line}");
            said = line;
        }
        if text.contains("whim token") {
            self.token = said;
        }
        Ok(())
    }
}

fn commands(yard: &Yard, machines: &[Container]) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let blocks = blocks(&fs::read_to_string(root.join(DOCUMENT))?)?;
    ensure!(blocks.len() >= 12, "{} blocks", blocks.len());
    let mut shells = Shells {
        yard,
        machines,
        by_machine: HashMap::new(),
        token: String::new(),
    };
    for block in &blocks {
        for machine in &block.machines {
            shells.run(machine, &block.text)?;
        }
    }
    let first = machines.first().context("No machine")?;
    results(&first.home_of_user())?;
    let log = first.run("whim log --json")?;
    let decided = log.matches("\"what\":\"decided\"").count();
    println!("{decided} moves were decided");
    ensure!(decided > 0, "Nothing has moved by itself");
    Ok(())
}

/// All frames are pictures, and each parameter has its line.
fn results(directory: &Path) -> Result<()> {
    let mut frames = 0;
    let mut values = 0;
    for file in fs::read_dir(directory)? {
        let file = file?;
        let name = file.file_name().to_string_lossy().into_owned();
        if name.starts_with("frame") {
            ensure!(
                fs::read(file.path())?.starts_with(b"\x89PNG\r\n"),
                "{name} is no picture"
            );
            frames += 1;
        } else if name.starts_with("sweep.") {
            let text = fs::read_to_string(file.path())?;
            ensure!(text.lines().count() == 1, "{name}: {text:?}");
            values += 1;
        }
    }
    ensure!(
        frames == 24 && values == 24,
        "{frames} frames and {values} values"
    );
    Ok(())
}
