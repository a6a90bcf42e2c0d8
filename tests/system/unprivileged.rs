//! Plain users make a cluster between their own accounts, without root: their programs move as
//! root's cluster moves them, and what the machine forbids is told.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::Duration;

use whim_attempts::{Attempt, Party};
use whim_system_tests::process::{self, eventually};
use whim_system_tests::{Case, Cluster, Context, Result, Talk, bail, ensure, guest};

use crate::bad_input::{counting, goes_on};
use crate::{conformance, escape, programs};

/// Programs and families of calls that are tried in the quick set; all others in the full one.
const QUICK: [&str; 4] = ["bash", "sqlite_transactions", "memory", "signals"];
const PATIENCE: Duration = Duration::from_secs(30);
/// A user who has no part in the cluster.
const STRANGER: u32 = 61_009;
/// The uid of a [`Newcomer`].
const NEWCOMER: u32 = 61_008;

pub(crate) fn cases() -> Result<Vec<Case>> {
    let module = |name: &str| if QUICK.contains(&name) { "" } else { "full::" };
    let mut cases = vec![
        of_users("escape_ways", escape::ways),
        of_users("escape_numbers", |cluster| escape::numbers(cluster, 32)),
        of_users("untouched_memory", untouched_memory),
        of_users("watched_files", watched_files),
        of_users("changed_files", |cluster| {
            crate::files::own_writes(cluster)?;
            crate::files::writes_of_others(cluster)
        }),
        of_users("memory_of_another_user", memory_of_another_user),
        of_users("undumpable_while_away", crate::rights::undumpable_of_users),
        of_users("filters_keep_at_home", filters_keep_at_home),
        of_users("other_users", other_users),
        of_users("roots_daemon_beside", roots_daemon_beside),
        of_users("doctor", doctor),
        of_users("daemons_come_and_go", daemons_come_and_go),
        Case::new("unprivileged::no_namespaces", |_| no_namespaces()),
    ];
    for program in programs::all() {
        let name = format!(
            "unprivileged::{}programs::{}",
            module(program.name),
            program.name
        );
        cases.push(Case::new(name, |setting| program.quick_of_users(setting)));
    }
    for family in conformance::families()? {
        let name = format!("{}conformance::{family}", module(&family));
        cases.push(of_users(&name, move |cluster| {
            conformance::compare(cluster, &family, None)
        }));
    }
    Ok(cases)
}

/// One that has a cluster of two users to itself.
fn of_users(name: &str, body: impl Fn(&Cluster) -> Result<()> + 'static) -> Case {
    Case::new(format!("unprivileged::{name}"), move |_| {
        let cluster = Cluster::up_of_users()?;
        cluster.explaining(|| body(&cluster))
    })
}

/// The kernel meets pages that are still at home, where it may not fetch them itself.
fn untouched_memory(cluster: &Cluster) -> Result<()> {
    let program = guest::c("untouched")?.display().to_string();
    let tell = |moves: bool| -> Result<Vec<String>> {
        let mut command = if moves {
            cluster.run_command("n1", &[&program])
        } else {
            cluster.command("n1", &[&program])
        };
        let mut guest = Talk::start(cluster, &mut command)?;
        let pid = guest.ready()?;
        if moves {
            cluster.move_to(pid, "n2")?;
        }
        guest.go()?;
        guest.ready()?;
        ensure!(!moves || cluster.place(pid)? == "n2", "It went home");
        guest.go()?;
        guest.succeed()?;
        Ok(guest.said.clone())
    };
    let (home, away) = (tell(false)?, tell(true)?);
    ensure!(
        home.len() > 20 && home == away,
        "At home {home:#?}, away {away:#?}"
    );
    Ok(())
}

