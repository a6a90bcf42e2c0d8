//! Reasons to stay: told before anything is touched, in one sentence; the program goes on; and when
//! the reason goes away, it moves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use whim_system_tests::cluster::Moved;
use whim_system_tests::process::succeed;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, guest};

/// The case of the guest `stay`, and words of which the sentence has to hold one.
const REASONS: &[(&str, &[&str])] = &[
    ("shared-anonymous", &["shared", "shares"]),
    ("shared-file", &["shared", "shares"]),
    ("shared-memfd", &["shared", "shares"]),
    ("shared-read-only-written", &["others may write", "lease"]),
    (
        "shared-read-only-writer",
        &["would not be heard of: somebody has it open for writing."],
    ),
    ("shared-sealed", &["It has shared memory (/memfd:sealed"]),
    ("socket-memory", &["It maps memory of a socket (socket:["]),
    ("kernel-file", &["It maps memory of a device"]),
    ("sysv-shm", &["System V"]),
    ("aio", &["asynchronous", "aio", "io_setup"]),
    ("io-uring", &["io_uring"]),
    (
        "signal-descriptor",
        &["(signalfd) that act where it computes"],
    ),
    ("traced", &["traced"]),
    ("device", &["device", "shared", "shares"]),
    ("hugetlb", &["huge"]),
    ("sealed", &["sealed"]),
    ("real-time", &["real-time"]),
    ("dispatch", &["dispatch"]),
    ("segments", &["segments"]),
    ("clone-vm", SHARES),
    ("clone-vm-orphan", SHARES),
    ("clone-vm-thread", SHARES),
    ("thread-filter", &["seccomp"]),
    ("thread-strict", &["seccomp"]),
    ("thread-gids", &["have different group ids"]),
    ("thread-groups", &["have different supplementary groups"]),
    ("thread-capabilities", &["have different capabilities"]),
    ("mdwe", &["both writable and executable"]),
    ("thread-personality", &["have different personalities"]),
    ("own-memory", &["It has /proc/self/mem open"]),
    ("own-directory", &["It has /proc/self/task open"]),
    (
        "counts",
        &["It counts what processes execute, itself or others"],
    ),
    ("bpf", &["works where it was made alone (bpf-map)"]),
    (
        "mount-context",
        &["works where it was made alone ([fscontext])"],
    ),
    ("user-fault", &["userfaultfd"]),
    ("secret", &["secret memory"]),
    (
        "filter-listener",
        &["works where it was made alone (seccomp notify)"],
    ),
    ("speculation", &["restricts what its CPU may guess"]),
    ("core", &["with whom it may share a core"]),
    ("cpuid", &["denies itself CPUID"]),
    ("tiles", &["tiles of AMX"]),
    ("address-tags", &["tags in its addresses"]),
    ("no-vdso", &["It has no vDSO"]),
    ("page-zero", &["It has memory at 0x0, where"]),
];

const SHARES: &[&str] = &["shares its memory with process"];

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("stay::reasons_come_and_go", |_| in_lab(reasons)),
        Case::new("stay::one_sentence_for_one_reason", |_| {
            in_lab(one_sentence)
        }),
        Case::new("stay::no_reason", |_| {
            in_lab(|cluster| stays(cluster, "none", None))
        }),
        Case::new("stay::first_thread_has_ended", |_| in_lab(first_ended)),
        Case::new("stay::child_of_vfork", |_| in_lab(child_of_vfork)),
        Case::new("stay::tiles_asked_for_away", |_| in_lab(tiles_away)),
        Case::new("stay::no_file_mapped_away", |_| in_lab(mapped_away)),
        Case::new("stay::thirty_two_bits", |_| in_lab(narrow)),
        Case::new("stay::setuid_program", |_| in_lab(setuid)),
        Case::new("stay::locked_memory", |_| in_lab(locked)),
        Case::new("stay::locks_come_home", |_| in_lab(locks)),
        Case::new("stay::stopped_job", |_| in_lab(stopped)),
        Case::new("stay::not_dumpable_for_others", |_| in_lab(unreadable)),
        Case::new("stay::pinned_only_avoid", |_| in_lab(constrained)),
        Case::new("stay::file_of_others", |_| in_lab(file_of_others)),
    ]
}

fn in_lab(body: fn(&Cluster) -> Result<()>) -> Result<()> {
    let cluster = Cluster::up(2)?;
    cluster.explaining(|| body(&cluster))
}

