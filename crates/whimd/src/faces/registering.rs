//! `whim run`: a process puts itself into our hands, and becomes its program.

use nix::errno::Errno;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::io::{BufReader, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::mpsc::UnboundedSender;
use whim_journey::cause::Cause;
use whim_sys::credentials::{self, CredentialError};
use whim_sys::fdpass::{self, FdPassError};
use whim_sys::pidfd::Pidfd;

use crate::balancing;
use crate::daemon::Daemon;
use crate::faces::lines::REQUEST_TIMEOUT;
use crate::faces::options::{check_options, portable};
use crate::line::probes::{NotSeen, Patience};
use crate::moves::attempt::MoveError;
use crate::moves::candidate::{Candidate, Declaration};
use crate::moves::candidates::Full;
use crate::moves::destinations;
use crate::moves::moving;
use whim_control::protocol::{Answer, RunOptions};
use whim_machine::process::Process;
use whim_machine::processes::{Caller, Credentials, ProcessError, Stat};

/// `whim run --on` is tried for this long: a program that has just been started may stay for a
/// moment, while its loader works.
const FIRST_MOVE: Duration = Duration::from_secs(10);
const FIRST_MOVE_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Error)]
enum RegisterError {
    #[error("The process that opened this connection has ended: a program registers itself alone")]
    Ended,
    #[error(
        "The process that opened this connection is not the one that asks: a program registers itself alone"
    )]
    NotItself,
    #[error(
        "This process runs with other rights than it had when it opened this connection: open a new one"
    )]
    OtherRights,
    #[error("The kernel does not say who is at the other end of a unix socket")]
    Peer(#[from] CredentialError),
    #[error(
        "The process has handed over no descriptor of itself: whim and whimd are of different versions"
    )]
    NotHanded,
    #[error("{0}")]
    Descriptor(#[from] FdPassError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    NotSeen(#[from] NotSeen),
    #[error("{0}")]
    Options(String),
    #[error(transparent)]
    Full(#[from] Full),
}

impl RegisterError {
    /// Whether it is for want of something that comes back by itself.
    fn passes(&self) -> bool {
        match self {
            Self::Peer(CredentialError::Peer(Errno::EMFILE | Errno::ENFILE))
            | Self::Process(ProcessError::NoDescriptors(_))
            | Self::NotSeen(NotSeen::Late | NotSeen::Busy)
            | Self::Full(_) => true,
            Self::Ended
            | Self::NotItself
            | Self::OtherRights
            | Self::Peer(_)
            | Self::NotHanded
            | Self::Descriptor(_)
            | Self::Process(_)
            | Self::NotSeen(NotSeen::Gone)
            | Self::Options(_) => false,
        }
    }

    fn answer(&self) -> Answer {
        let reason = self.to_string();
        match self.passes() {
            true => Answer::Busy { reason },
            false => Answer::Refused { reason },
        }
    }
}

/// Makes the peer a candidate. It replaces itself by its program next, which closes the connection. Then
/// the program is sent to its node, if the options name one.
pub(crate) async fn register(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    options: RunOptions,
    answers: &UnboundedSender<Answer>,
    lines: &mut BufReader<OwnedReadHalf>,
) {
    let registered = match peer(caller, answers, lines).await {
        Ok((process, was)) => {
            let taken = take_up(daemon, caller, (&process, &was), &options, answers);
            taken.map(|refused| (process, refused))
        }
        Err(error) => Err(error),
    };
    let (process, text) = match registered {
        Ok((process, refused)) => (Arc::new(process), refused),
        Err(error) => {
            let _ = answers.send(error.answer());
            return;
        }
    };
    let _ = answers.send(Answer::Done { text });
    // Whatever comes is not for us: we wait for the end alone, and keep nothing.
    let _ = tokio::io::copy(lines, &mut tokio::io::sink()).await;
    let daemon = Arc::clone(daemon);
    if let Some(node) = options.on {
        let caller = caller.clone();
        tokio::spawn(async move { first_move(&daemon, &caller, process, &node).await });
    } else {
        tokio::spawn(async move { balancing::place_new(&daemon, process.pid()).await });
    }
}

/// The process at the other end. It must be the one that connected, with the rights that it had then.
async fn peer(
    caller: &Caller,
    answers: &UnboundedSender<Answer>,
    lines: &mut BufReader<OwnedReadHalf>,
) -> Result<(Process, Credentials), RegisterError> {
    let known = credentials::peer_process(lines.get_ref().as_ref());
    let pidfd = match known {
        Ok(Some(pidfd)) => pidfd,
        Ok(None) => {
            let _ = answers.send(Answer::HandOver);
            if !lines.buffer().is_empty() {
                return Err(RegisterError::NotHanded);
            }
            handed_over(caller, lines.get_ref().as_ref()).await?
        }
        Err(error @ CredentialError::Peer(Errno::EMFILE | Errno::ENFILE)) => {
            return Err(error.into());
        }
        // A process that has ended and was waited for cannot be opened any more.
        Err(_) => return Err(RegisterError::Ended),
    };
    itself(caller, pidfd)
}

fn itself(caller: &Caller, pidfd: Pidfd) -> Result<(Process, Credentials), RegisterError> {
    let ended = |error| match error {
        ProcessError::NoDescriptors(_) => RegisterError::Process(error),
        _ => RegisterError::Ended,
    };
    let process = Process::of(pidfd).map_err(ended)?;
    if process.pid() != caller.pid {
        return Err(RegisterError::NotItself);
    }
    let now = process.credentials().map_err(ended)?;
    if now.uids != [caller.uid; 3] || now.gids != [caller.gid; 3] {
        return Err(RegisterError::OtherRights);
    }
    Ok((process, now))
}

/// Before Linux 6.5: the process hands over a descriptor of itself. The kernel names the sender, which
/// must have the pid of the process that connected. Since the descriptor was opened before it was sent,
/// and its process still lives, that process is the sender, and not one that had the pid before, or has
/// it now.
async fn handed_over(caller: &Caller, socket: &UnixStream) -> Result<Pidfd, RegisterError> {
    use std::os::fd::AsFd;
    fdpass::ask_for_senders(socket.as_fd())?;
    let receive = || {
        fdpass::receive_from(socket.as_fd(), &mut [0; 1]).map_err(|error| {
            if error.would_block() {
                std::io::ErrorKind::WouldBlock.into()
            } else {
                std::io::Error::other(error)
            }
        })
    };
    let received = socket.async_io(Interest::READABLE, receive);
    let received = tokio::time::timeout(REQUEST_TIMEOUT, received).await;
    let Ok(Ok((1, mut descriptors, Some(sender)))) = received else {
        return Err(RegisterError::NotHanded);
    };
    let descriptor = descriptors.pop().ok_or(RegisterError::NotHanded)?;
    if (sender.pid, sender.uid) != (caller.pid, caller.uid) || !descriptors.is_empty() {
        return Err(RegisterError::NotItself);
    }
    Ok(Pidfd::from_descriptor(descriptor))
}

/// Makes it a candidate. Returns why it cannot go now where it is to go first, if that is so: it begins here all the same.
fn take_up(
    daemon: &Daemon,
    caller: &Caller,
    (process, was): (&Process, &Credentials),
    options: &RunOptions,
    answers: &UnboundedSender<Answer>,
) -> Result<Option<String>, RegisterError> {
    check_options(daemon, options).map_err(RegisterError::Options)?;
    let stat = process.stat()?;
    let declaration = Declaration::by(caller, was);
    let mut candidate = Candidate {
        declared: true,
        job: process.by_pid(|pid| daemon.moves().census().job_of(pid, Patience::Long))??,
        ..Candidate::new(&stat, options.clone(), declaration)
    };
    if options.portable {
        let (features, hwcaps) = portable(daemon.host());
        candidate.features = Some(features);
        let _ = answers.send(Answer::Without { hwcaps });
    }
    let refused = options
        .on
        .as_ref()
        .and_then(|node| cannot_go(daemon, &candidate, node));
    let mut candidates = daemon.moves().candidates();
    if is_known(candidates.get(stat.pid), &stat) {
        // The caller may change what was declared of this process before only if the caller may move it.
        process.movable_by(caller)?;
    }
    candidates.add(candidate)?;
    // Where a program may go has to hold whatever becomes of us. One that may go anywhere loses no more than its moves.
    match options == &RunOptions::default() {
        true => daemon.moves().census().save_soon(),
        false => daemon.moves().census().save(&candidates),
    }
    Ok(refused)
}

fn cannot_go(daemon: &Daemon, candidate: &Candidate, node: &str) -> Option<String> {
    let moves = daemon.moves();
    let refused = match node {
        _ if node == daemon.cluster().node() => return None,
        // Which one is the best, or has a label, is found out when it goes.
        "best" => destinations::any_takes(moves, candidate, None).err()?,
        _ => match node.strip_prefix('@') {
            Some(label) => destinations::any_takes(moves, candidate, Some(label)).err()?,
            None => destinations::takes(moves, candidate, node)
                .err()?
                .to_string(),
        },
    };
    Some(format!(
        "{refused}. The program begins here, and goes there if that changes within {} s",
        FIRST_MOVE.as_secs()
    ))
}

fn is_known(known: Option<&Candidate>, stat: &Stat) -> bool {
    known.is_some_and(|known| known.start_time == stat.start_time)
}

async fn first_move(daemon: &Arc<Daemon>, caller: &Caller, process: Arc<Process>, node: &str) {
    let deadline = tokio::time::Instant::now() + FIRST_MOVE;
    let pid = process.pid();
    loop {
        // The program that it executes may be setuid, so the right to move it is checked each time.
        if process.lives().is_err() {
            return;
        }
        let process = Arc::clone(&process);
        let moved =
            moving::migrate_for(daemon.moves(), caller, process, (Cause::User, node), None).await;
        match moved {
            Ok(_) | Err(MoveError::There { .. }) => {
                daemon.balancing().placed(daemon.clock_ms(), pid);
                return;
            }
            Err(error) if tokio::time::Instant::now() >= deadline => {
                tracing::info!(%error, pid, "'whim run --on' was not done");
                return;
            }
            Err(_) => tokio::time::sleep(FIRST_MOVE_PAUSE).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::waiting::Waiting;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream as Socket;
    use std::process::{Command, Stdio};

    fn caller() -> Caller {
        Caller {
            pid: std::process::id().cast_signed(),
            uid: nix::unistd::getuid().as_raw(),
            gid: nix::unistd::getgid().as_raw(),
            admin: false,
        }
    }

    /// What becomes of a descriptor of this process that `send` sends once it is asked for.
    async fn handed(send: impl FnOnce(Socket, i32)) -> Result<i32, RegisterError> {
        let (ours, theirs) = Socket::pair().expect("sockets");
        ours.set_nonblocking(true).expect("set");
        let socket = UnixStream::from_std(ours).expect("in the runtime");
        fdpass::ask_for_senders(socket.as_fd()).expect("asked");
        send(theirs, caller().pid);
        let pidfd = handed_over(&caller(), &socket).await?;
        itself(&caller(), pidfd).map(|(process, _)| process.pid())
    }

    fn hand(socket: &Socket, pid: i32) {
        let process = Pidfd::open(pid).expect("it lives");
        fdpass::send(socket.as_fd(), b"x", &[process.as_fd()]).expect("sent");
    }

    #[tokio::test]
    async fn a_process_hands_over_itself_and_nobody_else() {
        let own = caller().pid;
        let done = handed(|socket, pid| hand(&socket, pid)).await;
        assert_eq!(done.expect("itself"), own);
        let parent = nix::unistd::getppid().as_raw();
        let other = handed(|socket, _| hand(&socket, parent)).await;
        assert!(matches!(other, Err(RegisterError::NotItself)), "{other:?}");
        let nothing = handed(|socket, _| {
            fdpass::send(socket.as_fd(), b"x", &[]).expect("sent");
        });
        let nothing = nothing.await;
        assert!(matches!(nothing, Err(RegisterError::NotHanded)));
        let closed = handed(|socket, _| drop(socket)).await;
        assert!(matches!(closed, Err(RegisterError::NotHanded)));
    }

    /// The connection is kept by a child, which knows the pid of the process that connected.
    #[tokio::test]
    async fn nobody_hands_over_another_process_in_its_name() {
        let script = "import array, os, socket, sys
s = socket.socket(fileno=0)
d = os.pidfd_open(int(sys.argv[1]))
s.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [d]))])";
        let sent = handed(|socket, pid| {
            let mut child = Command::new("/usr/bin/python3");
            child.args(["-c", script, &pid.to_string()]);
            let socket = std::os::fd::OwnedFd::from(socket);
            let status = child.stdin(Stdio::from(socket)).status();
            assert!(status.expect("python3").success());
        });
        let sent = sent.await;
        assert!(matches!(sent, Err(RegisterError::NotItself)), "{sent:?}");
    }

    #[test]
    fn who_has_ended_or_changed_is_not_the_peer() {
        let child = Waiting::start();
        let pid = child.pid();
        let of_child = Caller { pid, ..caller() };
        let open = || Pidfd::open(pid).expect("a descriptor");
        let (kept, other) = (open(), open());
        itself(&of_child, open()).expect("it lives");
        let uid = of_child.uid + 1;
        let changed = itself(&Caller { uid, ..of_child }, other);
        assert!(matches!(changed, Err(RegisterError::OtherRights)));
        drop(child);
        let ended = itself(&Caller { pid, ..caller() }, kept);
        assert!(matches!(ended, Err(RegisterError::Ended)));
    }
}
