//! One process, held so that no later process with the same number can be taken for it.
//!
//! A process is held only while something is done with it, so that we do not hold one for each process that
//! exists. What is kept longer is kept as pid and start time, of this boot, and opened again
//! ([`Process::open_same`]).

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::OnceLock;
use whim_sys::ownership;
use whim_sys::pidfd::Pidfd;

use crate::processes::{self, Caller, Credentials, ProcessError, Stat};

/// The most bytes read of a file of /proc/PID: status names up to 65,536 groups.
const FILE_MAX: u64 = 1 << 20;

/// A process that lives, or lived when it was opened.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    start_time: u64,
    pidfd: Pidfd,
    /// /proc/PID of this process. Nothing can be read through it once the process has ended.
    directory: OwnedFd,
}

impl Process {
    /// The process that has this number now.
    ///
    /// # Errors
    /// [`ProcessError::Gone`]; a zombie is gone too.
    pub fn open(pid: i32) -> Result<Self, ProcessError> {
        if pid <= 0 {
            return Err(ProcessError::NoPid(pid));
        }
        let pidfd = Pidfd::open(pid).map_err(|errno| ProcessError::by(pid, errno))?;
        Self::hold(pid, pidfd)
    }

    /// The process that has this number, if it began at that time.
    ///
    /// # Errors
    /// [`ProcessError::Gone`].
    pub fn open_same(pid: i32, start_time: u64) -> Result<Self, ProcessError> {
        let found = Self::open(pid)?;
        let same = found.start_time == start_time;
        same.then_some(found).ok_or(ProcessError::Gone(pid))
    }

    /// The process that a descriptor stands for.
    ///
    /// # Errors
    /// [`ProcessError::Gone`].
    pub fn of(pidfd: Pidfd) -> Result<Self, ProcessError> {
        let pid = pidfd
            .pid()
            .map_err(|error| ProcessError::by_io(0, &error))?;
        Self::hold(pid, pidfd)
    }

    fn hold(pid: i32, pidfd: Pidfd) -> Result<Self, ProcessError> {
        let directory = File::options()
            .read(true)
            .custom_flags(nix::libc::O_DIRECTORY)
            .open(format!("/proc/{pid}"))
            .map_err(|error| ProcessError::by_io(pid, &error))?;
        let mut process = Self {
            pid,
            start_time: 0,
            pidfd,
            directory: directory.into(),
        };
        process.start_time = process.stat()?.start_time;
        // Only now do we know that the directory belongs to this process.
        process.lives()?;
        Ok(process)
    }

    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Field 22 of its stat.
    #[must_use]
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Fails if the process has ended. If it has not, what was read by its number before was read of this
    /// process.
    ///
    /// # Errors
    /// [`ProcessError::Gone`].
    pub fn lives(&self) -> Result<(), ProcessError> {
        match self.pidfd.has_ended() {
            Ok(false) => Ok(()),
            Ok(true) | Err(_) => Err(ProcessError::Gone(self.pid)),
        }
    }

    /// What `look` finds by its number, unless it has ended meanwhile: no other process had the number then.
    ///
    /// # Errors
    /// [`ProcessError::Gone`].
    pub fn by_pid<T>(&self, read: impl FnOnce(i32) -> T) -> Result<T, ProcessError> {
        let found = read(self.pid);
        self.lives()?;
        Ok(found)
    }

    fn file(&self, name: &str) -> Result<File, ProcessError> {
        openat(&self.directory, name, OFlag::O_RDONLY, Mode::empty())
            .map(File::from)
            .map_err(|errno| ProcessError::by(self.pid, errno))
    }

    fn read(&self, file: File) -> Result<String, ProcessError> {
        let mut bytes = Vec::new();
        file.take(FILE_MAX)
            .read_to_end(&mut bytes)
            .map_err(|_| ProcessError::Gone(self.pid))?;
        // The file also holds the program's name, which need not be UTF-8.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// # Errors
    /// [`ProcessError::Gone`]; a zombie is gone too.
    pub fn stat(&self) -> Result<Stat, ProcessError> {
        let text = self.read(self.file("stat")?)?;
        processes::living(&text, self.pid)
    }

    /// Its present credentials.
    ///
    /// # Errors
    /// [`ProcessError::Gone`].
    pub fn credentials(&self) -> Result<Credentials, ProcessError> {
        let gone = ProcessError::Gone(self.pid);
        let file = self.file("status")?;
        let owner = file.metadata().map_err(|_| gone.clone())?.uid();
        processes::parse_status(&self.read(file)?, owner).ok_or(gone)
    }

    /// Sends a signal to it, and never to another process.
    ///
    /// # Errors
    /// [`ProcessError::Gone`], also if we may not send it a signal.
    pub fn signal(&self, signal: nix::sys::signal::Signal) -> Result<(), ProcessError> {
        self.pidfd
            .signal(signal as i32)
            .map_err(|_| ProcessError::Gone(self.pid))
    }

    /// Whether it lives in a user namespace, below ours, that this user owns and so has all rights in.
    #[must_use]
    pub fn is_in_namespace_of(&self, uid: u32) -> bool {
        let owners = self.file("ns/user").map(ownership::owners);
        matches!(owners, Ok(Ok(owners)) if owners.contains(&uid))
    }

    /// Its present credentials, if the caller may move it now.
    ///
    /// # Errors
    /// Why not, as a sentence.
    pub fn movable_by(&self, caller: &Caller) -> Result<Credentials, ProcessError> {
        let credentials = self.credentials()?;
        match caller.may_move(self.pid, &credentials) {
            // This is the kernel's rule: the owner of a namespace may trace what is in it.
            Err(_) if credentials.dumpable && self.is_in_namespace_of(caller.uid) => {}
            judged => judged?,
        }
        Ok(credentials)
    }
}

/// Tells this boot of the machine from others, since start times count from the boot.
#[must_use]
pub fn boot_id() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let text = processes::short("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        text.trim().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn what_has_ended_is_gone_whoever_has_its_number() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("cat");
        let pid = child.id().cast_signed();
        let process = Process::open(pid).expect("it lives");
        assert_eq!(process.stat().expect("it lives").pid, pid);
        let own = nix::unistd::getuid().as_raw();
        assert_eq!(process.credentials().expect("it lives").uids, [own; 3]);
        Process::open_same(pid, process.start_time()).expect("the same");
        let other = Process::open_same(pid, process.start_time() + 1);
        assert_eq!(other.expect_err("another"), ProcessError::Gone(pid));
        child.wait().expect("its input has ended");
        let gone = Err(ProcessError::Gone(pid));
        assert_eq!(process.lives(), gone);
        assert_eq!(process.stat().map(drop), gone);
        assert_eq!(process.credentials().map(drop), gone);
        assert_eq!(process.by_pid(processes::command).map(drop), gone);
        assert_eq!(process.by_pid(|_| "of somebody else").map(drop), gone);
        let signal = nix::sys::signal::Signal::SIGCONT;
        assert_eq!(process.signal(signal), gone);
    }

    #[test]
    fn a_boot_has_a_name() {
        assert_eq!(boot_id().len(), 36);
    }
}
