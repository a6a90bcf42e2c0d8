//! The clients of this supervisor: the daemon, which asks for something on behalf of a user.

use crate::seize;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use whim_journey::job::{Command, Event};

/// A client that does not finish its line in this time is not listened to.
const COMMAND_WITHIN: Duration = Duration::from_secs(2);
/// Longest command, in bytes.
const COMMAND_MAX: u64 = 64 << 10;
/// How often a client that waits for a move is told that it goes on. A single step of a move may take longer.
const WORKING_EVERY: Duration = Duration::from_secs(5);

/// A client that asked for something and gets events until it is done.
#[derive(Debug)]
pub(crate) struct Client {
    stream: Arc<Mutex<UnixStream>>,
    /// Held as long as this client is told that work goes on.
    working: Option<Sender<()>>,
}

fn write(stream: &Mutex<UnixStream>, event: &Event) {
    if let Ok(mut line) = serde_json::to_string(event) {
        line.push('\n');
        let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = stream.write_all(line.as_bytes());
    }
}

impl Client {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream: Arc::new(Mutex::new(stream)),
            working: None,
        }
    }

    /// Sends one event; a client that has gone away is no reason to stop.
    pub(crate) fn send(&mut self, event: &Event) {
        write(&self.stream, event);
    }

    /// Tells the client again and again that work goes on, until it is dropped. A thread of its own does so,
    /// because a step of a move may take minutes, and the calling thread is inside it then. (The new thread
    /// takes no signals: they are the calling thread's.)
    pub(crate) fn keep_informed(&mut self) {
        use nix::sys::signal::{SigSet, SigmaskHow};
        let (working, over) = channel();
        let (gave_up, has_no_rights) = channel();
        let stream = Arc::clone(&self.stream);
        let inform = move || {
            // This thread still runs when the thread that made it has no rights any more.
            if let Err(error) = seize::give_up_rights() {
                tracing::warn!(%error, "nobody is told that the move goes on");
                return;
            }
            drop(gave_up);
            while over.recv_timeout(WORKING_EVERY) == Err(RecvTimeoutError::Timeout) {
                write(&stream, &Event::Working);
            }
        };
        let Ok(before) = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
            return;
        };
        let thread = std::thread::Builder::new().name("working".into());
        match thread.spawn(inform) {
            Ok(_) => {
                let _: Result<(), _> = has_no_rights.recv();
                self.working = Some(working);
            }
            // Then the daemon may give up a long move; the move itself goes on.
            Err(error) => tracing::warn!(%error, "nobody is told that the move goes on"),
        }
        if let Err(errno) = before.thread_set_mask() {
            tracing::warn!(%errno, "the mask of signals stays as it is");
        }
    }

    pub(crate) fn refuse(&mut self, reason: impl Into<String>) {
        self.send(&Event::Refused {
            reason: reason.into(),
            stays: false,
        });
    }
}

/// Reads one command from a fresh connection.
///
/// # Errors
/// It is not one line of a known command.
pub(crate) fn read_command(stream: UnixStream) -> Result<(Command, Client)> {
    stream.set_read_timeout(Some(COMMAND_WITHIN))?;
    stream.set_write_timeout(Some(COMMAND_WITHIN))?;
    let mut line = String::new();
    let limited = std::io::Read::take(&stream, COMMAND_MAX);
    BufReader::new(limited).read_line(&mut line)?;
    let command = serde_json::from_str(&line).context("The command is not understood")?;
    let mut client = Client::new(stream);
    if matches!(command, Command::Move { .. } | Command::Bring { .. }) {
        client.keep_informed();
    }
    Ok((command, client))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whim_journey::job::Slot;

    #[test]
    fn commands_are_read_up_to_their_limit() {
        let command = |padding: usize| Command::Move {
            slot: Slot {
                node: "n".repeat(padding),
                addresses: Vec::new(),
                server_name: String::new(),
                epoch: 1,
            },
        };
        let line = |padding| serde_json::to_string(&command(padding)).expect("encoded");
        let limit = usize::try_from(COMMAND_MAX).expect("small");
        let largest = limit - line(0).len();
        let read = |padding| {
            let (mut asker, stream) = UnixStream::pair().expect("sockets");
            let line = line(padding) + "\n";
            asker.write_all(line.as_bytes()).expect("it fits");
            read_command(stream).map(|(command, _)| command)
        };
        assert_eq!(read(largest).expect("understood"), command(largest));
        let error = read(largest + 1).expect_err("one byte more");
        assert_eq!(error.to_string(), "The command is not understood");
    }

    #[test]
    fn who_waits_for_a_move_hears_that_it_goes_on() {
        let (asker, stream) = UnixStream::pair().expect("sockets");
        asker
            .set_read_timeout(Some(4 * WORKING_EVERY))
            .expect("set");
        let mut client = Client::new(stream);
        client.keep_informed();
        let mut heard = BufReader::new(asker);
        let mut line = String::new();
        heard.read_line(&mut line).expect("in time");
        let event: Event = serde_json::from_str(&line).expect("an event");
        assert_eq!(event, Event::Working);
        drop(client);
        line.clear();
        assert_eq!(
            heard.read_line(&mut line).expect("in time"),
            0,
            "until it is over"
        );
    }
}
