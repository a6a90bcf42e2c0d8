//! Files that are mapped privately: at home a page that the program has not written shows the file as it
//! is, and so it does wherever the program computes.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, guest};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("files::shapes", 3, shapes),
        Case::in_lab("files::parts", 3, parts),
        Case::in_lab("files::own_writes", 3, own_writes),
        Case::in_lab("files::mapped_again", 2, mapped_again),
        Case::in_lab("files::lengths", 3, lengths),
        Case::in_lab("files::writes_of_others", 3, writes_of_others),
        Case::in_lab("files::threads", 2, threads),
        Case::in_lab("files::turnover", 2, turnover),
        Case::in_lab("files::room", 2, room),
        Case::in_lab("files::scratch", 3, scratch),
        Case::in_lab("files::memory_alone", 2, memory_alone),
    ]
}

/// What another process does at home to the file in this directory.
type Other = fn(&Path) -> Result<()>;

#[derive(Clone, Copy)]
enum Step {
    /// The program is told this line.
    Say(&'static str),
    /// Another process does this, and then the program is told this line.
    After(Other, &'static str),
    /// The program is told this line, and answers once another process has done this.
    Before(&'static str, Other),
}
use Step::{After, Before, Say};

fn take(talk: &mut Talk, step: Step) -> Result<String> {
    match step {
        Say(line) => talk.say(line)?,
        After(other, line) => {
            other(talk.directory())?;
            talk.say(line)?;
        }
        Before(line, other) => {
            talk.say(line)?;
            other(talk.directory())?;
        }
    }
    talk.line()
}

/// The program answers the same at these places as where nobody moves it.
fn same(cluster: &Cluster, steps: &[(&str, Step)]) -> Result<()> {
    let program = guest::c("files")?.display().to_string();
    let mut unmoved = Talk::start_in(cluster, "unmoved", &mut Command::new(&program))?;
    unmoved.ready()?;
    let command = &mut cluster.run_command("n1", &[program.as_str()]);
    let mut talk = Talk::start_in(cluster, "moved", command)?;
    let pid = talk.ready()?;
    let mut place = "n1";
    for (node, step) in steps {
        let node = match *node {
            "n3" if cluster.nodes() < 3 => &"n2",
            _ => node,
        };
        if *node != place {
            match cluster.move_to(pid, node) {
                // What it was told to do has brought it home.
                Err(error)
                    if *node == "home" && format!("{error:#}").contains("at home already") => {}
                moved => moved?,
            }
            place = node;
        }
        let expected = take(&mut unmoved, *step)?;
        let said = take(&mut talk, *step)?;
        let (Say(line) | After(_, line) | Before(line, _)) = *step;
        println!("{node}, {line}: {said}");
        ensure!(
            said == expected,
            "On {node}, {line}:\n{said}\n instead of\n{expected}"
        );
    }
    for talk in [&mut unmoved, &mut talk] {
        talk.say("end")?;
        talk.succeed()?;
    }
    Ok(())
}

/// Longer in place and elsewhere, shorter, to a fixed place, and with a fresh mapping left behind: of
/// mappings that were written in parts, and that travel on.
fn shapes(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", Say("map 0 4 1; put 0 1 X; put 0 3 Y")),
        ("n2", Say("move 0 12 0 0")),
        ("n2", Say("put 0 7 Z; move 0 6 0 0")),
        // What was written beyond its end is gone.
        ("n2", Say("move 0 13 0 0")),
        ("n3", Say("put 0 12 W; move 0 15 0 0; show")),
        ("home", Say("move 0 14 0 0")),
        // At home it is one mapping again, as if nothing had been.
        ("home", Say("move 0 16 0 0")),
        ("n2", Say("move 0 14 0 0")),
        // Something is in the way.
        ("n2", Say("map 1 2 0; move 1 3 3 0; move 1 4 1 0")),
        ("n2", Say("map 0 4 0; put 0 2 A; map 1 4 4; move 0 6 3 1")),
        ("n3", Say("put 0 5 B; move 0 6 5 2")),
        ("n3", Say("put 2 0 C; drop 0 2 4; move 2 8 1 0")),
        ("n2", Say("move 2 8 5 3; put 3 7 D; move 3 8 7 1")),
        ("home", Say("show")),
        ("n3", Say("move 2 20 1 0; move 1 20 1 0")),
        // Two mappings are not one, although they are neighbours.
        (
            "n3",
            Say("map 0 4 0; beside 0 2 9; move 0 8 1 0; move 0 8 0 0"),
        ),
        ("n3", Say("map 0 8 0; unmap 0 2 1; move 0 9 1 0")),
        ("n3", Say("move 0 8 9 0; move 0 4 4 0; move 0 4 5 1")),
        ("home", Say("show")),
    ];
    same(cluster, &steps)
}

/// A part with another protection is a mapping of its own to the kernel, and none to home.
fn parts(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", Say("map 0 16 0; protect 0 12")),
        ("n2", Say("protect 0 4; show")),
        (
            "n2",
            Say("map 1 16 0; protect 1 3; protect 1 9; copy pwrite 5 A"),
        ),
        ("n2", Say("copy pwrite 8 B; put 1 7 X; copy pwrite 10 C")),
        ("n3", Say("map 2 16 0; protect 2 0; show; copy write 2 D")),
        ("home", Say("show")),
    ];
    same(cluster, &steps)
}

/// Every way to write to a file that the program has. What it has written into its memory stays.
pub(crate) fn own_writes(cluster: &Cluster) -> Result<()> {
    let ways = "copy pwrite 0 1; copy pwritev 1 2; copy write 2 3; copy writev 3 4; \
                copy range 4 5; copy sendfile 5 6; copy splice 6 7; copy hole 7 x";
    let again = "copy pwrite 0 A; copy range 4 B; show";
    let steps = [
        ("n1", Say("map 0 10 0; map 1 10 0; put 1 0 P; put 1 5 Q")),
        ("n2", Say("show")),
        ("n2", Say(ways)),
        ("n2", Say("copy pwrite 5 C")),
        ("n2", Say("drop 1 0 10")),
        ("n3", Say(again)),
        ("n3", Say("map 2 4 0; copy pwrite 1 D")),
        ("n3", Say("move 0 16 1 0; copy writev 12 E; append 1 F")),
        ("home", Say("copy pwrite 2 G")),
        ("n2", Say("copy pwrite 2 H; remove; copy pwrite 3 I")),
        ("home", Say("copy pwrite 4 J")),
    ];
    same(cluster, &steps)
}

/// What gives back the last mapping of a file maps it again: its changes are seen on.
fn mapped_again(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", Say("map 0 4 0")),
        ("n2", Say("show; copy pwrite 0 A")),
        ("n2", Say("map 0 4 0; show; copy pwrite 1 B")),
        ("n2", Say("map 0 2 1; show; copy pwrite 1 C")),
        ("n2", Say("map 0 4 0; show; copy range 1 D")),
        ("n2", After(writes, "show")),
        ("home", Say("map 0 4 0; copy pwrite 1 E")),
    ];
    same(cluster, &steps)
}

