//! The page in a real browser: what is dragged moves, keys do all that a pointer does, and who cannot see it
//! well can read it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::stay::SHARES_FILES;
use serde_json::{Value, json};
use whim_system_tests::process::{self, eventually};
use whim_system_tests::talk::WAITS;
use whim_system_tests::webdriver::{ENTER, ESCAPE, RIGHT, WebDriver};
use whim_system_tests::{Case, Cluster, Context, Result, Running, Talk, ensure, place};

const PATIENCE: Duration = Duration::from_secs(60);
const FETCH: Duration = Duration::from_secs(300);
/// Of the driver; the node has its own network.
const PORT: u16 = 9515;
const SIZE: (u32, u32) = (1280, 900);
const WIDE: (u32, u32) = (1440, 900);
const PHONE: (u32, u32) = (500, 1100);
/// Holds what takes half a minute over a slow link.
const HOLDS: &str = "import os, sys
kept = os.urandom(12 << 20)
print('ready', os.getpid(), flush=True)
sys.stdin.readline()";
/// n2 has so little of a CPU that two programs overload it. The browser runs on n1.
const SMALL_SECOND: [&str; 2] = ["--cpu", "2,0.3,1"];

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, body: fn(&Cluster) -> Result<()>| {
        Case::in_lab(format!("browser::full::{name}"), 3, body)
    };
    vec![
        case("drag", drag),
        case("keys_alone", keys_alone),
        Case::new("browser::full::for_all_eyes", |_| {
            let cluster = Cluster::up_with(3, &SMALL_SECOND)?;
            cluster.explaining(|| for_all_eyes(&cluster))
        }),
        Case::new("browser::full::for_all_eyes_in_all_states", |_| {
            let cluster = Cluster::up_with(4, &SMALL_SECOND)?;
            cluster.explaining(|| all_states(&cluster))
        }),
        Case::new("browser::full::states", |_| {
            let cluster = Cluster::up_with(3, &SMALL_SECOND)?;
            cluster.explaining(|| states(&cluster))
        }),
    ]
}

