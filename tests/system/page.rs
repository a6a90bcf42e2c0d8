//! The page that `whim web` opens: what it does for its user, and what it does for nobody else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use whim_attempts::{Attempt, Party};
use whim_system_tests::process::{self, Running, eventually};
use whim_system_tests::talk::WAITS;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, bail, ensure};

const PATIENCE: Duration = Duration::from_secs(30);
/// What must be seen by nobody but its user.
const SECRET: &str = "token-71c09";

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, body: fn(&Cluster) -> Result<()>| {
        Case::in_lab(format!("page::{name}"), 2, body)
    };
    vec![
        case("what_its_user_may", what_its_user_may),
        case("arguments_of_others", arguments_of_others),
        case("processes_of_others", processes_of_others),
        case("link_of_another", link_of_another),
        case("link_twice", link_twice),
        case("session_of_another", session_of_another),
        case("foreign_origin", foreign_origin),
        case("foreign_name", foreign_name),
        case("no_token", no_token),
        case("nobody_looks_on", nobody_looks_on),
        case("elsewhere_by_tls", elsewhere_by_tls),
    ]
}

/// What was answered.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

/// One user's browser on n1, as far as requests and cookies go.
struct Browser<'a> {
    cluster: &'a Cluster,
    user: &'static str,
    jar: PathBuf,
    origin: String,
    token: String,
}

impl<'a> Browser<'a> {
    fn new(cluster: &'a Cluster, user: &'static str, origin: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let room = cluster.directory().join(format!("browser-{number}"));
        fs::create_dir_all(&room)?;
        // Cookies are kept in a new file each time, by this user; nobody else runs in this lab.
        fs::set_permissions(&room, fs::Permissions::from_mode(0o777))?;
        let jar = room.join("cookies");
        Ok(Self {
            cluster,
            user,
            jar,
            origin: origin.to_owned(),
            token: String::new(),
        })
    }

    /// With a link of this user's own, opened.
    fn entered(cluster: &'a Cluster, user: &'static str) -> Result<Self> {
        let url = link(cluster, user)?;
        let mut browser = Self::new(cluster, user, origin_of(&url)?)?;
        let answer = browser.ask(&url, &[])?;
        ensure!(answer.status == 303, "{answer:?}");
        let page = browser.ask(&browser.at("/"), &[])?;
        ensure!(page.status == 200, "{page:?}");
        browser.token = meta(&page.body, "token")?;
        Ok(browser)
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }

    fn ask(&self, url: &str, options: &[&str]) -> Result<Answer> {
        let jar = self.jar.display().to_string();
        let fixed = [
            "curl",
            "--silent",
            "--show-error",
            "--include",
            "--globoff",
            "--insecure",
            "--max-time",
            "20",
            "--cookie",
            &jar,
            "--cookie-jar",
            &jar,
        ];
        let words = [&fixed[..], options, &[url]].concat();
        let mut command = self.cluster.command_as(self.user, "n1", &words);
        let text = process::succeed(&mut command, PATIENCE)?.replace("\r\n", "\n");
        let (head, body) = text.split_once("\n\n").context("An answer has a head")?;
        let status = head.split(' ').nth(1).context("A head has a status")?;
        Ok(Answer {
            status: status.parse()?,
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        })
    }

    /// As the page's own script does; `changed` takes the place of headers of the same name.
    fn order(&self, order: &Value, changed: &[(&str, &str)]) -> Result<Answer> {
        let mut headers = vec![
            ("Origin", self.origin.as_str()),
            ("X-Whim-Token", &self.token),
            ("Content-Type", "application/json"),
        ];
        for (name, value) in changed {
            headers.retain(|(other, _)| other != name);
            headers.push((name, value));
        }
        let lines: Vec<String> = headers.iter().map(|(n, v)| format!("{n}: {v}")).collect();
        let mut options = vec!["--data"];
        let data = order.to_string();
        options.push(&data);
        for line in &lines {
            options.extend(["--header", line]);
        }
        self.ask(&self.at("/orders"), &options)
    }

    fn migrate(&self, pid: i32, to: &str) -> Result<Answer> {
        self.order(&json!({"order": "migrate", "pid": pid, "to": to}), &[])
    }

    /// What the feed says first.
    fn first_batch(&self) -> Result<Vec<Value>> {
        let jar = self.jar.display().to_string();
        let url = self.at("/feed");
        let words = [
            "curl",
            "--silent",
            "--no-buffer",
            "--globoff",
            "--cookie",
            &jar,
            &url,
        ];
        let out = self.cluster.directory().join("feed");
        let mut command = self.cluster.command_as(self.user, "n1", &words);
        command.stdout(fs::File::create(&out)?);
        let mut reader = Running::spawn(&mut command)?;
        let batch = eventually(PATIENCE, "the feed says something", || {
            let text = fs::read_to_string(&out)?;
            let whole = text.split_once("\n\n").map(|(event, _)| event.to_owned());
            Ok(whole)
        })?;
        reader.signal(nix::sys::signal::Signal::SIGTERM);
        let data = batch.strip_prefix("data: ").context("an event has data")?;
        Ok(serde_json::from_str(data)?)
    }
}

