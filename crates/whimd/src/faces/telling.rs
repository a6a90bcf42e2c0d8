//! What the monitors are told: `whim top` and its kin, here and on other nodes.
//!
//! While somebody watches, rows are gathered once a second, and at once when a program has moved: the
//! rows of this node, and those of the other nodes, each of which is asked over one connection. What was
//! gathered is told to all who watch. A slow watcher is told less often, and not more at a time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use whim_monitor::feed::{Teller, Update};

use crate::daemon::Daemon;
use crate::faces::lines::{ANSWER_TIMEOUT, write_line};
use crate::faces::listing;
use crate::faces::watched::Picture;
use crate::locks::lock;
use crate::members::cluster::CallError;
use crate::members::cluster::Cluster;
use crate::members::peers::{self, FRAME_MAX, NodeReply, NodeRequest};
use crate::past::events::now_ms;
use whim_control::protocol::{Answer, LogRow, NodeRow, NodeState, ProcessRow};
use whim_machine::processes::{self, Caller};

/// How often rows are gathered, and the shortest time between two gatherings, whatever happens.
const EVERY: Duration = Duration::from_secs(1);
const AT_LEAST: Duration = Duration::from_millis(50);
/// How many nodes are asked in a second; in a larger cluster each node is asked less often.
const ASKED_A_SECOND: u32 = 128;
/// A node that does not answer is asked again after this time at first, and after ever longer.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Longest sentence that is told about another node's process, in bytes.
const SENTENCE_MAX: usize = 256;
/// How long the rows for another node may be, in bytes, and how many rows are accepted from one node.
const ROWS_MAX: usize = 1 << 20;
const ROWS_OF_NODE_MAX: usize = 4096;
const _: () = assert!(ROWS_MAX < FRAME_MAX);

/// What one watcher is told.
pub(crate) struct Feed {
    pictures: watch::Receiver<Arc<Picture>>,
    watcher: Watcher,
}

/// Begins to tell somebody what there is and what changes, as far as this caller may see it.
#[must_use]
pub(crate) fn follow(daemon: &Arc<Daemon>, caller: &Caller) -> Feed {
    let (pictures, is_first) = daemon.watched().watch();
    if is_first {
        tokio::spawn(gather(Arc::clone(daemon)));
    }
    Feed {
        pictures,
        watcher: Watcher::new(caller.clone()),
    }
}

impl Feed {
    /// The next batch, which ends with a tick; `None`: the daemon tells no more.
    pub(crate) async fn next(&mut self, daemon: &Daemon) -> Option<Vec<Update>> {
        self.pictures.changed().await.ok()?;
        let picture = Arc::clone(&self.pictures.borrow_and_update());
        Some(self.watcher.updates(daemon, &picture))
    }
}

/// Tells a client what changes, until it goes away.
pub(crate) async fn serve(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    lines: &mut BufReader<OwnedReadHalf>,
    write: &mut OwnedWriteHalf,
) {
    let mut feed = follow(daemon, caller);
    loop {
        let mut byte = [0];
        let updates = tokio::select! {
            updates = feed.next(daemon) => updates,
            // A client that watches says nothing more, so this ends when it has gone.
            _ = lines.read(&mut byte) => None,
        };
        let Some(updates) = updates else { return };
        for answer in updates.into_iter().map(Answer::Update) {
            let written = tokio::time::timeout(ANSWER_TIMEOUT, write_line(write, &answer)).await;
            if !matches!(written, Ok(Ok(()))) {
                return;
            }
        }
    }
}

/// One watcher: its rights, and what it was told.
struct Watcher {
    caller: Caller,
    teller: Teller,
    /// How many lines of this node's log it was told.
    log: u64,
}

impl Watcher {
    fn new(caller: Caller) -> Self {
        Self {
            caller,
            teller: Teller::default(),
            log: 0,
        }
    }

    fn updates(&mut self, daemon: &Daemon, picture: &Picture) -> Vec<Update> {
        let mut processes = picture.processes.clone();
        listing::hide(&daemon.cluster().node(), &mut processes, &self.caller);
        let (log, count): (Vec<LogRow>, u64) = daemon.events().after(self.log);
        self.log = count;
        let nodes = picture.nodes.clone();
        self.teller.tell(picture.time_ms, nodes, processes, log)
    }
}

