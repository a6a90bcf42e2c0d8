//! Which processes a monitor lists, and in which order.

use crate::feed::Key;
use crate::model::Model;
use crate::rows::ProcessRow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};

/// The column by which a list is sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    Pid,
    Home,
    Where,
    User,
    State,
    Moves,
    #[default]
    Cpu,
    Time,
    Memory,
    Command,
}

impl Column {
    pub const ALL: [Self; 10] = [
        Self::Pid,
        Self::Home,
        Self::Where,
        Self::User,
        Self::State,
        Self::Moves,
        Self::Cpu,
        Self::Time,
        Self::Memory,
        Self::Command,
    ];

    /// The head of the column.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pid => "PID",
            Self::Home => "HOME",
            Self::Where => "WHERE",
            Self::User => "USER",
            Self::State => "STATE",
            Self::Moves => "MOVES",
            Self::Cpu => "CPU%",
            Self::Time => "TIME+",
            Self::Memory => "MEM",
            Self::Command => "COMMAND",
        }
    }

    /// Counts and shares are sorted from the largest, pids and words from the smallest.
    fn compare(self, one: &ProcessRow, other: &ProcessRow) -> Ordering {
        match self {
            Self::Pid => one.pid.cmp(&other.pid),
            Self::Home => one.home.cmp(&other.home),
            Self::Where => one.r#where.cmp(&other.r#where),
            Self::User => one.user.cmp(&other.user),
            Self::State => state(one).cmp(state(other)),
            Self::Moves => other.moves.cmp(&one.moves),
            Self::Cpu => other.cpu_percent.total_cmp(&one.cpu_percent),
            Self::Time => {
                let used = |row: &ProcessRow| row.cpu_seconds.unwrap_or(0.0);
                used(other).total_cmp(&used(one))
            }
            Self::Memory => other.memory_bytes.cmp(&one.memory_bytes),
            Self::Command => one.command.cmp(&other.command),
        }
    }
}

/// The state, as `whim ps` prints it.
#[must_use]
pub fn state(row: &ProcessRow) -> &'static str {
    use whim_journey::job::State;
    match row.state {
        State::Home => "home",
        State::Away => "away",
        State::Moving => "moving",
        State::Stopped => "stopped",
        State::InDoubt => "in-doubt",
        State::Ended => "ended",
    }
}

/// The state in a word for people, who want to know most whether a program at home could leave.
#[must_use]
pub fn state_word(row: &ProcessRow) -> &'static str {
    use whim_journey::job::State;
    match row.state {
        State::Home if row.stay.is_some() => "stays",
        _ => state(row),
    }
}

/// Why a program stays, is in its state, or is left alone by the balancer: whatever weighs most.
#[must_use]
pub fn why(row: &ProcessRow) -> Option<&str> {
    let reasons = [&row.stay, &row.reason, &row.not_candidate];
    reasons.into_iter().find_map(Option::as_deref)
}

/// CPU time as minutes, seconds and hundredths, `0:07.25`; from an hour on as hours, `2h05:09`.
#[must_use]
pub fn cpu_time(seconds: f64) -> String {
    let whole = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let (seconds, hundredths) = (whole.as_secs(), whole.subsec_millis() / 10);
    let (minutes, rest) = (seconds / 60, seconds % 60);
    match minutes / 60 {
        0 => format!("{minutes}:{rest:02}.{hundredths:02}"),
        hours => format!("{hours}h{:02}:{rest:02}", minutes % 60),
    }
}

/// What a user has chosen to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    pub column: Column,
    pub reversed: bool,
    /// Whether children are shown below the processes that have started them.
    pub tree: bool,
    /// A part of the command, user, home, place or name (`HOME:PID`), in any case; empty: all.
    pub filter: String,
}

/// A row of the list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Listed<'a> {
    pub row: &'a ProcessRow,
    /// How many listed ancestors it has.
    pub depth: usize,
}

impl Choice {
    /// The rows that are wanted, in order. Equal rows are in the order of home and pid, so that lines do not
    /// change places without a reason.
    #[must_use]
    pub fn list<'a>(&self, model: &'a Model) -> Vec<Listed<'a>> {
        let filter = self.filter.to_lowercase();
        let mut rows: Vec<&ProcessRow> = model
            .processes()
            .filter(|row| filter.is_empty() || matches(row, &filter))
            .collect();
        rows.sort_by(|one, other| {
            let order = self.column.compare(one, other);
            if self.reversed {
                order.reverse()
            } else {
                order
            }
        });
        if self.tree {
            return as_tree(&rows);
        }
        rows.into_iter()
            .map(|row| Listed { row, depth: 0 })
            .collect()
    }
}