fn reasons(cluster: &Cluster) -> Result<()> {
    // All of them are tried, so that one run shows every sentence that is wrong.
    let mut wrong = Vec::new();
    for (reason, words) in REASONS {
        if let Err(error) = stays(cluster, reason, Some(words)) {
            wrong.push(format!("{error:#}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Checks one reason: refused with a sentence that `why` and `ps` tell as well, program unharmed.
fn stays(cluster: &Cluster, reason: &str, words: Option<&[&str]>) -> Result<()> {
    let program = guest::c("stay")?.display().to_string();
    let mut guest = Talk::start(
        cluster,
        &mut cluster.run_command("n1", &[program.as_str(), reason]),
    )?;
    let first = guest.line()?;
    if first.starts_with("impossible") {
        println!("{reason}: skipped, this machine does not have it: {first}");
        return Ok(());
    }
    let pid: i32 = first.trim_start_matches("ready ").parse()?;
    if let Some(words) = words {
        refused(cluster, pid, reason, words)?;
    } else {
        cluster.move_to(pid, "n2")?;
        cluster.move_to(pid, "home")?;
    }
    guest.go()?;
    // A reason that cannot be taken away keeps the program; any other lets it go.
    if guest.line()? == "free" {
        cluster.move_to(pid, "n2")?;
        cluster.move_to(pid, "home")?;
    } else if let Some(words) = words {
        refused(cluster, pid, reason, words)?;
    }
    guest.go()?;
    guest.succeed()
}

/// The process is there, as long as one of its threads is.
fn first_ended(cluster: &Cluster) -> Result<()> {
    let program = guest::c("leader")?.display().to_string();
    let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &[program.as_str()]))?;
    let pid = guest.ready()?;
    let words = &["Its main thread has ended while others run on"];
    refused(cluster, pid, "first thread ended", words)?;
    guest.go()?;
    guest.succeed()
}

fn refused(cluster: &Cluster, pid: i32, title: &str, words: &[&str]) -> Result<()> {
    refused_after(0, cluster, pid, (title, words))
}

/// The same of a program that has moved so often before.
fn refused_after(
    moves: u32,
    cluster: &Cluster,
    pid: i32,
    (title, words): (&str, &[&str]),
) -> Result<()> {
    let number = pid.to_string();
    let sentence = cluster.refused("n1", &["migrate", &number, "n2"])?;
    println!("{title}: {sentence}");
    let names = |text: &str| words.iter().any(|word| text.contains(word));
    ensure!(
        names(&sentence),
        "{title}: '{sentence}' names none of {words:?}"
    );
    ensure!(
        sentence.lines().count() == 1,
        "{title}: '{sentence}' is more than a sentence"
    );
    let why = cluster.whim("n1", &["why", &number])?;
    ensure!(names(&why), "{title}: `whim why` says '{why}'");
    let row = cluster.row(pid)?;
    ensure!(
        row.as_ref()
            .and_then(|row| row.stay.as_deref())
            .is_some_and(names),
        "{title}: `whim ps` shows {row:?}"
    );
    let row = row.filter(|row| row.place == "n1" && row.state == "home" && row.moves == moves);
    ensure!(row.is_some(), "{title}: it is not at home any more");
    untouched(cluster, pid)
}

/// Shares three files with whoever opens them.
pub(crate) const SHARES_FILES: &str = "import mmap, os, sys
kept = []
for name in 'one', 'two', 'three':
    file = os.open('/dev/shm/' + name, os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 4096)
    kept.append(mmap.mmap(file, 4096))
print('ready', os.getpid(), flush=True)
sys.stdin.readline()";

/// What gives the same reason several times is told once, with its first name, wherever it is told.
fn one_sentence(cluster: &Cluster) -> Result<()> {
    let (mut talk, pid) = Talk::run(cluster, &[], &["python3", "-c", SHARES_FILES])?;
    let number = pid.to_string();
    let refusal = cluster.refused("n1", &["migrate", &number, "n2"])?;
    let why = cluster.whim("n1", &["why", &number])?;
    let row = cluster.row(pid)?.and_then(|row| row.stay);
    let log = cluster.log()?;
    let mut refused = log.iter().filter(|row| row["what"] == "refused");
    let logged = refused.find(|row| row["pid"] == pid).map(Value::to_string);
    for said in [Some(refusal), Some(why), row, logged] {
        let said = said.context("It is told nowhere")?;
        println!("{said}");
        let (_, rest) = said
            .split_once("It has shared memory to which it or others may write (/dev/shm/")
            .with_context(|| said.clone())?;
        let (_, rest) = rest
            .split_once(" and 2 more)")
            .with_context(|| said.clone())?;
        ensure!(!rest.contains("/dev/shm/"), "It is told again: {said}");
    }
    talk.go()?;
    talk.succeed()
}

/// No tracer of ours, and no filter, is left on a process that was refused.
fn untouched(cluster: &Cluster, pid: i32) -> Result<()> {
    let status = cluster.run("n1", &["cat", &format!("/proc/{pid}/status")])?;
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:\t"));
    let Some(tracer) = tracer.filter(|pid| *pid != "0") else {
        return Ok(());
    };
    let name = cluster.run("n1", &["cat", &format!("/proc/{tracer}/comm")])?;
    ensure!(!name.starts_with("whim"), "{name} still traces {pid}");
    Ok(())
}

/// One that is away comes home for `vfork`. As long as the child has its memory, neither moves.
fn child_of_vfork(cluster: &Cluster) -> Result<()> {
    let program = guest::c("stay")?.display().to_string();
    let words = [program.as_str(), "vfork"];
    let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    let parent = guest.ready()?;
    cluster.move_to(parent, "n2")?;
    guest.go()?;
    let line = guest.line()?;
    let child: i32 = line.trim_start_matches("child ").parse()?;
    let number = parent.to_string();
    for pid in [child, parent] {
        let number = pid.to_string();
        let sentence = cluster.refused("n1", &["migrate", &number, "n2"])?;
        println!("{line}, parent {parent}: {sentence}");
        let other = parent + child - pid;
        let expected = format!("{} {other}", SHARES[0]);
        ensure!(sentence.contains(&expected), "{pid}: {sentence}");
        let why = cluster.whim("n1", &["why", &number])?;
        ensure!(why.contains(&expected), "{pid}: `whim why` says '{why}'");
        untouched(cluster, pid)?;
    }
    guest.go()?;
    guest.until("free")?;
    let why = cluster.whim("n1", &["why", &number])?;
    ensure!(!why.contains(SHARES[0]), "`whim why` says '{why}'");
    cluster.move_to(parent, "n2")?;
    cluster.move_to(parent, "home")?;
    guest.go()?;
    guest.succeed()
}

/// Who asks for tiles away comes home for it, and stays where the CPU has them.
fn tiles_away(cluster: &Cluster) -> Result<()> {
    let program = guest::c("stay")?.display().to_string();
    let words = [program.as_str(), "tiles-away"];
    let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    let pid = guest.ready()?;
    cluster.move_to(pid, "n2")?;
    guest.go()?;
    let has_tiles = guest.line()? == "tiles 1";
    cluster.await_state(pid, "home")?;
    if has_tiles {
        refused_after(2, cluster, pid, ("tiles", &["tiles of AMX"]))?;
    } else {
        println!("tiles: none, this machine's CPU has no AMX");
        cluster.move_to(pid, "n2")?;
        cluster.move_to(pid, "home")?;
    }
    guest.go()?;
    guest.line()?;
    guest.go()?;
    guest.succeed()
}

/// Who maps away what is no page of a file comes home for it, and stays as long as it is mapped.
fn mapped_away(cluster: &Cluster) -> Result<()> {
    let program = guest::c("stay")?.display().to_string();
    let words = [program.as_str(), "map-away"];
    let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
    let pid = guest.ready()?;
    cluster.move_to(pid, "n2")?;
    guest.go()?;
    let line = guest.line()?;
    if line.starts_with("impossible") {
        println!("skipped, this machine's kernel has no such file: {line}");
    } else {
        ensure!(line == "mapped 1", "{line}");
        cluster.await_state(pid, "home")?;
        let sentence = cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
        ensure!(
            sentence.contains("It maps memory of a device"),
            "{sentence}"
        );
    }
    guest.go()?;
    guest.until("free")?;
    cluster.move_to(pid, "n2")?;
    cluster.move_to(pid, "home")?;
    guest.go()?;
    guest.succeed()
}

fn narrow(cluster: &Cluster) -> Result<()> {
    let source = guest::source("narrow.c");
    let program = cluster.directory().join("narrow");
    let options = [
        "-m32",
        "-O1",
        "-nostdlib",
        "-static",
        "-ffreestanding",
        "-fno-pie",
        "-no-pie",
        "-fno-stack-protector",
        "-fno-asynchronous-unwind-tables",
        "-o",
    ];
    let mut compile = Command::new("gcc");
    compile.args(options).arg(&program).arg(source);
    succeed(&mut compile, Duration::from_secs(60))?;
    let program = program.display().to_string();
    let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &[program]))?;
    let pid = guest.ready()?;
    refused(cluster, pid, "32 bits", &["32"])?;
    guest.go()?;
    ensure!(guest.line()? == "kept", "The 32-bit program was disturbed");
    guest.go()?;
    guest.succeed()
}

/// The user that owns nothing.
const NOBODY: &str = "nobody";

/// Runs a guest as an ordinary user on n1, so that it may move.
fn start_as_nobody(cluster: &Cluster, program: &Path, argument: &str) -> Result<Talk> {
    run_as_nobody(cluster, &[&program.display().to_string(), argument])
}

fn run_as_nobody(cluster: &Cluster, program: &[&str]) -> Result<Talk> {
    let whim = cluster.whim_path().display().to_string();
    let words = [&[whim.as_str(), "run", "--"], program].concat();
    Talk::start(cluster, &mut cluster.command_as(NOBODY, "n1", &words))
}

/// A user's program maps a file of root's shared: what is written to it shows in the very next call.
fn file_of_others(cluster: &Cluster) -> Result<()> {
    let program = guest::script("watches.py")?.display().to_string();
    let file = cluster.directory().join("roots");
    fs::write(&file, "before\n")?;
    let mut guest = run_as_nobody(cluster, &["python3", &program, &file.display().to_string()])?;
    let pid = guest.ready()?;
    let sentence = cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
    ensure!(sentence.contains("written just now"), "{sentence}");
    cluster.run(
        "n1",
        &["touch", "-d", "1 hour ago", &file.display().to_string()],
    )?;
    cluster.move_to(pid, "n2")?;
    guest.say("tell")?;
    ensure!(guest.line()? == "before", "{:?}", guest.said);
    ensure!(cluster.place(pid)? == "n2", "It went home by itself");
    fs::write(&file, "after!\n")?;
    guest.say("tell")?;
    ensure!(guest.line()? == "after!", "{:?}", guest.said);
    Ok(())
}

fn setuid(cluster: &Cluster) -> Result<()> {
    let program = cluster.directory().join("setuid");
    fs::copy(guest::c("stay")?, &program)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755))?;
    let mut guest = start_as_nobody(cluster, &program, "none")?;
    let pid = guest.ready()?;
    refused(cluster, pid, "setuid", &["setuid", "user ids"])?;
    guest.go()?;
    guest.line()?;
    guest.go()?;
    guest.succeed()
}

