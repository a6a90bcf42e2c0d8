//! The sandbox of a guest: namespaces of its own with nothing in them, and a first process that
//! makes the blank process in them.
//!
//! ```text
//! supervisor --- zygote (the private identity) --- init (pid 1 of the sandbox) --- guest
//! ```
//! A guest that is the first process of its own pid namespace gets one more namespace (`first`).
//!
//! The zygote is a copy of the supervisor, made before any key is read into memory. It takes the
//! private identity first, so that the new user namespace belongs to that identity. That lets the
//! supervisor, which has the same identity and no capability, trace the guest.

mod first;
mod inside;

use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use thiserror::Error;
use whim_image::rebuild::{self, Blank, RebuildError};
use whim_sys::fdpass::{self, FdPassError};
use whim_sys::namespace::{self, Fork, NamespaceError};
use whim_sys::pidfd::Pidfd;
use whim_sys::ptrace::{Running, TraceError};
use whim_sys::uffd::{Device, Uffd};

/// Descriptor under which the blank process finds `/dev/userfaultfd`.
const DEVICE_NUMBER: i32 = 100;
/// How many files a supervisor and its sandbox must be able to open. The kernel allows only
/// descriptors below that limit, and `DEVICE_NUMBER` is one of theirs.
const FILES_MIN: u64 = 128;
/// Longest message between the processes of a sandbox, in bytes.
const MESSAGE_MAX: usize = 16 << 10;
/// Time in which the sandbox has to answer; it only talks to the kernel.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Error)]
pub enum SandboxError {
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    #[error(
        "A guest's supervisor may open no more than {limit} files there, and needs {FILES_MIN}: raise the limit of whimd (LimitNOFILE, or ulimit -n)"
    )]
    Files { limit: u64 },
    #[error("The sandbox's processes cannot be talked to: {0}")]
    Talk(io::Error),
    #[error(transparent)]
    Pass(#[from] FdPassError),
    #[error("The sandbox could not be made: {0}")]
    Refused(String),
    #[error("The sandbox's first process has ended")]
    Ended,
    #[error("Tracing the guest is not possible: {0}")]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
}

/// Raises our limit of open files to what is needed, if it may be raised. If it stays too low, we
/// fail here and not where it would show, because a guest that cannot place its descriptor has no
/// way to report that.
///
/// # Errors
/// [`SandboxError::Files`]
pub fn allow_files() -> Result<(), SandboxError> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Ok(());
    };
    if soft >= FILES_MIN {
        return Ok(());
    }
    let limit = hard.min(FILES_MIN);
    if hard < FILES_MIN || setrlimit(Resource::RLIMIT_NOFILE, limit, hard).is_err() {
        return Err(SandboxError::Files { limit: soft });
    }
    Ok(())
}

/// The message to the zygote.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// uid and gid; `None`: those of the supervisor.
    pub private_id: Option<u32>,
    /// Directories of cgroups to enter.
    pub cgroups: Vec<String>,
}

/// The message to init that asks for the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestRequest {
    /// Number of the guest in its own pid namespace.
    pub pid: i32,
    /// How far the guest's clocks are ahead of this host's, in nanoseconds.
    pub monotonic_ns: i64,
    pub boottime_ns: i64,
}

/// The message to init before a thread is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NextNumber {
    pub number: i32,
}

/// Gives the guest's next thread the number that is wanted. The guest itself has no right to choose
/// it.
#[derive(Debug)]
pub struct Numbers {
    socket: UnixStream,
}

impl Numbers {
    /// Gives the next thread of the guest this number, unless another thread has it.
    ///
    /// # Errors
    /// The number is beyond this kernel's limit.
    pub fn next(&self, number: i32) -> Result<(), SandboxError> {
        send(&self.socket, &NextNumber { number })?;
        receive(&self.socket).map(drop)
    }
}

/// The answer of the zygote and of init.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Ready,
    Failed(String),
}

/// The supervisor's end of a sandbox. Dropping it ends everything inside.
#[derive(Debug)]
pub struct Sandbox {
    socket: UnixStream,
    /// The guest waits here until it is traced.
    gate: UnixStream,
    has_device: bool,
}

