//! How a lab starts its helper processes, and how they answer.
//!
//! A helper is started with `PROGRAM lab-node ROLE DIRECTORY SUBJECT`, reads its task as one line
//! of JSON, leaves the caller's process tree by a fork and reports the new process. It then waits
//! for the word `go`, which is sent after the process has been noted in the lab's state: when the
//! caller is killed before that, the helper sees the end of its input and leaves no trace.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::layout::Layout;
use crate::network::NetStep;
use crate::options::LinkSettings;
use crate::process::{MARK, ProcessId};

/// Longest line of a task or an answer.
const LINE_BYTES_MAX: usize = 256 * 1024;
/// How long a helper may take for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
pub(crate) const GO: &str = "go";

/// Task of the process that holds the switch's namespaces.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SwitchTask {
    pub(crate) rootless: bool,
    pub(crate) cgroup_entries: Vec<PathBuf>,
    pub(crate) steps: Vec<NetStep>,
}

/// Task of a node's first process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NodeTask {
    pub(crate) lab: String,
    pub(crate) name: String,
    /// Whose user namespace the node belongs to.
    pub(crate) user_namespace_of: Option<ProcessId>,
    pub(crate) cgroup_entries: Vec<PathBuf>,
    pub(crate) clock_offset_ms: i64,
    pub(crate) stage: PathBuf,
    pub(crate) state_directory: PathBuf,
    pub(crate) shares: Vec<PathBuf>,
    /// All nodes' names and addresses, as lines of /etc/hosts.
    pub(crate) hosts: String,
    pub(crate) secret: String,
    pub(crate) machine_id: String,
    pub(crate) steps: Vec<NetStep>,
}

/// Task of a wire process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WireTask {
    pub(crate) switch: ProcessId,
    pub(crate) rootless: bool,
    pub(crate) cgroup_entries: Vec<PathBuf>,
    pub(crate) device_a: String,
    pub(crate) device_b: String,
    pub(crate) node_a: usize,
    pub(crate) node_b: usize,
    pub(crate) link: LinkSettings,
    pub(crate) counters: PathBuf,
}

/// Task of a short-lived process that configures the switch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NetTask {
    pub(crate) switch: ProcessId,
    pub(crate) rootless: bool,
    pub(crate) cgroup_entries: Vec<PathBuf>,
    pub(crate) steps: Vec<NetStep>,
}

/// What a helper answers, one per line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The process that stays, in the starter's numbering.
    Started { pid: i32 },
    /// All is set up.
    Ready,
    /// Nothing stays.
    Failed { why: String },
}

/// Starts helpers of one lab.
#[derive(Debug, Clone)]
pub(crate) struct Roles<'a> {
    pub(crate) program: &'a Path,
    pub(crate) layout: &'a Layout,
}

impl Roles<'_> {
    /// The command line of a helper.
    pub(crate) fn command(&self, role: &str, subject: &str) -> Command {
        let mut command = Command::new(self.program);
        command
            .arg(MARK)
            .arg(role)
            .arg(self.layout.directory())
            .arg(subject);
        command
    }

    /// Starts a helper that stays; it waits until [`Pending::go`].
    pub(crate) fn start(
        &self,
        role: &'static str,
        subject: &str,
        task: &impl Serialize,
    ) -> Result<Pending, LabError> {
        let mut conversation = self.converse(role, subject, task)?;
        match conversation.answer()? {
            Answer::Started { pid } => {
                // The process waits for `go`, so it cannot have ended but by a kill.
                let process = ProcessId::of(pid)
                    .ok_or_else(|| conversation.failed("ended before it could be used".into()))?;
                Ok(Pending {
                    process,
                    conversation,
                })
            }
            Answer::Failed { why } => Err(conversation.failed(why)),
            Answer::Ready => Err(conversation.failed("gave an answer out of order".to_owned())),
        }
    }

    /// Runs a helper that does its task and ends.
    pub(crate) fn perform(
        &self,
        role: &'static str,
        subject: &str,
        task: &impl Serialize,
    ) -> Result<(), LabError> {
        self.converse(role, subject, task)?.expect_ready()
    }

    fn converse(
        &self,
        role: &'static str,
        subject: &str,
        task: &impl Serialize,
    ) -> Result<Conversation, LabError> {
        let log = self.log(subject)?;
        let spawn = |source| LabError::Spawn {
            program: self.program.to_owned(),
            source,
        };
        let mut child = self
            .command(role, subject)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(spawn)?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(spawn(std::io::Error::other("no pipe to it")));
        };
        let mut conversation = Conversation {
            child,
            to,
            from,
            lab: self.layout.name().to_owned(),
            role: format!("{role} {subject}"),
        };
        let task = serde_json::to_string(task).map_err(|e| conversation.failed(e.to_string()))?;
        conversation.say(&task)?;
        Ok(conversation)
    }

    fn log(&self, subject: &str) -> Result<File, LabError> {
        let path = self.layout.helper_log(subject);
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(LabError::file("open", &path))
    }
}

