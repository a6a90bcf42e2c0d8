//! The commands of `docs/first-hour.md`, as they stand there, in a lab.
//!
//! What a lab does not have is left out: packages and the service manager. Its machines have no names, so the
//! first one is called by its address, and its user is root.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use whim_system_tests::{Case, Cluster, Context, Result, Talk, bail, ensure};

const DOCUMENT: &str = "docs/first-hour.md";
const MACHINES: [&str; 3] = ["n1", "n2", "n3"];
/// Where n1 is in a lab.
const FIRST: &str = "10.99.0.1";
/// Begin lines of what a lab does not have.
const NOT_HERE: [&str; 2] = ["sudo apt-get", "sudo systemctl"];
/// A block of commands has ended within this time, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(600);
const END: &str = "the block has ended";

pub fn cases() -> Vec<Case> {
    vec![Case::new("first_hour::full::commands", |_| {
        let cluster = Cluster::balancing(3, &["--cpu", "0.5", "--no-cluster"])?;
        cluster.explaining(|| {
            // That of real machines: a lab's is for tests of losses, on a machine that does nothing else.
            for machine in MACHINES {
                cluster.configure(machine, "lease = 30\n")?;
                cluster.restart_daemon(machine)?;
            }
            commands(&cluster)
        })
    })]
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

/// The shells of the machines.
struct Shells<'a> {
    cluster: &'a Cluster,
    by_machine: HashMap<String, Talk>,
    token: String,
}

impl Shells<'_> {
    fn run(&mut self, machine: &str, text: &str) -> Result<()> {
        if !self.by_machine.contains_key(machine) {
            let mut command = self.cluster.command(machine, &["sh", "-e"]);
            let mut talk = Talk::start_in(self.cluster, machine, &mut command)?.patient(PATIENCE);
            let programs = self.cluster.whim_path();
            let programs = programs.parent().context("whim lies nowhere")?.display();
            talk.say(&format!(
                "PATH={programs}:$PATH; sudo() {{ \"$@\"; }}; exec 2>&1"
            ))?;
            self.by_machine.insert(machine.to_owned(), talk);
        }
        let shell = self.by_machine.get_mut(machine).context("No shell")?;
        let is_here = |line: &&str| !NOT_HERE.iter().any(|begins| line.starts_with(begins));
        let lines: Vec<&str> = text.lines().filter(is_here).collect();
        let lines = lines.join("\n").replace("TOKEN", &self.token);
        let lines = lines.replace("join n1 ", &format!("join {FIRST} "));
        println!("{machine}: {lines}");
        shell.say(&format!("{lines}\necho {END}"))?;
        let mut said = String::new();
        loop {
            let line = shell.line()?;
            if line == END {
                break;
            }
            println!("    {line}");
            said = line;
        }
        if lines.contains("whim token") {
            self.token = said;
        }
        Ok(())
    }
}

fn commands(cluster: &Cluster) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = std::fs::read_to_string(root.join(DOCUMENT))?;
    let blocks = blocks(&text)?;
    ensure!(blocks.len() >= 12, "{} blocks", blocks.len());
    let renders = cluster
        .run("n1", &["sh", "-c", "command -v povray || true"])
        .map(|path| !path.trim().is_empty())?;
    let mut shells = Shells {
        cluster,
        by_machine: HashMap::new(),
        token: String::new(),
    };
    for block in &blocks {
        if block.text.contains(" povray +I") && !renders {
            println!("left out, there is no povray here: {}", block.text);
            continue;
        }
        for machine in &block.machines {
            shells.run(machine, &block.text)?;
        }
    }
    let shell = &shells.by_machine["n1"];
    let results = std::fs::read_dir(shell.directory())?.flatten();
    let results = results.filter(|file| file.file_name().to_string_lossy().starts_with("sweep."));
    let results = results.map(|file| std::fs::read_to_string(file.path()));
    let results: Vec<String> = results.collect::<std::io::Result<_>>()?;
    ensure!(
        results.len() == 24 && results.iter().all(|text| text.lines().count() == 1),
        "{results:?}"
    );
    let log = cluster.log()?;
    let decided = log.iter().filter(|row| row["what"] == "decided").count();
    println!("{decided} moves were decided");
    ensure!(decided > 0, "Nothing has moved by itself");
    Ok(())
}
