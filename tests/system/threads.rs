//! Threads that a program makes while it is away: in pairs, there and at home.

use whim_system_tests::{Case, Cluster, Result, Talk, ensure, guest};

/// The first is what home has room for, beside places of threads that have ended; the second is not.
const MADE: &[(u32, &str)] = &[(200, "n2"), (600, "n1")];

pub fn cases() -> Vec<Case> {
    vec![Case::in_lab("threads::made_away", 2, made_away)]
}

/// It makes them where it is; those that home has no place for at home.
fn made_away(cluster: &Cluster) -> Result<()> {
    let program = guest::c("crowd")?.display().to_string();
    for (threads, place) in MADE {
        let words = [program.as_str(), "3", &threads.to_string()];
        let mut crowd = Talk::start(cluster, &mut cluster.patient_command("n1", &words))?;
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
            if target != cluster.place(pid)? {
                cluster.move_to(pid, target)?;
            }
        }
        crowd.go()?;
        crowd.succeed()?;
    }
    Ok(())
}
