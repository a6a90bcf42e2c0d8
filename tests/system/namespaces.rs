//! Programs in namespaces of their own: each kind, and pid namespaces within each other. They see the same
//! wherever they compute, and their processes move each for itself.

use std::time::Duration;

use whim_system_tests::{
    Case, Cluster, Context, Result, Talk, bail, ensure, guest, process::eventually,
};

/// The processes of `nests`, and the node on which each computes in each round.
const PROCESSES: &[&str] = &["A", "B", "C", "D"];
const ROUNDS: &[[&str; 4]] = &[
    ["n2", "n3", "n2", "n3"],
    ["n3", "n2", "n2", "n3"],
    ["home", "home", "home", "home"],
];
/// Round trips of them all.
const TRIPS: usize = 20;
const LISTED_WITHIN: Duration = Duration::from_secs(20);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("namespaces::nested", 3, nested),
        Case::in_lab("namespaces::full::nested_trips", 3, trips),
        Case::in_lab("namespaces::ends_of_first_processes", 3, ends),
        Case::in_lab("namespaces::a_program_as_people_start_it", 2, by_hand),
        Case::in_lab("namespaces::each_kind", 3, each_kind),
        Case::in_lab("namespaces::each_kind_entered_away", 3, entered_away),
        Case::in_lab("namespaces::stops_in_a_user_namespace", 2, stops),
    ]
}

/// The tree of `nests`.
struct Nests {
    talk: Talk,
    /// As n1 knows them; none where nobody moves them.
    pids: Vec<i32>,
}

fn children(cluster: &Cluster, pid: i32) -> Result<Vec<i32>> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = cluster.run("n1", &["cat", &path])?;
    let words = text.split_whitespace();
    Ok(words.filter_map(|word| word.parse().ok()).collect())
}

impl Nests {
    fn start(cluster: &Cluster, moved: bool) -> Result<Self> {
        let program = guest::c("nests")?.display().to_string();
        let mut command = if moved {
            cluster.run_command("n1", &[&program])
        } else {
            cluster.command("n1", &[&program])
        };
        let mut talk = Talk::start(cluster, &mut command)?;
        let main = talk.ready()?;
        let pids = if moved {
            eventually(LISTED_WITHIN, "the tree of processes", || {
                let a = children(cluster, main)?;
                let b = match a.as_slice() {
                    [a] => children(cluster, *a)?,
                    _ => return Ok(None),
                };
                let Some(innermost) = b.last() else {
                    return Ok(None);
                };
                let below = children(cluster, *innermost)?;
                let all = [a, b, below].concat();
                Ok((all.len() == PROCESSES.len()).then_some(all))
            })?
        } else {
            Vec::new()
        };
        Ok(Self { talk, pids })
    }

    fn move_all(&self, cluster: &Cluster, round: &[&str; 4]) -> Result<()> {
        for ((pid, name), node) in self.pids.iter().zip(PROCESSES).zip(round) {
            cluster
                .have_on(*pid, node)
                .with_context(|| format!("{name} to {node}"))?;
        }
        Ok(())
    }

    /// What they answer to these lines.
    fn ask(&mut self, lines: &[&str]) -> Result<Vec<String>> {
        let mut answers = Vec::new();
        for line in lines {
            self.talk.say(line)?;
            answers.push(self.talk.line()?);
        }
        Ok(answers)
    }
}

/// What is asked at each place: numbers, owners of mutexes, signals among each other, a thread's timer, and those that the
/// kernel keeps from the first process of a namespace.
const QUESTIONS: &[&str] = &[
    "A tell",
    "B tell",
    "C tell",
    "D tell",
    "B kill 2 10",
    "C got",
    "D kill 1 10",
    "B got",
    "C kill 3 10",
    "D got",
    "D timer",
    "C kill 1 15",
    "D kill 1 19",
    "C kill 1 9",
    "B raise 15",
    "B kill 1 9",
    "B kill 1 1",
    "A raise 6",
    // Nobody has this number. Smaller ones are threads', by turns, in an order that nobody sets.
    "A kill 4000000 15",
    "C orphan",
    "B wait -1",
    "B tell",
];

const END: &[&str] = &["C exit 8", "D exit 7", "B exit 9", "A exit 10"];

/// Lets them end, each where it is, and hears what their parents see of it.
fn end(nests: &mut Nests) -> Result<Vec<String>> {
    let mut answers = Vec::new();
    for (line, parent) in END.iter().zip(["B wait 2", "B wait 3", "A wait 3", "M"]) {
        nests.talk.say(line)?;
        answers.extend(nests.ask(&[parent])?);
    }
    nests.talk.succeed()?;
    Ok(answers)
}

