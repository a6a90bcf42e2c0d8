//! The report's figures. They follow the reader's choice of light or dark.

use super::record::{Look, Outcome, Run, Spread};
use std::fmt::Write;

/// Sizes in pixels: of a picture, of a bar with the room around it, of what stands left of bars, and margins.
const WIDTH: f64 = 800.0;
const BAR: f64 = 24.0;
const LEFT: f64 = 210.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 70.0;
/// Of the picture of nodes: their circles, and the ring on which the others stand around the home.
const NODE: f64 = 34.0;
const RING: f64 = 170.0;
const HEIGHT: f64 = 520.0;
/// Of the picture over time: a process's lane within its node's row.
const LANE: f64 = 12.0;
/// Colours of processes that run at the same time, on light and on dark ground: they differ in lightness as well.
const COLOURS: [(&str, &str); 5] = [
    ("#0b5cad", "#79b8ff"),
    ("#8a5a00", "#e0b060"),
    ("#2e7d32", "#7fd48a"),
    ("#8e24aa", "#d59bf0"),
    ("#c01c28", "#ff7b72"),
];

fn style() -> String {
    let mut light = String::new();
    let mut dark = String::new();
    for (number, (on_light, on_dark)) in COLOURS.iter().enumerate() {
        let _ = write!(light, ".p{number}{{stroke:{on_light};fill:{on_light}}} ");
        let _ = write!(dark, ".p{number}{{stroke:{on_dark};fill:{on_dark}}} ");
    }
    format!(
        "<style>\n.ground{{fill:#fff}} text{{fill:#222;stroke:none}} .bar{{fill:#cfe3cf;stroke:#5a8a5a}}\n\
         .node{{fill:#eef2f6;stroke:#445}} .line{{stroke:#bbc}} .away{{stroke-dasharray:4 4;fill:none}}\n{light}\n\
         @media (prefers-color-scheme:dark){{.ground{{fill:#16191d}} text{{fill:#ddd}}\n\
         .bar{{fill:#2c4a33;stroke:#7fb48a}} .node{{fill:#252b33;stroke:#aab}} .line{{stroke:#445}}\n{dark}}}\n\
         </style>\n"
    )
}

fn begin(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<title>{title}</title>\n{}\
         <rect width=\"{WIDTH}\" height=\"{height:.0}\" class=\"ground\"/>\n\
         <text x=\"10\" y=\"22\" font-size=\"14\">{title}</text>\n",
        style()
    )
}

/// A number of lines, lanes, nodes: all small.
#[allow(
    clippy::cast_precision_loss,
    reason = "counts of what is drawn are below 2^52"
)]
fn real(count: usize) -> f64 {
    count as f64
}

/// Seconds between two moments in milliseconds.
#[allow(
    clippy::cast_precision_loss,
    reason = "an experiment has fewer than 2^52 ms"
)]
fn seconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1000.0
}