fn with_browser(cluster: &Cluster, body: impl FnOnce(&WebDriver<'_>) -> Result<()>) -> Result<()> {
    let place = |words: &[&str]| cluster.command("n1", words);
    let room = cluster.directory().join("browser");
    let browser = WebDriver::start(&place, &room, PORT, SIZE)?;
    let told: Value = serde_json::from_str(&cluster.whim("n1", &["web", "--json"])?)?;
    browser.go(told["url"].as_str().context("A link has an address")?)?;
    browser.until(&format!(
        "document.querySelectorAll('.node').length === {}",
        cluster.nodes()
    ))?;
    body(&browser)
}

fn program(cluster: &Cluster) -> Result<(Talk, i32)> {
    Talk::run(cluster, &[], &["python3", "-c", WAITS])
}

fn chip(pid: i32) -> String {
    format!(".process[data-key=\"n1:{pid}\"]")
}

fn on_card(node: &str, pid: i32) -> String {
    let selector = format!(".node[data-node=\"{node}\"] {}", chip(pid));
    format!("document.querySelector('{selector}')")
}

fn await_place(cluster: &Cluster, pid: i32, node: &str) -> Result<()> {
    eventually(PATIENCE, &format!("{pid} is on {node}"), || {
        Ok((cluster.place(pid)? == node).then_some(()))
    })
}

fn end(mut talk: Talk) -> Result<()> {
    talk.go()?;
    talk.succeed()
}

fn drag(cluster: &Cluster) -> Result<()> {
    let (talk, pid) = program(cluster)?;
    with_browser(cluster, |browser| {
        browser.until(&on_card("n1", pid))?;
        browser.drag(&chip(pid), ".node[data-node=n2]")?;
        browser.until(&on_card("n2", pid))?;
        await_place(cluster, pid, "n2")?;
        browser.until(
            "document.getElementById('say').textContent.includes('has moved from n1 to n2')",
        )?;
        // Where it is let go beside every card, nothing happens; a click that follows opens it.
        browser.drag(&chip(pid), "h1")?;
        browser.click(&chip(pid))?;
        browser.until("document.getElementById('process').open")?;
        browser.until("document.querySelectorAll('#why li').length > 0")?;
        browser.keys(&[ESCAPE])?;
        browser.drag(&chip(pid), ".node[data-node=n1]")?;
        await_place(cluster, pid, "n1")
    })?;
    end(talk)
}

/// A program is moved, explained and brought home, a node is drained and looked at again, the past and the other
/// theme are seen, and the session ends: without a pointer.
fn keys_alone(cluster: &Cluster) -> Result<()> {
    let (talk, pid) = program(cluster)?;
    with_browser(cluster, |browser| {
        browser.until(&on_card("n1", pid))?;
        browser.tab_to(&chip(pid))?;
        browser.keys(&[ENTER])?;
        browser.until("document.querySelectorAll('#why li').length > 0")?;
        browser.tab_to("#target")?;
        // The list of nodes: n2 is first, n3 the next one.
        browser.keys(&[RIGHT])?;
        browser.until("document.getElementById('target').value === 'n3'")?;
        let command = format!("whim migrate n1:{pid} n3");
        browser.until(&format!(
            "document.getElementById('process-command').textContent === '{command}'"
        ))?;
        browser.tab_to("#move-it")?;
        browser.keys(&[ENTER])?;
        await_place(cluster, pid, "n3")?;
        browser.until(&on_card("n3", pid))?;
        browser.tab_to("button[data-node=n3]")?;
        browser.keys(&[ENTER])?;
        browser.until("document.getElementById('node').open")?;
        browser.tab_to("#drain")?;
        browser.keys(&[ENTER])?;
        eventually(PATIENCE, "it has left n3", || {
            Ok((cluster.place(pid)? != "n3").then_some(()))
        })?;
        browser.until("document.querySelector('.node.draining[data-node=n3]')")?;
        look_back(browser)?;
        browser.tab_to("#past")?;
        browser.keys(&['\u{e012}'])?;
        browser.until("document.body.classList.contains('past')")?;
        browser.tab_to("#now")?;
        browser.keys(&[ENTER])?;
        browser.until("!document.body.classList.contains('past')")?;
        browser.tab_to("#theme")?;
        browser.keys(&[ENTER])?;
        browser.until("document.documentElement.dataset.theme")?;
        browser.tab_to("#leave")?;
        browser.keys(&[ENTER])?;
        browser.until("document.body.textContent.includes('Nobody is known here')")
    })?;
    end(talk)
}

/// The past that the node itself has kept: of its minutes there are fewer by now than frames that the page has seen.
fn look_back(browser: &WebDriver<'_>) -> Result<()> {
    let points =
        "document.querySelector('#node-history .load').getAttribute('points').split(' ').length";
    browser.tab_to("button[data-node=n1]")?;
    browser.keys(&[ENTER])?;
    browser.until(&format!(
        "document.getElementById('node').open && {points} > 4"
    ))?;
    browser.tab_to("#span")?;
    browser.keys(&[RIGHT])?;
    browser.until("document.getElementById('span').value === '1'")?;
    browser.until(&format!("{points} < 4"))?;
    browser.until("document.getElementById('span-note').textContent === ''")?;
    browser.keys(&[ESCAPE])
}

/// What is written of a node in its card's head, and of a program in a cell of its row.
fn card_says(node: &str, word: &str) -> String {
    format!("document.querySelector('.node[data-node={node}] .head')?.innerText.includes('{word}')")
}

fn row_says(pid: i32, head: &str, word: &str) -> String {
    let cell = format!("[data-head=\"{head}\"]");
    let button = format!("document.querySelector('.program[data-key=\"n1:{pid}\"]')");
    format!("{button}?.closest('tr').querySelector('{cell}').innerText.includes('{word}')")
}

/// Two programs that compute on n2, which cannot carry them.
fn overloaded(cluster: &Cluster) -> Result<Vec<Running>> {
    let hog = ["perl", "-e", "1 while 1"];
    let start = |_| Running::spawn(&mut cluster.run_command("n2", &hog));
    (0..2).map(start).collect()
}

/// Everything that matters is told by a word, and not by a colour alone.
fn states(cluster: &Cluster) -> Result<()> {
    let _hogs = overloaded(cluster)?;
    let (free, pid) = program(cluster)?;
    let (kept, stays) = Talk::run(
        cluster,
        &["--pin"],
        &["python3", "-c", WAITS, "--an-argument"],
    )?;
    with_browser(cluster, |browser| {
        themes(browser)?;
        browser.until(&card_says("n2", "overloaded"))?;
        browser.until(
            "/1 overloaded: n2 \\d/.test(document.getElementById('overloaded').innerText)",
        )?;
        browser.until(&row_says(stays, "State", "stays"))?;
        browser.until(&row_says(stays, "Why it stays", "pin"))?;
        browser.until(&row_says(stays, "Program", "--an-argument"))?;
        refused_and_done(cluster, browser, pid, stays)?;
        one_sentence(cluster, browser)?;
        cluster.whim("n1", &["drain", "n3"])?;
        browser.until(&card_says("n3", "drained"))?;
        cluster.lab(&["kill", "n3"])?;
        browser.until(&card_says("n3", "down"))?;
        seen_moving(cluster, browser, pid)
    })?;
    end(free)?;
    end(kept)
}

/// The page is as light as the system, until one theme is chosen, and again when the choice is given back.
fn themes(browser: &WebDriver<'_>) -> Result<()> {
    let ground = || {
        let script = "return getComputedStyle(document.body).backgroundColor";
        browser.run(script, &json!([]))
    };
    let told = |theme: &str| {
        browser.until(&format!(
            "document.getElementById('theme').innerText === 'Theme: {theme}'"
        ))
    };
    told("system")?;
    browser.system_theme("light")?;
    let light = ground()?;
    browser.system_theme("dark")?;
    let dark = ground()?;
    ensure!(light != dark, "The system's theme changes nothing: {dark}");
    for (theme, expected) in [("light", &light), ("dark", &dark), ("system", &dark)] {
        browser.click("#theme")?;
        told(theme)?;
        let found = ground()?;
        ensure!(found == *expected, "{theme}: {found}, not {expected}");
    }
    browser.system_theme("light")?;
    let found = ground()?;
    ensure!(found == light, "Light again: {found}, not {light}");
    Ok(())
}

/// A refusal interrupts, with its reason, and stays until it is closed; a success is told apart from it.
fn refused_and_done(
    cluster: &Cluster,
    browser: &WebDriver<'_>,
    pid: i32,
    stays: i32,
) -> Result<()> {
    let alert = "document.querySelector('#refusal.open [role=alert]')";
    browser.drag(&chip(stays), ".node[data-node=n3]")?;
    browser.until(&format!("{alert}?.innerText.startsWith('Refused: ')"))?;
    let log = "document.getElementById('log').innerText";
    browser.click("#alert-close")?;
    browser.until(&format!("!{alert}"))?;
    // A row can be dragged as well as a chip.
    let row = format!(".program[data-key=\"n1:{pid}\"]");
    browser.drag(&row, ".node[data-node=n3]")?;
    await_place(cluster, pid, "n3")?;
    browser.until("document.querySelector('#say.done')?.innerText.startsWith('Done: ')")?;
    browser.until(&row_says(pid, "State", "away"))?;
    browser.until(&row_says(pid, "Where", "n3, home n1"))?;
    browser.until(&format!(
        "/moved python3 {pid} n1 to n3: .*because/.test({log})"
    ))?;
    cluster.have_on(pid, "n1")
}

/// What gives the same reason several times is told once, with its first name: in the row, the alert and the log.
fn one_sentence(cluster: &Cluster, browser: &WebDriver<'_>) -> Result<()> {
    let (shares, pid) = Talk::run(cluster, &[], &["python3", "-c", SHARES_FILES])?;
    let told = |text: &str| {
        format!("({text} || '').match(/\\/dev\\/shm\\/\\w+ and 2 more\\)/g)?.length === 1")
    };
    let button = format!("document.querySelector('.program[data-key=\"n1:{pid}\"]')");
    let why =
        format!("{button}?.closest('tr').querySelector('[data-head=\"Why it stays\"]').innerText");
    browser.until(&told(&why))?;
    browser.drag(&chip(pid), ".node[data-node=n3]")?;
    let alert = "document.querySelector('#refusal.open [role=alert]')?.innerText";
    browser.until(&told(alert))?;
    browser.click("#alert-close")?;
    browser.until(&told("document.getElementById('log').innerText"))?;
    end(shares)
}

/// Over a slow link a move lasts long enough to be seen.
fn seen_moving(cluster: &Cluster, browser: &WebDriver<'_>, pid: i32) -> Result<()> {
    cluster.lab(&["link", "n1", "n2", "--rate", "5mbit"])?;
    let number = pid.to_string();
    let mut moving = Running::spawn(&mut cluster.whim_command("n1", &["migrate", &number, "n2"]))?;
    browser.until(&row_says(pid, "State", "moving"))?;
    browser.until(&format!(
        "document.querySelector('{}')?.innerText.includes('moving')",
        chip(pid)
    ))?;
    ensure!(moving.wait(PATIENCE)?.success(), "It has not moved");
    browser.until(&row_says(pid, "State", "away"))
}

/// Programs that wait, here and there, so that pictures have something to show.
fn company(cluster: &Cluster) -> Result<Vec<Running>> {
    let programs: [&[&str]; 5] = [
        &["perl", "-e", "sleep 600"],
        &["sleep", "600"],
        &["tail", "-f", "/dev/null"],
        &["python3", "-c", "import signal; signal.pause()"],
        &["perl", "-e", "sleep while 1"],
    ];
    let start = |words: &&[&str]| Running::spawn(&mut cluster.run_command("n1", words));
    let running: Vec<Running> = programs.iter().map(start).collect::<Result<_>>()?;
    let rows = eventually(PATIENCE, "all have begun", || {
        let rows = cluster.rows("n1", false)?;
        let begun = rows.iter().all(|row| !row.command.contains("whim"));
        Ok((rows.len() == 6 && begun).then_some(rows))
    })?;
    for (row, node) in rows.iter().rev().zip(["n2", "n3", "n3"]) {
        cluster.have_on(row.pid, node)?;
    }
    Ok(running)
}

fn axe() -> Result<String> {
    let root = place::toolchain().join("axe");
    let script = place::toolchain().join("../scripts/fetch-axe");
    process::succeed(Command::new(script).arg(&root), FETCH)?;
    Ok(fs::read_to_string(root.join("axe.min.js"))?)
}

/// Contrast, names and roles, by axe-core, of the page and its windows in both themes; pictures of each.
fn for_all_eyes(cluster: &Cluster) -> Result<()> {
    let axe = axe()?;
    let (talk, pid) = program(cluster)?;
    let _others = company(cluster)?;
    cluster.move_to(pid, "n2")?;
    let _hogs = overloaded(cluster)?;
    let (kept, stays) = Talk::run(
        cluster,
        &["--pin"],
        &["python3", "-c", WAITS, "--seed", "7"],
    )?;
    with_browser(cluster, |browser| {
        browser.until(&card_says("n2", "overloaded"))?;
        browser.until(&row_says(stays, "State", "stays"))?;
        browser.until(&on_card("n2", pid))?;
        browser.run(&axe, &json!([]))?;
        for theme in ["light", "dark"] {
            browser.run("showTheme(arguments[0])", &json!([theme]))?;
            look(browser, &format!("page-{theme}"))?;
            browser.click(&chip(pid))?;
            browser.until("document.querySelectorAll('#why li').length > 0")?;
            look(browser, &format!("page-process-{theme}"))?;
            browser.keys(&[ESCAPE])?;
            browser.click("button[data-node=n2]")?;
            browser.until("document.getElementById('node').open")?;
            look(browser, &format!("page-node-{theme}"))?;
            browser.keys(&[ESCAPE])?;
        }
        refusal_in_all_sizes(browser, stays)
    })?;
    end(kept)?;
    end(talk)
}

/// A refusal beside everything else.
fn refusal_in_all_sizes(browser: &WebDriver<'_>, stays: i32) -> Result<()> {
    browser.drag(&chip(stays), ".node[data-node=n3]")?;
    browser.until("document.querySelector('#refusal.open')")?;
    in_all_sizes(browser, "page-refused", "true")
}

/// Programs that are away, that stay and that move, beside nodes that are overloaded, drained and down.
fn all_states(cluster: &Cluster) -> Result<()> {
    let axe = axe()?;
    let _hogs = overloaded(cluster)?;
    let (away, pid) = program(cluster)?;
    cluster.move_to(pid, "n2")?;
    let (kept, stays) = Talk::run(cluster, &["--pin"], &["python3", "-c", WAITS])?;
    let (large, moves) = Talk::run(cluster, &[], &["python3", "-c", HOLDS])?;
    cluster.whim("n1", &["drain", "n3"])?;
    cluster.lab(&["kill", "n4"])?;
    with_browser(cluster, |browser| {
        for (node, word) in [("n2", "overloaded"), ("n3", "drained"), ("n4", "down")] {
            browser.until(&card_says(node, word))?;
        }
        browser.until(&row_says(pid, "State", "away"))?;
        browser.until(&row_says(stays, "State", "stays"))?;
        browser.run(&axe, &json!([]))?;
        cluster.lab(&["link", "n1", "n2", "--rate", "5mbit"])?;
        let number = moves.to_string();
        let mut command = cluster.whim_command("n1", &["migrate", &number, "n2"]);
        let mut moving = Running::spawn(&mut command)?;
        in_all_sizes(browser, "page-states", &row_says(moves, "State", "moving"))?;
        let ended = moving.wait_up_to(Duration::ZERO)?;
        ensure!(ended.is_none(), "It had moved before the last picture");
        ensure!(moving.wait(PATIENCE)?.success(), "It has not moved");
        Ok(())
    })?;
    [away, kept, large].into_iter().try_for_each(end)
}

/// Pictures in both themes, in a wide window and in one as narrow as a phone's, each once this is seen.
fn in_all_sizes(browser: &WebDriver<'_>, name: &str, seen: &str) -> Result<()> {
    for (shape, size) in [("wide", WIDE), ("phone", PHONE)] {
        browser.resize(size)?;
        browser.until(&format!("window.innerWidth === {}", size.0))?;
        browser.run("window.scrollTo(0, 0)", &json!([]))?;
        for theme in ["light", "dark"] {
            browser.run("showTheme(arguments[0])", &json!([theme]))?;
            browser.until(seen)?;
            look(browser, &format!("{name}-{shape}-{theme}"))?;
        }
    }
    Ok(())
}

/// Where pictures go: `WHIM_PICTURES`, or below the tests' own.
fn pictures() -> Result<PathBuf> {
    let given = std::env::var_os("WHIM_PICTURES").map(PathBuf::from);
    let directory = match given {
        Some(directory) => directory,
        None => place::room()?.join("pictures"),
    };
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn look(browser: &WebDriver<'_>, name: &str) -> Result<()> {
    let found = browser.run(
        "return axe.run(document, { resultTypes: ['violations'] }).then((all) => all.violations.map(
            (one) => one.id + ': ' + one.help + ' ' + one.nodes.map((node) => node.html).join(' ')))",
        &json!([]),
    )?;
    ensure!(found == json!([]), "{name}: {found}");
    let file = pictures()?.join(name).with_extension("png");
    browser.screenshot(Path::new(&file))?;
    println!("{}", file.display());
    Ok(())
}