fn compare(place: &str, said: &[String], expected: &[String]) -> Result<()> {
    for (said, expected) in said.iter().zip(expected) {
        println!("{place}: {said}");
        ensure!(
            said == expected,
            "{place}:\n{said}\n instead of\n{expected}"
        );
    }
    ensure!(said.len() == expected.len(), "{place}: {said:?}");
    Ok(())
}

/// What they say where nobody moves them, at each place and in the end.
fn at_rest(cluster: &Cluster) -> Result<(Vec<String>, Vec<String>)> {
    let mut nests = Nests::start(cluster, false)?;
    let answers = nests.ask(QUESTIONS)?;
    Ok((answers, end(&mut nests)?))
}

fn nested(cluster: &Cluster) -> Result<()> {
    let (expected, ends) = at_rest(cluster)?;
    let mut nests = Nests::start(cluster, true)?;
    for round in ROUNDS {
        nests.move_all(cluster, round)?;
        let said = nests.ask(QUESTIONS)?;
        compare(&round.join(" "), &said, &expected)?;
        for (pid, node) in nests.pids.iter().zip(round) {
            let row = cluster.row(*pid)?.context("its row")?;
            println!("{} {} {}", row.pid, row.place, row.command);
            // A question may have brought it home (an orphan's parent forks there), but nowhere else.
            let home = row.place == "n1";
            ensure!(home || row.place == *node, "{pid} is on {}", row.place);
        }
    }
    nests.move_all(cluster, &ROUNDS[0])?;
    compare("end", &end(&mut nests)?, &ends)
}

/// The three processes of the inner namespace go out, onward and home, again and again.
fn trips(cluster: &Cluster) -> Result<()> {
    let (expected, ends) = at_rest(cluster)?;
    let mut nests = Nests::start(cluster, true)?;
    for trip in 0..TRIPS {
        for round in ROUNDS {
            nests.move_all(cluster, round)?;
            let said = nests.ask(QUESTIONS)?;
            compare(&format!("{trip}: {}", round.join(" ")), &said, &expected)?;
        }
        println!("trip {trip} of {TRIPS}");
    }
    compare("end", &end(&mut nests)?, &ends)
}

/// A fault of a namespace's first process ends it, and with it all others there, wherever they are.
fn ends(cluster: &Cluster) -> Result<()> {
    let lines = ["A tell", "B tell", "C tell"];
    let ended = |nests: &mut Nests| -> Result<Vec<String>> {
        let mut answers = nests.ask(&lines)?;
        nests.talk.say("B fault")?;
        answers.extend(nests.ask(&["A wait 3"])?);
        nests.talk.say("A exit 10")?;
        answers.extend(nests.ask(&["M"])?);
        nests.talk.succeed()?;
        Ok(answers)
    };
    let expected = ended(&mut Nests::start(cluster, false)?)?;
    let mut nests = Nests::start(cluster, true)?;
    nests.move_all(cluster, &ROUNDS[0])?;
    compare("away", &ended(&mut nests)?, &expected)
}

/// `unshare --pid --fork --mount-proc`: a program that sees a `/proc` of its namespace alone.
fn by_hand(cluster: &Cluster) -> Result<()> {
    let script = "while read -r word; do echo $word $$ $(ls -d /proc/$$) \
                  $(cut -d' ' -f1 /proc/self/stat) $(cat /proc/1/comm); done";
    let words = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c"];
    let words = [&words[..], &[script]].concat();
    let at_rest = {
        let mut talk = Talk::start(cluster, &mut cluster.command("n1", &words))?;
        talk.say("here")?;
        talk.line()?
    };
    let mut talk = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    talk.say("here")?;
    talk.line()?;
    let pid = eventually(LISTED_WITHIN, "the shell in `whim ps`", || {
        let rows = cluster.rows("n1", false)?;
        let found = rows.iter().find(|row| row.command.starts_with("sh -c"));
        Ok(found.map(|row| row.pid))
    })?;
    let status = cluster.run("n1", &["cat", &format!("/proc/{pid}/status")])?;
    let numbers = status.lines().find(|line| line.starts_with("NSpid:"));
    println!("{numbers:?}");
    ensure!(numbers.is_some_and(|numbers| numbers.ends_with("\t1")));
    for node in ["n2", "home", "n2"] {
        cluster.have_on(pid, node)?;
        let row = cluster.row(pid)?.context("its row")?;
        let place = if node == "home" { "n1" } else { node };
        ensure!(row.place == place, "{row:?}");
        let why = cluster.whim("n1", &["why", &pid.to_string()])?;
        println!("{why}");
        ensure!(why.contains(&pid.to_string()), "{why}");
        talk.say("here")?;
        let line = talk.line()?;
        // The numbers of the commands that it starts go up.
        let without = |line: &str| -> Vec<String> {
            let words = line.split(' ').enumerate();
            words
                .filter(|(index, _)| *index != 3)
                .map(|(_, word)| word.to_owned())
                .collect()
        };
        println!("{node}: {line}");
        ensure!(
            without(&line) == without(&at_rest),
            "{line} instead of {at_rest}"
        );
    }
    Ok(())
}

