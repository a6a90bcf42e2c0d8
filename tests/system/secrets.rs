//! Tokens and the CA's key: who comes by them on the way, and who writes and reads their files.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use whim_attempts::{Attempt, Party};
use whim_system_tests::process::{self, Running, eventually};
use whim_system_tests::terminal::Terminal;
use whim_system_tests::{Case, Cluster, Context, Result, ensure};

const SHORT: Duration = Duration::from_secs(60);
const FIRST: &str = "10.99.0.1";
/// Nobody's, and a member of the administrators' group.
const ADMINISTRATOR: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--groups=4711"];

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, body: fn(&Cluster) -> Result<()>| {
        Case::new(format!("secrets::{name}"), move |_| {
            let cluster = Cluster::up_with(3, &["--no-cluster"])?;
            cluster.explaining(|| {
                cluster.whim("n1", &["--wait", "30", "init", "--node", "n1"])?;
                body(&cluster)
            })
        })
    };
    vec![
        case("token_in_the_open", watched),
        case("token_at_a_prompt", typed),
        case("copies_of_the_ca", copies),
        case("copy_of_the_ca_without_a_file", passed_on),
    ]
}

/// Looks at all that /proc shows of what processes were started with, until it is told to end or has
/// found a token.
const WATCH: &str = r#"
import os, re, sys
stop, names = sys.argv[1], sys.argv[2:]
token = re.compile(rb"[0-9a-f]{8}\.[0-9a-f]{32}\.[0-9a-f]{64}")
looks = 0
while True:
    done = os.path.exists(stop)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in names:
            try:
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    found = token.search(file.read())
            except OSError:
                continue
            if found:
                print("found", name, found.group().decode(), flush=True)
                sys.exit()
    looks += 1
    if looks == 1:
        print("watching", flush=True)
    if done:
        break
print("nothing in", looks, "looks", flush=True)
"#;

/// Those who watch on n2: an ordinary user, who sees command lines, and root, who sees environments too.
struct Watchers {
    said: Vec<PathBuf>,
    stop: PathBuf,
    _running: Vec<Running>,
}

impl Watchers {
    fn start(cluster: &Cluster) -> Result<Self> {
        let stop = cluster.directory().join("joined");
        let stop_name = stop.display().to_string();
        let (mut said, mut running) = (Vec::new(), Vec::new());
        for (user, names) in [
            ("nobody", &["cmdline"][..]),
            ("root", &["cmdline", "environ"]),
        ] {
            let words = [&["python3", "-c", WATCH, &stop_name][..], names].concat();
            let file = cluster.directory().join(format!("watched-by-{user}"));
            let mut command = cluster.command_as(user, "n2", &words);
            command.stdout(File::create(&file)?);
            running.push(Running::spawn(&mut command)?);
            said.push(file);
        }
        let watchers = Self {
            said,
            stop,
            _running: running,
        };
        watchers.all_say(&["watching"])?;
        Ok(watchers)
    }

    fn texts(&self) -> Result<Vec<String>> {
        let texts = self.said.iter().map(fs::read_to_string);
        Ok(texts.collect::<std::io::Result<_>>()?)
    }

    fn all_say(&self, words: &[&str]) -> Result<()> {
        eventually(SHORT, &format!("all watchers say {words:?}"), || {
            let says = |text: &String| words.iter().any(|word| text.contains(word));
            Ok(self.texts()?.iter().all(says).then_some(()))
        })
    }

    /// What follows this, in what the first one says who says it.
    fn said(&self, part: &str) -> Result<Option<String>> {
        let texts = self.texts()?;
        let found = texts.iter().find_map(|text| text.split_once(part));
        Ok(found.map(|(_, rest)| rest.lines().next().unwrap_or_default().to_owned()))
    }

    fn stop(&self) -> Result<()> {
        fs::write(&self.stop, "")?;
        self.all_say(&["nothing in", "found"])
    }
}