/// A file that becomes shorter takes pages from the program, and what it grows by is seen.
fn lengths(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", Say("map 0 20 0; put 0 9 X; put 0 3 Y")),
        ("n2", Say("show")),
        ("n2", Say("append 2 z")),
        ("n2", Say("length 8")),
        // It is not there any more when the file grows again.
        ("n2", Say("length 12")),
        ("n3", Say("put 0 11 Z; path 5; path 12; put 0 4 W")),
        ("n3", Say("append 3 y")),
        ("n3", Say("empty")),
        ("n2", Say("append 4 x; put 0 1 V")),
        ("n2", After(shorter, "show")),
        ("n2", After(longer, "put 0 6 U")),
        ("home", After(shorter, "show")),
        ("n2", After(longer, "show")),
    ];
    same(cluster, &steps)
}

fn opened(directory: &Path) -> Result<File> {
    Ok(OpenOptions::new().write(true).open(directory.join("f"))?)
}

fn shorter(directory: &Path) -> Result<()> {
    Ok(opened(directory)?.set_len(2 * 4096)?)
}

fn longer(directory: &Path) -> Result<()> {
    let mut file = OpenOptions::new().append(true).open(directory.join("f"))?;
    Ok(file.write_all(&[b'L'; 6 * 4096])?)
}

