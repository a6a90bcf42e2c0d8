//! `whim lab web`: a node's page for a browser of this machine.
//!
//! The page is served to the node's own loopback, which nobody else can reach. So this command listens at the
//! same port of this machine, and puts each connection through to the node by a process there.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};

use thiserror::Error;
use whim_control::protocol::Invitation;
use whim_lab::{Lab, LabError};

use crate::output;

/// The word by which this program puts a connection through, in the node: `whim lab-relay PORT`.
pub(crate) const RELAY: &str = "lab-relay";
/// A browser opens about six connections for a page; each has a process.
const CONNECTIONS_MAX: usize = 64;
/// How often it is seen to that the lab is still there, in milliseconds.
const LOOK_AGAIN: u16 = 1000;
const PIECE: usize = 16 << 10;

#[derive(Debug, Error)]
pub(crate) enum LabPageError {
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error("This program does not know where it lies ({0})")]
    OwnPath(io::Error),
    #[error("{program} cannot be started on {node} ({source})", program = .program.display())]
    Start {
        program: PathBuf,
        node: String,
        source: io::Error,
    },
    #[error("{0} has given no link to its page")]
    NoLink(String),
    #[error(
        "The page of {node} is not served to the node alone but at {url}: open that from where it can be reached"
    )]
    Elsewhere { node: String, url: String },
    #[error(
        "Port {port} of this machine cannot be had ({source}): the page of a daemon or of another lab may be there; \
         end that one, or use this page later"
    )]
    Port { port: u16, source: io::Error },
    #[error("No connection is accepted any more ({0})")]
    Accept(io::Error),
}

/// Prints a link to the page of `node`, and puts browsers through until this process or the lab ends.
///
/// # Errors
/// See [`LabPageError`].
pub(crate) fn serve(lab: &Lab, node: &str) -> Result<(), LabPageError> {
    let own = std::env::current_exe().map_err(LabPageError::OwnPath)?;
    let url = ask_for_link(lab, node, &own)?;
    let port = port_of(&url).ok_or_else(|| LabPageError::Elsewhere {
        node: node.to_owned(),
        url: url.clone(),
    })?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .map_err(|source| LabPageError::Port { port, source })?;
    output::line(&url);
    output::aside(&format!(
        "The page of {node} of lab '{}' can be opened on this machine until this command is ended (Ctrl-C)",
        lab.name()
    ));
    let mut relays: Vec<Child> = Vec::new();
    loop {
        if !is_asked(&listener) {
            if lab.status().is_ok() {
                continue;
            }
            output::aside(&format!(
                "Lab '{}' has ended, and its page with it",
                lab.name()
            ));
            return Ok(());
        }
        let (stream, _) = listener.accept().map_err(LabPageError::Accept)?;
        relays.retain_mut(|relay| relay.try_wait().is_ok_and(|ended| ended.is_none()));
        if relays.len() < CONNECTIONS_MAX {
            relays.push(start_relay(lab, node, &own, port, stream)?);
        }
    }
}

/// Whether a browser connects, within the time after which the lab is looked for once more.
fn is_asked(listener: &TcpListener) -> bool {
    let mut waiting = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    // A signal is as good as nobody.
    poll(&mut waiting, PollTimeout::from(LOOK_AGAIN)).is_ok_and(|ready| ready > 0)
}

fn ask_for_link(lab: &Lab, node: &str, own: &Path) -> Result<String, LabPageError> {
    let mut command = lab.command(node, None, own)?;
    let asked = command.args(["web", "--json"]).stderr(Stdio::inherit());
    let answered = asked.output().map_err(failed(own, node))?;
    let link: Option<Invitation> = serde_json::from_slice(&answered.stdout).ok();
    let link = link.filter(|_| answered.status.success());
    link.map(|link| link.url)
        .ok_or_else(|| LabPageError::NoLink(node.to_owned()))
}

fn failed(program: &Path, node: &str) -> impl FnOnce(io::Error) -> LabPageError {
    let (program, node) = (program.to_owned(), node.to_owned());
    move |source| LabPageError::Start {
        program,
        node,
        source,
    }
}

/// The port of a page that is served to its node alone.
fn port_of(url: &str) -> Option<u16> {
    let rest = url.strip_prefix("http://127.0.0.1:")?;
    rest.split_once('/')?.0.parse().ok()
}

fn start_relay(
    lab: &Lab,
    node: &str,
    own: &Path,
    port: u16,
    stream: TcpStream,
) -> Result<Child, LabPageError> {
    let input = OwnedFd::from(stream);
    let output = input.try_clone().map_err(LabPageError::Accept)?;
    let mut command = lab.command(node, None, own)?;
    command.arg(RELAY).arg(port.to_string());
    command.stdin(input).stdout(output);
    command.spawn().map_err(failed(own, node))
}

/// In the node: standard input and output are a browser's connection.
pub(crate) fn relay(port: Option<OsString>) -> ExitCode {
    let port = port.and_then(|port| port.to_str()?.parse().ok());
    let Some(port) = port else {
        return ExitCode::FAILURE;
    };
    match put_through(port) {
        Ok(()) => ExitCode::SUCCESS,
        // The browser sees the end of its connection.
        Err(_) => ExitCode::FAILURE,
    }
}

fn put_through(port: u16) -> io::Result<()> {
    let page = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    // Standard output would keep back what does not end a line.
    let to_browser = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let from_browser = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let to_page = page.try_clone()?;
    // It ends with the process, when the page has closed the connection.
    std::thread::spawn(move || {
        let _ = copy(from_browser, &to_page);
        let _ = to_page.shutdown(Shutdown::Write);
    });
    copy(page, to_browser)
}

/// Each piece goes on as soon as it is there.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut piece = [0; PIECE];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(length) => to.write_all(&piece[..length])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_nodes_loopback_are_put_through() {
        assert_eq!(port_of("http://127.0.0.1:7947/enter?key=1"), Some(7947));
        for other in [
            "https://10.99.0.1:7947/enter?key=1",
            "http://127.0.0.1:x/enter",
            "http://127.0.0.1:7947",
        ] {
            assert_eq!(port_of(other), None, "{other}");
        }
    }
}
