//! The control socket: who asks, and what for.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use whim_net::Concealed;
use whim_net::files::FILE_MAX;
use whim_net::name::NodeName;
use whim_sys::credentials;

use crate::balancing;
use crate::daemon::Daemon;
use crate::faces::clients::Clients;
use crate::faces::health;
use crate::faces::listing;
use crate::faces::telling;
use crate::faces::tuning;
use crate::faces::web;
use crate::members::cluster::ClusterError;
use crate::members::membership;
use crate::moves::evacuation;
use crate::moves::moving::{self, MoveError};
use crate::moves::registering;
use crate::past::history_task;
use whim_control::protocol::{ADMIN_GROUP, Answer, Finding, REQUEST_MAX, Request, RunOptions};
use whim_machine::class::{Class, Features};
use whim_machine::processes::Caller;
use whim_monitor::plain;

/// A client that does not send its request within this time is dropped.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that takes nothing of its answers for this time is dropped.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// A copy of the CA is told in parts of so many bytes: as a text in an answer each may take six.
const CA_PART: usize = 512 << 10;

/// Opens the control socket, for everybody: each request is judged by who asks.
///
/// # Errors
/// Another daemon listens there, or the directory cannot be written.
pub fn open(path: &Path) -> std::io::Result<UnixListener> {
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(std::io::Error::other("another daemon answers there"));
    }
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Accepts for ever.
pub async fn serve(daemon: Arc<Daemon>, listener: UnixListener) {
    let clients = Arc::new(Clients::default());
    // Given up for the moment in which somebody has to be told that there are no more.
    let mut spare = File::open("/dev/null").ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (daemon, clients) = (Arc::clone(&daemon), Arc::clone(&clients));
                tokio::spawn(async move { client(&daemon, &clients, stream).await });
            }
            Err(error) => {
                tracing::warn!(%error, "a client could not be accepted");
                if spare.take().is_none() || !turn_away(&listener).await {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                spare = File::open("/dev/null").ok();
            }
        }
    }
}

/// Tells the next client that there is no descriptor for it; false if there was nobody.
async fn turn_away(listener: &UnixListener) -> bool {
    let next = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
    let Ok(Ok((stream, _))) = next else {
        return false;
    };
    let reason = "The daemon has no descriptors left: raise its limit of open files".to_owned();
    let (_, mut write) = stream.into_split();
    // An empty socket takes a line at once, whether it is read or not.
    let _ = write_line(&mut write, &Answer::Refused { reason }).await;
    true
}

fn caller(daemon: &Daemon, stream: &UnixStream) -> Result<Caller, credentials::CredentialError> {
    let peer = credentials::peer(stream)?;
    let own = nix::unistd::geteuid().as_raw();
    let admin_group = nix::unistd::Group::from_name(ADMIN_GROUP).ok().flatten();
    let in_group = admin_group.is_some_and(|group| {
        let groups = credentials::peer_groups(stream).unwrap_or_default();
        let gid = group.gid.as_raw();
        peer.gid == gid || groups.contains(&gid)
    });
    // A daemon without root belongs to the user that started it.
    let owner = !daemon.settings.root && peer.uid == own;
    let admin = peer.uid == 0 || in_group || owner;
    Ok(Caller {
        pid: peer.pid,
        uid: peer.uid,
        gid: peer.gid,
        admin,
    })
}

/// One client, from its first request to its end. What it does not read holds up itself alone: the
/// next request is looked at when the answers to the last one have been taken.
async fn client(daemon: &Arc<Daemon>, clients: &Arc<Clients>, stream: UnixStream) {
    let caller = match caller(daemon, &stream) {
        Ok(caller) => caller,
        Err(error) => {
            tracing::warn!(%error, "a client is refused");
            return;
        }
    };
    let (read, mut write) = stream.into_split();
    let _place = match clients.admit(caller.uid, caller.admin) {
        Ok(place) => place,
        Err(error) => {
            // An empty socket takes a line at once, whether it is read or not.
            let reason = error.to_string();
            let _ = write_line(&mut write, &Answer::Refused { reason }).await;
            return;
        }
    };
    let mut lines = BufReader::new(read);
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = u64::try_from(REQUEST_MAX).unwrap_or(u64::MAX);
        let mut limited = (&mut lines).take(limit);
        let read = limited.read_until(b'\n', &mut line);
        match tokio::time::timeout(REQUEST_TIMEOUT, read).await {
            Ok(Ok(length)) if length > 0 && line.ends_with(b"\n") => {}
            _ => return,
        }
        let request = serde_json::from_slice::<Request>(&line);
        if matches!(request, Ok(Request::Watch)) {
            telling::serve(daemon, &caller, &mut lines, &mut write).await;
            return;
        }
        let (answers, queue) = unbounded_channel::<Answer>();
        let work = serve_request(daemon, &caller, request, answers, &mut lines);
        let (last, written) = tokio::join!(work, write_all(&mut write, queue));
        if last || !written {
            return;
        }
    }
}