/// So much locked memory that no host takes it, or so little that it moves and stays locked.
fn locked(cluster: &Cluster) -> Result<()> {
    let program = guest::c("stay")?.display().to_string();
    let command = &mut cluster.run_command("n1", &[program.as_str(), "locked"]);
    let mut guest = Talk::start(cluster, command)?;
    let pid = guest.ready()?;
    let number = pid.to_string();
    let output = whim_system_tests::process::output(
        &mut cluster.whim_command("n1", &["migrate", &number, "n2"]),
        Duration::from_secs(60),
    )?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        cluster.move_to(pid, "home")?;
        let status = cluster.run("n1", &["cat", &format!("/proc/{pid}/status")])?;
        let locked = status
            .lines()
            .find(|line| line.starts_with("VmLck:"))
            .unwrap_or_default();
        ensure!(locked.contains("65536 kB"), "After its return: {locked}");
    } else {
        ensure!(text.contains("locked"), "{text}");
    }
    guest.go()?;
    guest.until("free")?;
    cluster.move_to(pid, "n2")?;
    guest.go()?;
    guest.succeed()
}

/// Locks of all kinds are there again after a move, and what is mapped then is locked as well.
fn locks(cluster: &Cluster) -> Result<()> {
    let program = guest::c("locks")?.display().to_string();
    for kind in ["one", "on-fault", "future", "future-on-fault"] {
        let words = [program.as_str(), kind];
        let mut guest = Talk::start(cluster, &mut cluster.run_command("n1", &words))?;
        let pid = guest.ready()?;
        let before = locks_of(cluster, pid)?;
        ensure!(before.0 > 0, "{kind}: nothing is locked");
        cluster.move_to(pid, "n2")?;
        guest.go()?;
        guest.until("mapped")?;
        let future = kind.starts_with("future");
        if future {
            // What it maps is to be locked, and only home locks memory.
            cluster.await_state(pid, "home")?;
        } else {
            cluster.move_to(pid, "home")?;
        }
        let grown = if future { 1024 } else { 0 };
        let after = locks_of(cluster, pid)?;
        ensure!(
            after == (before.0 + grown, before.1),
            "{kind}: {before:?} before the move, {after:?} after it"
        );
        guest.go()?;
        guest.until("mapped")?;
        let later = locks_of(cluster, pid)?;
        ensure!(later.0 == after.0 + grown, "{kind}: {after:?}, {later:?}");
        guest.go()?;
        guest.succeed()?;
    }
    Ok(())
}

