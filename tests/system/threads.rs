//! Threads that a program makes while it is away: in pairs, there and at home.

use whim_system_tests::{Case, Cluster, Result, Talk, ensure, guest};

/// The first is what home has room for, beside places of threads that have ended; the second is not.
const MADE: &[(u32, &str)] = &[(200, "n2"), (600, "n1")];

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("threads::made_away", 2, made_away),
        Case::in_lab("threads::names_in_a_move", 3, names),
        Case::in_lab("threads::numbers_again", 2, numbers_again),
    ]
}

/// It makes them where it is; those that home has no place for at home.
fn made_away(cluster: &Cluster) -> Result<()> {
    let program = guest::c("crowd")?.display().to_string();
    for (threads, place) in MADE {
        let words = [program.as_str(), "3", &threads.to_string()];
        let mut crowd = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
        let pid = crowd.ready()?;
        cluster.move_to(pid, "n2")?;
        crowd.go()?;
        ensure!(crowd.line()? == "answers 3", "{:?}", crowd.said);
        crowd.go()?;
        let answers = crowd.line()?;
        ensure!(answers == format!("answers {threads}"), "{:?}", crowd.said);
        let now = cluster.place(pid)?;
        ensure!(now == *place, "With {threads} threads it is on {now}");
        for target in ["n2", "home"] {
            cluster.have_on(pid, target)?;
        }
        crowd.go()?;
        crowd.succeed()?;
    }
    Ok(())
}

/// A new thread may have the number of one that has ended.
fn numbers_again(cluster: &Cluster) -> Result<()> {
    let program = guest::c("again")?.display().to_string();
    let (mut talk, pid) = Talk::run(cluster, &[], &[program.as_str()])?;
    cluster.move_to(pid, "n2")?;
    talk.say("go")?;
    ensure!(talk.line()? == "again", "{:?}", talk.said);
    cluster.move_to(pid, "home")?;
    talk.say("end")?;
    talk.succeed()
}

/// A name that a thread gives itself in the moment of a move is its name where it arrives. Home is far
/// away, so it is in the middle of that nearly all the time.
fn names(cluster: &Cluster) -> Result<()> {
    for node in ["n2", "n3"] {
        cluster.lab(&["link", "n1", node, "--delay", "30ms"])?;
    }
    let program = guest::c("names")?.display().to_string();
    let words = ["run", "--lease", "30", "--", &program];
    let mut talk = Talk::start(cluster, &mut cluster.whim_command("n1", &words))?;
    let pid = talk.ready()?;
    for target in ["n2", "n3", "n2", "home", "n3", "n2"] {
        cluster.move_to(pid, target)?;
        talk.go()?;
        ensure!(talk.line()? == "wrong 0", "{target}: {:?}", talk.said);
    }
    talk.succeed()
}
