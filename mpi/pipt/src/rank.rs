//! The command as one rank of an MPI job.

use nix::sys::signal::{SigSet, Signal, raise};
use pipt::ranks::Ranks;
use pipt_load::{LoadError, World, launch, places};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The word by which a rank starts its watcher.
pub(crate) const WATCH: &str = "watch-a-rank";

/// What the watcher reads when its rank ends by itself.
const ENDED: u8 = b'.';

/// So long a rank lives on after SIGTERM, by which Open MPI's launcher ends the others where one was killed: when the
/// first has died of it the launcher ends, too, and with it what the watcher had no time to say. (It was unheard in a
/// third of such jobs, Open MPI 4.1.4 of Debian 12.) The launcher sends SIGKILL after a second.
const GRACE: Duration = Duration::from_millis(500);

/// What the watcher reads, until it was closed.
type Pipe = Arc<Mutex<Option<ChildStdin>>>;

/// This process as a rank, if a launcher has started it.
pub(crate) struct Rank {
    world: Option<World>,
    watcher: Option<Child>,
    pipe: Pipe,
}

impl Rank {
    /// # Errors
    ///
    /// The launcher's variables contradict each other, or its ranks cannot be reached.
    pub(crate) fn begin() -> Result<Self, LoadError> {
        let Some(launch) = launch(&|name| std::env::var(name).ok())? else {
            return Ok(Self {
                world: None,
                watcher: None,
                pipe: Pipe::default(),
            });
        };
        let program = std::env::current_exe().unwrap_or_default();
        // Before the MPI is opened: its launchers end all processes of a rank's group.
        let mut watcher = if launch.rank == 0 { watcher() } else { None };
        let pipe = watcher.as_mut().and_then(|watcher| watcher.stdin.take());
        let pipe = Arc::new(Mutex::new(pipe));
        // Before it, too: threads of the MPI leave the signal to ours.
        linger(Arc::clone(&pipe));
        let world = World::open(&launch, &places(&program));
        let mut rank = Self {
            world: None,
            watcher,
            pipe,
        };
        match world {
            Ok(world) => rank.world = Some(world),
            Err(error) => {
                rank.end();
                return Err(error);
            }
        }
        Ok(rank)
    }

    pub(crate) fn ranks(&self) -> Option<&dyn Ranks> {
        self.world.as_ref().map(|world| world as &dyn Ranks)
    }

    /// One of all ranks says what was done.
    pub(crate) fn speaks(&self) -> bool {
        self.world.as_ref().is_none_or(|world| world.rank() == 0)
    }

    /// This rank ends by itself.
    pub(crate) fn end(mut self) {
        self.dismiss();
    }

    fn dismiss(&mut self) {
        if let Some(mut watcher) = self.watcher.take() {
            if let Some(mut pipe) = taken(&self.pipe) {
                // Where it is gone already nothing is to be told.
                let _told = pipe.write_all(&[ENDED]);
            }
            let _ended = watcher.wait();
        }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        self.dismiss();
    }
}

/// A process that outlives this one if it is killed, which no process can say of itself. MPICH's launcher kills all
/// ranks at once when one dies, so that no other could say it either.
fn watcher() -> Option<Child> {
    let mut command = Command::new(std::env::current_exe().ok()?);
    command
        .arg(WATCH)
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    // A group of its own, which no launcher knows of.
    command.process_group(0).spawn().ok()
}

fn taken(pipe: &Pipe) -> Option<ChildStdin> {
    pipe.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// From here on SIGTERM ends this process after [`GRACE`]; the watcher speaks at once.
fn linger(pipe: Pipe) {
    let mut terminate = SigSet::empty();
    terminate.add(Signal::SIGTERM);
    if terminate.thread_block().is_err() {
        // It ends as ever, and is heard or not.
        return;
    }
    thread::spawn(move || {
        if terminate.wait().is_ok() {
            drop(taken(&pipe));
            thread::sleep(GRACE);
        }
        let _ends_now = terminate
            .thread_unblock()
            .and_then(|()| raise(Signal::SIGTERM));
    });
}

/// Says that the job was ended, unless the rank that holds the other end of the pipe says that it ends by itself.
pub(crate) fn watch() {
    let mut said = Vec::new();
    let read = std::io::stdin().lock().take(1).read_to_end(&mut said);
    if read.is_ok() && said != [ENDED] {
        eprintln!(
            "pipt: The job was ended before its work was done: one of its ranks was killed, by hand or for want of \
             memory, or its machine or the launcher went away. What is written is kept: start it again with --resume"
        );
    }
}
