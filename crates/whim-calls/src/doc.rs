//! The table as a document.

use std::fmt::Write;

use crate::kept::{DESCRIPTORS, Fate, KEPT, Of};
use crate::prctl::{self, Done};
use crate::resolve::rows;
use crate::shape::{Argument, CallClass, Gate, Row, Shape, Size};
use crate::types::{Direction, Returned};

const HEAD: &str = "\
# System calls of a program that is away

`cargo xtask conformance` writes this file from the table in `crates/whim-calls` and from the cases
of the conformance suite (`tests/guests/conformance`). Each case makes its calls at home and away, in
many variations: the result, errno, every byte around every buffer and the signals must be the same.

A program that is away makes three kinds of system calls:

- **Local**: it runs natively on the host, at full speed. It is not trapped, except where the
  remark says so.
- **Forwarded**: the deputy at home executes it. Every byte that the kernel may touch is placed
  there before the call starts. `in` travels with the request, `out` with the answer.
- **Go home**: the process returns home, and the call runs there.

For some the arguments decide. Whatever is not in this table goes home.

What goes home whatever the call is: more than 32 MiB of buffers; paths into the process's own
`/proc`, except its descriptors, working directory, root, executable and mounts; buffers in the
address range that is reserved while away; 32-bit and x32 calls.

What is known not to be exact: a path that reaches the own `/proc` through a working directory or
a symbolic link shows the deputy. `setpriority` and `sched_setscheduler` act on the deputy, and then
on the computation as far as its host allows; `ioprio_set` acts on the deputy. Structures that the
kernel fills only in part travel as a whole, so another thread's change to the untouched part during
the call is lost.
";

/// The cases that test a call, by its name.
type TestedBy<'a> = &'a dyn Fn(&str) -> Vec<String>;

/// The whole of `docs/syscalls.md`.
pub fn markdown(tested_by: TestedBy<'_>) -> String {
    let mut text = String::from(HEAD);
    for (class, title) in [
        (CallClass::Local, "Local"),
        (CallClass::Forward, "Forwarded"),
        (CallClass::ByArgument, "By argument"),
        (CallClass::Home, "Go home"),
    ] {
        section(&mut text, class, title, tested_by);
    }
    text.push_str("\n## Requests of ioctl that are forwarded\n\n");
    text.push_str(&wrapped(&crate::ioctl::names()));
    options(&mut text, "prctl", prctl::PRCTL);
    options(&mut text, "arch_prctl", prctl::ARCH_PRCTL);
    text
}

const SETTINGS: &str = "\
# What stays with a program

`cargo xtask conformance` writes this file from the table in `crates/whim-calls/src/kept.rs`: what the kernel keeps
once a program has said it, Linux 6.1 to 6.18, and what becomes of it when the program computes elsewhere. Tests
compare the table with the constants of the distribution's kernel headers and of `linux-raw-sys`, and with what is
done with each call ([syscalls.md](syscalls.md)).

- **Travels**: it goes to the host and comes home.
- **At home**: home's kernel keeps it, acts by it, and answers who asks.
- **Stays**: who has it does not leave home, and `whim why` says so.
";

fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Travels => "travels",
        Fate::AtHome => "at home",
        Fate::Stays => "stays",
    }
}

/// The whole of `docs/settings.md`.
#[must_use]
pub fn settings() -> String {
    let mut text = String::from(SETTINGS);
    text.push_str("\n| call | what | of | becomes | remark |\n|---|---|---|---|---|\n");
    for row in KEPT {
        let of = match row.of {
            Of::Process => "process",
            Of::Thread => "thread",
            Of::Mapping => "mapping",
        };
        // Writing into a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {of} | {} | {} |",
            row.call,
            row.name,
            fate(row.fate),
            row.remark
        );
    }
    text.push_str("\n## Descriptors without a file\n\n");
    text.push_str(
        "As `/proc/PID/fd` shows them, behind `anon_inode:`. A kind that is not here keeps its program at home.\n",
    );
    text.push_str("\n| kind | becomes |\n|---|---|\n");
    for (kind, of_kind) in DESCRIPTORS {
        let _ = writeln!(text, "| {kind} | {} |", fate(*of_kind));
    }
    text
}