/// What `whim web` prints for this user.
fn link(cluster: &Cluster, user: &str) -> Result<String> {
    let whim = cluster.whim_path().display().to_string();
    let mut command = cluster.command_as(user, "n1", &[whim.as_str(), "web", "--json"]);
    let told: Value = serde_json::from_str(&process::succeed(&mut command, PATIENCE)?)?;
    let url = told["url"].as_str().context("A link has an address")?;
    Ok(url.to_owned())
}

fn origin_of(url: &str) -> Result<&str> {
    let (origin, _) = url.split_once("/enter").context("A link leads in")?;
    Ok(origin)
}

fn meta(page: &str, name: &str) -> Result<String> {
    let begin = format!("<meta name=\"{name}\" content=\"");
    let (_, rest) = page.split_once(&begin).context("The page has it")?;
    let (value, _) = rest.split_once('"').context("It ends")?;
    Ok(value.to_owned())
}

/// A program of root's, with an argument that is nobody's business.
fn program(cluster: &Cluster) -> Result<(Talk, i32)> {
    Talk::run(cluster, &[], &["python3", "-c", WAITS, SECRET])
}

fn end(cluster: &Cluster, mut talk: Talk, pid: i32, node: &str) -> Result<()> {
    ensure!(cluster.place(pid)? == node, "{pid} is elsewhere");
    talk.go()?;
    talk.succeed()
}

fn what_its_user_may(cluster: &Cluster) -> Result<()> {
    let (talk, pid) = program(cluster)?;
    let browser = Browser::entered(cluster, "root")?;
    let batch = browser.first_batch()?;
    let row = batch.iter().find(|update| update["pid"] == pid);
    let row = row.context("The program is told")?;
    let command = row["command"].as_str().unwrap_or_default();
    ensure!(command.contains(SECRET), "{row}");
    ensure!(
        batch.iter().filter(|u| u["update"] == "node").count() == 2,
        "{batch:?}"
    );
    ensure!(
        batch.last().is_some_and(|last| last["update"] == "tick"),
        "{batch:?}"
    );
    let answer = browser.migrate(pid, "n2")?;
    ensure!(answer.status == 200, "{answer:?}");
    ensure!(
        answer.body.contains(&format!("n1:{pid} has gone to n2")),
        "{answer:?}"
    );
    ensure!(cluster.place(pid)? == "n2", "It did not move");
    let answer = browser.order(&json!({"order": "why", "pid": pid}), &[])?;
    let told: Value = serde_json::from_str(&answer.body)?;
    ensure!(
        told["sentences"]
            .as_array()
            .is_some_and(|all| !all.is_empty()),
        "{answer:?}"
    );
    let answer = browser.order(&json!({"order": "drain", "node": "n2"}), &[])?;
    ensure!(answer.status == 200, "{answer:?}");
    ensure!(
        cluster.place(pid)? == "n1",
        "It did not leave the node that is drained"
    );
    let refused = browser.migrate(pid, "n2")?;
    ensure!(
        refused.status == 409 && !refused.body.is_empty(),
        "{refused:?}"
    );
    let answer = browser.order(&json!({"order": "undrain", "node": "n2"}), &[])?;
    ensure!(answer.status == 200, "{answer:?}");
    for order in [
        json!({"order": "dance"}),
        json!(7),
        json!({"order": "go", "pid": pid, "x": 1}),
    ] {
        let answer = browser.order(&order, &[])?;
        ensure!(answer.status == 400, "{order}: {answer:?}");
    }
    end(cluster, talk, pid, "n1")
}

fn arguments_of_others(cluster: &Cluster) -> Result<()> {
    let (talk, pid) = program(cluster)?;
    let attempt = Attempt::new(
        Party::LocalUser,
        "read the arguments of another user's program in the page's feed",
    );
    let batch = Browser::entered(cluster, "nobody")?.first_batch()?;
    let row = batch.iter().find(|update| update["pid"] == pid);
    ensure!(
        row.context("The program is told")?["command"] == "python3",
        "{row:?}"
    );
    ensure!(!json!(batch).to_string().contains(SECRET), "{batch:?}");
    attempt.failed("the name of the program is told, and no more");
    end(cluster, talk, pid, "n1")
}

