//! The beginning of a journey: a home supervisor.

use nix::errno::Errno;
use nix::fcntl::FallocateFlags;
use std::fs;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use tokio::process::Child;
use whim_image::freeze_filters::are_filtered;
use whim_image::stay::has_own_time;
use whim_journey::job::HomeJob;
use whim_machine::processes::{self, ProcessError};
use whim_net::Role;
use whim_sys::credentials::{Capability, Launch};
use whim_sys::foreign;

use crate::blocking::blocking;
use crate::line::journal::JOURNAL_MAX;
use crate::line::supervisor::{self, Start};
use crate::moves::Moves;
use crate::moves::attempt::{MoveError, Target};
use crate::moves::journeys::{About, Journey, Notes};
use crate::moves::notes::{forget, write_about};
use crate::moves::room;
use crate::moves::watching;
use crate::settings::Settings;

/// What a home supervisor has beyond its owner's rights, until it has seized the process and before it
/// hears anything from a host. With these capabilities it traces in spite of Yama, and opens mapped
/// files by /proc/PID/map_files.
const KEPT: [Capability; 2] = [Capability::SYS_PTRACE, Capability::CHECKPOINT_RESTORE];

/// What the supervisor of a program with seccomp filters has beside these, as long: it reads the filters, and
/// suspends them while the program stands still.
const KEPT_FOR_FILTERS: Capability = Capability::SYS_ADMIN;

/// Disk space that is reserved for a journal at its beginning, in bytes; few journeys need more.
const JOURNAL_ROOM: i64 = 8 << 10;

/// Longest file that a home supervisor writes, in bytes, for a process without threads: its journal, its
/// log, and the memory that it shares with the process, in which each thread has a part.
const FILE_MAX: u64 = 2 * JOURNAL_MAX;
const FILE_PER_THREAD: u64 = 16 << 10;

/// A name for a journey: the pid, for people who read logs, and a random number.
///
/// # Errors
/// No random numbers.
pub(crate) fn new_journey(pid: i32) -> Result<String, MoveError> {
    let random =
        whim_net::tls::digest::random::<8>().map_err(|e| MoveError::Refused(e.to_string()))?;
    Ok(format!("{pid}-{}", whim_secret::hexadecimal::hex(&random)))
}

/// Starts the home supervisor, with the rights of the process's owner and those of `KEPT`, which it
/// drops once it holds the threads.
pub(crate) async fn start_home(
    moves: &Arc<Moves>,
    target: &Target,
    about: &About,
) -> Result<(), MoveError> {
    let ground = moves.ground();
    let settings = ground.settings();
    let id = &about.journey;
    let (uid, gid) = (target.credentials.uids[0], target.credentials.gids[0]);
    let directory = settings.home_directory(id);
    let credentials = ground.cluster().journey_credentials(id, Role::Home)?;
    settings.faults.point("before-journey-noted");
    let lease = room::lease(moves, Some(&target.candidate), None);
    let about = About {
        notes: Notes {
            lease: Some(lease),
            ..notes(about.pid)
        },
        ..about.clone()
    };
    write_about(settings, &about)?;
    settings.faults.point("before-journal-made");
    let journal = blocking(|| make_journal(&settings.journal(id)));
    let journal = journal.inspect_err(|_| forget(settings, id))?;
    let journal_number = journal.as_raw_fd();
    let job = |listener| HomeJob {
        journey: id.clone(),
        node: about.home.clone(),
        pid: about.pid,
        start_time: about.start_time,
        listener,
        journal: journal_number,
        credentials,
        lease_ms: lease.milliseconds(),
        allow_root: ground.config().allow_root,
        requested_by: about.requested_by,
        permitted: target.credentials.permitted_capabilities,
        boot_offset_ns: whim_sys::namespace::boot_offset_ns(),
        crash_at: settings.faults.of_home(),
    };
    // The supervisor of a process of root runs as root, with all rights, as that process does.
    let identity =
        (settings.root && uid != 0).then(|| (uid, gid, target.credentials.groups.clone()));
    let launch = Launch {
        keep: kept(settings, about.pid, identity.is_some()),
        identity,
        new_session: true,
        enter_cgroups: moves.host().supervisor_groups().to_vec(),
        // The supervisor's own clocks then show what the program sees. It needs that for deadlines, and
        // to learn how far a host's clocks are away.
        clocks_of: has_own_time(about.pid).then_some(about.pid),
        file_max: Some(FILE_MAX + FILE_PER_THREAD * u64::from(target.stat.threads)),
        inherit: Vec::new(),
    };
    let start = Start {
        program: settings.libexec.join("whim-home"),
        job,
        directory: &directory,
        inherited: vec![journal.into()],
        launch,
        log: settings.log(&format!("{id}.home")),
        faults: &settings.faults,
    };
    settings.faults.point("before-home-started");
    let (child, about) = match started(settings, start, &about).await {
        Ok(started) => started,
        Err(error) => {
            forget(settings, id);
            return Err(not_started(&about, error));
        }
    };
    settings.faults.point("after-home-started");
    watch_over(moves, about, child);
    Ok(())
}