/// Somebody watches /proc while a node joins, and uses what is seen there before the node has.
fn watched(cluster: &Cluster) -> Result<()> {
    let watchers = Watchers::start(cluster)?;
    let attempt = Attempt::new(
        Party::LocalUser,
        "read the token of a join in /proc, and join by it first",
    );
    // The way is long enough for whoever is quick.
    cluster.lab(&["link", "n1", "n2", "--delay", "300ms"])?;
    let token = cluster.whim("n1", &["token"])?;
    let help = cluster.whim("n2", &["join", "--help"])?;
    let mut words = vec!["join", FIRST, "--node", "n2"];
    if !help.contains("--token-file") {
        words.insert(2, token.trim());
    }
    let (reader, mut writer) = std::io::pipe()?;
    writer.write_all(token.as_bytes())?;
    drop(writer);
    let mut command = cluster.whim_command("n2", &words);
    let mut joining = Running::spawn(command.stdin(reader))?;
    let mut ended = None;
    let stolen = eventually(SHORT, "the join ends, or its token is seen", || {
        ended = joining.wait_up_to(Duration::ZERO)?;
        let found = watchers.said("found ")?;
        Ok((ended.is_some() || found.is_some()).then_some(found))
    })?;
    if let Some(seen) = stolen {
        let (_, token) = seen.split_once(' ').context("What was found")?;
        let thief = cluster.whim("n3", &["join", FIRST, token, "--node", "n3"]);
        let victim = joining.wait(SHORT)?;
        let nodes = cluster.whim("n1", &["nodes"])?;
        println!("n3, by what was seen on n2: {thief:?}; n2: {victim}\n{nodes}");
    }
    watchers.stop()?;
    let found = watchers.said("found ")?;
    ensure!(found.is_none(), "The token was seen: {found:?}");
    let looks = watchers.said("nothing in ")?.context("Looks")?;
    ensure!(
        ended.is_some_and(|status| status.success()),
        "The join has failed: {ended:?}"
    );
    println!("nothing was found in {looks}");
    attempt.failed("nothing of it is to be seen there");
    Ok(())
}

/// At a terminal the token is asked for, and what is typed is not shown; the terminal is as before.
fn typed(cluster: &Cluster) -> Result<()> {
    let token = cluster.whim("n1", &["token"])?;
    let whim = cluster.whim_path().display().to_string();
    let script = format!(
        "stty -a >before; {whim} join {FIRST} --node n2; echo status $?; stty -a >after; cmp before after && echo same"
    );
    let place = cluster.directory().display().to_string();
    let script = format!("cd {place} && {script}");
    let open = || Terminal::start(&cluster.command("n2", &["sh", "-c", &script]));
    let asks = "Token (what 'whim token' printed; it is not shown): ";
    // Given up: no signal ends it while nothing is shown.
    let mut terminal = open()?;
    terminal.wait_for(asks)?;
    terminal.press(&token[..20])?;
    let shown = terminal.ask("\x03", "same")?;
    let shown = String::from_utf8_lossy(&shown).into_owned();
    ensure!(
        shown.contains("Nothing was typed") && shown.contains("status 1"),
        "{shown}"
    );
    ensure!(!shown.contains(&token[..8]), "{shown}");
    let mut terminal = open()?;
    terminal.wait_for(asks)?;
    let shown = terminal.ask(&format!("x\x7f{}\r", token.trim()), "same")?;
    let shown = String::from_utf8_lossy(&shown).into_owned();
    ensure!(
        shown.contains("n2 is a member of a cluster of 2 nodes") && shown.contains("status 0"),
        "{shown}"
    );
    ensure!(!shown.contains(&token[..8]), "{shown}");
    Ok(())
}

/// `whim` on n1, as a member of the administrators' group.
fn administrator(cluster: &Cluster, words: &[&str]) -> Result<Output> {
    let whim = cluster.whim_path().display().to_string();
    let words = [&ADMINISTRATOR[..], &[&whim], words].concat();
    process::output(&mut cluster.command("n1", &words), SHORT)
}

fn succeeds(cluster: &Cluster, words: &[&str]) -> Result<()> {
    let said = administrator(cluster, words)?;
    let text = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "{words:?}: {text}");
    Ok(())
}

fn shell(cluster: &Cluster, script: &str) -> Result<String> {
    cluster.run("n1", &["sh", "-c", script])
}