impl Sandbox {
    /// Forks the zygote. To be called first, by a process without threads, and before it holds a
    /// secret. The sandbox gets the right to serve page faults of kernel mode, if we have it.
    ///
    /// # Errors
    /// No process or descriptor to be had.
    pub fn prepare() -> Result<Self, SandboxError> {
        let (socket, inner) = UnixStream::pair().map_err(SandboxError::Talk)?;
        let (gate, inner_gate) = UnixStream::pair().map_err(SandboxError::Talk)?;
        let device = Device::open().ok();
        let has_device = device.is_some();
        match namespace::fork()? {
            Fork::Child => {
                drop((socket, gate));
                // The supervisor's socket must not stay open in the sandbox.
                whim_sys::inherited::close_all();
                inside::zygote(inner, inner_gate, device)
            }
            Fork::Parent(_) => {
                for stream in [&socket, &gate] {
                    stream
                        .set_read_timeout(Some(PATIENCE))
                        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
                        .map_err(SandboxError::Talk)?;
                }
                Ok(Self {
                    socket,
                    gate,
                    has_device,
                })
            }
        }
    }

    /// Makes the namespaces, under the identity given.
    ///
    /// # Errors
    /// The kernel refuses: the sentence says what would help.
    pub fn enter(
        &mut self,
        private_id: Option<u32>,
        cgroups: &[String],
    ) -> Result<(), SandboxError> {
        let identity = Identity {
            private_id,
            cgroups: cgroups.to_vec(),
        };
        send(&self.socket, &identity)?;
        receive(&self.socket).map(drop)
    }

    /// The means to choose the numbers of threads, for a guest that has been made.
    ///
    /// # Errors
    /// No descriptor to be had.
    pub fn numbers(&self) -> Result<Numbers, SandboxError> {
        let socket = self.socket.try_clone().map_err(SandboxError::Talk)?;
        Ok(Numbers { socket })
    }

    /// Makes the blank process: traced, with the userfaultfd of its memory, and stopped.
    ///
    /// # Errors
    /// The number is beyond this kernel's limit, or the kernel refuses something.
    pub fn make_guest(&mut self, request: GuestRequest) -> Result<(Blank, Uffd), SandboxError> {
        send(&self.socket, &request)?;
        let mut descriptors = receive(&self.socket)?;
        let descriptor = descriptors.pop().ok_or(SandboxError::Ended)?;
        let pid = Pidfd::from_descriptor(descriptor)
            .pid()
            .map_err(SandboxError::Talk)?;
        let running = Running::seize(pid, rebuild::trace_options())?;
        self.gate.write_all(b"g").map_err(SandboxError::Talk)?;
        let blank = Blank::await_stub(running)?;
        let device = self.has_device.then_some(DEVICE_NUMBER);
        Ok(blank.userfault(device)?)
    }
}

pub(crate) fn send(socket: &UnixStream, message: &impl Serialize) -> Result<(), SandboxError> {
    send_with(socket, message, None)
}

pub(crate) fn send_with(
    socket: &UnixStream,
    message: &impl Serialize,
    descriptor: Option<&OwnedFd>,
) -> Result<(), SandboxError> {
    let mut line =
        serde_json::to_vec(message).map_err(|error| SandboxError::Talk(io::Error::other(error)))?;
    line.push(b'\n');
    let borrowed: Vec<_> = descriptor.iter().map(|fd| fd.as_fd()).collect();
    fdpass::send(socket.as_fd(), &line, &borrowed)?;
    Ok(())
}

/// One line, and the descriptors that came with it. Each side waits for an answer before it sends
/// more, so a read never brings the beginning of the next line.
pub(crate) fn receive_line(socket: &UnixStream) -> Result<(Vec<u8>, Vec<OwnedFd>), SandboxError> {
    let (mut line, mut descriptors) = (Vec::new(), Vec::new());
    let mut buffer = [0; 1024];
    while line.last() != Some(&b'\n') {
        let (length, more) = fdpass::receive(socket.as_fd(), &mut buffer)?;
        if length == 0 || line.len() + length > MESSAGE_MAX {
            return Err(SandboxError::Ended);
        }
        line.extend_from_slice(&buffer[..length]);
        descriptors.extend(more);
    }
    Ok((line, descriptors))
}

fn receive(socket: &UnixStream) -> Result<Vec<OwnedFd>, SandboxError> {
    let (line, descriptors) = receive_line(socket)?;
    match serde_json::from_slice(&line) {
        Ok(Answer::Ready) => Ok(descriptors),
        Ok(Answer::Failed(reason)) => Err(SandboxError::Refused(reason)),
        Err(error) => Err(SandboxError::Talk(io::Error::other(error))),
    }
}