fn writes(directory: &Path) -> Result<()> {
    Ok(opened(directory)?.write_all_at(b"N", 2 * 4096)?)
}

fn writes_again(directory: &Path) -> Result<()> {
    Ok(opened(directory)?.write_all_at(b"O", 3 * 4096)?)
}

/// What comes instead of a file is another one.
fn replaces(directory: &Path) -> Result<()> {
    fs::write(directory.join("new"), vec![b'R'; 16 * 4096])?;
    fs::rename(directory.join("f"), directory.join("old"))?;
    Ok(fs::rename(directory.join("new"), directory.join("f"))?)
}

fn writes_to_the_old(directory: &Path) -> Result<()> {
    let old = OpenOptions::new().write(true).open(directory.join("old"))?;
    Ok(old.write_all_at(b"S", 4 * 4096)?)
}

fn writes_all(directory: &Path) -> Result<()> {
    Ok(opened(directory)?.write_all_at(&[b'T'; 16 * 4096], 0)?)
}

/// Another process's writes are seen by the next call, and without one, too.
pub(crate) fn writes_of_others(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", Say("map 0 8 0; put 0 1 X")),
        ("n2", Say("show")),
        ("n2", After(writes, "show")),
        ("n2", Before("await 0 3 O", writes_again)),
        ("n2", After(longer, "move 0 20 1 0")),
        ("n2", After(replaces, "show")),
        ("n3", After(writes_to_the_old, "show")),
        ("n3", After(writes, "show")),
        ("home", After(writes_to_the_old, "copy pwrite 5 U")),
        ("n2", After(writes_all, "copy pwrite 6 V; drop 0 0 9")),
    ];
    same(cluster, &steps)
}

/// What one thread writes is not lost because the file changes under another one, and what another one
/// makes longer is there.
fn threads(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", Say("length 256; map 0 4 0")),
        ("n2", Say("race 1")),
        ("n2", Say("probe 0 60")),
    ];
    same(cluster, &steps)
}

/// A thread maps a file, or moves one to a place, where another one has just unmapped one, before anybody is told
/// of that.
fn turnover(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", Say("map 0 4 0; turnover 3 50")),
        ("n2", Say("turnover 6 600")),
        ("home", Say("show")),
    ];
    same(cluster, &steps)
}

/// What was mapped and is mapped no more takes no room at home.
fn room(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", Say("map 0 4 0")),
        ("n2", Say("vast 40")),
        ("home", Say("show")),
    ];
    same(cluster, &steps)
}

/// What is removed and mapped no more leaves its room on the disk, and its file system can be unmounted.
fn scratch(cluster: &Cluster) -> Result<()> {
    let steps = [
        ("n1", Say("mount; scratch 2")),
        ("n2", Say("scratch 3")),
        ("n3", Say("scratch 3; keeps 1")),
        ("n2", Say("keeps 0")),
        ("home", Say("show")),
    ];
    same(cluster, &steps)
}

/// Files of memory alone take memory as long as anybody has them: home's supervisor gives them up with the program.
fn memory_alone(cluster: &Cluster) -> Result<()> {
    let program = guest::c("files")?.display().to_string();
    let mut talk = Talk::start(cluster, &mut cluster.run_command("n1", &[&program]))?;
    let pid = talk.ready()?;
    cluster.move_to(pid, "n2")?;
    talk.say("memory 3")?;
    talk.line()?;
    let row = cluster.row(pid)?.context("It is gone")?;
    let supervisor = row.home_supervisor_pid.context("no home supervisor")?;
    let script = format!("ls -l /proc/{supervisor}/fd");
    let open = cluster.run("n1", &["sh", "-c", &script])?;
    ensure!(open.contains("socket:"), "{open}");
    ensure!(!open.contains("memfd:scratch"), "{open}");
    talk.say("end")?;
    talk.succeed()
}