/// Mean seconds for an image of each routine, as bars, in the order in which they are given.
#[must_use]
pub fn bars(title: &str, runs: &[Run]) -> String {
    let means: Vec<f64> = runs.iter().map(mean).collect();
    let most = means.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let height = TOP + BAR * real(runs.len()) + 20.0;
    let mut text = begin(title, height);
    for (number, (run, mean)) in runs.iter().zip(&means).enumerate() {
        let y = TOP + BAR * real(number);
        let long = mean / most * (WIDTH - LEFT - RIGHT);
        let _ = writeln!(
            text,
            "<text x=\"10\" y=\"{:.1}\">[{}] {}</text>\n\
             <rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{long:.1}\" height=\"{:.1}\" class=\"bar\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{mean:.2} s</text>",
            y + 15.0,
            number + 1,
            run.routine,
            BAR - 6.0,
            LEFT + long + 6.0,
            y + 15.0
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Mean seconds of a run for an image.
#[must_use]
pub fn mean(run: &Run) -> f64 {
    run.seconds / real(run.images.len().max(1))
}

/// The first look of a group at which its processes were on as many nodes as ever.
#[must_use]
pub fn spread_out(spread: &Spread, group: usize) -> Option<&Look> {
    let nodes = |look: &Look| {
        let mut nodes: Vec<&str> = look.places.iter().map(|(_, node)| node.as_str()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    };
    let looks = spread.looks.iter().filter(|look| look.group == group);
    // The first of several that are equal.
    looks.rev().max_by_key(|look| nodes(look))
}

/// Who ran where at a moment: the home in the middle, a dotted line to each process that is away.
#[must_use]
pub fn snapshot(title: &str, nodes: usize, look: &Look) -> String {
    let mut text = begin(title, HEIGHT);
    let middle = (WIDTH / 2.0, HEIGHT / 2.0 + 10.0);
    let place = |number: usize| match number {
        0 => middle,
        _ => {
            let part = real(number - 1) / real(nodes.saturating_sub(1).max(1));
            let (sin, cos) = (part * std::f64::consts::TAU).sin_cos();
            (middle.0 + 1.4 * RING * sin, middle.1 - RING * cos)
        }
    };
    let number = |node: &str| (0..nodes).find(|number| format!("n{}", number + 1) == node);
    let mut lines = String::new();
    let mut labels = String::new();
    let mut held = vec![0_usize; nodes];
    for (colour, (routine, node)) in look.places.iter().enumerate() {
        let Some(node) = number(node) else { continue };
        let (x, y) = place(node);
        let class = format!("p{}", colour % COLOURS.len());
        if node > 0 {
            let _ = writeln!(
                lines,
                "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{y:.1}\" stroke-width=\"2\" class=\"away {class}\"/>",
                middle.0, middle.1
            );
        }
        let below = y + NODE + 15.0 + 15.0 * real(held[node]);
        held[node] += 1;
        let _ = writeln!(
            labels,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" class=\"{class}\"/>\n<text x=\"{:.1}\" y=\"{below:.1}\">{routine}</text>",
            x - NODE - 4.0,
            below - 4.0,
            x - NODE + 4.0
        );
    }
    text.push_str(&lines);
    for number in 0..nodes {
        let (x, y) = place(number);
        let _ = writeln!(
            text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{NODE}\" class=\"node\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">n{}</text>",
            y + 4.0,
            number + 1
        );
    }
    text.push_str(&labels);
    text.push_str("</svg>\n");
    text
}

/// Where a picture over time begins, and how many seconds it shows.
struct Times {
    from: u64,
    seconds: f64,
}

impl Times {
    fn x(&self, at: u64) -> f64 {
        60.0 + seconds(self.from, at) / self.seconds * (WIDTH - 90.0)
    }
}

/// All processes over time: a row for each node, in it a lane for each process, arrows for moves.
#[must_use]
pub fn moves(title: &str, nodes: usize, outcome: &Outcome) -> String {
    let spread = &outcome.spread;
    let lanes = spread
        .groups
        .iter()
        .map(|group| group.routines.len())
        .max()
        .unwrap_or(1);
    let row = LANE * real(lanes) + 16.0;
    let height = TOP + row * real(nodes) + 40.0;
    let mut text = begin(title, height);
    text.push_str(
        "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"context-stroke\"/></marker></defs>\n",
    );
    let from = spread.groups.first().map_or(0, |group| group.begin_ms);
    let ends = spread
        .groups
        .iter()
        .map(|group| seconds(from, group.begin_ms) + group.seconds);
    let times = Times {
        from,
        seconds: ends.fold(1.0, f64::max),
    };
    for number in 0..nodes {
        let y = TOP + row * real(number);
        let _ = writeln!(
            text,
            "<text x=\"10\" y=\"{:.1}\">n{}</text>\n<line x1=\"10\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" class=\"line\"/>",
            y + row / 2.0,
            number + 1,
            y + row - 4.0,
            WIDTH - 10.0,
            y + row - 4.0
        );
    }
    for process in &spread.processes {
        let groups = spread.groups.iter();
        let lane = groups.filter_map(|group| {
            group
                .routines
                .iter()
                .position(|one| *one == process.routine)
        });
        let lane = lane.max().unwrap_or(0);
        let y = |node: &str| {
            let number = (0..nodes).find(|number| format!("n{}", number + 1) == node);
            TOP + row * real(number.unwrap_or(0)) + LANE * (real(lane) + 0.7)
        };
        stays(&mut text, outcome, process, (&times, &y, lane));
    }
    for part in 0..=8_u32 {
        let at = times.seconds * f64::from(part) / 8.0;
        let x = 60.0 + f64::from(part) / 8.0 * (WIDTH - 90.0);
        let _ = writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{at:.0} s</text>",
            height - 16.0
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Where a process's lane of a node is.
type Height<'a> = &'a dyn Fn(&str) -> f64;

/// A process's stays as lines, and its moves as arrows.
fn stays(
    text: &mut String,
    outcome: &Outcome,
    process: &super::record::Process,
    (times, y, lane): (&Times, Height<'_>, usize),
) {
    let class = format!("p{}", lane % COLOURS.len());
    let mut line = |x1: f64, y1: f64, x2: f64, y2: f64, more: &str| {
        let _ = writeln!(
            text,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\" {more}/>"
        );
    };
    let (mut node, mut at) = ("n1", times.x(process.begin_ms));
    for moved in outcome
        .spread
        .moves
        .iter()
        .filter(|one| one.pid == process.pid)
    {
        let ended = times.x(moved.time_ms);
        let began =
            times.x(moved.time_ms) - moved.total_ms / 1000.0 / times.seconds * (WIDTH - 90.0);
        let began = began.max(at);
        line(at, y(node), began, y(node), "stroke-width=\"4\"");
        let arrow = "stroke-width=\"1.5\" marker-end=\"url(#tip)\"";
        line(began, y(&moved.from), ended, y(&moved.to), arrow);
        (node, at) = (&moved.to, ended);
    }
    let end = times.x(process.begin_ms) + process.seconds / times.seconds * (WIDTH - 90.0);
    line(at, y(node), end.max(at), y(node), "stroke-width=\"4\"");
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"9\">{}</text>",
        at + 2.0,
        y(node) - 3.0,
        process.routine
    );
}
