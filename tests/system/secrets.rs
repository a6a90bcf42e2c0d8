//! Tokens and the CA's key: who comes by them on the way, and who writes and reads their files.

use std::fs::{self, File};
use std::time::Duration;

use whim_attempts::{Attempt, Party};
use whim_system_tests::process::{self, Running, eventually};
use whim_system_tests::terminal::Terminal;
use whim_system_tests::{Case, Cluster, Context, Result, ensure};

const SHORT: Duration = Duration::from_secs(60);
const FIRST: &str = "10.99.0.1";
/// Nobody's, and a member of the administrators' group.
const ADMINISTRATOR: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--groups=4711"];

pub fn cases() -> Vec<Case> {
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

/// Somebody watches /proc while a node joins, and uses what is seen there before the node has.
fn watched(cluster: &Cluster) -> Result<()> {
    let stop = cluster.directory().join("joined");
    let stop_name = stop.display().to_string();
    let mut watchers = Vec::new();
    for (number, user, names) in [
        (0, "nobody", &["cmdline"][..]),
        (1, "root", &["cmdline", "environ"]),
    ] {
        let words = [&["python3", "-c", WATCH, &stop_name][..], names].concat();
        let said = cluster.directory().join(format!("watched-{number}"));
        let mut command = cluster.command_as(user, "n2", &words);
        command.stdout(File::create(&said)?);
        watchers.push((Running::spawn(&mut command)?, said));
    }
    let reads = |part: &str| -> Result<Option<String>> {
        let texts = watchers.iter().map(|(_, said)| fs::read_to_string(said));
        let texts = texts.collect::<std::io::Result<Vec<_>>>()?;
        let found = texts.iter().find_map(|text| text.split_once(part));
        Ok(found.map(|(_, rest)| rest.lines().next().unwrap_or_default().to_owned()))
    };
    eventually(SHORT, "both watch", || {
        let texts = watchers.iter().map(|(_, said)| fs::read_to_string(said));
        let texts = texts.collect::<std::io::Result<Vec<_>>>()?;
        Ok(texts
            .iter()
            .all(|text| text.contains("watching"))
            .then_some(()))
    })?;
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
    std::io::Write::write_all(&mut writer, token.as_bytes())?;
    drop(writer);
    let mut command = cluster.whim_command("n2", &words);
    let mut joining = Running::spawn(command.stdin(reader))?;
    let mut ended = None;
    let stolen = eventually(SHORT, "the join ends, or its token is seen", || {
        ended = joining.wait_up_to(Duration::ZERO)?;
        let found = reads("found ")?;
        Ok((ended.is_some() || found.is_some()).then_some(found))
    })?;
    if let Some(seen) = stolen {
        let (_, token) = seen.split_once(' ').context("What was found")?;
        let thief = cluster.whim("n3", &["join", FIRST, token, "--node", "n3"]);
        let victim = joining.wait(SHORT)?;
        let nodes = cluster.whim("n1", &["nodes"])?;
        println!("n3, by what was seen on n2: {thief:?}; n2: {victim}\n{nodes}");
    }
    fs::write(&stop, "")?;
    eventually(SHORT, "the watchers end", || {
        let ends = watchers.iter().map(|(_, said)| fs::read_to_string(said));
        let ends = ends.collect::<std::io::Result<Vec<_>>>()?;
        let over = |text: &String| text.contains("nothing in") || text.contains("found");
        Ok(ends.iter().all(over).then_some(()))
    })?;
    let found = reads("found ")?;
    ensure!(found.is_none(), "The token was seen: {found:?}");
    let looks = reads("nothing in ")?.context("Looks")?;
    ensure!(
        ended.is_some_and(|status| status.success()),
        "The join has failed: {ended:?}"
    );
    println!("nothing was found in {looks}");
    attempt.failed(format!("nothing of it is to be seen there, in {looks}"));
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

/// A member of the administrators' group has the CA copied, and taken up, where root alone may write
/// and read.
fn copies(cluster: &Cluster) -> Result<()> {
    let groups = "cp /etc/group /run/group && echo whim-admin:x:4711: >>/run/group && mount --bind /run/group /etc/group";
    cluster.run("n1", &["sh", "-c", groups])?;
    let make = "mkdir -m 755 /run/of-root && mkdir -m 777 /run/of-all && ln -s /run/of-root/by-link /run/of-all/link";
    cluster.run("n1", &["sh", "-c", make])?;
    let whim = cluster.whim_path().display().to_string();
    let administrator = |words: &[&str]| {
        let words = [&ADMINISTRATOR[..], &[&whim], words].concat();
        process::output(&mut cluster.command("n1", &words), SHORT)
    };
    let is_there = |path: &str| -> Result<bool> {
        let found = cluster.run(
            "n1",
            &[
                "sh",
                "-c",
                &format!("test -e {path} && echo yes || echo no"),
            ],
        )?;
        Ok(found.trim() == "yes")
    };
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
        let said = administrator(&["ca", "backup", file])?;
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        println!("{file}: {}: {text}", said.status);
        ensure!(!is_there(made)?, "{made} was made");
        ensure!(said.status.code() == Some(1), "{}", said.status);
        attempt.failed(text.trim());
    }
    let good = administrator(&["ca", "backup", "/run/of-all/copy"])?;
    ensure!(
        good.status.success(),
        "{}",
        String::from_utf8_lossy(&good.stderr)
    );
    let about = cluster.run("n1", &["stat", "-c", "%u %a", "/run/of-all/copy"])?;
    ensure!(about.trim() == "65534 600", "{about}");
    // Root's own copy, which nobody else may read.
    cluster.run(
        "n1",
        &[
            "sh",
            "-c",
            "cat /run/of-all/copy >/run/of-root/own && chmod 600 /run/of-root/own",
        ],
    )?;
    cluster.whim("n1", &["leave"])?;
    let attempt = Attempt::new(
        Party::LocalUser,
        "as an administrator: have root take up a CA from a file that root alone may read",
    );
    let said = administrator(&["init", "--restore", "/run/of-root/own", "--node", "n1"])?;
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    println!("restore: {}: {text}", said.status);
    ensure!(said.status.code() == Some(1), "{}", said.status);
    attempt.failed(text.trim());
    let good = administrator(&["init", "--restore", "/run/of-all/copy", "--node", "n1"])?;
    ensure!(
        good.status.success(),
        "{}",
        String::from_utf8_lossy(&good.stderr)
    );
    cluster.whim("n1", &["token"]).map(drop)
}