fn processes_of_others(cluster: &Cluster) -> Result<()> {
    let (talk, pid) = program(cluster)?;
    let browser = Browser::entered(cluster, "nobody")?;
    for order in [
        json!({"order": "migrate", "pid": pid, "to": "n2"}),
        json!({"order": "bring", "pid": pid, "hold": true}),
        json!({"order": "go", "pid": pid}),
        json!({"order": "drain", "node": "n2"}),
        json!({"order": "undrain", "node": "n2"}),
    ] {
        let word = order["order"].as_str().unwrap_or_default();
        let what = format!("{word} what is another user's from the page");
        let attempt = Attempt::new(Party::LocalUser, what);
        let answer = browser.order(&order, &[])?;
        ensure!(answer.status == 409, "{order}: {answer:?}");
        let said = answer.body.replace(&pid.to_string(), "PID");
        attempt.failed(said);
    }
    end(cluster, talk, pid, "n1")
}

fn link_of_another(cluster: &Cluster) -> Result<()> {
    let url = link(cluster, "root")?;
    let attempt = Attempt::new(Party::LocalUser, "open the page by another user's link");
    let other = Browser::new(cluster, "nobody", origin_of(&url)?)?;
    let answer = other.ask(&url, &[])?;
    ensure!(
        answer.status == 403 && !answer.head.contains("set-cookie"),
        "{answer:?}"
    );
    ensure!(other.ask(&other.at("/"), &[])?.status == 401, "It is in");
    attempt.failed("the kernel tells whose the connection is; the link stays good for its owner");
    let owner = Browser::new(cluster, "root", origin_of(&url)?)?;
    ensure!(
        owner.ask(&url, &[])?.status == 303,
        "It is not good any more"
    );
    Ok(())
}

fn link_twice(cluster: &Cluster) -> Result<()> {
    let url = link(cluster, "root")?;
    let first = Browser::new(cluster, "root", origin_of(&url)?)?;
    ensure!(first.ask(&url, &[])?.status == 303, "It is not good");
    let attempt = Attempt::new(Party::LocalUser, "open the page by a link that was used");
    fs::remove_file(&first.jar)?;
    let answer = first.ask(&url, &[])?;
    ensure!(
        answer.status == 410 && !answer.head.contains("set-cookie"),
        "{answer:?}"
    );
    attempt.failed("it opens once");
    Ok(())
}

fn session_of_another(cluster: &Cluster) -> Result<()> {
    let owner = Browser::entered(cluster, "root")?;
    let attempt = Attempt::new(
        Party::LocalUser,
        "show the cookie of another user's session",
    );
    let mut thief = Browser::new(cluster, "nobody", &owner.origin)?;
    fs::copy(&owner.jar, &thief.jar)?;
    fs::set_permissions(&thief.jar, fs::Permissions::from_mode(0o666))?;
    thief.token.clone_from(&owner.token);
    let jar = thief.jar.display().to_string();
    let read = process::succeed(
        &mut cluster.command_as("nobody", "n1", &["cat", &jar]),
        PATIENCE,
    )?;
    ensure!(read.contains("whim-"), "There is no cookie to show: {read}");
    for path in ["/", "/feed"] {
        let answer = thief.ask(&thief.at(path), &[])?;
        ensure!(answer.status == 401, "{path}: {answer:?}");
    }
    let answer = thief.order(&json!({"order": "drain", "node": "n2"}), &[])?;
    ensure!(answer.status == 401, "{answer:?}");
    attempt.failed("the kernel tells whose the connection is");
    let out = owner.order(&json!({"order": "why", "pid": 1}), &[])?;
    ensure!(out.status == 200, "The owner's session is over: {out:?}");
    Ok(())
}

fn foreign_origin(cluster: &Cluster) -> Result<()> {
    let (talk, pid) = program(cluster)?;
    let browser = Browser::entered(cluster, "root")?;
    let order = json!({"order": "migrate", "pid": pid, "to": "n2"});
    for (name, value) in [
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Origin", "http://127.0.0.1:1"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        let what = format!("send an order from another page, with {name}: {value}");
        let attempt = Attempt::new(Party::Stranger, what);
        let answer = browser.order(&order, &[(name, value)])?;
        ensure!(answer.status == 403, "{name}: {value}: {answer:?}");
        let header = format!("{name}: {value}");
        let feed = browser.ask(&browser.at("/feed"), &["--header", &header])?;
        ensure!(feed.status == 403, "{header}: {feed:?}");
        attempt.failed("it is refused, and so is the feed");
    }
    let answer = browser.order(&order, &[("Origin", "")])?;
    ensure!(answer.status == 403, "{answer:?}");
    end(cluster, talk, pid, "n1")
}

