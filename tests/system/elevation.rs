//! Programs that execute one of other rights (setuid) in each phase of a journey: it never moves with them, has them
//! as it would without us, and nobody traces it meanwhile.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use whim_attempts::{Attempt, Party};
use whim_system_tests::process::{self, Running, eventually};
use whim_system_tests::{Case, Cluster, Result, Talk, ensure, guest};

const PATIENCE: Duration = Duration::from_secs(30);
/// Each is an exec of the setuid program and one back, about a millisecond.
const STORM: &str = "1500";
const ELEVATED: &str = "elevated 1 traced 0";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        in_lab("at_home", at_home),
        in_lab("away", away),
        in_lab("held", held),
        in_lab("while_it_moves", while_it_moves),
    ]
}

fn in_lab(name: &str, body: fn(&Programs) -> Result<()>) -> Case {
    Case::new(format!("elevation::{name}"), move |_| {
        let cluster = Cluster::up(2)?;
        let programs = Programs::prepare(&cluster)?;
        cluster.explaining(|| body(&programs))
    })
}

/// One program twice: as anybody's, and with root's rights.
struct Programs<'a> {
    cluster: &'a Cluster,
    plain: String,
    other: String,
}

fn tries(what: &str) -> Attempt {
    Attempt::new(Party::LocalUser, format!("execute a setuid program {what}"))
}

