//! The pictures of `docs/policy.md`: runs of the simulator, and what is drawn here from the policy's own code.
//!
//! The same sources give the same pictures, so a difference in one is a difference in the policy.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use whim_balance::balancer::{Habits, STEADY};
use whim_balance::cost::{Scale, Size, Use};
use whim_balance::decide::Rules;
use whim_balance::pace::{self, Pace};
use whim_journey::cause::Cause;

use crate::workspace::Workspace;

const DIRECTORY: &str = "docs/pictures";
/// Name of the picture, and what `whim-sim run` is told. All have the seed 0.
const RUNS: [(&str, &[&str]); 4] = [
    ("spread", &["--workload", "hogs", "--seconds", "160"]),
    (
        "rest",
        &["--workload", "crowd", "--nodes", "4", "--seconds", "160"],
    ),
    (
        "memory",
        &["--workload", "eaters", "--memory", "1", "--seconds", "120"],
    ),
    (
        "calls",
        &["--workload", "readers", "--nodes", "4", "--seconds", "120"],
    ),
];
const STYLE: &str = "<style>\n\
    .ground{fill:#fff} text{fill:#222} .box{fill:#f3f6f9;stroke:#5a6b7a} .line{stroke:#5a6b7a;fill:none}\n\
    .curve{stroke:#2f6f3e;fill:none;stroke-width:2} .yes{fill:#e3f1e5;stroke:#2f6f3e}\n\
    @media (prefers-color-scheme:dark){.ground{fill:#16191d} text{fill:#ddd}\n\
    .box{fill:#232a31;stroke:#93a4b4} .line{stroke:#93a4b4} .curve{stroke:#7fd492}\n\
    .yes{fill:#22382a;stroke:#7fd492}}\n\
    </style>\n";

/// What the tests that make screenshots, below `target/system-tests/pictures`, begin with, and those that the documents show.
pub(crate) const SCREENSHOTS_OF: &str = "browser::full::for_all_eyes";
const SCREENSHOTS: [&str; 11] = [
    "page-light.png",
    "page-dark.png",
    "page-process-light.png",
    "page-refused-wide-light.png",
    "page-refused-wide-dark.png",
    "page-refused-phone-light.png",
    "page-refused-phone-dark.png",
    "page-states-wide-light.png",
    "page-states-wide-dark.png",
    "page-states-phone-light.png",
    "page-states-phone-dark.png",
];

/// Takes the screenshots of the last run of their test into the documents.
///
/// # Errors
/// When the test has made none.
pub(crate) fn take_screenshots(workspace: &Workspace) -> Result<()> {
    let made = workspace.target.join("system-tests/pictures");
    for name in SCREENSHOTS {
        let to = workspace.root.join(DIRECTORY).join(name);
        std::fs::copy(made.join(name), &to)
            .with_context(|| format!("The test has made no {name}"))?;
        println!("{}", to.display());
    }
    Ok(())
}

/// Writes all pictures; with `check` only looks whether they are as they would be written.
///
/// # Errors
/// When the simulator does not run, or a picture cannot be written.
pub(crate) fn run(workspace: &Workspace, check: bool) -> Result<bool> {
    if check {
        let stale = stale(workspace)?;
        stale.iter().for_each(|finding| println!("{finding}"));
        return Ok(stale.is_empty());
    }
    let directory = workspace.root.join(DIRECTORY);
    fs::create_dir_all(&directory)
        .with_context(|| format!("Could not make the directory {DIRECTORY}"))?;
    for (name, text) in all(workspace)? {
        let path = directory.join(format!("{name}.svg"));
        fs::write(&path, text).with_context(|| format!("Could not write {name}.svg"))?;
    }
    Ok(true)
}

/// Which pictures are not as they would be written.
///
/// # Errors
/// When the simulator does not run.
pub(crate) fn stale(workspace: &Workspace) -> Result<Vec<String>> {
    let directory = workspace.root.join(DIRECTORY);
    let stored = |name: &str| fs::read_to_string(directory.join(format!("{name}.svg"))).ok();
    let all = all(workspace)?.into_iter();
    let stale = all.filter(|(name, text)| stored(name).as_ref() != Some(text));
    Ok(stale
        .map(|(name, _)| format!("{DIRECTORY}/{name}.svg is stale: run `cargo xtask pictures`"))
        .collect())
}

fn all(workspace: &Workspace) -> Result<Vec<(&'static str, String)>> {
    let mut pictures = vec![("cost", cost()), ("questions", questions())];
    for (name, words) in RUNS {
        pictures.push((name, simulated(workspace, name, words)?));
    }
    Ok(pictures)
}

fn simulated(workspace: &Workspace, name: &str, words: &[&str]) -> Result<String> {
    let path = workspace.output(&format!("{name}.svg"))?;
    let run = ["run", "--locked", "--quiet", "-p", "whim-sim", "--", "run"];
    let output = workspace
        .cargo(&run)
        .args(words)
        .arg("--svg")
        .arg(&path)
        .output()
        .context("Could not run cargo")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("whim-sim run {} failed: {said}", words.join(" "));
    }
    read(&path)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("Could not read {}", path.display()))
}

fn begin(width: u32, height: u32, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<title>{title}</title>\n{STYLE}\
         <rect width=\"{width}\" height=\"{height}\" class=\"ground\"/>\n"
    )
}

