//! The control socket: who asks, and what for.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use whim_control::protocol::{ADMIN_GROUP, Answer, REQUEST_MAX, Request};
use whim_machine::processes::Caller;
use whim_secret::files::FILE_MAX;
use whim_sys::credentials;

use crate::daemon::Daemon;
use crate::faces::clients::Clients;
use crate::faces::lines::{ANSWER_TIMEOUT, REQUEST_TIMEOUT, write_line};
use crate::faces::registering;
use crate::faces::requests::{self, Outcome, administers, init};
use crate::faces::telling;
use crate::faces::web::WebPage;

/// Opens the control socket for everybody: whether a request is allowed depends on who asks.
///
/// # Errors
/// Another daemon listens there, or the directory cannot be written.
pub(crate) fn open(path: &Path) -> std::io::Result<UnixListener> {
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(std::io::Error::other("another daemon answers there"));
    }
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Accepts for ever.
pub(crate) async fn serve(daemon: Arc<Daemon>, listener: UnixListener) {
    let clients = Arc::new(Clients::default());
    let page = Arc::new(WebPage::default());
    // Given up for a moment when a client has to be told that there are no descriptors left.
    let mut spare = File::open("/dev/null").ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (daemon, page) = (Arc::clone(&daemon), Arc::clone(&page));
                let clients = Arc::clone(&clients);
                tokio::spawn(async move { client(&daemon, &page, &clients, stream).await });
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

/// Tells the next client that there is no descriptor for it; false if no client was waiting.
async fn turn_away(listener: &UnixListener) -> bool {
    let next = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
    let Ok(Ok((stream, _))) = next else {
        return false;
    };
    let reason = "The daemon has no descriptors left: raise its limit of open files".to_owned();
    let (_, mut write) = stream.into_split();
    // An empty socket takes a line at once, whether it is read or not.
    let _ = write_line(&mut write, &Answer::Busy { reason }).await;
    true
}

fn caller(
    daemon: &Daemon,
    clients: &Clients,
    stream: &UnixStream,
) -> Result<Caller, credentials::CredentialError> {
    let peer = credentials::peer(stream)?;
    let own = nix::unistd::geteuid().as_raw();
    // A daemon without root belongs to the user that started it.
    let owner = !daemon.settings().root && peer.uid == own;
    let admin = peer.uid == 0 || owner || {
        let look = || nix::unistd::Group::from_name(ADMIN_GROUP).ok().flatten();
        let look = || look().map(|group| group.gid.as_raw());
        clients
            .administrators
            .gid(Instant::now(), look)
            .is_some_and(|gid| {
                let groups = credentials::peer_groups(stream).unwrap_or_default();
                peer.gid == gid || groups.contains(&gid)
            })
    };
    Ok(Caller {
        pid: peer.pid,
        uid: peer.uid,
        gid: peer.gid,
        admin,
    })
}

/// Serves one client, from its first request to its end. A client that does not read holds up only
/// itself: its next request is looked at when the answers to the last one have been written.
async fn client(
    daemon: &Arc<Daemon>,
    page: &Arc<WebPage>,
    clients: &Arc<Clients>,
    stream: UnixStream,
) {
    let caller = match caller(daemon, clients, &stream) {
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
            let _ = write_line(&mut write, &Answer::Busy { reason }).await;
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
        let work = serve_request((daemon, page), &caller, request, answers, &mut lines);
        let (last, written) = tokio::join!(work, write_all(&mut write, queue));
        if last || !written {
            return;
        }
    }
}

/// Does what one request asks for; true if nothing may follow it.
async fn serve_request(
    (daemon, page): (&Arc<Daemon>, &Arc<WebPage>),
    caller: &Caller,
    request: Result<Request, serde_json::Error>,
    answers: UnboundedSender<Answer>,
    lines: &mut BufReader<OwnedReadHalf>,
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
        Ok(Request::Web) => match page.invite(daemon, caller).await {
            Ok(link) => {
                let _ = answers.send(Answer::Link(link));
                Ok(None)
            }
            Err(error) => Err(error.to_string()),
        },
        Ok(request) => requests::handle(daemon, caller, request, &answers).await,
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
    lines: &mut BufReader<OwnedReadHalf>,
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
    init(daemon.ground(), node, advertise, Some(&backup))
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
