//! What is asked for, and who may ask for it: at the control socket and by the page alike.

use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use whim_control::protocol::{ADMIN_GROUP, Answer, Finding, Request};
use whim_machine::processes::Caller;
use whim_net::join::JoinReport;
use whim_net::name::NodeName;
use whim_secret::Concealed;

use crate::daemon::Daemon;
use crate::faces::health;
use crate::faces::listing;
use crate::faces::options;
use crate::faces::reasons;
use crate::faces::tuning;
use crate::ground::Ground;
use crate::host::orders::Orders;
use crate::leaving::changes;
use crate::leaving::evacuation;
use crate::members::cluster::ClusterError;
use crate::members::upkeep;
use crate::moves::attempt::MoveError;
use crate::moves::beginning;
use crate::moves::destinations;
use crate::moves::moving;
use crate::past::history_task;

/// A copy of the CA is told in parts of so many bytes, each of which may take six in the text of an
/// answer.
const CA_PART: usize = 512 << 10;

pub(super) type Outcome = Result<Option<String>, String>;

pub(super) fn init(
    ground: &Ground,
    node: Option<String>,
    advertise: Vec<String>,
    backup: Option<&[u8]>,
) -> Outcome {
    let made = ground.cluster().init(node, advertise, backup);
    made.map_err(|e| e.to_string())?;
    let node = ground.cluster().node();
    ground.events().add(
        None,
        "initialized",
        format!("{node} holds the CA of a cluster"),
    );
    if backup.is_none() {
        return Ok(Some(format!(
            "{node} is the first node of a new cluster; 'whim token' admits others"
        )));
    }
    let members = ground
        .cluster()
        .members()
        .into_iter()
        .map(|member| member.name);
    let members: Vec<String> = members.collect();
    Ok(Some(format!(
        "{node} holds the CA now. Members are, as the backup has it: {}. Whoever was removed after it was made is a member again: say 'whim remove' once more",
        members.join(", ")
    )))
}

pub(super) fn administers(caller: &Caller) -> Result<(), String> {
    if caller.admin {
        return Ok(());
    }
    Err(format!(
        "This changes the cluster: only root or a member of {ADMIN_GROUP} may do it"
    ))
}

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