/// What a node's memory costs as it fills, in clusters of several sizes.
fn cost() -> String {
    const LEFT: f64 = 60.0;
    const BOTTOM: f64 = 300.0;
    let (wide, high, top) = (480.0, 260.0, 16.0);
    let mut text = begin(640, 350, "What it costs to use a part of a node's memory");
    let size = Size {
        speed: 1.0,
        memory: 1.0,
    };
    for nodes in [2u32, 4, 8, 16] {
        let scale = Scale::new(nodes);
        let paid = |part: f64| {
            let used = |memory| Use { load: 0.0, memory };
            scale.cost(used(part), size) - scale.cost(used(0.0), size)
        };
        let place = |part: f64| (LEFT + part * wide, BOTTOM - paid(part) / 15.0 * high);
        let points: Vec<String> = (0..=20)
            .map(|step| place(f64::from(step) / 20.0))
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let (x, y) = place(1.0);
        let _ = writeln!(
            text,
            "<polyline class=\"curve\" points=\"{}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{nodes} nodes</text>",
            points.join(" "),
            x + 8.0,
            y + 4.0
        );
    }
    let _ = writeln!(
        text,
        "<polyline class=\"line\" points=\"{LEFT},{top} {LEFT},{BOTTOM} {:.1},{BOTTOM}\"/>",
        LEFT + wide
    );
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.0} %</text>",
            LEFT + part * wide,
            BOTTOM + 18.0,
            part * 100.0
        );
    }
    for cost in [0.0, 5.0, 10.0, 15.0] {
        let y = BOTTOM - cost / 15.0 * high;
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{cost:.0}</text>",
            LEFT - 8.0,
            y + 4.0
        );
    }
    text.push_str("<text x=\"300\" y=\"340\" text-anchor=\"middle\">part in use</text>\n</svg>\n");
    text
}

/// What is asked of a program at each look, and what the first "yes" leads to.
fn asked() -> Vec<(String, String)> {
    [goes_home(), stays()].concat()
}

fn most(cause: Cause) -> usize {
    pace::most(cause).unwrap_or_default()
}

/// The questions that come before any weighing.
fn goes_home() -> Vec<(String, String)> {
    let (habits, rules) = (Habits::default(), Rules::default());
    vec![
        (
            "Is it being moved, told to stay, or did the last try fail a moment ago?".to_owned(),
            "it stays".to_owned(),
        ),
        (
            "Is it away, and waits for its user at a terminal?".to_owned(),
            format!("home; at most {} times an hour", most(Cause::Terminal)),
        ),
        (
            format!(
                "Does its node lack memory, or will it within {} s and a move?",
                habits.horizon
            ),
            "to where most room is; no limit".to_owned(),
        ),
        (
            format!(
                "Does it lose over {} s a second by asking home, and is home no worse?",
                rules.bearable
            ),
            format!("home; at most {} times an hour", most(Cause::Calls)),
        ),
    ]
}

/// The questions whose "yes" keeps it.
fn stays() -> Vec<(String, String)> {
    let (habits, rules) = (Habits::default(), Rules::default());
    vec![
        (
            format!(
                "Is it younger than {} s, or wants less than {} of a core?",
                habits.young, habits.light
            ),
            "it stays".to_owned(),
        ),
        (
            format!(
                "Did it come less than {:.0} % of its age ago?",
                rules.rest * 100.0
            ),
            "it stays".to_owned(),
        ),
        (
            format!(
                "Does no node with room cost less, by a factor of {}?",
                rules.margin
            ),
            "it stays".to_owned(),
        ),
        (
            "Does a move take longer than it gains?".to_owned(),
            "it stays".to_owned(),
        ),
        (
            format!(
                "Was it moved for load {} times this hour?",
                most(Cause::Load)
            ),
            "it stays".to_owned(),
        ),
        (
            format!(
                "No news for {} s, and: one moved within {} s, or not right for {} s yet?",
                Pace::NEWS_LASTS / 1000,
                Pace::UNASKED_EVERY / 1000,
                STEADY / 1000
            ),
            "it stays for now".to_owned(),
        ),
    ]
}

fn questions() -> String {
    let asked = asked();
    let height = 42 * u32::try_from(asked.len() + 1).unwrap_or_default() + 16;
    let mut text = begin(780, height, "What is asked of a program, once a second");
    for (row, (question, then)) in asked.iter().enumerate() {
        let top = 8 + 42 * row;
        let (middle, bottom) = (top + 20, top + 30);
        let _ = writeln!(
            text,
            "<rect class=\"box\" x=\"8\" y=\"{top}\" width=\"460\" height=\"30\" rx=\"4\"/>\n\
             <text x=\"18\" y=\"{middle}\">{question}</text>\n\
             <text x=\"480\" y=\"{middle}\">yes</text>\n\
             <rect class=\"yes\" x=\"510\" y=\"{top}\" width=\"262\" height=\"30\" rx=\"4\"/>\n\
             <text x=\"520\" y=\"{middle}\">{then}</text>\n\
             <path class=\"line\" d=\"M30 {bottom}v12\"/>"
        );
    }
    let top = 8 + 42 * asked.len();
    let _ = writeln!(
        text,
        "<rect class=\"yes\" x=\"8\" y=\"{top}\" width=\"460\" height=\"30\" rx=\"4\"/>\n\
         <text x=\"18\" y=\"{}\">It goes to where it costs least.</text>\n</svg>",
        top + 20
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_screenshot_is_stored() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for name in SCREENSHOTS {
            let stored = fs::read(root.join(DIRECTORY).join(name)).unwrap_or_default();
            let is_picture = stored.starts_with(b"\x89PNG\r\n");
            assert!(is_picture, "{name}: run `cargo xtask screenshots`");
        }
    }

    #[test]
    fn what_needs_no_simulator_is_as_it_is_stored() {
        let stored = |name: &str| {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            fs::read_to_string(root.join(DIRECTORY).join(format!("{name}.svg"))).expect("a picture")
        };
        assert!(stored("cost") == cost(), "run `cargo xtask pictures`");
        assert!(
            stored("questions") == questions(),
            "run `cargo xtask pictures`"
        );
    }
}
