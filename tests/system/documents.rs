//! The commands of README.md, docs/first-hour.md, docs/administration.md and docs/recipes.md, as they stand there, on
//! three machines that boot. How a document says what is typed where: `documents_reader`.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use whim_system_tests::container::{Container, USER, Yard};
use whim_system_tests::process::{eventually, succeed};
use whim_system_tests::{Case, Context, Result, Talk, bail, ensure};

use crate::documents_reader::{MACHINES, Step, What, Who, knows_where, prompt, steps};
use crate::packages::pack;

const README: &str = "README.md";
const FIRST_HOUR: &str = "docs/first-hour.md";
const ADMINISTRATION: &str = "docs/administration.md";
const RECIPES: &str = "docs/recipes.md";
/// A command has said its next line within this time, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(900);
/// A program has begun, or a machine has heard of something.
const SOON: Duration = Duration::from_secs(180);
const END: &str = "the command has ended";
/// What documents fetch from the distribution, and where its copy is on a machine.
const ARCHIVE: &str = "opt/archive";
/// What is carried from one machine to another.
const STICK: &str = "media/stick";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("documents::the_reader_knows_where", |_| {
            knows_where()?;
            for document in [README, FIRST_HOUR, ADMINISTRATION, RECIPES] {
                let steps = steps(&read(document)?).with_context(|| document.to_owned())?;
                ensure!(steps.len() >= 12, "{document} has {} steps", steps.len());
            }
            Ok(())
        }),
        Case::new("documents::the_readme_says_how_long", |_| says_how_long()),
        Case::new("documents::full::readme", |_| typed(&[], README, moved)),
        Case::new("documents::full::first_hour", |_| {
            typed(&[], FIRST_HOUR, |machines| {
                results(&first(machines)?.home_of_user())?;
                ensure!(
                    count(first(machines)?, "decided")? > 0,
                    "Nothing has moved by itself"
                );
                moved(machines)
            })
        }),
        Case::new("documents::full::administration", |_| {
            typed(&["Install"], ADMINISTRATION, moved)
        }),
        Case::new("documents::full::recipes", |_| {
            typed(&["Install", "Make a cluster"], RECIPES, moved)
        }),
    ]
}

fn read(document: &str) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    Ok(fs::read_to_string(root.join(document))?)
}

/// Whoever tries it out wants to know how long each step takes. What goes on in the background is back at once.
fn says_how_long() -> Result<()> {
    let readme = read(README)?;
    // The blocks stand between the fences.
    let blocks = readme.split("\n```").skip(1).step_by(2);
    let commands = blocks
        .flat_map(str::lines)
        .filter(|line| line.starts_with("make ") || prompt(line).is_some());
    let mut count = 0;
    for line in commands.filter(|line| !line.ends_with('&')) {
        let (_, remark) = line.rsplit_once("# ").unwrap_or_default();
        let times = ["second", "minute", "hour", "at once"];
        let says = times.iter().any(|time| remark.contains(time));
        ensure!(says, "{line:?} does not say how long it takes");
        count += 1;
    }
    ensure!(count >= 19, "The README has {count} steps");
    Ok(())
}

/// Types a document, after these sections of the first hour, which it takes for granted.
fn typed(before: &[&str], document: &str, look: impl Fn(&[Container]) -> Result<()>) -> Result<()> {
    let mut all = steps(&read(FIRST_HOUR)?)?;
    all.retain(|step| before.iter().any(|title| step.section.starts_with(title)));
    all.extend(steps(&read(document)?)?);
    let yard = Yard::open()?;
    let package = pack(yard.directory(), "1")?;
    let mut shells = Shells {
        yard: &yard,
        machines: Vec::new(),
        open: HashMap::new(),
        token: String::new(),
    };
    for (name, number) in MACHINES.into_iter().zip(1..) {
        let machine = yard.start(name, number)?;
        equip(&yard, &machine, &package)?;
        shells.machines.push(machine);
    }
    let done = shells.take(&all).and_then(|()| look(&shells.machines));
    done.with_context(|| {
        let machines = shells.machines.iter();
        machines.map(Container::explain).collect::<String>()
    })
}

/// What the documents take for granted, and the distribution's programs that they fetch: containers have no way out.
fn equip(yard: &Yard, machine: &Container, package: &Path) -> Result<()> {
    let name = package.file_name().context("The package has no name")?;
    fs::copy(package, machine.home_of_user().join(name))?;
    let archive = machine.root().join(ARCHIVE);
    let mut copy = Command::new("cp");
    copy.arg("-rl").arg(yard.archive()).arg(&archive);
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
    fs::create_dir_all(machine.root().join(STICK))?;
    // Nobody needs these machines after a crash.
    fs::write(
        machine.root().join("etc/dpkg/dpkg.cfg.d/unsafe"),
        "force-unsafe-io\n",
    )?;
    Ok(())
}

/// The machines, and the shells on them.
struct Shells<'a> {
    yard: &'a Yard,
    machines: Vec<Container>,
    open: HashMap<(String, Who), Talk>,
    token: String,
}

