//! The feed: what has changed since the last time, as lines.
//!
//! The first batch contains everything. Each batch ends with an [`Update::Tick`]: then the picture is whole and
//! may be shown. A monitor skips a line of which it understands only the name.

use crate::rows::{LogRow, NodeRow, ProcessRow};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A process is named by its home and its id there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    pub home: String,
    pub pid: i32,
}

impl Key {
    #[must_use]
    pub fn of(row: &ProcessRow) -> Self {
        Self {
            home: row.home.clone(),
            pid: row.pid,
        }
    }
}

/// `HOME:PID`, as every command accepts it.
impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.home, self.pid)
    }
}

/// One line of the feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "update", rename_all = "kebab-case")]
pub enum Update {
    /// A node is new or has changed.
    Node(NodeRow),
    NodeGone {
        name: String,
    },
    /// A process is new or has changed.
    Process(ProcessRow),
    ProcessGone(Key),
    /// Something has happened.
    Log(LogRow),
    /// The feed is complete up to this time, in milliseconds since 1970.
    Tick {
        time_ms: u64,
    },
}

/// Remembers what one reader was told.
#[derive(Debug, Default)]
pub struct Teller {
    nodes: BTreeMap<String, NodeRow>,
    processes: BTreeMap<Key, ProcessRow>,
}

impl Teller {
    /// Returns what the reader has to be told, now that these are all rows. Among rows of the same name the
    /// last one counts.
    pub fn tell(
        &mut self,
        time_ms: u64,
        nodes: Vec<NodeRow>,
        processes: Vec<ProcessRow>,
        log: Vec<LogRow>,
    ) -> Vec<Update> {
        let named = nodes.into_iter().map(|row| (row.name.clone(), row));
        let (changed, gone) = changes(&mut self.nodes, named.collect());
        let gone = gone.into_iter().map(|name| Update::NodeGone { name });
        let mut updates: Vec<Update> = changed.into_iter().map(Update::Node).chain(gone).collect();
        let named = processes.into_iter().map(|row| (Key::of(&row), row));
        let (changed, gone) = changes(&mut self.processes, named.collect());
        updates.extend(changed.into_iter().map(Update::Process));
        updates.extend(gone.into_iter().map(Update::ProcessGone));
        updates.extend(log.into_iter().map(Update::Log));
        updates.push(Update::Tick { time_ms });
        updates
    }
}

/// Replaces `before` by `now`. Returns the rows that are new or have changed, and the names of those that are
/// gone.
fn changes<K: Ord + Clone, R: PartialEq + Clone>(
    before: &mut BTreeMap<K, R>,
    now: BTreeMap<K, R>,
) -> (Vec<R>, Vec<K>) {
    let is_new = |(name, row): &(&K, &R)| before.get(*name) != Some(*row);
    let changed = now
        .iter()
        .filter(is_new)
        .map(|(_, row)| row.clone())
        .collect();
    let gone = before
        .keys()
        .filter(|name| !now.contains_key(*name))
        .cloned()
        .collect();
    *before = now;
    (changed, gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use crate::rows::tests::{node, process};
    use proptest::prelude::*;

    #[test]
    fn only_changes_are_told() {
        let mut teller = Teller::default();
        let rows = || (vec![node("n1"), node("n2")], vec![process("n1", 7)]);
        let (nodes, processes) = rows();
        let first = teller.tell(1, nodes.clone(), processes.clone(), Vec::new());
        let expected = [
            Update::Node(node("n1")),
            Update::Node(node("n2")),
            Update::Process(process("n1", 7)),
            Update::Tick { time_ms: 1 },
        ];
        assert_eq!(first, expected);
        let again = teller.tell(2, nodes, processes, Vec::new());
        assert_eq!(again, [Update::Tick { time_ms: 2 }]);
        let moved = ProcessRow {
            r#where: "n2".into(),
            ..process("n1", 7)
        };
        let third = teller.tell(3, vec![node("n1")], vec![moved.clone()], Vec::new());
        let gone = Update::NodeGone { name: "n2".into() };
        let expected = [gone, Update::Process(moved), Update::Tick { time_ms: 3 }];
        assert_eq!(third, expected);
        let last = teller.tell(4, Vec::new(), Vec::new(), Vec::new());
        assert_eq!(last.len(), 3, "{last:?}");
    }

    #[test]
    fn lines_are_as_documented() {
        let key = Key {
            home: "n1".into(),
            pid: 7,
        };
        assert_eq!(key.to_string(), "n1:7");
        let line = serde_json::to_string(&Update::ProcessGone(key)).expect("encoded");
        assert_eq!(line, r#"{"update":"process-gone","home":"n1","pid":7}"#);
        let line = serde_json::to_string(&Update::Tick { time_ms: 5 }).expect("encoded");
        assert_eq!(line, r#"{"update":"tick","time_ms":5}"#);
    }

    proptest! {
        /// Whatever changes, a picture that is built from the feed shows the present rows.
        #[test]
        fn a_picture_of_the_feed_is_that_of_the_rows(
            batches in proptest::collection::vec(
                (proptest::collection::vec(0u8..6, 0..6),
                 proptest::collection::vec((0u8..3, 1i32..5, 0u8..3), 0..8)),
                1..8,
            ),
        ) {
            let (mut teller, mut model) = (Teller::default(), Model::default());
            for (nodes, processes) in batches {
                let nodes: Vec<NodeRow> = nodes.iter().map(|n| node(&format!("n{n}"))).collect();
                let row = |(home, pid, at): &(u8, i32, u8)| ProcessRow {
                    r#where: format!("n{at}"),
                    ..process(&format!("n{home}"), *pid)
                };
                let processes: Vec<ProcessRow> = processes.iter().map(row).collect();
                let expected: BTreeMap<Key, ProcessRow> =
                    processes.iter().map(|row| (Key::of(row), row.clone())).collect();
                let names: std::collections::BTreeSet<String> =
                    nodes.iter().map(|row| row.name.clone()).collect();
                for update in teller.tell(1, nodes, processes, Vec::new()) {
                    model.apply(update);
                }
                let shown: BTreeMap<Key, ProcessRow> = model
                    .processes()
                    .map(|row| (Key::of(row), row.clone()))
                    .collect();
                prop_assert_eq!(shown, expected);
                let shown: std::collections::BTreeSet<String> =
                    model.nodes().map(|node| node.row.name.clone()).collect();
                prop_assert_eq!(shown, names);
            }
        }
    }
}