const KINDS: &[&str] = &[
    "user", "mount", "net", "uts", "ipc", "cgroup", "time", "pid",
];

/// The program says the same as where nobody moves it, wherever it is when it does each of these things.
fn same(cluster: &Cluster, words: &[&str], steps: &[(&str, &str)]) -> Result<()> {
    let program = guest::c_with("spaces", &["-lrt"])?.display().to_string();
    let words = [&[program.as_str()], words].concat();
    let mut at_rest = Talk::start(cluster, &mut cluster.command("n1", &words))?;
    let mut moved = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    at_rest.ready()?;
    let pid = moved.ready()?;
    for (node, line) in steps {
        cluster
            .have_on(pid, node)
            .with_context(|| format!("{words:?} to {node}"))?;
        moved.say(line)?;
        at_rest.say(line)?;
        let (said, expected) = (moved.line()?, at_rest.line()?);
        println!("{node}, {line}: {said} (now on {})", cluster.place(pid)?);
        if said != expected {
            bail!("On {node}, {line}:\n{said}\n instead of\n{expected}");
        }
    }
    for talk in [&mut moved, &mut at_rest] {
        talk.say("end")?;
        talk.succeed()?;
    }
    Ok(())
}

fn each_kind(cluster: &Cluster) -> Result<()> {
    let steps = ["n1", "n2", "n3", "home", "n3"].map(|node| (node, "tell"));
    for kind in KINDS {
        same(cluster, &[kind, "there"], &steps)?;
    }
    Ok(())
}

/// A program that is away enters a namespace, or goes back to the one that it was in.
fn entered_away(cluster: &Cluster) -> Result<()> {
    let there = [
        ("n2", "enter"),
        ("n2", "tell"),
        ("n3", "tell"),
        ("home", "tell"),
    ];
    let back = [("n3", "leave"), ("n3", "tell"), ("home", "tell")];
    for kind in KINDS {
        match *kind {
            "time" => {}
            // Nobody gets back to the user namespace around his own.
            "user" | "pid" => same(cluster, &[kind], &there)?,
            "mount" => {
                let back = [("n3", "leave")];
                same(cluster, &[kind], &[&there[..], &back].concat())?;
            }
            _ => same(cluster, &[kind], &[&there[..], &back].concat())?,
        }
    }
    Ok(())
}

/// Job control stops a program in a user namespace of its own that is away, and lets it go on.
fn stops(cluster: &Cluster) -> Result<()> {
    let program = guest::c_with("spaces", &["-lrt"])?.display().to_string();
    let script = format!("'{program}' user there group; exit $?");
    let words = ["sh", "-c", script.as_str()];
    let mut talk = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    let pid = talk.ready()?;
    cluster.move_to(pid, "n2")?;
    let is_stopped = |expected: bool| {
        eventually(LISTED_WITHIN, &format!("stopped: {expected}"), || {
            let stat = cluster.run("n1", &["cat", &format!("/proc/{pid}/stat")])?;
            let state = stat
                .rsplit(") ")
                .next()
                .and_then(|rest| rest.chars().next());
            // Whoever traces it has it stand in a stop of his own.
            Ok((matches!(state, Some('T' | 't')) == expected).then_some(()))
        })
    };
    for _ in 0..3 {
        let number = pid.to_string();
        cluster.run("n1", &["kill", "-TSTP", &number])?;
        is_stopped(true)?;
        cluster.await_state(pid, "stopped")?;
        cluster.run("n1", &["kill", "-CONT", &number])?;
        is_stopped(false)?;
        talk.say("tell")?;
        println!("{}", talk.line()?);
    }
    talk.say("end")?;
    talk.succeed()
}