/// Does what one request asks for; true if nothing may follow it.
async fn serve_request(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    request: Result<Request, serde_json::Error>,
    answers: UnboundedSender<Answer>,
    lines: &mut BufReader<tokio::net::unix::OwnedReadHalf>,
) -> bool {
    let answer = match request {
        Ok(Request::Register { options }) => {
            registering::register(daemon, caller, options, &answers, lines).await;
            return true;
        }
        Ok(Request::Init {
            node,
            advertise,
            restore: Some(length),
        }) => {
            let result = restore(daemon, caller, (node, advertise), length, lines).await;
            // What follows may be the rest of the backup.
            let failed = result.is_err();
            tell(&answers, result);
            return failed;
        }
        Ok(request) => handle(daemon, caller, request, &answers).await,
        Err(error) => Err(format!(
            "The request is not understood ({error}): whim and whimd are of different versions"
        )),
    };
    tell(&answers, answer);
    false
}

fn tell(answers: &UnboundedSender<Answer>, outcome: Outcome) {
    let last = match outcome {
        Ok(text) => Answer::Done { text },
        Err(reason) => Answer::Refused { reason },
    };
    // A client that has gone away is told nothing.
    let _ = answers.send(last);
}

/// `whim init --restore`: the client has read the backup, with its own rights, and sends it.
async fn restore(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    (node, advertise): (Option<String>, Vec<String>),
    length: u64,
    lines: &mut BufReader<tokio::net::unix::OwnedReadHalf>,
) -> Outcome {
    administers(caller)?;
    if length > FILE_MAX {
        return Err(format!(
            "A backup of {length} bytes is none of ours: the limit is {FILE_MAX}"
        ));
    }
    let mut backup = Vec::new();
    let mut limited = lines.take(length);
    let read = limited.read_to_end(&mut backup);
    match tokio::time::timeout(REQUEST_TIMEOUT, read).await {
        Ok(Ok(read)) if u64::try_from(read) == Ok(length) => {}
        _ => return Err("The backup did not come whole: nothing was changed".into()),
    }
    init(daemon, node, advertise, Some(&backup))
}

fn init(
    daemon: &Arc<Daemon>,
    node: Option<String>,
    advertise: Vec<String>,
    backup: Option<&[u8]>,
) -> Outcome {
    let made = daemon.cluster.init(node, advertise, backup);
    made.map_err(|e| e.to_string())?;
    let node = daemon.cluster.node();
    daemon.events.add(
        None,
        "initialized",
        format!("{node} holds the CA of a cluster"),
    );
    if backup.is_none() {
        return Ok(Some(format!(
            "{node} is the first node of a new cluster; 'whim token' admits others"
        )));
    }
    let members = daemon
        .cluster
        .members()
        .into_iter()
        .map(|member| member.name);
    let members: Vec<String> = members.collect();
    Ok(Some(format!(
        "{node} holds the CA now. Members are, as the backup has it: {}. Whoever was removed after it was made is a member again: say 'whim remove' once more",
        members.join(", ")
    )))
}

fn administers(caller: &Caller) -> Result<(), String> {
    if caller.admin {
        return Ok(());
    }
    Err(format!(
        "This changes the cluster: only root or a member of {ADMIN_GROUP} may do it"
    ))
}

/// Writes the answers to one request as they come; false when the client does not take them.
async fn write_all(write: &mut OwnedWriteHalf, mut queue: UnboundedReceiver<Answer>) -> bool {
    while let Some(answer) = queue.recv().await {
        let written = tokio::time::timeout(ANSWER_TIMEOUT, write_line(write, &answer)).await;
        if !matches!(written, Ok(Ok(()))) {
            return false;
        }
    }
    true
}