/// What is done with each option of such a call.
fn options(text: &mut String, call: &str, rows: &[prctl::Row]) {
    // Writing into a String cannot fail.
    let _ = writeln!(text, "\n## Options of {call} ({})\n", rows.len());
    text.push_str("| option | done |\n|---|---|\n");
    for row in rows {
        let done = match row.done {
            Done::Here => "local".into(),
            Done::Home | Done::HomeStores => "forwarded".into(),
            Done::Both => "forwarded, then local".into(),
            Done::Returns(what) => format!("goes home: {what}"),
            Done::Decided => "by argument".into(),
        };
        let _ = writeln!(text, "| {} {} | {done} |", row.option, row.name);
    }
}

fn section(text: &mut String, class: CallClass, title: &str, tested_by: TestedBy<'_>) {
    let rows: Vec<&Row> = rows().iter().filter(|row| row.class == class).collect();
    // Writing into a String cannot fail.
    let _ = writeln!(text, "\n## {title} ({})\n", rows.len());
    let _ = match class {
        CallClass::Home => writeln!(text, "| number | call | why |\n|---|---|---|"),
        CallClass::Local => writeln!(
            text,
            "| number | call | remark | tested by |\n|---|---|---|---|"
        ),
        _ => writeln!(
            text,
            "| number | call | buffers | may wait | tested by |\n|---|---|---|---|---|"
        ),
    };
    for row in rows {
        let tests = tested_by(row.name).join(", ");
        let _ = match class {
            CallClass::Home => writeln!(text, "| {} | {} | {} |", row.number, row.name, row.reason),
            CallClass::Local => writeln!(
                text,
                "| {} | {} | {} | {tests} |",
                row.number,
                row.name,
                remark(row)
            ),
            _ => writeln!(
                text,
                "| {} | {} | {} | {} | {tests} |",
                row.number,
                row.name,
                shape(row),
                if row.may_block { "yes" } else { "" }
            ),
        };
    }
}

fn remark(row: &Row) -> String {
    let gate = match row.gate {
        Gate::Memory { .. } | Gate::Break | Gate::Protect | Gate::Advice { .. } | Gate::Remap => {
            "goes home if it touches the reserved range"
        }
        _ => "",
    };
    let parts: Vec<&str> = [gate, row.reason]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("; ")
}

fn shape(row: &Row) -> String {
    match row.shape {
        Shape::None => String::new(),
        Shape::Code(_, says) => says.to_owned(),
        Shape::Flat(arguments) => {
            let parts: Vec<String> = arguments
                .iter()
                .enumerate()
                .filter_map(|(index, argument)| describe(index, argument))
                .collect();
            if parts.is_empty() {
                "none".to_owned()
            } else {
                parts.join(", ")
            }
        }
    }
}

fn describe(index: usize, argument: &Argument) -> Option<String> {
    let place = index + 1;
    match argument {
        Argument::Value => None,
        Argument::Path => Some(format!("{place}: path")),
        Argument::Text => Some(format!("{place}: string")),
        Argument::Buffer(length, direction, returned) => Some(format!(
            "{place}: {} {}{}",
            way(*direction),
            size(length),
            back(length, *returned)
        )),
    }
}

fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "in",
        Direction::Out => "out",
        Direction::InOut | Direction::Protected => "in and out",
    }
}

fn size(size: &Size) -> String {
    match *size {
        Size::Bytes(bytes) => format!("{bytes} bytes"),
        Size::Long { index, unit, .. }
        | Size::Int { index, unit, .. }
        | Size::Unsigned { index, unit, .. } => match unit {
            1 => format!("argument {} bytes", index + 1),
            _ => format!("argument {} times {unit} bytes", index + 1),
        },
        Size::BytePerPage { index, .. } => format!("a byte per page of argument {}", index + 1),
    }
}

fn back(size: &Size, returned: Returned) -> &'static str {
    match (size, returned) {
        (_, Returned::ByResult { .. }) => ", as many as the result says",
        (Size::Bytes(_), Returned::ByResultTimes { .. }) => ", if the result is above 0",
        (_, Returned::ByResultTimes { .. }) => ", as many elements as the result says",
        _ => "",
    }
}

/// Names in lines of at most 100 characters.
fn wrapped(names: &[&str]) -> String {
    let mut text = String::new();
    let mut width = 0;
    for (place, name) in names.iter().enumerate() {
        let last = place + 1 == names.len();
        let piece = format!("`{name}`{}", if last { "." } else { "," });
        if width > 0 && width + 1 + piece.len() > 100 {
            text.push('\n');
            width = 0;
        }
        if width > 0 {
            text.push(' ');
            width += 1;
        }
        width += piece.len();
        text.push_str(&piece);
    }
    text.push('\n');
    text
}