impl<'a> Programs<'a> {
    fn prepare(cluster: &'a Cluster) -> Result<Self> {
        let copy = |name: &str, mode| -> Result<String> {
            let path: PathBuf = cluster.directory().join(name);
            fs::copy(guest::c("elevate")?, &path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            Ok(path.display().to_string())
        };
        Ok(Self {
            cluster,
            plain: copy("plain", 0o755)?,
            other: copy("other", 0o4755)?,
        })
    }

    /// Started by a plain user, and ready.
    fn start(&self, words: &[&str]) -> Result<(Talk, i32)> {
        let whim = self.cluster.whim_path().display().to_string();
        let words = [&[whim.as_str(), "run", "--"], words].concat();
        let mut command = self.cluster.command_as("nobody", "n1", &words);
        let mut talk = Talk::start(self.cluster, &mut command)?;
        let pid = talk.ready()?;
        Ok((talk, pid))
    }

    /// It has its rights, without a tracer, at home; and it does not move.
    fn stays_elevated(&self, talk: &mut Talk, pid: i32) -> Result<()> {
        ensure!(talk.ready()? == pid, "it is another process");
        let told = talk.said.last().cloned().unwrap_or_default();
        ensure!(told == ELEVATED, "{told}");
        ensure!(self.cluster.place(pid)? == "n1", "it is away");
        let sentence = self
            .cluster
            .refused("n1", &["migrate", &pid.to_string(), "n2"])?;
        ensure!(sentence.contains("user ids"), "{sentence}");
        talk.go()?;
        let told = talk.line()?;
        ensure!(told == ELEVATED, "after it was to move: {told}");
        talk.succeed()
    }
}

fn at_home(programs: &Programs) -> Result<()> {
    let attempt = tries("by 'whim run'");
    let (mut talk, pid) = {
        let whim = programs.cluster.whim_path().display().to_string();
        let words = [whim.as_str(), "run", "--", &programs.other, "report"];
        let mut command = programs.cluster.command_as("nobody", "n1", &words);
        let mut talk = Talk::start(programs.cluster, &mut command)?;
        let told = talk.line()?;
        ensure!(told == ELEVATED, "{told}");
        let pid = talk.ready()?;
        (talk, pid)
    };
    let sentence = programs
        .cluster
        .refused("n1", &["migrate", &pid.to_string(), "n2"])?;
    ensure!(sentence.contains("user ids"), "{sentence}");
    talk.go()?;
    ensure!(talk.line()? == ELEVATED, "{:?}", talk.said);
    talk.succeed()?;
    attempt.failed("it stays: its user ids differ");
    let attempt = tries("after it was registered");
    let (mut talk, pid) = programs.start(&[&programs.plain, "once", &programs.other])?;
    talk.go()?;
    programs.stays_elevated(&mut talk, pid)?;
    attempt.failed("it stays: its user ids differ");
    Ok(())
}

fn away(programs: &Programs) -> Result<()> {
    let cluster = programs.cluster;
    let attempt = tries("while it is away");
    let (mut talk, pid) = programs.start(&[&programs.plain, "once", &programs.other])?;
    cluster.move_to(pid, "n2")?;
    talk.go()?;
    programs.stays_elevated(&mut talk, pid)?;
    attempt.failed("it goes home first, and stays there");
    let attempt = tries("while it comes home");
    let (mut talk, pid) = programs.start(&[&programs.plain, "once", &programs.other])?;
    cluster.move_to(pid, "n2")?;
    let mut bring = cluster.whim_command("n1", &["bring", &pid.to_string()]);
    let mut bring = Running::spawn(&mut bring)?;
    talk.go()?;
    bring.wait(PATIENCE)?;
    programs.stays_elevated(&mut talk, pid)?;
    attempt.failed("it comes home, and stays there");
    let attempt = tries("after it has come home");
    let (mut talk, pid) = programs.start(&[&programs.plain, "once", &programs.other])?;
    cluster.move_to(pid, "n2")?;
    cluster.move_to(pid, "home")?;
    talk.go()?;
    programs.stays_elevated(&mut talk, pid)?;
    attempt.failed("it stays: its user ids differ");
    Ok(())
}

fn held(programs: &Programs) -> Result<()> {
    let cluster = programs.cluster;
    for (what, is_away) in [
        ("while it is held", false),
        ("after it was brought and held", true),
    ] {
        let attempt = tries(what);
        let (mut talk, pid) = programs.start(&[&programs.plain, "once", &programs.other])?;
        if is_away {
            cluster.move_to(pid, "n2")?;
        }
        let number = pid.to_string();
        cluster.whim("n1", &["bring", "--hold", &number])?;
        talk.go()?;
        ensure!(talk.ready()? == pid, "it is another process");
        ensure!(
            talk.said.last().is_some_and(|told| told == ELEVATED),
            "{:?}",
            talk.said
        );
        // Root may, who is asked for nothing by it; its user has no right to the program that it has become.
        let whim = cluster.whim_path().display().to_string();
        let words = [whim.as_str(), "go", &number];
        let freed = process::output(&mut cluster.command_as("nobody", "n1", &words), PATIENCE)?;
        ensure!(!freed.status.success(), "its user lets it go: {freed:?}");
        cluster.whim("n1", &["go", &number])?;
        let sentence = cluster.refused("n1", &["migrate", &number, "n2"])?;
        ensure!(sentence.contains("user ids"), "{sentence}");
        talk.go()?;
        ensure!(talk.line()? == ELEVATED, "{:?}", talk.said);
        talk.succeed()?;
        attempt.failed("it is held without a tracer; it stays after that");
    }
    Ok(())
}

/// From the first look at it to the moment in which it leaves, over and over.
fn while_it_moves(programs: &Programs) -> Result<()> {
    let cluster = programs.cluster;
    let attempt = tries("while it is admitted, frozen and captured, over and over");
    let (mut talk, pid) = programs.start(&[&programs.plain, "storm", &programs.other, STORM])?;
    talk.go()?;
    let mut moves = 0;
    let told = eventually(4 * PATIENCE, "the storm is over", || {
        if cluster.row(pid)?.is_some() {
            for target in ["n2", "home"] {
                if matches!(
                    cluster.migrate(pid, target),
                    Ok(whim_system_tests::cluster::Moved::Done(_))
                ) {
                    moves += 1;
                }
            }
            return Ok(None);
        }
        Ok(Some(talk.line()?))
    })?;
    println!("{told}, moved {moves} times");
    ensure!(told == format!("seen {STORM} traced 0"), "{told}");
    talk.succeed()?;
    attempt.failed("it has its rights each time, and no tracer with them");
    Ok(())
}
