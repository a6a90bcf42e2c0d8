//! The supervisor's unix socket: the daemon asks for the state and hands connections over.

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use thiserror::Error;
use whim_journey::job::{Command, Event};
use whim_net::port::{LineReader, PortError, Progress};
use whim_sys::inherited::InheritedError;

/// The daemon writes its line at once; nobody else may connect.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug, Error)]
pub enum ControlError {
    #[error("The supervisor's socket: {0}")]
    Listener(#[from] InheritedError),
    #[error("A command cannot be read: {0}")]
    Read(#[from] PortError),
    #[error("A connection of the daemon broke: {0}")]
    Io(#[from] std::io::Error),
    #[error("A command cannot be understood: {0}")]
    Form(#[from] serde_json::Error),
    #[error("A command did not come to its end")]
    Unfinished,
}

/// A command, and the connection to which its answer goes.
#[derive(Debug)]
pub(crate) struct Request {
    pub command: Command,
    /// Comes with `Command::Channel`.
    pub connection: Option<TcpStream>,
    stream: UnixStream,
}

impl Request {
    /// Answers; a client that has gone away is no reason to stop.
    pub(crate) fn answer(mut self, event: &Event) {
        if let Ok(mut line) = serde_json::to_vec(event) {
            line.push(b'\n');
            let _ = self.stream.write_all(&line);
        }
    }
}

/// Reads one command from a fresh connection.
///
/// # Errors
/// It is not one line of a known command, or comes too slowly.
pub(crate) fn read(stream: UnixStream) -> Result<Request, ControlError> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let begun = Instant::now();
    let mut reader = LineReader::new();
    loop {
        if let Some(line) = reader.next_line() {
            let command: Command = serde_json::from_slice(&line)?;
            let connection = match command {
                Command::Channel => reader.next_connection()?,
                _ => None,
            };
            return Ok(Request {
                command,
                connection,
                stream,
            });
        }
        if reader.read(&stream)? != Progress::Some || begun.elapsed() > PATIENCE {
            return Err(ControlError::Unfinished);
        }
    }
}
