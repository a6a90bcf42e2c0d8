//! What runs in the sandbox's own processes: the zygote, init, and the guest before its exec.

use super::{
    Answer, DEVICE_NUMBER, GuestRequest, Identity, NextNumber, first, receive_line, send, send_with,
};
use nix::errno::Errno;
use nix::mount::MsFlags;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::exit;
use whim_image::rebuild::stub;
use whim_sys::credentials::{self, Capability};
use whim_sys::namespace::{self, Set};
use whim_sys::spawn::{self, Cloned, Namespaces, Program, SpawnError};
use whim_sys::uffd::Device;

/// The guest's uid and gid inside the sandbox: neither root's nor those of `nobody`.
const INSIDE_ID: u32 = 1;
const NANOSECONDS: i64 = 1_000_000_000;

pub(super) type Outcome<T> = Result<T, Box<dyn Error>>;

fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

/// Takes the private identity and makes init; then only waits for its end.
pub(super) fn zygote(socket: UnixStream, gate: UnixStream, device: Option<Device>) -> ! {
    let made = namespace::set_parent_death_signal(Some(Signal::SIGKILL))
        .map_err(Box::from)
        .and_then(|()| become_private(&socket));
    let (uid, gid) = match made {
        Ok(ids) => ids,
        Err(error) => fail(&socket, error.as_ref()),
    };
    match spawn::clone_process(Namespaces::Own, None) {
        Err(error) => fail(&socket, &error),
        Ok(Cloned::Child) => init(&socket, gate, device, uid, gid),
        Ok(Cloned::Parent { pid, pidfd }) => {
            drop((socket, gate, device, pidfd));
            // Whatever the result is, init has ended, and with it everything in the sandbox.
            let _ = waitpid(Pid::from_raw(pid), None);
            exit(0)
        }
    }
}

fn fail(socket: &UnixStream, error: &dyn Error) -> ! {
    // If the supervisor does not listen any more, nobody does.
    let _ = send(socket, &Answer::Failed(describe(error)));
    exit(1)
}

fn become_private(socket: &UnixStream) -> Outcome<(u32, u32)> {
    let (line, _) = receive_line(socket)?;
    let identity: Identity = serde_json::from_slice(&line)?;
    for directory in &identity.cgroups {
        std::fs::write(Path::new(directory).join("cgroup.procs"), "0")
            .map_err(|error| format!("cgroup {directory} cannot be entered: {error}"))?;
    }
    if let Some(id) = identity.private_id {
        credentials::become_identity(id, id, &[], &[])?;
        // The change of identity has made us undumpable, so that root owns the files of /proc that
        // set up the new namespace. Nothing in this memory is secret.
        credentials::set_dumpable(true)?;
        namespace::set_parent_death_signal(Some(Signal::SIGKILL))?;
    }
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    Ok((uid.as_raw(), gid.as_raw()))
}

fn init(socket: &UnixStream, gate: UnixStream, device: Option<Device>, uid: u32, gid: u32) -> ! {
    let (offsets, numbers) = match furnish(uid, gid) {
        Ok(furnished) => furnished,
        Err(error) => fail(socket, error.as_ref()),
    };
    if send(socket, &Answer::Ready).is_err() {
        exit(1);
    }
    match make_guest(socket, gate, device, offsets) {
        Ok(apart) => serve(socket, numbers, apart),
        Err(error) => fail(socket, error.as_ref()),
    }
}

/// Chooses numbers until the supervisor ends. Then this process ends too, and the kernel kills every
/// process that is left. `apart`: the guest, if it lives in a pid namespace of its own.
fn serve(socket: &UnixStream, numbers: Counter, apart: Option<OwnedFd>) -> ! {
    let (mut numbers, mut apart) = (numbers, apart);
    while let Ok((line, _)) = receive_line(socket) {
        let divided = apart.take().map(|guest| first::divide(guest, numbers.max));
        let chosen = match divided {
            Some(Ok(first::Role::Bereaved)) => {
                // Whoever has taken this request has answered it, or is gone with the guest.
                numbers.file = None;
                continue;
            }
            Some(Err(error)) => {
                numbers.file = None;
                Err(error)
            }
            None | Some(Ok(first::Role::Clerk)) => choose_number(&line, numbers.file.as_ref()),
        };
        let answer = match chosen {
            Ok(()) => Answer::Ready,
            Err(error) => Answer::Failed(describe(error.as_ref())),
        };
        if send(socket, &answer).is_err() {
            break;
        }
    }
    exit(0)
}

/// Chooses the number of the next thread. The kernel counts upward from the number in the file, so
/// the number before the wanted one is written.
fn choose_number(line: &[u8], numbers: Option<&File>) -> Outcome<()> {
    let request: NextNumber = serde_json::from_slice(line)?;
    let mut numbers = numbers.ok_or("this kernel lets nobody choose numbers of threads")?;
    let before = request.number.checked_sub(1).ok_or("no such number")?;
    numbers.seek(SeekFrom::Start(0))?;
    numbers.write_all(before.to_string().as_bytes())?;
    Ok(())
}

/// The numbers of processes and threads.
struct Counter {
    /// The file by which they are chosen, if this kernel lets us.
    file: Option<File>,
    /// All are below this one.
    max: i32,
}

