//! What nodes tell Prometheus: that it is so, that dashboard and alerts find it, and that it betrays nobody.

mod promql;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use whim_attempts::{Attempt, Party};
use whim_system_tests::process::{self, Running, eventually};
use whim_system_tests::talk::WAITS;
use whim_system_tests::{Case, Cluster, Context, Result, Talk, ensure, place};

use promql::Scraped;

const PATIENCE: Duration = Duration::from_secs(60);
const FETCH: Duration = Duration::from_secs(300);
/// What must be seen by nobody but its user.
const SECRET: &str = "token-93c1f";
const PORT: u16 = 9947;
const ASK: &str = "import sys, urllib.request
request = urllib.request.Request('http://127.0.0.1:9947/metrics', headers={'Accept': sys.argv[1]})
with urllib.request.urlopen(request, timeout=20) as answer:
    print(answer.headers['Content-Type'])
    print(answer.read().decode(), end='')";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_lab("metrics::expressions", 3, expressions),
        Case::in_lab("metrics::of_nobody", 2, of_nobody),
        Case::in_lab("metrics::off_unless_configured", 2, off_unless_configured),
        Case::new("metrics::reading_of_expressions", |_| promql::is_strict()),
        Case::in_lab("metrics::full::prometheus", 3, prometheus),
    ]
}

/// Has all nodes tell their metrics on this address.
fn tell(cluster: &Cluster, address: &str) -> Result<()> {
    for node in 1..=cluster.nodes() {
        let node = format!("n{node}");
        cluster.configure(
            &node,
            &format!("[metrics]\nlisten = \"{address}:{PORT}\"\n"),
        )?;
        cluster.restart_daemon(&node)?;
    }
    // Each reaches all others again.
    for node in 1..=cluster.nodes() {
        let up = format!("whim_members{{reach=\"up\"}} {}.0\n", cluster.nodes());
        scraped_with(cluster, &format!("n{node}"), &up)?;
    }
    Ok(())
}

fn scrape(cluster: &Cluster, node: &str) -> Result<String> {
    cluster.run(node, &["python3", "-c", ASK, "text/plain"])
}

/// What a node tells as soon as this is in it.
fn scraped_with(cluster: &Cluster, node: &str, text: &str) -> Result<String> {
    eventually(PATIENCE, &format!("{node} tells {text}"), || {
        // It may just be starting.
        let told = scrape(cluster, node).unwrap_or_default();
        Ok(told.contains(text).then_some(told))
    })
}

/// The value of a series, as its line begins.
fn value(text: &str, series: &str) -> Result<f64> {
    let line = text.lines().find(|line| {
        line.strip_prefix(series)
            .is_some_and(|rest| rest.starts_with(' '))
    });
    let line = line.with_context(|| format!("No {series} in {text}"))?;
    Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
}

