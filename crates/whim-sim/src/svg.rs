//! A picture of a run: for each node how many programs could run and how much memory is in use, over time, and
//! the moves between them. It follows the reader's choice of light or dark.

use crate::cluster::{Outcome, SimulatedSample};
use std::fmt::Write;
use whim_journey::cause::Cause;

/// Sizes in pixels: of the picture, of a node's part of it, of the margins.
const WIDTH: f64 = 1000.0;
const ROW: f64 = 90.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 30.0;
const RIGHT: f64 = 20.0;
/// More nodes, moves and points make no picture.
const NODES_MAX: usize = 40;
const MOVES_MAX: usize = 5_000;
const POINTS_MAX: usize = 2_000;
/// Colours of what is drawn, on light and on dark ground. Causes differ in their dashes as well.
const STYLE: &str = "<style>\n\
    .ground{fill:#fff} text{fill:#222} .load{fill:#cfe3cf;stroke:#5a8a5a} .memory{stroke:#8a5a00}\n\
    .move{stroke:#111;fill:#111} .calls{stroke:#0b5cad;fill:#0b5cad} .short{stroke:#c01c28;fill:#c01c28}\n\
    .memory{fill:none;stroke-dasharray:2 2} line.calls{stroke-dasharray:6 2} line.short{stroke-dasharray:2 1}\n\
    @media (prefers-color-scheme:dark){.ground{fill:#16191d} text{fill:#ddd}\n\
    .load{fill:#2c4a33;stroke:#7fb48a} .memory{stroke:#e0b060} .move{stroke:#f2f2f2;fill:#f2f2f2}\n\
    .calls{stroke:#79b8ff;fill:#79b8ff} .short{stroke:#ff7b72;fill:#ff7b72}}\n\
    </style>\n";
/// Seconds that are shown before the first program begins.
const BEFORE: f64 = 5.0;
const GIB: f64 = (1u32 << 30) as f64;

/// The first nodes and the first moves, if there are many.
#[must_use]
pub(crate) fn draw(outcome: &Outcome) -> String {
    let nodes = outcome.peaks.len().min(NODES_MAX);
    let busy = outcome.samples.iter().find(|sample| sample.programs > 0);
    let from = busy.map_or(0.0, |sample| (sample.at - BEFORE).max(0.0));
    let picture = Picture {
        from,
        seconds: (outcome.over_at - from).max(1.0),
        most: outcome.samples.iter().map(|s| s.load).fold(1.0, f64::max),
        memory: outcome.samples.iter().map(|s| s.memory).fold(1.0, f64::max),
    };
    let height = TOP + ROW * nodes as f64 + 40.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <title>Load and memory of {nodes} nodes, and moves between them</title>\n{STYLE}\
         <rect width=\"{WIDTH}\" height=\"{height}\" class=\"ground\"/>\n\
         <text x=\"{LEFT}\" y=\"18\">Areas: programs that could run (up to {:.1}). Dotted: memory in use (up \
         to {:.1} GiB). Moves for load: solid, calls: dashed, memory: short dashes</text>\n",
        picture.most,
        picture.memory / GIB
    );
    for node in 0..nodes {
        picture.node(&mut text, node, &outcome.samples);
    }
    let moves = outcome.moves.iter();
    let moves = moves.filter(|moved| moved.from < nodes && moved.to < nodes);
    for moved in moves.take(MOVES_MAX) {
        let class = match moved.cause {
            Cause::Calls | Cause::Terminal => "calls",
            Cause::Memory => "short",
            _ => "move",
        };
        let (begins, ends) = (picture.x(moved.at), picture.x(moved.at + moved.took));
        let middle = |node: usize| TOP + ROW * (node as f64 + 0.5);
        let (above, below) = (middle(moved.from), middle(moved.to));
        let _ = writeln!(
            text,
            "<line x1=\"{begins:.1}\" y1=\"{above:.1}\" x2=\"{ends:.1}\" y2=\"{below:.1}\" \
             class=\"{class}\"/>\n<circle cx=\"{ends:.1}\" cy=\"{below:.1}\" \
             r=\"2\" class=\"{class}\"><title>program {} at {:.1} s</title></circle>",
            moved.program, moved.at
        );
    }
    picture.axis(&mut text, height - 18.0);
    text.push_str("</svg>\n");
    text
}

struct Picture {
    from: f64,
    seconds: f64,
    /// The largest load, and the most memory in use: bytes.
    most: f64,
    memory: f64,
}

impl Picture {
    fn x(&self, at: f64) -> f64 {
        LEFT + (at - self.from) / self.seconds * (WIDTH - LEFT - RIGHT)
    }

    fn node(&self, text: &mut String, node: usize, samples: &[SimulatedSample]) {
        let base = TOP + ROW * (node as f64 + 1.0) - 5.0;
        let own: Vec<&SimulatedSample> = samples
            .iter()
            .filter(|sample| sample.node == node && sample.at >= self.from)
            .collect();
        let step = own.len().div_ceil(POINTS_MAX).max(1);
        let line = |value: &dyn Fn(&SimulatedSample) -> f64| {
            let mut points = String::new();
            for (number, sample) in own.iter().step_by(step).enumerate() {
                let height = value(sample) * (ROW - 15.0);
                // Lines of a few points: differences between pictures stay readable.
                let gap = if number % 12 == 0 { '\n' } else { ' ' };
                let _ = write!(points, "{gap}{:.1},{:.1}", self.x(sample.at), base - height);
            }
            points
        };
        let begin = own.first().map_or(LEFT, |sample| self.x(sample.at));
        let end = own.last().map_or(LEFT, |sample| self.x(sample.at));
        let (load, memory) = (
            line(&|sample| sample.load / self.most),
            line(&|sample| sample.memory / self.memory),
        );
        let _ = writeln!(
            text,
            "<text x=\"8\" y=\"{:.1}\">node {node}</text>\n\
             <polygon points=\"{begin:.1},{base:.1}{load}\n{end:.1},{base:.1}\" class=\"load\"/>\n\
             <polyline points=\"{memory}\" class=\"memory\"/>",
            base - 25.0
        );
    }

    fn axis(&self, text: &mut String, y: f64) {
        for part in 0..=10 {
            let at = self.from + self.seconds * f64::from(part) / 10.0;
            let x = self.x(at);
            let _ = writeln!(
                text,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{at:.0} s</text>"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{self, Setting};
    use crate::scenario::{self, Scenario};

    #[test]
    fn a_run_is_drawn_with_its_nodes_and_moves() {
        let mut setting = Setting::new(1, scenario::lab(), 60.0);
        setting.trace = true;
        scenario::fill(&mut setting, Scenario::Hogs);
        let outcome = cluster::run(setting);
        let text = draw(&outcome);
        assert!(text.starts_with("<svg") && text.ends_with("</svg>\n"));
        assert_eq!(text.matches("<polygon").count(), 4);
        assert_eq!(text.matches("<polyline").count(), 4);
        assert!(text.contains("prefers-color-scheme:dark"));
        assert!(outcome.moves.len() > 5);
        assert_eq!(text.matches("<circle").count(), outcome.moves.len());
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }
}
