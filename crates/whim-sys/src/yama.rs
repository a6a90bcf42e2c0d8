//! Yama, the kernel's module that restricts which processes may trace which.

use std::io;

/// `kernel.yama.ptrace_scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Any process with the same rights may trace. Also used if the kernel has no Yama.
    SameUser,
    /// Only ancestors, and the process that the traced process has named.
    Descendants,
    /// Only processes with CAP_SYS_PTRACE.
    Privileged,
    Nobody,
}

impl Scope {
    /// The scope on this machine.
    #[must_use]
    pub fn here() -> Self {
        let text = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
        Self::parse(text.ok().as_deref())
    }

    /// Parses the text of the file; `None` stands for a missing file.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Self {
        match text.map(str::trim) {
            None | Some("0") => Self::SameUser,
            Some("1") => Self::Descendants,
            Some("2") => Self::Privileged,
            Some(_) => Self::Nobody,
        }
    }
}

/// Lets every process of this user trace this one in spite of [`Scope::Descendants`]. It still
/// holds after an exec, but not for children.
///
/// # Errors
/// The kernel has no Yama.
pub fn let_own_user_trace_us() -> io::Result<()> {
    // JUSTIFICATION: neither the standard library nor nix knows this request.
    // SAFETY: the call takes integers and touches no memory of ours.
    let result = unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_as_the_kernel_writes_them() {
        for (text, scope) in [
            (None, Scope::SameUser),
            (Some("0\n"), Scope::SameUser),
            (Some("1\n"), Scope::Descendants),
            (Some("2\n"), Scope::Privileged),
            (Some("3\n"), Scope::Nobody),
        ] {
            assert_eq!(Scope::parse(text), scope, "{text:?}");
        }
    }
}