/// Files that a program maps shared are watched.
fn watched_files(cluster: &Cluster) -> Result<()> {
    let program = guest::script("watches.py")?.display().to_string();
    let file = cluster.directory().join("shared");
    fs::write(&file, "before\n")?;
    let path = file.display().to_string();
    let old = |when: &str| cluster.command_of_root("n1", &["touch", "-d", when, &path]);
    let mut guest = Talk::start(
        cluster,
        &mut cluster.run_command("n1", &["python3", &program, &path]),
    )?;
    let pid = guest.ready()?;
    let number = pid.to_string();
    let sentence = cluster.refused("n1", &["migrate", &number, "n2"])?;
    ensure!(sentence.contains("written just now"), "{sentence}");
    process::succeed(&mut old("1 hour ago"), PATIENCE)?;
    cluster.move_to(pid, "n2")?;
    guest.say("tell")?;
    ensure!(guest.line()? == "before", "{:?}", guest.said);
    ensure!(cluster.place(pid)? == "n2", "It went home by itself");
    fs::write(&file, "after!\n")?;
    comes_home(cluster, pid)?;
    guest.say("tell")?;
    ensure!(guest.line()? == "after!", "{:?}", guest.said);
    // By a mapping: nobody is told, but the kernel notes the time.
    process::succeed(&mut old("2 hours ago"), PATIENCE)?;
    cluster.move_to(pid, "n2")?;
    let script =
        "import mmap; file = open('shared', 'r+b'); mmap.mmap(file.fileno(), 0)[:6] = b'mapped'";
    let mut write = cluster.command_of_root("n1", &["python3", "-c", script]);
    process::succeed(&mut write, PATIENCE)?;
    comes_home(cluster, pid)?;
    guest.say("tell")?;
    ensure!(guest.line()? == "mapped", "{:?}", guest.said);
    // A file that its user could write, and that is another's, is not watched.
    process::succeed(&mut old("1 hour ago"), PATIENCE)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666))?;
    let sentence = cluster.refused("n1", &["migrate", &number, "n2"])?;
    ensure!(sentence.contains("cannot watch who writes"), "{sentence}");
    Ok(())
}

/// It shares its memory with a process that its user may not look into, and that its daemon cannot
/// compare with it.
fn memory_of_another_user(cluster: &Cluster) -> Result<()> {
    let program = guest::c("halves")?.display().to_string();
    let uid = cluster.account("n1").context("accounts")?.uid.to_string();
    let mut command = cluster.command_of_root("n1", &[&program, &uid]);
    let mut guest = Talk::start(cluster, &mut command)?;
    let pid = guest.ready()?;
    let sentence = cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
    println!("{sentence}");
    ensure!(
        sentence.contains("may share its memory with process"),
        "{sentence}"
    );
    guest.go()?;
    guest.succeed()
}

fn comes_home(cluster: &Cluster, pid: i32) -> Result<()> {
    eventually(PATIENCE, "it comes home because of its file", || {
        Ok((cluster.place(pid)? == "n1").then_some(()))
    })
}

/// The words of a command for a user of this uid.
fn as_user<'a>(uid: &'a str, home: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["setpriv", "--clear-groups", "--reuid", uid, "--regid", uid];
    all.extend(["env", "-u", "XDG_RUNTIME_DIR", home]);
    all.extend(words);
    all
}

/// What it says on standard error when it fails, as it has to.
fn complaint(cluster: &Cluster, words: &[&str]) -> Result<String> {
    let output = process::output(&mut cluster.command_of_root("n1", words), PATIENCE)?;
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    ensure!(!output.status.success(), "{words:?} was to fail: {text}");
    Ok(text)
}

/// A user of n1 who has started no daemon yet.
struct Newcomer<'a> {
    cluster: &'a Cluster,
    uid: String,
    /// As `env` takes it.
    home: String,
}

impl<'a> Newcomer<'a> {
    fn arrives(cluster: &'a Cluster) -> Result<Self> {
        let home = cluster.accounts_directory().join("newcomer");
        fs::create_dir_all(&home)?;
        chown(&home, Some(NEWCOMER), Some(NEWCOMER))?;
        Ok(Self {
            cluster,
            uid: NEWCOMER.to_string(),
            home: format!("HOME={}", home.display()),
        })
    }

