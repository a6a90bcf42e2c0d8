//! What a program was started with, before Rust's runtime changed it: for `whim run`, which must
//! hand everything on as it found it.

use std::ffi::{CStr, CString};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
/// Bit n: descriptor n (0, 1, 2) was open.
static OPEN: AtomicU8 = AtomicU8::new(0);

extern "C" fn note() {
    if cfg!(miri) {
        // Miri runs constructors too, and knows none of these calls.
        return;
    }
    // JUSTIFICATION: the runtime ignores SIGPIPE and opens /dev/null for closed standard
    // descriptors before `main`; only a constructor sees what was there before.
    // SAFETY: both calls only read the state of this process; `action` is large enough for what
    // sigaction writes, and zeroed memory is a valid value of it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) == 0 {
            PIPE_IGNORED.store(action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
        }
        for descriptor in 0..3u8 {
            if libc::fcntl(i32::from(descriptor), libc::F_GETFD) >= 0 {
                OPEN.fetch_or(1 << descriptor, Ordering::Relaxed);
            }
        }
    }
}

// JUSTIFICATION: see `note`.
// SAFETY: the section holds pointers to functions of this type, which the C library calls once
// before `main`, in the only thread; `note` needs nothing of Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

/// The words of this process's environment, also those that are no variables (`std::env` leaves out what has no `=`).
/// For a process that has changed nothing of it, and starts no thread that does.
#[must_use]
pub fn environment() -> Vec<CString> {
    let mut words = Vec::new();
    // JUSTIFICATION: std offers variables alone, and /proc may not be mounted.
    // SAFETY: `environ` is null, or points to pointers to texts, the last one null; nothing of ours changes them.
    unsafe {
        let mut at = libc::environ.cast_const();
        while !at.is_null() && !(*at).is_null() {
            words.push(CStr::from_ptr(*at).to_owned());
            at = at.add(1);
        }
    }
    words
}

/// Lets exec close every descriptor but the standard ones. For a program that starts others with
/// fewer rights, and that may itself have been started by anybody, with anything open.
///
/// # Errors
/// When the kernel refuses.
pub fn keep_descriptors() -> io::Result<()> {
    const FIRST: u32 = 3;
    // JUSTIFICATION: nix does not offer it, and to list /proc/self/fd would open one more.
    // SAFETY: the call takes numbers, and closes nothing before exec: what is open stays usable here.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Gives SIGPIPE back its disposition, and lets the standard descriptors that were closed be closed
/// again by exec, so that the program that replaces this one finds what this one was started with.
///
/// # Errors
/// When the kernel refuses.
pub fn restore() -> io::Result<()> {
    let action = if PIPE_IGNORED.load(Ordering::Relaxed) {
        libc::SIG_IGN
    } else {
        libc::SIG_DFL
    };
    let open = OPEN.load(Ordering::Relaxed);
    // JUSTIFICATION: nix's signal() is unsafe too, and std closes no descriptor that it does not
    // own.
    // SAFETY: neither disposition is a handler. The descriptors closed here are those that the
    // runtime opened on /dev/null; nothing in this process owns them.
    unsafe {
        if libc::signal(libc::SIGPIPE, action) == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
        for descriptor in 0..3u8 {
            if open & (1 << descriptor) == 0 {
                // Close-on-exec rather than closed: messages of a failed exec still have a place.
                libc::fcntl(i32::from(descriptor), libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }
    Ok(())
}

/// Does something that may write to a file beyond this process's limit of their size: an error, and no SIGXFSZ.
pub fn bear_file_limit<T>(work: impl FnOnce() -> T) -> T {
    // JUSTIFICATION: nix's signal() is unsafe too.
    // SAFETY: the disposition is no handler.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let done = work();
    if before != libc::SIG_ERR {
        // JUSTIFICATION: as above.
        // SAFETY: this disposition was valid before.
        unsafe { libc::signal(libc::SIGXFSZ, before) };
    }
    done
}

/// Ignores the signals of the keys that end a program, because they are meant for the child of this
/// process.
pub fn ignore_keys() {
    for key in [libc::SIGINT, libc::SIGQUIT] {
        // JUSTIFICATION: nix's signal() is unsafe too.
        // SAFETY: the disposition is no handler.
        unsafe { libc::signal(key, libc::SIG_IGN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_whole() {
        let variables = std::env::vars_os().count();
        let words = environment();
        let named = |word: &&CString| word.as_bytes().iter().skip(1).any(|byte| *byte == b'=');
        assert_eq!(words.iter().filter(named).count(), variables);
        assert!(
            words
                .iter()
                .any(|word| word.as_bytes().starts_with(b"PATH="))
        );
    }

    #[test]
    fn the_constructor_ran() {
        assert_ne!(
            OPEN.load(Ordering::Relaxed),
            0,
            "a test has standard descriptors"
        );
    }
}