fn foreign_name(cluster: &Cluster) -> Result<()> {
    let browser = Browser::entered(cluster, "root")?;
    for name in ["evil.example", "evil.example:7947", "n2", "127.0.0.1"] {
        let what = format!("reach the page under a name that leads there, Host: {name}");
        let attempt = Attempt::new(Party::Stranger, what);
        let header = format!("Host: {name}");
        for path in ["/", "/feed", "/page.js", "/enter?key=0"] {
            let answer = browser.ask(&browser.at(path), &["--header", &header])?;
            ensure!(answer.status == 403, "{name}{path}: {answer:?}");
        }
        attempt.failed("only the page's own names are answered");
    }
    Ok(())
}

fn no_token(cluster: &Cluster) -> Result<()> {
    let (talk, pid) = program(cluster)?;
    let browser = Browser::entered(cluster, "root")?;
    let order = json!({"order": "migrate", "pid": pid, "to": "n2"});
    let other = Browser::entered(cluster, "root")?.token;
    for token in ["", "0", &other] {
        let attempt = Attempt::new(
            Party::Stranger,
            format!(
                "send an order with {} token",
                if token == other {
                    "another session's"
                } else {
                    "no"
                }
            ),
        );
        let answer = browser.order(&order, &[("X-Whim-Token", token)])?;
        ensure!(answer.status == 403 || answer.status == 401, "{answer:?}");
        attempt.failed("it is refused");
    }
    end(cluster, talk, pid, "n1")
}

/// Without a session there is nothing to be seen, and nothing that a frame or a script of others' could use.
fn nobody_looks_on(cluster: &Cluster) -> Result<()> {
    let url = link(cluster, "root")?;
    let stranger = Browser::new(cluster, "root", origin_of(&url)?)?;
    for path in ["/", "/feed"] {
        let answer = stranger.ask(&stranger.at(path), &[])?;
        ensure!(answer.status == 401, "{path}: {answer:?}");
        for header in [
            "frame-ancestors 'none'",
            "nosniff",
            "no-referrer",
            "no-store",
        ] {
            ensure!(answer.head.contains(header), "{path}: {answer:?}");
        }
        ensure!(!answer.body.contains("n2"), "{answer:?}");
    }
    let answer = stranger.order(&json!({"order": "why", "pid": 1}), &[])?;
    ensure!(answer.status == 401, "{answer:?}");
    let known = Browser::entered(cluster, "root")?;
    let left = known.ask(
        &known.at("/leave"),
        &[
            "--request",
            "POST",
            "--header",
            &format!("Origin: {}", known.origin),
            "--header",
            &format!("X-Whim-Token: {}", known.token),
        ],
    )?;
    ensure!(left.status == 200, "{left:?}");
    ensure!(
        known.ask(&known.at("/"), &[])?.status == 401,
        "The session is not over"
    );
    Ok(())
}

/// Off loopback by TLS, with a certificate whose fingerprint is told; the session's cookie goes by TLS alone.
fn elsewhere_by_tls(cluster: &Cluster) -> Result<()> {
    cluster.configure("n1", "[web]\nlisten = \"10.99.0.1:7947\"\n")?;
    cluster.restart_daemon("n1")?;
    let told: Value = serde_json::from_str(&cluster.whim("n1", &["web", "--json"])?)?;
    let url = told["url"]
        .as_str()
        .context("A link has an address")?
        .to_owned();
    let Some(fingerprint) = told["certificate_sha256"].as_str() else {
        bail!("{told}");
    };
    ensure!(
        url.starts_with("https://10.99.0.1:7947/enter?key="),
        "{url}"
    );
    let shown = cluster.run("n2", &[
        "sh", "-c",
        "openssl s_client -connect 10.99.0.1:7947 </dev/null 2>/dev/null | openssl x509 -noout -fingerprint -sha256",
    ])?;
    ensure!(
        shown.trim().ends_with(fingerprint),
        "{shown} is not {fingerprint}"
    );
    let browser = Browser::new(cluster, "root", origin_of(&url)?)?;
    let plain = browser.ask(&url.replace("https:", "http:"), &[]);
    ensure!(plain.is_err(), "It answers without TLS: {plain:?}");
    let answer = browser.ask(&url, &[])?;
    ensure!(answer.status == 303, "{answer:?}");
    ensure!(
        answer.head.contains("; secure") && answer.head.contains("__host-whim"),
        "{answer:?}"
    );
    ensure!(browser.ask(&browser.at("/"), &[])?.status == 200, "No page");
    // The certificate is kept: who trusts it is not asked again.
    cluster.restart_daemon("n1")?;
    let again: Value = serde_json::from_str(&cluster.whim("n1", &["web", "--json"])?)?;
    ensure!(again["certificate_sha256"] == fingerprint, "{again}");
    Ok(())
}