/// What other nodes have told of their processes.
#[derive(Default)]
struct Told {
    rows: Mutex<HashMap<String, Vec<ProcessRow>>>,
    /// Nodes that have answered, or failed to, at least once.
    tried: Mutex<HashSet<String>>,
    news: Notify,
}

impl Told {
    fn rows(&self) -> MutexGuard<'_, HashMap<String, Vec<ProcessRow>>> {
        lock(&self.rows)
    }

    fn was_tried(&self, node: &str) {
        let mut tried = lock(&self.tried);
        tried.insert(node.to_owned());
        self.news.notify_one();
    }

    /// Waits until so many nodes have been tried.
    async fn all_tried(&self, count: usize) {
        let tried = || lock(&self.tried).len();
        while tried() < count {
            self.news.notified().await;
        }
    }
}

/// Gathers rows for as long as somebody watches.
async fn gather(daemon: Arc<Daemon>) {
    let told = Arc::<Told>::default();
    // Dropped at the end, which ends all tasks that ask.
    let mut asking = Asking::default();
    let mut first = true;
    loop {
        let nodes = listing::nodes(daemon.host());
        asking.keep_up(&daemon, &nodes, &told);
        if std::mem::take(&mut first) {
            // The first picture is complete, if no node is slow.
            let _ = tokio::time::timeout(EVERY, told.all_tried(asking.asked.len())).await;
        }
        let mut processes = own(&daemon).await;
        {
            let rows = told.rows();
            let asked = asking.asked.keys();
            processes.extend(asked.filter_map(|node| rows.get(node)).flatten().cloned());
        }
        let picture = Picture {
            time_ms: now_ms(),
            nodes,
            processes,
        };
        if !daemon.watched().tell(picture) {
            return;
        }
        tokio::time::sleep(AT_LEAST).await;
        let _ = tokio::time::timeout(EVERY - AT_LEAST, daemon.watched().news()).await;
    }
}

/// This node's own processes. Its guests are left out, because their homes tell of them.
async fn own(daemon: &Arc<Daemon>) -> Vec<ProcessRow> {
    listing::processes(daemon, false).await
}

/// The nodes that are being asked.
#[derive(Default)]
struct Asking {
    tasks: JoinSet<()>,
    asked: HashMap<String, tokio::task::AbortHandle>,
}

impl Asking {
    /// Asks all nodes that are up, and no others.
    fn keep_up(&mut self, daemon: &Arc<Daemon>, nodes: &[NodeRow], told: &Arc<Told>) {
        while self.tasks.try_join_next().is_some() {}
        let own = daemon.cluster().node();
        let is_up = |row: &&NodeRow| row.name != own && row.state != NodeState::Down;
        let up: Vec<&NodeRow> = nodes.iter().filter(is_up).collect();
        self.asked.retain(|name, task| {
            let stays = up.iter().any(|row| row.name == *name);
            if !stays {
                task.abort();
                told.rows().remove(name);
            }
            stays
        });
        let count = u32::try_from(up.len()).unwrap_or(u32::MAX);
        let pause = EVERY * count.div_ceil(ASKED_A_SECOND).max(1);
        for row in up {
            if !self.asked.contains_key(&row.name) {
                let (daemon, told) = (Arc::clone(daemon), Arc::clone(told));
                let name = row.name.clone();
                let task = self.tasks.spawn(ask(daemon, name, told, pause));
                self.asked.insert(row.name.clone(), task);
            }
        }
    }
}

/// Asks one node again and again.
async fn ask(daemon: Arc<Daemon>, node: String, told: Arc<Told>, pause: Duration) {
    let mut retry = RETRY_MIN;
    loop {
        let asked = ask_on(daemon.cluster(), &node, &told, pause, &mut retry).await;
        told.rows().remove(&node);
        told.was_tried(&node);
        if let Err(error) = asked {
            tracing::debug!(node, %error, "its processes are not known");
        }
        tokio::time::sleep(retry).await;
        retry = (2 * retry).min(RETRY_MAX);
    }
}