impl Shells<'_> {
    fn machine(&mut self, name: &str) -> Result<&mut Container> {
        let mut machines = self.machines.iter_mut();
        let machine = machines.find(|machine| machine.name == name);
        machine.with_context(|| format!("There is no machine {name}"))
    }

    fn take(&mut self, steps: &[Step]) -> Result<()> {
        let begun = Instant::now();
        let mut section = "";
        for step in steps {
            if step.section != section {
                section = &step.section;
                println!("{:7.1} s: {section}", begun.elapsed().as_secs_f64());
            }
            let taken = match &step.what {
                What::Happens(what) => self.happens(what),
                What::Typed {
                    machines,
                    who,
                    text,
                } => {
                    let mut machines = machines.iter();
                    machines.try_for_each(|machine| self.run(machine, *who, text))
                }
            };
            taken.with_context(|| format!("{step:?}"))?;
        }
        println!("{:7.1} s in all", begun.elapsed().as_secs_f64());
        Ok(())
    }

    fn happens(&mut self, what: &str) -> Result<()> {
        println!("({what})");
        let words: Vec<&str> = what.split(' ').collect();
        match words[..] {
            [name, "is", "lost"] => {
                self.open.retain(|(machine, _), _| machine != name);
                self.machine(name)?.cut_power();
            }
            [name, "is", "switched", "on"] => self.machine(name)?.switch_on()?,
            [name, "sees", other, "up"] => {
                let machine = self.machine(name)?;
                let up = format!(
                    "NF && $1 == \"{other}\" && $2 == \"up\" {{ found = 1 }} END {{ exit !found }}"
                );
                eventually(SOON, "it is seen", || {
                    let seen = machine.ask(&format!("whim nodes | awk '{up}'"))?;
                    Ok(seen.success.then_some(()))
                })?;
            }
            ["the", "stick", "goes", "from", from, "to", to] => {
                let from = self.machine(from)?.root().join(STICK);
                let to = self.machine(to)?.root().join(STICK);
                let mut carry = Command::new("cp");
                carry.arg("-aT").arg(from).arg(to);
                succeed(&mut carry, PATIENCE)?;
            }
            _ => bail!("Nobody knows how {what:?} is brought about"),
        }
        Ok(())
    }

    fn open(&mut self, name: &str, who: Who) -> Result<Talk> {
        let errors = self.yard.directory().join(format!("{name}-{who:?}.err"));
        let machine = self.machine(name)?;
        let (mut command, directory) = match who {
            Who::User => machine.shell_of_user()?,
            Who::Root => machine.shell_of_root()?,
        };
        let mut talk = Talk::start_at(directory, errors, &mut command)?.patient(PATIENCE);
        talk.say("exec 2>&1")?;
        Ok(talk)
    }

    fn run(&mut self, machine: &str, who: Who, text: &str) -> Result<()> {
        let key = (machine.to_owned(), who);
        if !self.open.contains_key(&key) {
            let shell = self.open(machine, who)?;
            self.open.insert(key.clone(), shell);
        }
        let shell = self.open.get_mut(&key).context("No shell")?;
        println!("{machine}, {who:?}: {text}");
        let begun = Instant::now();
        // No command may read what is for the shell: what is typed is the token, where it is asked for. So no standard
        // input is a terminal, and commands that ask first at one ('whim leave', 'whim remove') ask nobody here.
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
            // What an earlier command has left running may have begun a line before.
            if let Some(of_others) = line.strip_suffix(END) {
                if !of_others.is_empty() {
                    println!("    {of_others}");
                }
                break;
            }
            println!("    {line}");
            said = line;
        }
        println!("    ({:.1} s)", begun.elapsed().as_secs_f64());
        if text.contains("whim token") {
            self.token = said;
        }
        self.see_begun(machine, text)
    }

    /// Whoever starts a program in the background types the next line when it is there.
    fn see_begun(&mut self, machine: &str, text: &str) -> Result<()> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let begins = words.iter().position(|word| *word == "run");
        let (Some(begins), Some(&"&")) = (begins, words.last()) else {
            return Ok(());
        };
        let mut program = words.iter().skip(begins + 1);
        let program = program.find(|word| !word.starts_with('-'));
        let program = program.context("It starts no program")?;
        let machine = self.machine(machine)?;
        eventually(SOON, "the program has begun", || {
            let seen = machine.ask(&format!("pgrep -x {program}"))?;
            Ok(seen.success.then_some(()))
        })
    }
}

fn first(machines: &[Container]) -> Result<&Container> {
    machines.first().context("No machine")
}

/// How often something is in a machine's log.
fn count(machine: &Container, what: &str) -> Result<usize> {
    let log = machine.run("whim log --json")?;
    Ok(log.matches(&format!("\"what\":\"{what}\"")).count())
}

fn moved(machines: &[Container]) -> Result<()> {
    let moves = count(first(machines)?, "moved")?;
    println!("{moves} moves");
    ensure!(moves > 0, "No program has moved");
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