/// All that a client is told passes through here, and is made harmless: what users, members and supervisors
/// have said stands in it, and goes to terminals.
pub async fn write_line(write: &mut OwnedWriteHalf, answer: &Answer) -> std::io::Result<()> {
    write.write_all(&line(answer)?).await
}

fn line(answer: &Answer) -> serde_json::Result<Vec<u8>> {
    let mut line = match answer {
        // The file itself, with its ends of lines; nobody prints it.
        Answer::CaPart { .. } => serde_json::to_vec(answer)?,
        _ => plain::to_json(answer)?,
    };
    line.push(b'\n');
    Ok(line)
}

type Outcome = Result<Option<String>, String>;

/// A text in parts of no more than so many bytes, each of whole characters.
fn parts(text: &str, length: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut end = length.min(rest.len());
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (part, after) = rest.split_at(end);
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

/// Does what the page asks for: the same, with the same rights, as if its user had asked here.
///
/// # Errors
/// A sentence for the user.
pub async fn ask(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    request: Request,
) -> Result<(Vec<Answer>, Option<String>), String> {
    let (answers, mut queue) = unbounded_channel();
    let text = handle(daemon, caller, request, &answers).await?;
    drop(answers);
    let mut all = Vec::new();
    while let Some(answer) = queue.recv().await {
        all.push(answer);
    }
    Ok((all, text))
}

fn text(result: Result<impl Into<Option<String>>, impl std::fmt::Display>) -> Outcome {
    result.map(Into::into).map_err(|error| error.to_string())
}

async fn handle(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    request: Request,
    answers: &UnboundedSender<Answer>,
) -> Outcome {
    let send_all = |rows: Vec<Answer>| {
        for row in rows {
            let _ = answers.send(row);
        }
        Ok(None)
    };
    match request {
        Request::Adopt { pid } => text(moving::adopt(daemon, caller, pid)),
        Request::Migrate { pid, to } => migrate(daemon, caller, pid, to, answers).await,
        Request::Bring { pid, hold } => bring(daemon, caller, pid, hold, answers).await,
        Request::Go { pid } => text(moving::go(daemon, caller, pid)),
        Request::Processes { all } => {
            let mut rows = listing::processes(daemon, all).await;
            listing::hide(&daemon.cluster.node(), &mut rows, caller);
            send_all(listing::answers(rows, Answer::Process))
        }
        Request::Nodes => send_all(listing::answers(listing::nodes(daemon), Answer::Node)),
        Request::Log { calls } => send_all(listing::answers(
            listing::log(daemon, calls).await,
            Answer::Log,
        )),
        Request::History { from_ms, to_ms } => {
            let rows = history_task::rows(daemon, caller, from_ms, to_ms).await;
            let rows = rows.map_err(|error| error.to_string())?;
            send_all(listing::answers(rows, Answer::History))
        }
        Request::CpuAway { run } => {
            let (time, moves) = listing::cpu_away(daemon, &run).await;
            send_all(vec![Answer::CpuAway { time, moves }])
        }
        Request::Why { pid } => {
            let why = listing::why(daemon, caller, pid)
                .await
                .map_err(|e| e.to_string())?;
            send_all(vec![Answer::Why(why)])
        }
        Request::Web => {
            let link = web::invite(daemon, caller)
                .await
                .map_err(|e| e.to_string())?;
            send_all(vec![Answer::Link(link)])
        }
        Request::Doctor => {
            let findings: Vec<Finding> = health::findings(daemon);
            send_all(listing::answers(findings, Answer::Finding))
        }
        Request::Tune { key, value: None } => send_all(listing::answers(
            tuning::show(daemon, key.as_deref())?,
            Answer::Knob,
        )),
        administrative => {
            administers(caller)?;
            administer(daemon, administrative, answers).await
        }
    }
}

async fn administer(
    daemon: &Arc<Daemon>,
    request: Request,
    answers: &UnboundedSender<Answer>,
) -> Outcome {
    let done = |result: Result<(), ClusterError>| text(result.map(|()| None::<String>));
    match request {
        Request::Init {
            node,
            advertise,
            restore: None,
        } => init(daemon, node, advertise, None),
        Request::Token if daemon.cluster.removed().is_some() => Err(format!(
            "This node was removed from the cluster. {}",
            health::REJOIN
        )),
        Request::Token => {
            let token = daemon
                .cluster
                .with_state(|state| state.token(crate::members::cluster::now()));
            let token = token.map_err(|e| e.to_string())?;
            let id = token.id();
            tracing::info!(token = id, "a token was made");
            let token = Concealed::new(token.to_string());
            let _ = answers.send(Answer::Token { token, id });
            Ok(None)
        }
        Request::Join {
            host,
            token,
            node,
            advertise,
        } => {
            let report = daemon.cluster.join(host, &token, node, advertise).await;
            let report = report.map_err(|e| e.to_string())?;
            let node = daemon.cluster.node();
            daemon
                .events
                .add(None, "joined", format!("{node} joined by {}", report.via));
            if report.skew.unsigned_abs() > 1 {
                let text = format!(
                    "The clocks differ by {} s: run an NTP client on both nodes",
                    report.skew.unsigned_abs()
                );
                let _ = answers.send(Answer::Notice { text });
            }
            let count = daemon.cluster.members().len();
            Ok(Some(format!(
                "{node} is a member of a cluster of {count} nodes"
            )))
        }
        Request::Leave { force } => {
            let left = membership::leave(daemon, force).await;
            left.map_err(|e| e.to_string())
        }
        Request::Remove { node } => {
            let name = NodeName::new(node).map_err(|e| e.to_string())?;
            done(membership::remove(daemon, &name))
        }
        Request::CaCopy => {
            let copy = daemon.cluster.with_state(|state| state.backup());
            let copy = copy.map_err(|e| e.to_string())?;
            for part in parts(copy.reveal(), CA_PART) {
                let text = Concealed::new(part);
                let _ = answers.send(Answer::CaPart { text });
            }
            Ok(None)
        }
        other => order(daemon, other, answers).await,
    }
}

/// What this node, or another one, is told: who may leave, who may come.
async fn order(
    daemon: &Arc<Daemon>,
    request: Request,
    answers: &UnboundedSender<Answer>,
) -> Outcome {
    match request {
        Request::Stay { on } => {
            let orders = daemon.change_orders(|orders| orders.stay = on);
            Ok(Some(orders.sentence()))
        }
        Request::Block { on } => {
            let orders = daemon.change_orders(|orders| orders.block = on);
            Ok(Some(orders.sentence()))
        }
        Request::Expel => {
            daemon.change_orders(|orders| orders.block = true);
            let left = match evacuation::expel(daemon, answers).await {
                0 => "No guests are left".to_owned(),
                left => format!("{left} guests do not leave"),
            };
            Ok(Some(format!(
                "{left}, and new ones are refused: 'whim unblock' admits them"
            )))
        }
        Request::Evacuate { undo: false } => Ok(Some(evacuation::evacuate(daemon, answers).await)),
        Request::Evacuate { undo: true } => {
            let orders = daemon.change_orders(|orders| orders.evacuate = false);
            Ok(Some(orders.sentence()))
        }
        Request::BringAll => {
            daemon.change_orders(|orders| orders.stay = true);
            let count = evacuation::bring_all(daemon, answers).await;
            Ok(Some(format!(
                "{count} processes have come home and stay: 'whim go' lets them leave"
            )))
        }
        Request::Drain { node, wait } => evacuation::drain_node(daemon, &node, wait, answers)
            .await
            .map(Some),
        Request::Undrain { node } => evacuation::undrain_node(daemon, &node).await.map(Some),
        Request::Tune {
            key: Some(key),
            value: Some(value),
        } => {
            let done = tuning::set(daemon, &key, &value)?;
            for knob in tuning::show(daemon, Some(&key))? {
                let _ = answers.send(Answer::Knob(knob));
            }
            Ok(Some(done))
        }
        _ => Err("The request is not understood: whim and whimd are of different versions".into()),
    }
}

/// Runs a move in a task of its own: that the client goes away does not stop it half-way.
async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, MoveError>> + Send + 'static,
) -> Result<T, String> {
    match tokio::spawn(work).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(error) => Err(format!(
            "A task of the daemon ended badly ({error}); see its log"
        )),
    }
}