/// Why no supervisor was started for a process. If that has ended, what could not be found was its own.
fn not_started(about: &About, error: MoveError) -> MoveError {
    if processes::lives(about.pid, about.start_time) {
        error
    } else {
        ProcessError::Gone(about.pid).into()
    }
}

/// Starts the supervisor, and notes which process it is before it has its job: however soon we end, a next daemon
/// knows who carries the process. Without that it would take it for one whose record is lost.
async fn started<M: FnOnce(RawFd) -> HomeJob>(
    settings: &Settings,
    start: Start<'_, M>,
    about: &About,
) -> Result<(Child, About), MoveError> {
    let begun = start.begin()?;
    let mut about = about.clone();
    about.notes.supervisor = begun.number();
    if let Err(error) = write_about(settings, &about) {
        begun.give_up().await;
        return Err(error);
    }
    settings.faults.point("supervisor-noted");
    Ok((begun.ready().await?, about))
}

/// The rights with which a supervisor begins, beside those of its user. Root has all of them.
fn kept(settings: &Settings, pid: i32, of_a_user: bool) -> Vec<Capability> {
    if !of_a_user {
        return Vec::new();
    }
    let for_filters = (settings.reads_filters() && are_filtered(pid)).then_some(KEPT_FOR_FILTERS);
    KEPT.into_iter().chain(for_filters).collect()
}

/// Waits for the end of a supervisor.
fn watch_over(moves: &Arc<Moves>, about: About, mut child: Child) {
    let pid = about.notes.supervisor.map(|(pid, _)| pid);
    let id = about.journey.clone();
    let mut journey = Journey::new(about);
    journey.supervisor_pid = pid;
    moves.journeys().by_id.insert(id.clone(), journey);
    let moves = Arc::clone(moves);
    tokio::spawn(async move {
        let status = child
            .wait()
            .await
            .map_or_else(|e| e.to_string(), |s| s.to_string());
        tracing::debug!(journey = id, status, "a home supervisor has ended");
        watching::finish(&moves, &id).await;
    });
}

/// What we know of a process before its supervisor, which may raise limits, is started.
fn notes(pid: i32) -> Notes {
    let limits = foreign::limits(pid).unwrap_or_default();
    let limits = limits.into_iter();
    Notes {
        limits: limits
            .map(|limit| (limit.resource, limit.soft, limit.hard))
            .collect(),
        ..Notes::default()
    }
}

/// Makes a journal. The file stays ours: the supervisor is handed a descriptor that can only append.
fn make_journal(path: &Path) -> Result<fs::File, MoveError> {
    let mut options = fs::OpenOptions::new();
    let file = options.append(true).create_new(true).mode(0o600).open(path);
    let made = file.and_then(|file| {
        set_room_aside(&file)?;
        Ok(file)
    });
    made.map_err(|source| {
        let _ = fs::remove_file(path);
        supervisor::at(path, source).into()
    })
}

/// Reserves disk space, so that a disk that fills up later is no reason to refuse a move.
fn set_room_aside(file: &fs::File) -> std::io::Result<()> {
    let flags = FallocateFlags::FALLOC_FL_KEEP_SIZE;
    match nix::fcntl::fallocate(file, flags, 0, JOURNAL_ROOM) {
        Err(errno @ (Errno::ENOSPC | Errno::EDQUOT)) => Err(errno.into()),
        // Not every file system can do that.
        _ => Ok(()),
    }
}