fn matches(row: &ProcessRow, filter: &str) -> bool {
    let words = [&row.command, &row.home, &row.r#where];
    words
        .into_iter()
        .chain(&row.user)
        .any(|word| word.to_lowercase().contains(filter))
        || Key::of(row).to_string().contains(filter)
        || state(row) == filter
}

/// Parents before their children, which keep their order among themselves.
fn as_tree<'a>(rows: &[&'a ProcessRow]) -> Vec<Listed<'a>> {
    let listed: HashSet<Key> = rows.iter().map(|row| Key::of(row)).collect();
    let parent = |row: &ProcessRow| {
        let pid = row.parent.filter(|parent| *parent != row.pid)?;
        let key = Key {
            home: row.home.clone(),
            pid,
        };
        listed.contains(&key).then_some(key)
    };
    let mut children: BTreeMap<Option<Key>, Vec<&'a ProcessRow>> = BTreeMap::new();
    for row in rows {
        children.entry(parent(row)).or_default().push(row);
    }
    let mut list = Vec::with_capacity(rows.len());
    let roots = children.remove(&None).unwrap_or_default();
    let mut open: Vec<Listed<'a>> = roots
        .into_iter()
        .rev()
        .map(|row| Listed { row, depth: 0 })
        .collect();
    while let Some(next) = open.pop() {
        list.push(next);
        let below = children
            .remove(&Some(Key::of(next.row)))
            .unwrap_or_default();
        let depth = next.depth + 1;
        open.extend(below.into_iter().rev().map(|row| Listed { row, depth }));
    }
    // Processes in a ring of parents, which reuse of a pid can make, would be missing otherwise.
    list.extend(
        children
            .into_values()
            .flatten()
            .map(|row| Listed { row, depth: 0 }),
    );
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::Update;
    use crate::rows::tests::process;
    use proptest::prelude::*;

    fn model(rows: impl IntoIterator<Item = ProcessRow>) -> Model {
        let mut model = Model::default();
        for row in rows {
            model.apply(Update::Process(row));
        }
        model
    }

    fn pids(choice: &Choice, model: &Model) -> Vec<(i32, usize)> {
        let list = choice.list(model);
        list.iter().map(|one| (one.row.pid, one.depth)).collect()
    }

    fn some() -> Model {
        let row = |pid: i32, cpu, parent, command: &str| ProcessRow {
            cpu_percent: cpu,
            parent,
            command: command.into(),
            ..process("n1", pid)
        };
        model([
            row(1, 1.0, None, "make -j16"),
            row(2, 90.0, Some(1), "cc a.c"),
            row(3, 95.0, Some(1), "cc b.c"),
            row(4, 50.0, Some(99), "Blender"),
        ])
    }

    #[test]
    fn the_busiest_comes_first_and_the_order_can_be_turned() {
        let model = some();
        let mut choice = Choice::default();
        let flat =
            |list: Vec<(i32, usize)>| list.into_iter().map(|(pid, _)| pid).collect::<Vec<_>>();
        assert_eq!(flat(pids(&choice, &model)), [3, 2, 4, 1]);
        choice.reversed = true;
        assert_eq!(flat(pids(&choice, &model)), [1, 4, 2, 3]);
        choice.column = Column::Command;
        choice.reversed = false;
        assert_eq!(flat(pids(&choice, &model)), [4, 2, 3, 1]);
    }

    #[test]
    fn words_say_what_keeps_a_program_and_what_it_has_used() {
        let kept = ProcessRow {
            stay: Some("It has a device open.".into()),
            not_candidate: Some("Not a candidate.".into()),
            ..process("n1", 1)
        };
        assert_eq!((state(&kept), state_word(&kept)), ("home", "stays"));
        assert_eq!(why(&kept), Some("It has a device open."));
        let free = process("n1", 2);
        assert_eq!((state_word(&free), why(&free)), ("home", None));
        let told = [0.0, 7.256, 61.0, 3599.999, 7509.0, -1.0].map(cpu_time);
        let expected = [
            "0:00.00", "0:07.25", "1:01.00", "59:59.99", "2h05:09", "0:00.00",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn children_stand_below_their_parents() {
        let choice = Choice {
            tree: true,
            ..Choice::default()
        };
        assert_eq!(pids(&choice, &some()), [(4, 0), (1, 0), (3, 1), (2, 1)]);
        let ring = [(1, Some(2)), (2, Some(1)), (3, Some(3))];
        let ring = model(ring.map(|(pid, parent)| ProcessRow {
            parent,
            ..process("n1", pid)
        }));
        assert_eq!(pids(&choice, &ring).len(), 3);
    }

    #[test]
    fn a_filter_looks_at_words_and_names() {
        let model = some();
        let found = |filter: &str| {
            let choice = Choice {
                filter: filter.into(),
                ..Choice::default()
            };
            pids(&choice, &model).len()
        };
        assert_eq!(
            (found("blend"), found("CC "), found("n1:2"), found("home")),
            (1, 2, 1, 4)
        );
        assert_eq!((found("n1"), found("n2"), found("away")), (4, 0, 0));
    }

    proptest! {
        #[test]
        fn nobody_is_left_out_or_listed_twice(
            parents in proptest::collection::vec(proptest::option::of(0i32..12), 0..12),
            column in 0..Column::ALL.len(), tree: bool, reversed: bool,
        ) {
            let rows = parents.iter().enumerate().map(|(pid, parent)| ProcessRow {
                parent: *parent,
                ..process("n1", i32::try_from(pid).expect("small"))
            });
            let model = model(rows);
            let choice = Choice { column: Column::ALL[column], reversed, tree, filter: String::new() };
            let mut listed: Vec<i32> = pids(&choice, &model).into_iter().map(|(pid, _)| pid).collect();
            listed.sort_unstable();
            let all: Vec<i32> = (0..i32::try_from(parents.len()).expect("small")).collect();
            prop_assert_eq!(listed, all);
        }
    }
}