/// A helper that exists but has not begun.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) process: ProcessId,
    conversation: Conversation,
}

impl Pending {
    /// Lets the helper begin, and waits until it is ready.
    pub(crate) fn go(mut self) -> Result<(), LabError> {
        self.conversation.say(GO)?;
        self.conversation.expect_ready()
    }
}

#[derive(Debug)]
struct Conversation {
    child: std::process::Child,
    to: ChildStdin,
    from: ChildStdout,
    lab: String,
    role: String,
}

impl Conversation {
    fn failed(&self, why: String) -> LabError {
        LabError::Role {
            lab: self.lab.clone(),
            role: self.role.clone(),
            why,
        }
    }

    fn say(&mut self, line: &str) -> Result<(), LabError> {
        let text = format!("{line}\n");
        match self.to.write_all(text.as_bytes()) {
            Ok(()) => Ok(()),
            // The helper has given up; what it says about that is worth more than EPIPE.
            Err(_) => match self.answer()? {
                Answer::Failed { why } => Err(self.failed(why)),
                Answer::Started { .. } | Answer::Ready => {
                    Err(self.failed("ended without being asked to".to_owned()))
                }
            },
        }
    }

    fn answer(&mut self) -> Result<Answer, LabError> {
        let line = read_line(&mut self.from, ANSWER_LIMIT).map_err(|e| self.failed(e))?;
        serde_json::from_str(&line).map_err(|e| self.failed(format!("answered '{line}' ({e})")))
    }

    fn expect_ready(mut self) -> Result<(), LabError> {
        match self.answer()? {
            Answer::Ready => Ok(()),
            Answer::Failed { why } => Err(self.failed(why)),
            Answer::Started { .. } => Err(self.failed("gave an answer out of order".to_owned())),
        }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // Those who stay are not our children; the child itself has nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads one line, byte by byte: what follows it belongs to another reader.
fn read_line(from: &mut (impl Read + AsFd), limit: Duration) -> Result<String, String> {
    let deadline = Instant::now() + limit;
    let mut line = Vec::new();
    loop {
        let left = deadline
            .saturating_duration_since(Instant::now())
            .as_millis();
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let mut fds = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
        match nix::poll::poll(&mut fds, timeout) {
            Ok(0) => return Err(format!("did not answer within {} s", limit.as_secs())),
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => continue,
            Err(errno) => return Err(format!("cannot be listened to ({errno})")),
        }
        if !take_byte(from, &mut line)? {
            return String::from_utf8(line).map_err(|_| "answered no text".to_owned());
        }
    }
}

/// Adds the next byte to the line; false at its end.
pub(crate) fn take_byte(from: &mut impl Read, line: &mut Vec<u8>) -> Result<bool, String> {
    let mut byte = [0];
    match from.read(&mut byte) {
        Ok(0) => Err("ended without an answer".to_owned()),
        Ok(_) if byte[0] == b'\n' => Ok(false),
        Ok(_) if line.len() >= LINE_BYTES_MAX => Err("wrote an endless line".to_owned()),
        Ok(_) => {
            line.push(byte[0]);
            Ok(true)
        }
        Err(e) if e.kind() == std::io::ErrorKind::Interrupted => Ok(true),
        Err(e) => Err(format!("cannot be read ({e})")),
    }
}
