//! When the nodes of a new lab are a cluster: each of them sees each other one as up. A node is a member, and its own
//! command has ended, before the others have heard of it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use whim_control::protocol::{NodeRow, NodeState};
use whim_lab::{Lab, LabError};

/// How long the nodes may take to see each other: seconds on a busy machine, and longer by slow links.
pub(crate) const SEEN_WITHIN: Duration = Duration::from_secs(30);
/// A node that does not answer within this time is asked again.
const ANSWER: Duration = Duration::from_secs(5);
/// A daemon that was started answers within this time.
const STARTED_WITHIN: Duration = Duration::from_secs(10);
/// Between two rounds of questions.
const PAUSE: Duration = Duration::from_millis(50);

/// What one node says of the others, or why it says nothing.
type View = Result<BTreeMap<String, NodeState>, String>;

/// Waits until each node sees each other one as up, at the same time. Gives what is missing after `limit`, a sentence
/// for each node; nothing, if nothing is.
pub(crate) fn wait(lab: &Lab, whim: &Path, names: &[String], limit: Duration) -> Vec<String> {
    let words = [&whim.display().to_string(), "nodes", "--json"].map(str::to_owned);
    let begun = Instant::now();
    let mut views: BTreeMap<String, View> = BTreeMap::new();
    loop {
        // Those that have seen all are asked again at the end: the first may have lost sight of one meanwhile.
        let mut asked: Vec<&String> = names
            .iter()
            .filter(|name| !sees_all(&views, name, names))
            .collect();
        if asked.is_empty() {
            asked = names.iter().collect();
        }
        let whole = asked.len() == names.len();
        for name in asked {
            let left = limit.saturating_sub(begun.elapsed());
            let answer = lab.ask(name, &words, left.clamp(PAUSE, ANSWER));
            let view = answer.map_err(|error| error.to_string());
            views.insert(name.clone(), view.map(|text| read(&text)));
        }
        let missing = missing(&views, names);
        if missing.is_empty() && whole {
            return Vec::new();
        }
        if begun.elapsed() >= limit {
            return missing;
        }
        if !missing.is_empty() {
            thread::sleep(PAUSE);
        }
    }
}

/// Waits until the daemon of a node answers. Gives what is wrong with it if it does not.
///
/// # Errors
/// Its lab has ended.
pub(crate) fn daemon_answers(
    lab: &Lab,
    whim: &Path,
    node: &str,
) -> Result<Option<String>, LabError> {
    let words = [&whim.display().to_string(), "nodes"].map(str::to_owned);
    let begun = Instant::now();
    loop {
        if lab.ask(node, &words, ANSWER).is_ok() {
            return Ok(None);
        }
        let nodes = lab.status()?.nodes;
        let status = nodes.into_iter().find(|status| status.name == node);
        let log = status
            .as_ref()
            .map(|status| status.log.display().to_string());
        let log = log.unwrap_or_default();
        let runs = status.and_then(|status| status.daemon);
        if runs.is_none_or(|daemon| !daemon.running) {
            return Ok(Some(format!("has ended at once; its log is {log}")));
        }
        if begun.elapsed() >= STARTED_WITHIN {
            return Ok(Some(format!("does not answer yet; its log is {log}")));
        }
        thread::sleep(PAUSE);
    }
}

fn read(text: &str) -> BTreeMap<String, NodeState> {
    let rows = text.lines().map(serde_json::from_str::<NodeRow>);
    rows.flatten().map(|row| (row.name, row.state)).collect()
}

fn sees_all(views: &BTreeMap<String, View>, by: &str, names: &[String]) -> bool {
    let is_up = |view: &BTreeMap<String, NodeState>| {
        let mut others = names.iter().filter(|name| *name != by);
        others.all(|name| view.get(name) == Some(&NodeState::Up))
    };
    matches!(views.get(by), Some(Ok(view)) if is_up(view))
}

/// Who is missing, and to whom.
fn missing(views: &BTreeMap<String, View>, names: &[String]) -> Vec<String> {
    let mut told = Vec::new();
    for name in names {
        if let Some(Err(why)) = views.get(name) {
            told.push(format!("{name} does not say which nodes it sees: {why}"));
        }
        let mut seen = String::new();
        for (by, view) in views {
            let Ok(view) = view else { continue };
            let how = match view.get(name) {
                _ if by == name => continue,
                Some(NodeState::Up) => continue,
                Some(state) => format!("{by} sees it as {state}"),
                None => format!("{by} does not know it"),
            };
            let comma = if seen.is_empty() { "" } else { ", " };
            let _ = write!(seen, "{comma}{how}");
        }
        if !seen.is_empty() {
            told.push(format!("{name} is not up to every node: {seen}"));
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_missing_is_told_with_who_misses_it() {
        let names = ["n1", "n2", "n3"].map(str::to_owned);
        let view = |states: &[(&str, NodeState)]| {
            let states = states
                .iter()
                .map(|(name, state)| (name.to_string(), *state));
            Ok(states.collect())
        };
        use NodeState::{Down, Up};
        let up = view(&[("n1", Up), ("n2", Up), ("n3", Up)]);
        let mut views = BTreeMap::from(names.clone().map(|name| (name, up.clone())));
        assert_eq!(missing(&views, &names), [""; 0]);
        views.insert("n1".into(), view(&[("n1", Up), ("n2", Up), ("n3", Down)]));
        views.insert("n2".into(), view(&[("n1", Up), ("n2", Up)]));
        assert_eq!(
            missing(&views, &names),
            ["n3 is not up to every node: n1 sees it as down, n2 does not know it"]
        );
        assert!(!sees_all(&views, "n2", &names));
        assert!(sees_all(&views, "n3", &names));
        views.insert("n2".into(), Err("it has ended".into()));
        assert_eq!(
            missing(&views, &names),
            [
                "n2 does not say which nodes it sees: it has ended",
                "n3 is not up to every node: n1 sees it as down"
            ]
        );
    }
}