    fn words<'b>(&'b self, words: &[&'b str]) -> Vec<&'b str> {
        as_user(&self.uid, &self.home, words)
    }

    /// What their daemon says, which does not start.
    fn cannot_start(&self) -> Result<String> {
        let whimd = self.cluster.whimd_path().display().to_string();
        complaint(self.cluster, &self.words(&[&whimd]))
    }
}

/// Without root nobody can read what filters there are.
fn filters_keep_at_home(cluster: &Cluster) -> Result<()> {
    let program = guest::c("filters")?.display().to_string();
    let mut talk = Talk::start(
        cluster,
        &mut cluster.run_command("n1", &[&program, "confined"]),
    )?;
    let number = talk.ready()?.to_string();
    let mut answers = || -> Result<String> {
        talk.say("tell")?;
        talk.line()
    };
    let before = answers()?;
    let sentence =
        "It has installed a seccomp filter of its own, which root's daemon alone can read";
    let refusal = cluster.refused("n1", &["migrate", &number, "n2"])?;
    ensure!(refusal.contains(sentence), "{refusal}");
    let why = cluster.whim("n1", &["why", &number])?;
    ensure!(why.contains(sentence), "{why}");
    let after = answers()?;
    ensure!(after == before, "{after}, before {before}");
    Ok(())
}

/// What other users of the machine can do to a user's cluster.
fn other_users(cluster: &Cluster) -> Result<()> {
    let whim = cluster.whim_path().display().to_string();
    let stranger = STRANGER.to_string();
    let newcomer = Newcomer::arrives(cluster)?;
    let nowhere = "HOME=/nonexistent";
    let owner = cluster.account("n1").context("accounts")?;
    let socket = format!("/tmp/whim-{}/control.sock", owner.uid);

    let attempt = Attempt::new(Party::LocalUser, "use the daemon of another plain user");
    let words = as_user(&stranger, nowhere, &[&whim, "--socket", &socket, "nodes"]);
    let said = complaint(cluster, &words)?;
    ensure!(said.contains("Permission denied"), "{said}");
    attempt.failed("its directory is closed: Permission denied");

    let attempt = Attempt::new(
        Party::LocalUser,
        "make ready the directory of a daemon that another user is about to start",
    );
    let trap = format!("/tmp/whim-{NEWCOMER}");
    let words = as_user(&stranger, nowhere, &["mkdir", "-m", "777", &trap]);
    process::succeed(&mut cluster.command_of_root("n1", &words), PATIENCE)?;
    let said = newcomer.cannot_start()?;
    ensure!(said.contains("not a directory of your own"), "{said}");
    attempt.failed("the daemon does not start there, and says why");

    let attempt = Attempt::new(
        Party::LocalUser,
        "answer in the place of another user's daemon",
    );
    let script = format!(
        "import socket; s = socket.socket(socket.AF_UNIX); s.bind('{trap}/control.sock'); \
         import os; os.chmod('{trap}/control.sock', 0o777); s.listen(); print('ready 1', flush=True); \
         c = s.accept()[0]; print('heard', len(c.recv(100)), flush=True)"
    );
    let words = as_user(&stranger, nowhere, &["python3", "-c", &script]);
    let mut listener = Talk::start(cluster, &mut cluster.command_of_root("n1", &words))?;
    listener.ready()?;
    // Root's daemon is asked, and nobody connects to the false one: the first whom it hears are we.
    let asked = newcomer.words(&[&whim, "nodes"]);
    process::succeed(&mut cluster.command_of_root("n1", &asked), PATIENCE)?;
    let script = format!(
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('{trap}/control.sock'); s.send(b'we')"
    );
    cluster.run("n1", &["python3", "-c", &script])?;
    ensure!(listener.line()? == "heard 2", "{:?}", listener.said);
    attempt.failed("it is told nothing, and root's daemon answers");
    Ok(())
}

/// A machine on which root's daemon runs as well, which has the port.
fn roots_daemon_beside(cluster: &Cluster) -> Result<()> {
    let whim = cluster.whim_path().display().to_string();
    let newcomer = Newcomer::arrives(cluster)?;
    let said = newcomer.cannot_start()?;
    ensure!(
        said.contains("another program listens there") && said.contains("--listen"),
        "{said}"
    );
    // Who has no daemon asks root's, which is in no cluster.
    let words = newcomer.words(&[&whim, "doctor", "--json"]);
    let output = process::output(&mut cluster.command_of_root("n1", &words), PATIENCE)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(said.contains("This node is in no cluster"), "{said}");
    // Root's rights are not judged by those of the one who asks.
    ensure!(!said.contains("vm.unprivileged_userfaultfd"), "{said}");
    let mine = cluster.whim("n1", &["nodes"])?;
    ensure!(mine.contains("n2"), "{mine}");
    Ok(())
}

/// The lines of `whim doctor` on n1 after these words of shell.
fn examined(cluster: &Cluster, before: &str) -> Result<String> {
    let whim = cluster.whim_path().display().to_string();
    let script = format!("{before}; exec {whim} doctor");
    let output = process::output(&mut cluster.command("n1", &["sh", "-c", &script]), PATIENCE)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Says in each case what is forbidden, how to allow it, and what works meanwhile.
fn doctor(cluster: &Cluster) -> Result<()> {
    let nested = "unshare --user --map-current-user --keep-caps sh -c 'echo 0 > /proc/sys/user/";
    let whim = cluster.whim_path().display().to_string();
    for (before, words) in [
        ("true".to_owned(), "vm.unprivileged_userfaultfd=0"),
        ("ulimit -l 64".to_owned(), "Guests may lock 64 KiB"),
        ("ulimit -n 300".to_owned(), "No more than 300 files"),
        (
            format!("{nested}max_user_namespaces && exec {whim} doctor'; exit"),
            "user.max_user_namespaces=0",
        ),
        (
            format!("{nested}max_time_namespaces && exec {whim} doctor'; exit"),
            "user.max_time_namespaces=0",
        ),
    ] {
        let said = examined(cluster, &before)?;
        let mut lines = said.lines().skip_while(|line| !line.contains(words));
        let (Some(found), Some(mend)) = (lines.next(), lines.next()) else {
            bail!("{before}: nothing of {words}: {said}");
        };
        println!("{found}\n{mend}");
        ensure!(
            found.contains("eanwhile") && mend.trim_start().starts_with("->"),
            "{before}: {found}\n{mend}"
        );
    }
    let said = examined(cluster, "true")?;
    for words in [
        "does not run as root",
        "may make no control groups",
        "good     namespaces",
    ] {
        ensure!(said.contains(words), "nothing of {words}: {said}");
    }
    Ok(())
}

/// Programs that are away do not notice that their users' daemons end and are started again.
fn daemons_come_and_go(cluster: &Cluster) -> Result<()> {
    let (_guest, pid) = counting(cluster)?;
    cluster.move_to(pid, "n2")?;
    cluster.kill_daemons()?;
    goes_on(cluster, pid)?;
    for node in ["n1", "n2"] {
        let account = cluster.account(node).context("accounts")?;
        cluster.start_daemon_of(account, "")?;
    }
    ensure!(cluster.place(pid)? == "n2", "It is not known where it is");
    cluster.move_to(pid, "home")?;
    goes_on(cluster, pid)?;
    cluster.await_member(("n1", "n2"), ("state", "up"), PATIENCE)?;
    cluster.move_to(pid, "n2")?;
    goes_on(cluster, pid)
}

/// A machine that lets nobody make namespaces takes no guests; its own programs may leave.
fn no_namespaces() -> Result<()> {
    let confined = "unshare --user --map-current-user --keep-caps sh -c \
                    'echo 0 > /proc/sys/user/max_user_namespaces && \
                    exec setpriv --ambient-caps=-all --inh-caps=-all \"$0\"'";
    let cluster = Cluster::up_of_confined_users(confined)?;
    cluster.explaining(|| {
        let (_guest, pid) = counting(&cluster)?;
        let sentence = cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
        println!("{sentence}");
        ensure!(
            sentence.lines().count() == 1 && sentence.contains("user.max_"),
            "{sentence}"
        );
        goes_on(&cluster, pid)?;
        let account = cluster.account("n2").context("accounts")?;
        let daemon = fs::read_to_string(account.daemon_number())?;
        let (whim, program) = (cluster.whim_path(), guest::c("patient")?);
        let inside = format!(
            "exec nsenter --user --preserve-credentials -t {} {} run -- {} counts",
            daemon.trim(),
            whim.display(),
            program.display()
        );
        let mut guest = Talk::start(&cluster, &mut cluster.command("n2", &["sh", "-c", &inside]))?;
        let pid = guest.ready()?.to_string();
        let report = cluster.whim("n2", &["migrate", &pid, "n1"])?;
        ensure!(report.contains("n2 -> n1"), "{report}");
        let report = cluster.whim("n2", &["migrate", &pid, "home"])?;
        ensure!(report.contains("n1 -> n2"), "{report}");
        Ok(())
    })
}