async fn migrate(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    pid: i32,
    to: String,
    answers: &UnboundedSender<Answer>,
) -> Outcome {
    let (daemon, caller, sender) = (Arc::clone(daemon), caller.clone(), answers.clone());
    let work = async move {
        let result = moving::migrate(&daemon, &caller, pid, &to, &sender).await;
        balancing::placed(&daemon, pid);
        result
    };
    let report = detached(work).await?;
    let event = whim_journey::job::Event::Done { report };
    let _ = answers.send(Answer::Journey { event });
    Ok(None)
}

async fn bring(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    pid: i32,
    hold: bool,
    answers: &UnboundedSender<Answer>,
) -> Outcome {
    let (daemon, caller, sender) = (Arc::clone(daemon), caller.clone(), answers.clone());
    let work = async move {
        let result = moving::bring(&daemon, &caller, pid, hold, &sender).await;
        balancing::placed(&daemon, pid);
        result
    };
    let Some(report) = detached(work).await? else {
        let held = if hold {
            " and stays there until 'whim go'"
        } else {
            ""
        };
        return Ok(Some(format!("Process {pid} is at home{held}")));
    };
    let event = whim_journey::job::Event::Done { report };
    let _ = answers.send(Answer::Journey { event });
    Ok(None)
}

/// The features that all nodes of this register layout have, those that are down among them, and what
/// the C library here must not use therefore.
pub(crate) fn portable(daemon: &Daemon) -> (Features, Vec<String>) {
    let own = daemon.sensors().class().clone();
    let members = daemon.cluster.members();
    let peers = daemon.peers();
    let classes = members.iter().filter_map(|member| {
        let heard = peers.get(&member.name);
        heard.map_or_else(
            || Class::described(&member.class),
            |health| Some(health.report.class.clone()),
        )
    });
    let common = classes
        .filter(|class| own.same_layout(class))
        .fold(own.features(), |common, class| {
            common.common(&class.features())
        });
    let words = Features::here().masked(&common);
    (common, words.into_iter().map(String::from).collect())
}