/// Asks one node over one connection, until it breaks.
async fn ask_on(
    cluster: &Cluster,
    node: &str,
    told: &Told,
    pause: Duration,
    retry: &mut Duration,
) -> Result<(), CallError> {
    let mut stream = cluster.connect(node).await?;
    loop {
        let asked = async {
            peers::send(&mut stream, &NodeRequest::Processes).await?;
            peers::receive::<NodeReply>(&mut stream).await
        };
        let late = |_| CallError::Timeout(ANSWER_WITHIN.as_secs());
        let reply = tokio::time::timeout(ANSWER_WITHIN, asked)
            .await
            .map_err(late)?;
        let NodeReply::Processes { rows } = reply.map_err(CallError::from)? else {
            return Ok(());
        };
        told.rows().insert(node.to_owned(), taken(node, rows));
        told.was_tried(node);
        *retry = RETRY_MIN;
        tokio::time::sleep(pause).await;
    }
}

/// The rows that are accepted from a node: it speaks for its own processes alone, and its uids mean
/// nothing here.
fn taken(node: &str, mut rows: Vec<ProcessRow>) -> Vec<ProcessRow> {
    rows.retain(|row| row.home == node);
    rows.truncate(ROWS_OF_NODE_MAX);
    for row in &mut rows {
        row.uid = None;
        shorten(row);
    }
    rows
}

/// This node's processes as other nodes may see them: without arguments, and no more than fit.
pub(crate) async fn for_peers(daemon: &Arc<Daemon>) -> Vec<ProcessRow> {
    let mut rows = own(daemon).await;
    rows.sort_by(|one, other| other.cpu_percent.total_cmp(&one.cpu_percent));
    rows.iter_mut().for_each(shorten);
    fitting(rows)
}

fn fitting(rows: Vec<ProcessRow>) -> Vec<ProcessRow> {
    let mut length = 0;
    let fits = |row: &ProcessRow| {
        length += serde_json::to_vec(row).map_or(ROWS_MAX, |line| line.len() + 1);
        length <= ROWS_MAX
    };
    rows.into_iter().take_while(fits).collect()
}

/// Leaves out the arguments, which are nobody's business elsewhere, and cuts long texts.
fn shorten(row: &mut ProcessRow) {
    row.command = processes::program(&row.command).to_owned();
    cut(&mut row.command);
    cut(&mut row.r#where);
    let texts = [
        &mut row.reason,
        &mut row.stay,
        &mut row.not_candidate,
        &mut row.user,
    ];
    texts.into_iter().flatten().for_each(cut);
}

fn cut(text: &mut String) {
    let mut end = SENTENCE_MAX.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(home: &str, pid: i32) -> ProcessRow {
        let line = format!(
            r#"{{"pid":{pid},"home":"{home}","where":"{home}","state":"home","reason":null,"moves":0,"uid":1000,
               "cpu_percent":1.0,"memory_bytes":1,"stay":null,"home_supervisor_pid":null,
               "guest_supervisor_pid":null,"command":"/bin/program secret"}}"#
        );
        serde_json::from_str(&line).expect("a row")
    }

    #[test]
    fn a_node_speaks_for_its_own_processes_alone() {
        let rows = taken("n2", vec![row("n2", 1), row("n1", 2), row("n2", 3)]);
        let told: Vec<(i32, Option<u32>, &str)> = rows
            .iter()
            .map(|row| (row.pid, row.uid, row.command.as_str()))
            .collect();
        assert_eq!(told, [(1, None, "program"), (3, None, "program")]);
        let many = i32::try_from(ROWS_OF_NODE_MAX).expect("small") + 1;
        let rows: Vec<ProcessRow> = (0..many).map(|pid| row("n2", pid)).collect();
        assert_eq!(taken("n2", rows).len(), ROWS_OF_NODE_MAX);
    }

    #[test]
    fn no_more_rows_are_told_than_fit() {
        let one = serde_json::to_vec(&row("n1", 10_000))
            .expect("encoded")
            .len()
            + 1;
        let count = i32::try_from(ROWS_MAX / one).expect("small");
        let rows = |count: i32| {
            (0..count)
                .map(|pid| row("n1", 10_000 + pid % 80_000))
                .collect()
        };
        assert_eq!(fitting(rows(count)).len(), ROWS_MAX / one);
        assert_eq!(fitting(rows(count + 1)).len(), ROWS_MAX / one);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let mut text = "é".repeat(SENTENCE_MAX);
        cut(&mut text);
        assert_eq!(text.len(), SENTENCE_MAX);
        let mut text = format!("x{}", "é".repeat(SENTENCE_MAX));
        cut(&mut text);
        assert_eq!(text.len(), SENTENCE_MAX - 1);
        let mut short = "short".to_owned();
        cut(&mut short);
        assert_eq!(short, "short");
    }
}
