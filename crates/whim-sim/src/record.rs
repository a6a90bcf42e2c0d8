//! Records of what programs did in a lab: JSON, a line for each program and second. `docs/simulation.md` has
//! the names of the fields.

use serde::Deserialize;
use std::collections::HashMap;
use thiserror::Error;

/// No more is read of a record.
pub const LINES_MAX: usize = 4_000_000;
pub const PROGRAMS_MAX: usize = 100_000;
/// Names of nodes are no longer, in bytes.
pub const NAME_MAX: usize = 255;
/// No figure is larger.
const FIGURE_MAX: f64 = 1e15;
/// The last line of a program counts for so many seconds.
const LAST: f64 = 1.0;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    #[error(
        "Line {0} is not a line of a record: an object with at, node, home, program, cpus, ran, memory and calls"
    )]
    Line(usize),
    #[error("In line {0} time goes back: lines have to be in the order of time")]
    Order(usize),
    #[error(
        "The record has more than {LINES_MAX} lines or {PROGRAMS_MAX} programs: cut it into parts"
    )]
    Length,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    /// Seconds since the record began.
    at: f64,
    /// Where the program is, and where it is at home.
    node: String,
    home: String,
    /// A number that no other program of this home has.
    program: u64,
    /// Cores that it wanted, and that it got, since its last line.
    cpus: f64,
    ran: f64,
    /// Bytes.
    memory: f64,
    /// Calls for home in a second; at home those that would be.
    calls: f64,
}

/// What a program did until its next line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub seconds: f64,
    pub cpus: f64,
    pub ran: f64,
    pub memory: f64,
    pub calls: f64,
}

/// One program.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Seconds since the record began.
    pub begins: f64,
    pub home: String,
    pub spans: Vec<Span>,
}

/// Programs in the order of their beginnings.
///
/// # Errors
/// What is not a record, or too long.
pub fn parse(bytes: &[u8]) -> Result<Vec<Program>, RecordError> {
    let mut programs: Vec<Program> = Vec::new();
    let mut places: HashMap<(String, u64), (usize, f64)> = HashMap::new();
    let (mut now, mut count) = (0.0, 0);
    for line in crate::lines(bytes) {
        let (number, text) = line.map_err(RecordError::Line)?;
        if text.is_empty() {
            continue;
        }
        let line = line_of(text).ok_or(RecordError::Line(number))?;
        if line.at < now {
            return Err(RecordError::Order(number));
        }
        now = line.at;
        count += 1;
        if count > LINES_MAX || programs.len() > PROGRAMS_MAX {
            return Err(RecordError::Length);
        }
        let span = Span {
            seconds: LAST,
            cpus: line.cpus,
            ran: line.ran.min(line.cpus),
            memory: line.memory,
            calls: line.calls,
        };
        let key = (line.home, line.program);
        if let Some((place, before)) = places.get_mut(&key) {
            let spans = &mut programs[*place].spans;
            // Two lines of one moment: the later one is right.
            if line.at <= *before {
                spans.pop();
            } else if let Some(last) = spans.last_mut() {
                last.seconds = line.at - *before;
            }
            spans.push(span);
            *before = line.at;
            continue;
        }
        let program = Program {
            begins: line.at,
            home: key.0.clone(),
            spans: vec![span],
        };
        places.insert(key, (programs.len(), line.at));
        programs.push(program);
    }
    Ok(programs)
}

fn line_of(text: &str) -> Option<Line> {
    let line: Line = serde_json::from_str(text).ok()?;
    let figures = [line.at, line.cpus, line.ran, line.memory, line.calls];
    let good = figures
        .iter()
        .all(|figure| (0.0..=FIGURE_MAX).contains(figure));
    let names = line.node.len() <= NAME_MAX && line.home.len() <= NAME_MAX;
    (good && names).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at: f64, program: u64, cpus: f64) -> String {
        format!(
            r#"{{"at":{at},"node":"n2","home":"n1","program":{program},"cpus":{cpus},"ran":0.5,"memory":1000,"calls":3}}"#
        )
    }

    #[test]
    fn a_record_is_read() {
        let text = [line(0.0, 7, 1.0), line(0.5, 8, 0.25), line(2.0, 7, 0.75)].join("\n");
        let programs = parse(text.as_bytes()).expect("a record");
        let spans = |place: usize| {
            let spans = programs[place].spans.iter();
            spans
                .map(|span| (span.seconds, span.cpus, span.ran))
                .collect::<Vec<_>>()
        };
        assert_eq!(spans(0), [(2.0, 1.0, 0.5), (1.0, 0.75, 0.5)]);
        assert_eq!(spans(1), [(1.0, 0.25, 0.25)]);
        assert_eq!((programs[1].begins, programs[1].home.as_str()), (0.5, "n1"));
    }

    #[test]
    fn the_later_line_of_one_moment_is_right() {
        let text = [line(1.0, 7, 1.0), line(1.0, 7, 0.5)].join("\n");
        let programs = parse(text.as_bytes()).expect("a record");
        assert_eq!(programs[0].spans.len(), 1);
        assert!((programs[0].spans[0].cpus - 0.5).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_record_is_refused_with_its_line() {
        let good = line(1.0, 7, 1.0);
        for odd in [
            "x".to_owned(),
            "{}".to_owned(),
            line(-1.0, 7, 1.0),
            line(1.0, 7, 1e16),
            good.replace("\"calls\"", "\"more\":1,\"calls\""),
            good.replace("n2", &"n".repeat(NAME_MAX + 1)),
        ] {
            let text = format!("{good}\n{odd}");
            assert_eq!(parse(text.as_bytes()), Err(RecordError::Line(2)), "{odd}");
        }
        let back = format!("{good}\n{}", line(0.5, 8, 1.0));
        assert_eq!(parse(back.as_bytes()), Err(RecordError::Order(2)));
    }
}
