//! A guest that is the first process of its pid namespace, as those of containers are.
//!
//! The kernel protects such a process from signals, and no other process has its number. The sandbox's own
//! init has that number already, so the guest gets one more namespace inside of the sandbox's:
//! ```text
//! init (pid 1 of the sandbox) --- guest (pid 1 of its own namespace)
//!                             \-- clerk (in the guest's namespace, with a high number)
//! ```
//! Numbers of threads are chosen by a file that means the namespace of whoever writes it, and nobody can
//! enter a pid namespace but by being born there. So the first time that a number is to be chosen, init makes
//! the clerk, which takes over. The guest's end is also that of the clerk.

use super::inside::Outcome;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use std::os::fd::OwnedFd;
use whim_sys::credentials::{self, Capability};
use whim_sys::namespace::{self, Set};
use whim_sys::spawn::{self, Cloned, Namespaces, SpawnError};

/// The number of a namespace's first process.
pub(super) const NUMBER: i32 = 1;
/// How many numbers are tried for the clerk, from the highest one downward. Programs that have them all are
/// none of a namespace of their own.
const TRIES: i32 = 64;

/// Who goes on after [`divide`].
pub(super) enum Role {
    Clerk,
    /// Init, after the clerk's end. The guest is ending, too.
    Bereaved,
}

/// Makes the clerk in the namespace of the guest, and returns in it. Init only waits for its end.
///
/// # Errors
/// The kernel refuses: no numbers can be chosen.
pub(super) fn divide(guest: OwnedFd, number_max: i32) -> Outcome<Role> {
    namespace::enter_of(&guest, Set::PID)?;
    drop(guest);
    for number in (number_max - TRIES..number_max).rev() {
        match spawn::clone_alone(Namespaces::Inherited, Some(number)) {
            Ok(Cloned::Child) => {
                namespace::set_parent_death_signal(Some(Signal::SIGKILL))?;
                spawn::set_no_new_privileges()?;
                credentials::keep_only_capabilities(&[Capability::CHECKPOINT_RESTORE])?;
                credentials::set_dumpable(false)?;
                return Ok(Role::Clerk);
            }
            Ok(Cloned::Parent { pid, .. }) => return Ok(bereaved(pid)),
            Err(SpawnError::Clone(Errno::EEXIST)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err("the guest has the highest numbers itself".into())
}

/// Waits for the clerk. If it ends by itself, the supervisor is gone, and so everything is.
fn bereaved(clerk: i32) -> Role {
    loop {
        match waitpid(Pid::from_raw(clerk), None) {
            Err(Errno::EINTR) => {}
            // It is killed together with its namespace.
            Ok(WaitStatus::Signaled(..)) => return Role::Bereaved,
            _ => std::process::exit(0),
        }
    }
}