pub(crate) fn check_options(daemon: &Daemon, options: &RunOptions) -> Result<(), String> {
    options.check()?;
    let named = options.only.iter().chain(&options.avoid).chain(&options.on);
    for name in named {
        if let Some(label) = name.strip_prefix('@') {
            // To avoid what nobody is is no mistake.
            if !options.avoid.contains(name) {
                check_label(daemon, label)?;
            }
            continue;
        }
        if name != "best" && daemon.cluster.member(name).is_none() {
            let known: Vec<_> = daemon
                .cluster
                .members()
                .into_iter()
                .map(|m| m.name)
                .collect();
            let known = if known.is_empty() {
                "none".into()
            } else {
                known.join(", ")
            };
            return Err(format!(
                "There is no node {name} in this cluster; it has: {known}"
            ));
        }
    }
    Ok(())
}

fn check_label(daemon: &Daemon, label: &str) -> Result<(), String> {
    let rows = listing::nodes(daemon);
    let mut known: Vec<String> = rows
        .into_iter()
        .filter_map(|row| row.labels)
        .flatten()
        .collect();
    if known.iter().any(|known| known == label) {
        return Ok(());
    }
    known.sort();
    known.dedup();
    let known = if known.is_empty() {
        "none (labels in a node's configuration)".into()
    } else {
        known
            .iter()
            .map(|label| format!("@{label}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    Err(format!(
        "No node has the label @{label}; this cluster's labels: {known}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_told_does_anything_to_a_terminal_but_files_stay_whole() {
        let reason = "It is \u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}here\n".to_owned();
        let told = line(&Answer::Refused { reason }).expect("written");
        let text = String::from_utf8(told).expect("text");
        assert_eq!(
            text,
            "{\"answer\":\"refused\",\"reason\":\"It is  ]0;owned  [2J here \"}\n"
        );
        let file = "-----BEGIN-----\nabc\n";
        let part = Answer::CaPart {
            text: Concealed::new(file),
        };
        let told: Answer = serde_json::from_slice(&line(&part).expect("written")).expect("read");
        assert!(matches!(told, Answer::CaPart { text } if text.reveal() == file));
    }
}