/// Empties the view: an empty, read-only root, no network, a host name that tells nothing. Returns
/// the file by which the clocks are set, and the means to choose numbers of threads.
fn furnish(uid: u32, gid: u32) -> Outcome<(File, Counter)> {
    namespace::set_parent_death_signal(Some(Signal::SIGKILL))?;
    namespace::map_single_user(INSIDE_ID, uid, INSIDE_ID, gid)?;
    nix::unistd::sethostname("guest")?;
    // Opened now, because /proc cannot be reached later on.
    let offsets = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/proc/self/timens_offsets")
        .map_err(|error| format!("this kernel has no time namespaces: {error}"))?;
    let max = std::fs::read_to_string("/proc/sys/kernel/pid_max").ok();
    let numbers = Counter {
        file: OpenOptions::new()
            .write(true)
            .open("/proc/sys/kernel/ns_last_pid")
            .ok(),
        max: max.and_then(|max| max.trim().parse().ok()).unwrap_or(0),
    };
    namespace::make_mounts_private()?;
    let root = Path::new("/tmp");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    namespace::mount_new("tmpfs", root, flags, "size=4k,nr_inodes=2,mode=555")?;
    nix::unistd::chdir(root)?;
    // The old root ends up on top of the new one, at the same directory, and is unmounted.
    nix::unistd::pivot_root(".", ".")?;
    nix::mount::umount2(".", nix::mount::MntFlags::MNT_DETACH)?;
    nix::unistd::chdir("/")?;
    let read_only = flags | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | MsFlags::MS_BIND;
    nix::mount::mount(None::<&str>, "/", None::<&str>, read_only, None::<&str>)?;
    Ok((offsets, numbers))
}

fn make_guest(
    socket: &UnixStream,
    gate: UnixStream,
    device: Option<Device>,
    mut offsets: File,
) -> Outcome<Option<OwnedFd>> {
    let (line, _) = receive_line(socket)?;
    let request: GuestRequest = serde_json::from_slice(&line)?;
    namespace::unshare(Set::TIME)?;
    let mut current = String::new();
    offsets.read_to_string(&mut current)?;
    // The kernel accepts writes at the beginning of this file only.
    offsets.seek(SeekFrom::Start(0))?;
    offsets
        .write_all(clock_lines(&current, request).as_bytes())
        .map_err(|error| format!("the clocks cannot be set: {error}"))?;
    drop(offsets);
    let program = Program::new(&stub::program())?;
    let is_first = request.pid == first::NUMBER;
    let (namespaces, number) = if is_first {
        (Namespaces::OfNumbers, None)
    } else {
        (Namespaces::Inherited, Some(request.pid))
    };
    // This process has one thread: the zygote had one when it was copied, and none was added.
    match spawn::clone_alone(namespaces, number)
        .map_err(|error| number_refused(request.pid, &error))?
    {
        Cloned::Child => guest(gate, device, &program),
        Cloned::Parent { pidfd, .. } => {
            send_with(socket, &Answer::Ready, Some(&pidfd))?;
            Ok(is_first.then_some(pidfd))
        }
    }
}

fn number_refused(pid: i32, error: &SpawnError) -> String {
    if matches!(error, SpawnError::Clone(Errno::EINVAL)) {
        // From Linux 6.14 on each sandbox has a limit of its own, the highest there is.
        format!(
            "its process number {pid} is beyond what this host gives out: raise kernel.pid_max there (sysctl -w kernel.pid_max=4194304)"
        )
    } else {
        format!("process number {pid} cannot be had: {error}")
    }
}

/// The lines for the kernel's file. Its offsets count from the machine's own clocks, but this host
/// may live in a time namespace itself: `current` says how far that namespace is ahead.
fn clock_lines(current: &str, request: GuestRequest) -> String {
    let own = |name: &str| {
        let mut words = current
            .lines()
            .map(str::split_whitespace)
            .find_map(|mut words| (words.next() == Some(name)).then_some(words))
            .into_iter()
            .flatten();
        let mut number = || words.next().and_then(|word| word.parse::<i64>().ok());
        number().unwrap_or(0) * NANOSECONDS + number().unwrap_or(0)
    };
    let line = |name: &str, offset: i64| {
        let offset = own(name) + offset;
        let (seconds, rest) = (
            offset.div_euclid(NANOSECONDS),
            offset.rem_euclid(NANOSECONDS),
        );
        format!("{name} {seconds} {rest}\n")
    };
    line("monotonic", request.monotonic_ns) + &line("boottime", request.boottime_ns)
}

/// The guest, until it executes the stub. It keeps nothing but one capability, and that only until
/// its threads have their numbers.
fn guest(mut gate: UnixStream, device: Option<Device>, program: &Program) -> ! {
    let mut byte = [0; 1];
    if !matches!(gate.read(&mut byte), Ok(1)) {
        exit(1);
    }
    let error = match strip(device.as_ref(), program) {
        Ok(()) => program.execute().to_string(),
        Err(error) => describe(error.as_ref()),
    };
    // Standard error is closed by now; the exit code tells the tracer that there is no guest.
    let _ = error;
    exit(1)
}

fn strip(device: Option<&Device>, program: &Program) -> Outcome<()> {
    nix::unistd::setsid()?;
    spawn::set_no_new_privileges()?;
    credentials::keep_only_capabilities(&[Capability::CHECKPOINT_RESTORE])?;
    let mut keep = vec![program.number()];
    if let Some(device) = device {
        spawn::place_descriptor(device.as_fd(), DEVICE_NUMBER)?;
        keep.push(DEVICE_NUMBER);
    }
    spawn::close_all_but(&keep)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_written_as_the_kernel_reads_them() {
        let request = GuestRequest {
            pid: 1,
            monotonic_ns: -1,
            boottime_ns: 2_500_000_000,
        };
        assert_eq!(
            clock_lines("monotonic 0 0\nboottime 0 0\n", request),
            "monotonic -1 999999999\nboottime 2 500000000\n"
        );
        assert_eq!(
            clock_lines("monotonic           5         7\nboottime  -3 1\n", request),
            "monotonic 5 6\nboottime -1 500000001\n"
        );
    }
}