/// A member of the administrators' group has the CA copied, and taken up, where root alone may write
/// and read.
fn copies(cluster: &Cluster) -> Result<()> {
    shell(
        cluster,
        "cp /etc/group /run/group && echo whim-admin:x:4711: >>/run/group && mount --bind /run/group /etc/group
         mkdir -m 755 /run/of-root && mkdir -m 777 /run/of-all && ln -s /run/of-root/by-link /run/of-all/link",
    )?;
    for (what, file, made) in [
        (
            "in a directory of root's",
            "/run/of-root/copy",
            "/run/of-root/copy",
        ),
        (
            "by a link into a directory of root's",
            "/run/of-all/link",
            "/run/of-root/by-link",
        ),
    ] {
        let attempt = Attempt::new(
            Party::LocalUser,
            format!("as an administrator: have root write a copy of the CA {what}"),
        );
        let said = administrator(cluster, &["ca", "backup", file])?;
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        println!("{file}: {}: {text}", said.status);
        let there = shell(cluster, &format!("test -e {made} && echo yes || echo no"))?;
        ensure!(there.trim() == "no", "{made} was made");
        ensure!(said.status.code() == Some(1), "{}", said.status);
        attempt.failed(text.trim());
    }
    succeeds(cluster, &["ca", "backup", "/run/of-all/copy"])?;
    let about = shell(cluster, "stat -c '%u %a' /run/of-all/copy")?;
    ensure!(about.trim() == "65534 600", "{about}");
    restored(cluster)
}

fn restored(cluster: &Cluster) -> Result<()> {
    // Root's own copy, which nobody else may read.
    shell(
        cluster,
        "umask 077 && cat /run/of-all/copy >/run/of-root/own",
    )?;
    cluster.whim("n1", &["leave"])?;
    let attempt = Attempt::new(
        Party::LocalUser,
        "as an administrator: have root take up a CA from a file that root alone may read",
    );
    let restore = |file| ["init", "--restore", file, "--node", "n1"];
    let said = administrator(cluster, &restore("/run/of-root/own"))?;
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    println!("restore: {}: {text}", said.status);
    ensure!(said.status.code() == Some(1), "{}", said.status);
    attempt.failed(text.trim());
    succeeds(cluster, &restore("/run/of-all/copy"))?;
    cluster.whim("n1", &["token"]).map(drop)
}

/// The copy goes from the one node's standard output to the other's standard input, and no file is made of it.
fn passed_on(cluster: &Cluster) -> Result<()> {
    let mut backup = cluster.whim_command("n1", &["ca", "backup", "-"]);
    let said = process::output(backup.current_dir(cluster.directory()), SHORT)?;
    ensure!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    ensure!(
        serde_json::from_slice::<serde_json::Value>(&said.stdout)?.is_object(),
        "The copy is whole, and nothing is beside it"
    );
    ensure!(!cluster.directory().join("-").exists(), "A file was made");
    let mut terminal = Terminal::start(&cluster.whim_command("n1", &["ca", "backup", "-"]))?;
    let shown = terminal.wait_for("is not shown at a terminal")?;
    ensure!(
        !String::from_utf8_lossy(&shown).contains("ca_pem"),
        "It was shown"
    );
    let whim = cluster.whim_path().display().to_string();
    let script = ["sh", "-c", "exec \"$0\" ca backup - >/dev/full", &whim];
    let full = process::output(&mut cluster.command("n1", &script), SHORT)?;
    let text = String::from_utf8_lossy(&full.stderr);
    ensure!(
        full.status.code() == Some(1) && text.contains("not whole"),
        "{text}"
    );
    let restore = ["init", "--restore", "-", "--node", "n2"];
    let refused = cluster.refused_fed("n2", &restore, "")?;
    ensure!(
        refused.contains("Nothing has come on standard input"),
        "{refused}"
    );
    let copy = String::from_utf8(said.stdout)?;
    let mut restored = cluster.whim_command("n2", &restore);
    let said = process::output_fed(&mut restored, &copy, SHORT)?;
    ensure!(said.status.success(), "{said:?}");
    cluster.whim("n2", &["token"]).map(drop)
}
