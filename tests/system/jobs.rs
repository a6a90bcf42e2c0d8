//! A local user who attacks root's daemon, and root's terminal, by what the environment of her own program
//! says of a job, and by what she says of where it may go.

use std::time::{Duration, Instant};

use whim_attempts::{Attempt, Party};
use whim_system_tests::process;
use whim_system_tests::talk::WAITS;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure};

use crate::line::{SPARE_KIB, peak};

const USER: &str = "nobody";
const PATIENCE: Duration = Duration::from_secs(60);
/// All of them are looked at within this time, on a machine that is loaded, too.
const LOOKED: Duration = Duration::from_secs(20);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, body: fn(&Cluster) -> Result<()>| {
        Case::in_lab(format!("jobs::{name}"), 2, body)
    };
    vec![
        case("of_many_nodes", many_nodes),
        case("with_escapes", escapes),
        case("with_names_without_end", names),
    ]
}

fn tries(what: &str) -> Attempt {
    Attempt::new(Party::LocalUser, what)
}

/// Starts programs, each with a job of its own: all nodes that Slurm can name, or a number of 130 kB; and a
/// child of each.
const MANY: &str = "
import os, subprocess, sys
whim, count = sys.argv[1], int(sys.argv[2])
children = []
for number in range(count):
    job = str(number) if number % 2 else str(number) * (130000 // len(str(number)))
    words = dict(os.environ, SLURM_JOB_ID=job, SLURM_JOB_NODELIST='n[1-65536]')
    script = 'sleep 1000 & echo up; wait'
    child = [whim, 'run', '--', 'sh', '-c', script]
    children.append(subprocess.Popen(child, env=words, stdout=subprocess.PIPE, start_new_session=True))
for child in children:
    assert child.stdout.readline() == b'up\\n'
print('ready', os.getpid(), flush=True)
print(children[0].pid, children[1].pid, flush=True)
sys.stdin.readline()
for child in children:
    os.killpg(child.pid, 9)
";
const COUNT: usize = 100;

fn many_nodes(cluster: &Cluster) -> Result<()> {
    let attempt = tries("fill the daemon's memory by jobs of 65,536 nodes, and numbers of 130 kB");
    let whim = cluster.whim_path().display().to_string();
    let before = peak(cluster)?;
    let words = ["python3", "-c", MANY, &whim, &COUNT.to_string()];
    let mut talk = Talk::start(cluster, &mut cluster.command_as(USER, "n1", &words))?;
    talk.ready()?;
    let pids = talk.line()?;
    let begun = Instant::now();
    let rows = cluster.rows("n1", false)?;
    let took = begun.elapsed();
    let grown = peak(cluster)?.saturating_sub(before);
    println!("{} rows take {took:?} and {grown} KiB", rows.len());
    ensure!(rows.len() == 2 * COUNT, "{} rows", rows.len());
    ensure!(took < LOOKED, "whim ps takes {took:?}");
    ensure!(
        grown < SPARE_KIB,
        "The daemon's memory has grown by {grown} KiB"
    );
    let (numberless, other) = pids.split_once(' ').context("two processes")?;
    let said = cluster.refused("n1", &["migrate", numberless, "n2"])?;
    ensure!(said.contains("it has no other node"), "{said}");
    ensure!(said.len() < 400, "{said}");
    cluster.whim("n1", &["migrate", other, "n2"])?;
    attempt.failed("lists stay as they are written, and such a number is of a job without nodes");
    talk.say("end")?;
    talk.succeed()
}

/// What sets the title of a terminal, clears it, and turns the order of letters around.
const ESCAPES: &str = "17\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}";

fn escapes(cluster: &Cluster) -> Result<()> {
    let attempt = tries("write to root's terminal by the number of a job");
    let whim = cluster.whim_path().display().to_string();
    let job = format!("SLURM_JOB_ID={ESCAPES}");
    let words = ["env", &job, &whim, "run", "--", "python3", "-c", WAITS];
    let mut talk = Talk::start(cluster, &mut cluster.command_as(USER, "n1", &words))?;
    let pid = talk.ready()?.to_string();
    for words in [&["migrate", &pid, "n2"][..], &["why", &pid], &["log"]] {
        let output = process::output(&mut cluster.whim_command("n1", words), PATIENCE)?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let odd = |letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}');
        ensure!(!said.contains(odd), "{said:?}");
        ensure!(!said.contains("owned"), "{said:?}");
        if words[0] == "migrate" {
            ensure!(said.contains("it has no other node"), "{said}");
        }
    }
    attempt.failed("a number has 64 letters of a few kinds, and all answers are made harmless");
    talk.go()?;
    talk.succeed()
}

fn names(cluster: &Cluster) -> Result<()> {
    let attempt = tries("fill the daemon's memory by lists of nodes to avoid, and names of runs");
    let whim = cluster.whim_path().display().to_string();
    let before = peak(cluster)?;
    let many = format!("--avoid={}", vec!["@x"; 10_000].join(","));
    let long = format!("--avoid=@{}", "x".repeat(60_000));
    let run = format!("--run-name={}", "x".repeat(60_000));
    for (option, why) in [
        (many, "--avoid names 10000 nodes and labels"),
        (long, "A name of 60001 bytes"),
        (run, "too long for a run"),
    ] {
        let words = [&whim, "run", &option, "--", "true"];
        let output = process::output(&mut cluster.command_as(USER, "n1", &words), PATIENCE)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && said.contains(why) && said.len() < 300,
            "{said}"
        );
    }
    let grown = peak(cluster)?.saturating_sub(before);
    ensure!(grown < SPARE_KIB, "{grown} KiB");
    attempt.failed("refused by a sentence");
    Ok(())
}
