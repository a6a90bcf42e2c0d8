//! How long it takes until what the feed says is seen, and what that costs.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::stat::Mode;
use serde_json::json;
use tokio::sync::mpsc::{Receiver, channel};
use whim_monitor::feed::Update;
use whim_system_tests::feed::{Simulation, mark};
use whim_system_tests::place;
use whim_system_tests::process::eventually;
use whim_system_tests::terminal::Terminal;
use whim_system_tests::webdriver::WebDriver;
use whim_system_tests::{Result, ensure};
use whim_web::guard::Guard;
use whim_web::serve::Web;
use whim_web::{Backend, Greeting, Order, Told, listen};

use super::figures::{Goals, Row, quantile};
use super::load::cpu_seconds;

const NODES: u32 = 50;
const PROCESSES: u32 = 1000;
/// Between two batches whose way is timed. The daemon tells one a second.
const PAUSE: Duration = Duration::from_millis(250);
const BATCHES: u32 = 120;
/// Of these the first ones are not counted: all is drawn for the first time.
const FIRST: usize = 8;
const SECONDS: u32 = 30;
const PATIENCE: Duration = Duration::from_secs(120);
const GOAL_MS: f64 = 100.0;
const GOAL_PERCENT: f64 = 3.0;

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0))
}

/// `whim top`, fed by a pipe, in a terminal.
pub(super) fn top() -> Result<()> {
    let room = room("top")?;
    let pipe = room.join("feed");
    nix::unistd::mkfifo(&pipe, Mode::from_bits_truncate(0o600))?;
    let mut command = Command::new(place::built()?.join("whim"));
    command.args(["top", "--from"]).arg(&pipe);
    let mut terminal = Terminal::start(&command)?;
    // Opens when the other end does.
    let mut feed = File::options().write(true).open(&pipe)?;
    let mut simulation = Simulation::new(NODES, PROCESSES);
    let mut samples = Vec::new();
    for step in 0..BATCHES {
        let batch = lines(&simulation.next(now_ms(), &mark(step)))?;
        let begun = Instant::now();
        feed.write_all(&batch)?;
        terminal.wait_within(&mark(step), PATIENCE)?;
        samples.push(begun.elapsed().as_secs_f64() * 1e3);
        std::thread::sleep(PAUSE.saturating_sub(begun.elapsed()));
    }
    let pid = terminal.pid();
    let (before, begun) = (used(pid)?, Instant::now());
    for step in 0..SECONDS {
        feed.write_all(&lines(&simulation.next(now_ms(), &mark(step)))?)?;
        let next = begun + Duration::from_secs(u64::from(step) + 1);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let percent = 100.0 * (used(pid)? - before) / begun.elapsed().as_secs_f64();
    terminal.press("q")?;
    ensure!(terminal.end()?.success(), "top did not end well");
    let row = Row::new("monitors", "`whim top`, 1,000 processes on 50 nodes");
    judge(&row, &samples[FIRST..], Some(percent))
}

/// The page, in a browser.
pub(super) fn page() -> Result<()> {
    let room = room("page")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let port = listener.local_addr()?.port();
    let guard = Guard::new(false, &["127.0.0.1".into()], port);
    let web = Web::new(Simulated, guard, false, port);
    runtime.spawn(listen::serve(listener, None, web.router()));
    let place = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command
    };
    let browser = WebDriver::start(&place, &room, free_port()?, (1600, 1000))?;
    let own = nix::unistd::geteuid().as_raw();
    let link = web.invite(own, ())?;
    browser.go(&format!("http://127.0.0.1:{port}{link}"))?;
    eventually(PATIENCE, "batches are drawn", || {
        let count = browser.run("return window.whimPainted.length", &json!([]))?;
        Ok((count.as_u64() >= Some(BATCHES.into())).then_some(()))
    })?;
    let shown = browser.run(
        "return document.querySelectorAll('.process').length",
        &json!([]),
    )?;
    ensure!(shown == PROCESSES, "It shows {shown} processes");
    let told = browser.run("return window.whimPainted", &json!([]))?;
    let samples: Vec<f64> = serde_json::from_value(told)?;
    let row = Row::new("monitors", "the page, 1,000 processes on 50 nodes");
    judge(&row, &samples[FIRST..], None)
}

fn judge(row: &Row, samples: &[f64], percent: Option<f64>) -> Result<()> {
    let mut goals = Goals::default();
    row.spread("until it is painted", samples, "ms")?;
    let slow = quantile(samples, 0.95);
    let what = format!("painted within {slow:.0} ms (p95), below {GOAL_MS}");
    goals.judge(&what, slow < GOAL_MS, false);
    if let Some(percent) = percent {
        row.put("of a core, told once a second", percent, "%")?;
        let what = format!("{percent:.2} % of a core, below {GOAL_PERCENT}");
        goals.judge(&what, percent < GOAL_PERCENT, false);
    }
    goals.conclude()
}

fn room(name: &str) -> Result<PathBuf> {
    let room = place::room()?.join(format!("monitors-{name}-{}", std::process::id()));
    fs::create_dir_all(&room)?;
    Ok(room)
}

fn lines(updates: &[Update]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for update in updates {
        serde_json::to_writer(&mut bytes, update)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// CPU seconds that a process has used.
fn used(pid: i32) -> Result<f64> {
    cpu_seconds(&fs::read_to_string(format!("/proc/{pid}/stat"))?)
}

fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.port())
}

/// A daemon that tells of what is not there.
#[derive(Debug)]
struct Simulated;

impl Backend for Simulated {
    type Who = ();

    fn greeting(&self, (): &()) -> Greeting {
        Greeting {
            node: "n1".into(),
            uid: 1000,
            user: "user".into(),
            admin: false,
        }
    }

    fn follow(&self, (): ()) -> Receiver<Vec<Update>> {
        let (sender, receiver) = channel(1);
        tokio::spawn(async move {
            let mut simulation = Simulation::new(NODES, PROCESSES);
            let mut tick = tokio::time::interval(PAUSE);
            let mut step = 0;
            loop {
                tick.tick().await;
                step += 1;
                let batch = simulation.next(now_ms(), &mark(step));
                if sender.send(batch).await.is_err() {
                    return;
                }
            }
        });
        receiver
    }

    async fn order(&self, (): (), _: Order) -> Result<Told, String> {
        Err("Nothing can be done to what is not there".into())
    }
}
