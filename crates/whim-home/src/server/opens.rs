//! Descriptors that a forwarded call has opened. A host may not have every file that the program's user may
//! open.
//!
//! A host that has `/proc/PID/mem` of another process of the user has that process. A call's arguments do not
//! show whether it opens such a file (links, `/proc/thread-self/root`, descriptors of directories), so the
//! descriptor is checked, before anything else is done and before the host hears of it. In the same way a path
//! may lead to what /proc tells of the process itself, where the deputy would be shown.

use super::{ServeError, Server};
use nix::sys::statfs::{FsType, PROC_SUPER_MAGIC, statfs};
use std::fs;
use std::path::Path;
use whim_image::freeze_observe::Status;
use whim_image::stay_descriptors::shows_itself;
use whim_model::Syscall;

/// Why the program goes on with such a call at home.
const OTHERS: &str = "it opens the memory of another process";
const ITSELF: &str = "it opens what /proc tells of the process itself";

const LINK_MAX: usize = 256;

impl Server {
    /// Closes the descriptor that a call in `seat` has just opened, if it is one that no host may have, or
    /// that shows the deputy; says why the program comes home for it.
    pub(super) fn takes_back(
        &mut self,
        seat: usize,
        fd: i64,
    ) -> Result<Option<&'static str>, ServeError> {
        let Ok(number) = u32::try_from(fd) else {
            return Ok(None);
        };
        let pid = self.deputy.pid();
        let path = format!("/proc/{pid}/fd/{number}");
        let (name, is_proc) = match fs::read_link(&path) {
            Ok(name) => {
                let name = name.to_string_lossy().into_owned();
                let shown = || {
                    statfs(Path::new(&path))
                        .map_or(true, |of| of.filesystem_type() == PROC_SUPER_MAGIC)
                };
                let is_proc = names_a_process(&name) && shown();
                (name, is_proc)
            }
            // The deputy cannot be inspected from outside any more, so it looks at the descriptor itself.
            Err(_) => self.ask_deputy(seat, number)?,
        };
        if !is_proc {
            return Ok(None);
        }
        let own = Status::read(pid, pid).map_or(pid, |status| status.own_id);
        let reason = if shows_itself(&name, (pid, own)).is_some() {
            ITSELF
        } else if is_memory(&name).is_some() {
            OTHERS
        } else {
            return Ok(None);
        };
        let close = Syscall::new(libc::SYS_close, &[u64::from(number)]);
        self.deputy.run(seat, &[close])?;
        Ok(Some(reason))
    }

    /// What the deputy itself finds a descriptor to be: its name, and whether it is of procfs.
    fn ask_deputy(&mut self, seat: usize, fd: u32) -> Result<(String, bool), ServeError> {
        let path = format!("/proc/self/fd/{fd}\0");
        let base = self.deputy.address(self.deputy.deck().data_offset());
        let into = base + LINK_MAX as u64;
        self.deputy.deck().write_data(0, path.as_bytes());
        let here = i64::from(libc::AT_FDCWD).cast_unsigned();
        let readlink = [here, base, into, LINK_MAX as u64];
        let about = into + LINK_MAX as u64;
        let results = self.deputy.run(
            seat,
            &[
                Syscall::new(libc::SYS_readlinkat, &readlink),
                Syscall::new(libc::SYS_fstatfs, &[u64::from(fd), about]),
            ],
        )?;
        let mut kind = [0; 8];
        self.deputy.deck().read_data(2 * LINK_MAX, &mut kind);
        let is_proc = results[1] == 0 && FsType(i64::from_le_bytes(kind)) == PROC_SUPER_MAGIC;
        let Ok(length) = usize::try_from(results[0]) else {
            // Without a name it is taken for the worst that it can be.
            return Ok(("/0/mem".into(), is_proc));
        };
        let mut name = vec![0; length.min(LINK_MAX)];
        self.deputy.deck().read_data(LINK_MAX, &mut name);
        Ok((String::from_utf8_lossy(&name).into_owned(), is_proc))
    }
}

/// Whether the name may be one below the directory of a process in /proc.
fn names_a_process(name: &str) -> bool {
    name.split('/').any(|part| part.parse::<i32>().is_ok())
}

/// The process whose memory this is, by the name of its file in /proc.
fn is_memory(name: &str) -> Option<i32> {
    let directory = name.strip_suffix("/mem")?;
    let parts: Vec<&str> = directory.rsplit('/').take(3).collect();
    match parts.as_slice() {
        [_, "task", pid] | [pid, ..] => pid.parse().ok(),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_known_by_its_name() {
        for (name, of) in [
            ("/proc/17/mem", Some(17)),
            ("/proc/17/task/18/mem", Some(17)),
            ("/mnt/other/proc/17/mem", Some(17)),
            ("/17/mem", Some(17)),
            ("/proc/17/maps", None),
            ("/dev/mem", None),
            ("/srv/user/mem", None),
            ("mem", None),
        ] {
            assert_eq!(is_memory(name), of, "{name}");
        }
    }
}