/// Locked memory in KiB, and whether any is locked as it is touched.
fn locks_of(cluster: &Cluster, pid: i32) -> Result<(u64, bool)> {
    let status = cluster.run("n1", &["cat", &format!("/proc/{pid}/status")])?;
    let locked = status
        .lines()
        .find_map(|line| line.strip_prefix("VmLck:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap_or(0);
    let maps = cluster.run("n1", &["cat", &format!("/proc/{pid}/smaps")])?;
    let on_fault = maps
        .lines()
        .any(|line| line.starts_with("VmFlags:") && line.contains(" lf"));
    Ok((locked, on_fault))
}

fn stopped(cluster: &Cluster) -> Result<()> {
    let program = guest::c("stay")?.display().to_string();
    let mut guest = Talk::start(
        cluster,
        &mut cluster.run_command("n1", &[program.as_str(), "none"]),
    )?;
    let pid = guest.ready()?;
    cluster.run("n1", &["kill", "-STOP", &pid.to_string()])?;
    cluster.await_state(pid, "stopped")?;
    let sentence = cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
    ensure!(sentence.contains("stopped"), "{sentence}");
    cluster.run("n1", &["kill", "-CONT", &pid.to_string()])?;
    // `whim lab exec` has stopped with it, as a shell expects.
    guest.signal_outside(nix::sys::signal::Signal::SIGCONT);
    cluster.await_state(pid, "home")?;
    cluster.move_to(pid, "n2")?;
    guest.go()?;
    guest.line()?;
    guest.go()?;
    guest.succeed()
}

/// A program that its user may not trace is not his to move.
fn unreadable(cluster: &Cluster) -> Result<()> {
    let program = cluster.directory().join("unreadable");
    fs::copy(guest::c("stay")?, &program)?;
    // May be executed, but not read: the kernel makes it not dumpable.
    fs::set_permissions(&program, fs::Permissions::from_mode(0o711))?;
    let mut guest = start_as_nobody(cluster, &program, "none")?;
    let pid = guest.ready()?.to_string();
    let whim = cluster.whim_path().display().to_string();
    let words = [whim.as_str(), "migrate", &pid, "n2"];
    let output = whim_system_tests::process::output(
        &mut cluster.command_as(NOBODY, "n1", &words),
        Duration::from_secs(30),
    )?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(1) && !text.is_empty(),
        "{}: {text}",
        output.status
    );
    println!("{}", text.trim());
    // Root may look into it; the supervisor, which has no right over others while it is away, may not.
    let told = cluster.migrate(pid.parse()?, "n2")?;
    ensure!(
        matches!(&told, Moved::Refused(why) if why.contains("cannot move now. It does not let itself be traced")),
        "{told:?}"
    );
    guest.go()?;
    guest.line()?;
    guest.go()?;
    guest.succeed()
}

/// What `whim run` was told holds.
fn constrained(cluster: &Cluster) -> Result<()> {
    let program = guest::c("stay")?.display().to_string();
    for option in [&["--pin"][..], &["--avoid", "n2"], &["--only", "n1"]] {
        let words: Vec<&str> = ["run"]
            .iter()
            .chain(option)
            .chain(&["--", &program, "none"])
            .copied()
            .collect();
        let mut guest = Talk::start(cluster, &mut cluster.whim_command("n1", &words))?;
        let pid = guest.ready()?;
        let sentence = cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
        println!("{option:?}: {sentence}");
        guest.go()?;
        guest.line()?;
        guest.go()?;
        guest.succeed()?;
    }
    Ok(())
}