fn dist(name: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../dist")
        .join(name);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Expressions of the dashboard, as its variables make them.
fn of_dashboard() -> Result<Vec<String>> {
    fn gather(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    match field {
                        Value::String(text) if name == "expr" || name == "definition" => {
                            found.push(text.clone());
                        }
                        field => gather(field, found),
                    }
                }
            }
            Value::Array(all) => all.iter().for_each(|value| gather(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    gather(
        &serde_json::from_str(&dist("grafana-dashboard.json")?)?,
        &mut found,
    );
    let filled = found.into_iter().map(|expression| {
        let expression = expression.replace("$__rate_interval", "1m");
        expression.replace("$instance", ".*")
    });
    Ok(filled.collect())
}

/// Names and expressions of the alerts.
fn of_alerts() -> Result<Vec<(String, String)>> {
    let text = dist("prometheus-alerts.yml")?;
    let mut alerts: Vec<(String, String)> = Vec::new();
    let mut folded = false;
    for line in text.lines() {
        let words = line.trim();
        if let Some(name) = words.strip_prefix("- alert: ") {
            alerts.push((name.to_owned(), String::new()));
        } else if let Some(expression) = words.strip_prefix("expr: ") {
            folded = expression == ">-";
            if !folded {
                alerts.last_mut().context("no alert")?.1 = expression.to_owned();
            }
        } else if folded && words.split(':').next().is_some_and(|key| key == "labels") {
            folded = false;
        } else if folded {
            let expression = &mut alerts.last_mut().context("no alert")?.1;
            *expression = format!("{expression} {words}");
        }
    }
    Ok(alerts)
}

/// Every expression of dashboard and alerts finds what it names, while a program moves; and what is counted
/// is what has happened.
fn expressions(cluster: &Cluster) -> Result<()> {
    tell(cluster, "127.0.0.1")?;
    let before = scrape(cluster, "n1")?;
    let (mut talk, pid) = Talk::run(cluster, &[], &["python3", "-c", WAITS, SECRET])?;
    cluster.move_to(pid, "n2")?;
    scraped_with(cluster, "n2", "\nwhim_guests{state=\"started\"} 1.0\n")?;
    let elsewhere = "\nwhim_processes{state=\"away\",place=\"elsewhere\"} 1.0\n";
    scraped_with(cluster, "n1", elsewhere)?;
    cluster.move_to(pid, "n3")?;
    cluster.move_to(pid, "home")?;
    cluster.refused("n1", &["migrate", &pid.to_string(), "n9"])?;
    // One that begins, and fails where room is asked for.
    cluster.configure(
        "n2",
        "[guests]\nmax = 0\n[metrics]\nlisten = \"127.0.0.1:9947\"\n",
    )?;
    cluster.restart_daemon("n2")?;
    scraped_with(cluster, "n2", "whim_members{reach=\"up\"} 3.0\n")?;
    eventually(PATIENCE, "n2 is up for n1", || {
        let reason = cluster.refused("n1", &["migrate", &pid.to_string(), "n2"])?;
        Ok(reason.contains("guests already").then_some(()))
    })?;
    let mut scraped = Scraped::default();
    for node in ["n1", "n2", "n3"] {
        scraped.take(&scrape(cluster, node)?)?;
    }
    let dashboard = of_dashboard()?;
    let alerts = of_alerts()?;
    ensure!(
        dashboard.len() > 30 && alerts.len() > 10,
        "Not all are found"
    );
    let alerts = alerts.into_iter().map(|(_, expression)| expression);
    for expression in dashboard.into_iter().chain(alerts) {
        scraped
            .finds(&expression)
            .with_context(|| expression.clone())?;
    }
    counts_are_right(cluster)?;
    // What moved has no series of its own.
    let after = scrape(cluster, "n1")?;
    // Pressure is not known before the daemon's first look, nor on every kernel.
    let count = |text: &str| {
        text.lines()
            .filter(|line| !line.contains("_pressure_"))
            .count()
    };
    ensure!(count(&before) == count(&after), "{before}\n\n{after}");
    talk.go()?;
    talk.succeed()
}

fn counts_are_right(cluster: &Cluster) -> Result<()> {
    let done = "whim_moves_done_total{cause=\"user\"}";
    let text = scraped_with(cluster, "n1", &format!("\n{done} 3\n"))?;
    let of = |series: &str| value(&text, series);
    let failed = of("whim_moves_failed_total{cause=\"user\"}")?;
    ensure!(failed >= 1.0, "{text}");
    ensure!(
        of("whim_moves_failed_in_phase_total{phase=\"admit\"}")? == failed,
        "{text}"
    );
    ensure!(
        of("whim_moves_begun_total{cause=\"user\"}")? == 3.0 + failed,
        "{text}"
    );
    ensure!(
        of("whim_moves_refused_total{reason=\"node\"}")? >= 1.0,
        "{text}"
    );
    ensure!(of("whim_move_freeze_seconds_count")? == 3.0, "{text}");
    ensure!(of("whim_move_duration_seconds_count")? == 3.0, "{text}");
    let (frozen, all) = (
        of("whim_move_freeze_seconds_sum")?,
        of("whim_move_duration_seconds_sum")?,
    );
    ensure!(
        frozen > 0.0 && frozen <= all && all < 60.0,
        "{frozen} of {all}"
    );
    ensure!(of("whim_move_sent_bytes_total")? > 100_000.0, "{text}");
    ensure!(
        of("whim_certificate_remaining_seconds")? > 80.0 * 86_400.0,
        "{text}"
    );
    ensure!(
        of("whim_links_lost_total")? >= of("whim_links_healed_total")?,
        "{text}"
    );
    ensure!(of("whim_daemon_cpu_seconds_total")? > 0.0, "{text}");
    ensure!(of("whim_daemon_resident_memory_bytes")? > 1e6, "{text}");
    // What was told a moment ago is told again, for a while.
    scraped_with(cluster, "n3", "\nwhim_guests_admitted_total 1\n")?;
    let refused = format!("\nwhim_guests_refused_total{{reason=\"guests\"}} {failed}\n");
    scraped_with(cluster, "n2", &refused)?;
    Ok(())
}

/// Whoever may reach the port reads numbers, and nothing of what runs.
fn of_nobody(cluster: &Cluster) -> Result<()> {
    tell(cluster, "127.0.0.1")?;
    let (mut talk, pid) = Talk::run(cluster, &[], &["python3", "-c", WAITS, SECRET])?;
    cluster.move_to(pid, "n2")?;
    let attempt = Attempt::new(
        Party::LocalUser,
        "read from the metrics what others run, and who they are",
    );
    for accept in ["text/plain", "application/openmetrics-text"] {
        for node in ["n1", "n2"] {
            let words = ["python3", "-c", ASK, accept];
            let mut command = cluster.command_as("nobody", node, &words);
            let text = process::succeed(&mut command, PATIENCE)?;
            ensure!(text.starts_with(accept), "{text}");
            for told in [SECRET, "python", "root", "uid", "pid", "command"] {
                ensure!(!text.contains(told), "{told} in {text}");
            }
        }
    }
    attempt.failed("numbers of the node are told, and no more");
    // A host that wants to be rid of it is another cause.
    cluster.whim("n2", &["expel"])?;
    scraped_with(cluster, "n1", "\nwhim_moves_done_total{cause=\"host\"} 1\n")?;
    scraped_with(cluster, "n2", "\nwhim_node_orders{order=\"block\"} 1.0\n")?;
    talk.go()?;
    talk.succeed()
}

/// Without a word in the configuration nobody listens.
fn off_unless_configured(cluster: &Cluster) -> Result<()> {
    let listening = || cluster.run("n1", &["sh", "-c", "cat /proc/net/tcp /proc/net/tcp6"]);
    let port = format!(":{PORT:04X} ");
    ensure!(!listening()?.contains(&port), "It listens");
    cluster.configure("n1", "[metrics]\nlisten = \"127.0.0.1:9947\"\n")?;
    cluster.restart_daemon("n1")?;
    eventually(PATIENCE, "it listens", || {
        Ok(listening()?.contains(&port).then_some(()))
    })?;
    // Another one on that address is no reason not to run.
    cluster.configure("n1", "[metrics]\nlisten = \"192.0.2.1:9947\"\n")?;
    cluster.restart_daemon("n1")?;
    ensure!(!listening()?.contains(&port), "It listens");
    cluster.whim("n1", &["nodes"]).map(drop)
}

/// The distribution's Prometheus on n1, which scrapes all nodes.
struct Prometheus<'a> {
    cluster: &'a Cluster,
    server: Running,
}

const QUERY: &str = "import sys, urllib.parse, urllib.request
url = 'http://127.0.0.1:9090' + sys.argv[1]
if len(sys.argv) > 2:
    url += '?' + urllib.parse.urlencode({'query': sys.argv[2]})
try:
    print(urllib.request.urlopen(url, timeout=20).read().decode())
except urllib.error.HTTPError as error:
    print(error.read().decode())";

impl<'a> Prometheus<'a> {
    fn start(cluster: &'a Cluster) -> Result<Self> {
        let root = fetched()?;
        let directory = cluster.directory().join("prometheus");
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("alerts.yml"), dist("prometheus-alerts.yml")?)?;
        let text = "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\n\
             rule_files: [alerts.yml]\nscrape_configs:\n  - job_name: whim\n    static_configs:\n      \
             - targets: [\"n1:9947\", \"n2:9947\", \"n3:9947\"]\n";
        fs::write(directory.join("prometheus.yml"), text)?;
        let tool = root.join("promtool");
        for (what, file) in [("rules", "alerts.yml"), ("config", "prometheus.yml")] {
            let mut command = Command::new(&tool);
            command.args(["check", what]).arg(directory.join(file));
            let said = process::succeed(&mut command, PATIENCE)?;
            ensure!(said.contains("SUCCESS"), "{said}");
        }
        let words = [
            root.join("prometheus").display().to_string(),
            format!(
                "--config.file={}",
                directory.join("prometheus.yml").display()
            ),
            format!("--storage.tsdb.path={}", directory.join("data").display()),
            "--web.listen-address=127.0.0.1:9090".to_owned(),
        ];
        let mut command = cluster.command("n1", &words);
        let log = fs::File::create(directory.join("log"))?;
        command.stdout(log.try_clone()?).stderr(log);
        let server = Running::spawn(&mut command)?;
        Ok(Self { cluster, server })
    }

    fn ask(&self, path: &str, query: Option<&str>) -> Result<Value> {
        let mut words = vec!["python3", "-c", QUERY, path];
        words.extend(query);
        let text = self.cluster.run("n1", &words)?;
        let answer: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        ensure!(answer["status"] == "success", "{words:?}: {text}");
        Ok(answer["data"].clone())
    }

    /// What an expression gives now.
    fn values(&self, expression: &str) -> Result<Vec<Value>> {
        let data = self.ask("/api/v1/query", Some(expression))?;
        Ok(data["result"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until it gives something.
    fn until(&self, expression: &str) -> Result<()> {
        eventually(PATIENCE, expression, || {
            // It may be starting.
            let values = self.values(expression).unwrap_or_default();
            Ok((!values.is_empty()).then_some(()))
        })
    }
}

fn fetched() -> Result<PathBuf> {
    let root = place::toolchain().join("prometheus");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/fetch-prometheus");
    process::succeed(Command::new(script).arg(&root), FETCH)?;
    Ok(root.canonicalize()?.join("usr/bin"))
}

/// Prometheus itself takes the rules, scrapes the nodes, and evaluates every expression; what each is to find
/// it finds.
fn prometheus(cluster: &Cluster) -> Result<()> {
    tell(cluster, "0.0.0.0")?;
    let (mut talk, pid) = Talk::run(cluster, &[], &["python3", "-c", WAITS])?;
    cluster.move_to(pid, "n2")?;
    let mut server = Prometheus::start(cluster)?;
    server.until("count(up == 1) == 3")?;
    cluster.move_to(pid, "n3")?;
    cluster.move_to(pid, "home")?;
    server.until("sum(increase(whim_moves_done_total[1m])) > 0")?;
    for expression in of_dashboard()? {
        if expression.starts_with("label_values") {
            continue;
        }
        let values = server.values(&expression)?;
        // Nobody was told anything.
        let may_be_empty = expression.ends_with(" == 1");
        ensure!(
            !values.is_empty() || may_be_empty,
            "{expression} finds nothing"
        );
    }
    for (name, expression) in of_alerts()? {
        let values = server.values(&expression)?;
        ensure!(values.is_empty(), "{name} would be raised: {values:?}");
    }
    let rules = server.ask("/api/v1/rules", None)?;
    let rules = rules["groups"].as_array().context("no groups")?.iter();
    let rules: Vec<&Value> = rules
        .filter_map(|group| group["rules"].as_array())
        .flatten()
        .collect();
    ensure!(rules.len() == of_alerts()?.len(), "{rules:?}");
    ensure!(rules.iter().all(|rule| rule["health"] == "ok"), "{rules:?}");
    raised(cluster, &server)?;
    talk.go()?;
    talk.succeed()?;
    server.server.signal(nix::sys::signal::Signal::SIGTERM);
    server.server.wait(PATIENCE).map(drop)
}

/// Alerts whose reasons can be had are raised by them.
fn raised(cluster: &Cluster, server: &Prometheus<'_>) -> Result<()> {
    let alerts = of_alerts()?;
    let until = |name: &str| {
        let found = alerts.iter().find(|(of, _)| of == name);
        let (_, expression) = found.with_context(|| format!("no alert {name}"))?;
        server.until(expression).with_context(|| name.to_owned())
    };
    cluster.lab(&["kill", "n3"])?;
    until("WhimNodeDown")?;
    until("WhimMemberDown")?;
    // It is what the daemon does that counts: one that stands still does not look.
    let daemon = cluster.daemon_pid("n2")?;
    cluster.run("n2", &["kill", "-STOP", &daemon])?;
    server.until("up{job=\"whim\",instance=\"n2:9947\"} == 0")?;
    cluster.run("n2", &["kill", "-CONT", &daemon])?;
    server.until("up{job=\"whim\",instance=\"n2:9947\"} == 1")
}