/// Does what the page asks for: the same, with the same rights, as if its user had asked at the control
/// socket.
///
/// # Errors
/// A sentence for the user.
pub(crate) async fn ask(
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

/// The process of this node that a request is about, and which is waited for if it is only beginning. `Migrate` is not
/// here: that waits by itself (`moving::migrate_for`).
fn about(request: &Request) -> Option<i32> {
    match request {
        Request::Adopt { pid }
        | Request::Bring { pid, .. }
        | Request::Go { pid }
        | Request::Why { pid } => Some(*pid),
        _ => None,
    }
}

fn text(result: Result<impl Into<Option<String>>, impl std::fmt::Display>) -> Outcome {
    result.map(Into::into).map_err(|error| error.to_string())
}

/// Does what one request asks for, except for requests that need the connection itself.
///
/// # Errors
/// A sentence for the user.
pub(super) async fn handle(
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
    if let Some(pid) = about(&request) {
        beginning::begun(daemon.moves(), caller, pid).await;
    }
    match request {
        Request::Adopt { pid } => text(moving::adopt(daemon.moves(), caller, pid)),
        Request::Migrate { pid, to } => migrate(daemon, caller, pid, to, answers).await,
        Request::Bring { pid, hold } => bring(daemon, caller, pid, hold, answers).await,
        Request::Go { pid } => text(moving::go(daemon.moves(), caller, pid)),
        Request::Processes { all } => {
            let mut rows = listing::processes(daemon, all).await;
            rows.extend(listing::guests(daemon).await);
            listing::hide(&daemon.cluster().node(), &mut rows, caller);
            send_all(listing::answers(rows, Answer::Process))
        }
        Request::Nodes => send_all(listing::answers(
            listing::nodes(daemon.host()),
            Answer::Node,
        )),
        Request::Log { calls } => send_all(listing::answers(
            listing::log(daemon, calls).await,
            Answer::Log,
        )),
        Request::History { from_ms, to_ms } => {
            let rows = history_task::rows(daemon.ground(), caller, from_ms, to_ms).await;
            let rows = rows.map_err(|error| error.to_string())?;
            send_all(listing::answers(rows, Answer::History))
        }
        Request::CpuAway { run } => {
            let (time, moves) = listing::cpu_away(daemon, &run).await;
            send_all(vec![Answer::CpuAway { time, moves }])
        }
        Request::Why { pid } => {
            let why = reasons::why(daemon, caller, pid)
                .await
                .map_err(|e| e.to_string())?;
            send_all(vec![Answer::Why(why)])
        }
        Request::Doctor => {
            let findings: Vec<Finding> = health::findings(daemon);
            send_all(listing::answers(findings, Answer::Finding))
        }
        Request::Tune { key, value: None } => send_all(listing::answers(
            tuning::show(daemon.ground(), key.as_deref())?,
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
    match request {
        Request::Init {
            node,
            advertise,
            restore: None,
        } => init(daemon.ground(), node, advertise, None),
        Request::Token if daemon.cluster().removed().is_some() => Err(format!(
            "This node was removed from the cluster. {}",
            health::REJOIN
        )),
        Request::Token => {
            let token = daemon
                .cluster()
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
            let joined = daemon.cluster().join(host, &token, node, advertise).await;
            let report = joined.map_err(|e| e.to_string())?;
            joined_by(daemon, &report, answers).await.map(Some)
        }
        Request::Leave { force } => {
            let left = changes::leave(daemon.moves(), force).await;
            left.map(Some).map_err(|e| e.to_string())
        }
        Request::Remove { node } => remove(daemon, &node),
        Request::CaCopy => {
            let copy = daemon.cluster().with_state(|state| state.backup());
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

/// Says what this node has become a member of, once others know that it is reached.
async fn joined_by(
    daemon: &Daemon,
    report: &JoinReport,
    answers: &UnboundedSender<Answer>,
) -> Result<String, String> {
    let node = daemon.cluster().node();
    daemon
        .events()
        .add(None, "joined", format!("{node} joined by {}", report.via));
    let notice = |text: String| {
        let _ = answers.send(Answer::Notice { text });
    };
    if report.skew.unsigned_abs() > 1 {
        notice(format!(
            "The clocks differ by {} s: run an NTP client on both nodes",
            report.skew.unsigned_abs()
        ));
    }
    let holder = daemon.cluster().holder().unwrap_or_default();
    if !upkeep::is_reached(daemon.ground(), &holder).await {
        notice(format!(
            "{node} and {holder} have not heard of each other since then: their ports have to be open for UDP, too, both ways ('whim nodes' says who is reached)"
        ));
    }
    if daemon.cluster().removed().is_some() || !daemon.cluster().is_member() {
        return Err(ClusterError::RemovedAtOnce(node).to_string());
    }
    let count = daemon.cluster().members().len();
    Ok(format!("{node} is a member of a cluster of {count} nodes"))
}

/// Removes a member. The authority knows members that this node may not have heard of, so that it is asked anyhow.
fn remove(daemon: &Daemon, node: &str) -> Outcome {
    let name = NodeName::new(node).map_err(|error| error.to_string());
    let removed = name
        .and_then(|name| upkeep::remove(daemon.ground(), &name).map_err(|error| error.to_string()));
    removed
        .map(|()| Some(format!("{node} is no member of the cluster any more")))
        .map_err(
            |refused| match destinations::known_node(daemon.moves(), node) {
                Err(unknown) => unknown.to_string(),
                Ok(()) => refused,
            },
        )
}

/// Tells this node what holds from now on, and says it in a sentence.
fn told(daemon: &Daemon, change: impl FnOnce(&mut Orders)) -> Outcome {
    let orders = daemon.host().change_orders(change);
    orders
        .map(|orders| Some(orders.sentence()))
        .map_err(|error| error.to_string())
}

/// Orders to this node, or to another one: which processes may leave, and which may come.
async fn order(
    daemon: &Arc<Daemon>,
    request: Request,
    answers: &UnboundedSender<Answer>,
) -> Outcome {
    match request {
        Request::Stay { on } => told(daemon, |orders| orders.stay = on),
        Request::Block { on } => told(daemon, |orders| orders.block = on),
        Request::Expel => evacuation::expel(daemon.moves(), answers).await.map(Some),
        Request::Evacuate { undo: false } => {
            let left = evacuation::evacuate(daemon.moves(), answers).await;
            left.map(Some).map_err(|error| error.to_string())
        }
        Request::Evacuate { undo: true } => told(daemon, |orders| orders.evacuate = false),
        Request::BringAll => {
            told(daemon, |orders| orders.stay = true)?;
            let count = evacuation::bring_all(daemon.moves(), answers).await;
            let text = match count {
                1 => "1 process has come home and stays: 'whim go' lets it leave".to_owned(),
                count => {
                    format!("{count} processes have come home and stay: 'whim go' lets them leave")
                }
            };
            Ok(Some(text))
        }
        Request::Drain { node, wait } => {
            evacuation::drain_node(daemon.moves(), &node, wait, answers)
                .await
                .map(Some)
        }
        Request::Undrain { node } => evacuation::undrain_node(daemon.moves(), &node, answers)
            .await
            .map(Some),
        Request::Tune {
            key: Some(key),
            value: Some(value),
        } => {
            let done = tuning::set(daemon.ground(), &key, &value)?;
            for knob in tuning::show(daemon.ground(), Some(&key))? {
                let _ = answers.send(Answer::Knob(knob));
            }
            Ok(Some(done))
        }
        _ => Err("The request is not understood: whim and whimd are of different versions".into()),
    }
}

/// Runs a move in a task of its own, so that it does not stop half-way when the client goes away.
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
        if let Some(label) = to.strip_prefix('@') {
            options::check_label(&daemon, label).map_err(MoveError::Refused)?;
        }
        let result = moving::migrate(daemon.moves(), &caller, pid, &to, &sender).await;
        // A request that was refused puts it nowhere.
        let there =
            |error: &MoveError| matches!(error, MoveError::There { .. } | MoveError::AtHome(_));
        if result.as_ref().map_or_else(there, |_| true) {
            daemon.balancing().placed(daemon.clock_ms(), pid);
        }
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
        let result = moving::bring(daemon.moves(), &caller, pid, hold, &sender).await;
        if result.is_ok() {
            daemon.balancing().placed(daemon.clock_ms(), pid);
        }
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
