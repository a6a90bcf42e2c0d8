//! What this user may do here: what a daemon without root is allowed to.

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use whim_control::protocol::{Finding, Grade};
use whim_image::stay::Policy;
use whim_sys::namespace::{self, Set};
use whim_sys::uffd::{Device, Uffd};
use whim_sys::yama::Scope;

use super::{finding, read, try_in_child};

/// Files that a daemon and its supervisors should be able to open.
const FILES_MIN: u64 = 1024;

/// Settings of the machine that decide whether a user may make namespaces; `None`: this kernel has no
/// such setting.
#[derive(Debug, Default)]
struct Settings {
    max_user_namespaces: Option<u64>,
    unprivileged_clone: Option<u64>,
    apparmor_restricts: Option<u64>,
    /// A kind of namespace of which there may be none.
    none_of: Option<&'static str>,
}

impl Settings {
    fn here() -> Self {
        let number = |path: &str| read(path)?.parse().ok();
        let kinds = ["pid", "mnt", "net", "ipc", "time", "uts"];
        let none =
            |kind: &&str| number(&format!("/proc/sys/user/max_{kind}_namespaces")) == Some(0);
        Self {
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            unprivileged_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restricts: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            none_of: kinds.into_iter().find(none),
        }
    }
}

/// All of them; `root`: whether the one who asks is root.
pub(super) fn findings() -> Vec<Finding> {
    let root = nix::unistd::geteuid().is_root();
    let limit = |resource| getrlimit(resource).map_or(u64::MAX, |(_, hard)| hard);
    vec![
        namespaces(try_namespaces(), &Settings::here(), root),
        yama(Scope::here(), root),
        userfaultfd(Uffd::create(true, 0).map(drop), fetches_for_kernel()),
        locked_memory(limit(Resource::RLIMIT_MEMLOCK), root),
        files(limit(Resource::RLIMIT_NOFILE)),
    ]
}

/// Nothing of it sticks to this process.
fn try_namespaces() -> Result<(), Errno> {
    let all = Set::USER | Set::PID | Set::MOUNT | Set::NET | Set::IPC | Set::TIME | Set::UTS;
    let code = try_in_child(|| match namespace::unshare(all) {
        Ok(()) => 0,
        Err(namespace::NamespaceError::Unshare(_, errno)) => errno as i32,
        Err(_) => Errno::EIO as i32,
    });
    match code {
        Some(0) => Ok(()),
        Some(errno) => Err(Errno::from_raw(errno)),
        None => Err(Errno::EAGAIN),
    }
}

fn fetches_for_kernel() -> bool {
    Device::open().is_ok() || Uffd::create(false, 0).is_ok()
}

fn namespaces(tried: Result<(), Errno>, settings: &Settings, root: bool) -> Finding {
    const SUBJECT: &str = "namespaces";
    let Err(errno) = tried else {
        return finding(SUBJECT, Grade::Good, "Guests can be shut in", "");
    };
    let (why, mend) = if settings.max_user_namespaces == Some(0) {
        (
            "no user namespaces are allowed (user.max_user_namespaces=0)".to_owned(),
            "sysctl -w user.max_user_namespaces=10000",
        )
    } else if !root && settings.unprivileged_clone == Some(0) {
        (
            "only root may make user namespaces (kernel.unprivileged_userns_clone=0)".to_owned(),
            "sysctl -w kernel.unprivileged_userns_clone=1, or run whimd as root",
        )
    } else if !root && settings.apparmor_restricts.is_some_and(|value| value != 0) {
        (
            "AppArmor takes the rights in user namespaces away (kernel.apparmor_restrict_unprivileged_userns)".to_owned(),
            "Install an AppArmor profile that gives 'userns' to whim-guest, or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run whimd as root",
        )
    } else if let Some(kind) = settings.none_of {
        (
            format!("no namespaces of kind {kind} are allowed (user.max_{kind}_namespaces=0)"),
            "sysctl -w user.max_..._namespaces=10000 for that kind",
        )
    } else if errno == Errno::ENOSPC {
        (
            "the limit of namespaces is reached".to_owned(),
            "Raise user.max_*_namespaces, or end what holds them (lsns shows it)",
        )
    } else {
        (
            format!("not all kinds of namespaces can be made ({})", errno.desc()),
            "Allow this user to make user namespaces, in a container by its runtime's options; or run whimd as root outside of it",
        )
    };
    let found = format!(
        "Guests cannot be shut in: {why}. Meanwhile programs may leave this machine, and it takes none"
    );
    finding(SUBJECT, Grade::Warning, found, mend)
}

fn yama(scope: Scope, root: bool) -> Finding {
    const SUBJECT: &str = "yama";
    const ALLOW: &str = "sysctl -w kernel.yama.ptrace_scope=0, or run whimd as root";
    match scope {
        Scope::SameUser => finding(
            SUBJECT,
            Grade::Good,
            "Programs of the same user may be traced",
            "",
        ),
        Scope::Descendants if root => finding(
            SUBJECT,
            Grade::Good,
            "Root may trace the programs of all users",
            "",
        ),
        Scope::Descendants => finding(
            SUBJECT,
            Grade::Warning,
            "Only programs that ask for it may be traced (kernel.yama.ptrace_scope=1). Meanwhile what 'whim run' becomes may move (any program of yours may then trace it), and what that starts, or runs already, stays; guests are taken as ever",
            ALLOW,
        ),
        Scope::Privileged if root => finding(
            SUBJECT,
            Grade::Warning,
            "Only who has CAP_SYS_PTRACE may trace (kernel.yama.ptrace_scope=2), and home supervisors give that up: users' programs do not leave this machine. Meanwhile it takes guests",
            "sysctl -w kernel.yama.ptrace_scope=1",
        ),
        Scope::Privileged => finding(
            SUBJECT,
            Grade::Warning,
            "Only root may trace (kernel.yama.ptrace_scope=2): no program leaves this machine. Meanwhile it takes guests",
            ALLOW,
        ),
        Scope::Nobody => finding(
            SUBJECT,
            Grade::Bad,
            "Nobody may trace (kernel.yama.ptrace_scope=3): no program leaves this machine, and it takes none",
            "Set kernel.yama.ptrace_scope=1 in /etc/sysctl.d and boot again: it cannot be lowered before",
        ),
    }
}

fn userfaultfd(for_user_mode: Result<(), Errno>, for_kernel: bool) -> Finding {
    const SUBJECT: &str = "userfaultfd";
    match for_user_mode {
        Err(errno) => finding(
            SUBJECT,
            Grade::Bad,
            format!("No userfaultfd can be made ({})", errno.desc()),
            "Use a kernel of 5.11 or later with CONFIG_USERFAULTFD",
        ),
        Ok(()) if for_kernel => finding(
            SUBJECT,
            Grade::Good,
            "Pages of guests can be fetched when they are needed",
            "",
        ),
        Ok(()) => finding(
            SUBJECT,
            Grade::Warning,
            "Pages of guests cannot be fetched on the kernel's behalf (vm.unprivileged_userfaultfd=0). Meanwhile all works, but calls of a guest that use its memory here, such as those for locks, are looked at first and take some 10 us longer",
            "Let this user open /dev/userfaultfd (a udev rule that gives it a group), or sysctl -w vm.unprivileged_userfaultfd=1",
        ),
    }
}

fn locked_memory(limit: u64, root: bool) -> Finding {
    const SUBJECT: &str = "locked memory";
    let wanted = Policy::default().locked_max;
    if root || limit >= wanted {
        return finding(SUBJECT, Grade::Good, "Guests may lock their memory", "");
    }
    finding(
        SUBJECT,
        Grade::Warning,
        format!(
            "Guests may lock {} KiB (ulimit -l). Meanwhile what they have locked beyond that can be swapped out here, and is locked again at home",
            limit >> 10
        ),
        "Raise memlock for this user in /etc/security/limits.conf, or LimitMEMLOCK of the service, to 64 MiB",
    )
}

fn files(limit: u64) -> Finding {
    const SUBJECT: &str = "open files";
    if limit >= FILES_MIN {
        return finding(SUBJECT, Grade::Good, "Enough files may be open", "");
    }
    finding(
        SUBJECT,
        Grade::Warning,
        format!(
            "No more than {limit} files may be open (ulimit -n). Meanwhile some moves are refused with a sentence that says so"
        ),
        "Raise nofile for this user in /etc/security/limits.conf, or LimitNOFILE of the service",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(found: &Finding, words: &str) {
        let mend = found.mend.as_deref().unwrap_or_default();
        assert!(
            found.found.contains(words) && !mend.is_empty(),
            "{found:?} does not say {words}"
        );
        let meanwhile = found.found.contains("eanwhile");
        assert!(meanwhile || found.grade == Grade::Bad, "{found:?}");
    }

    #[test]
    fn what_forbids_namespaces_is_named() {
        let none = Settings::default();
        assert_eq!(namespaces(Ok(()), &none, false).grade, Grade::Good);
        let forbidden = |settings: Settings, root| namespaces(Err(Errno::EPERM), &settings, root);
        let zero = Settings {
            max_user_namespaces: Some(0),
            ..Settings::default()
        };
        told(&forbidden(zero, true), "user.max_user_namespaces=0");
        let clone = || Settings {
            unprivileged_clone: Some(0),
            ..Settings::default()
        };
        told(&forbidden(clone(), false), "unprivileged_userns_clone=0");
        // It does not hold for root, so something else is to blame.
        told(&forbidden(clone(), true), "not all kinds");
        let apparmor = Settings {
            max_user_namespaces: Some(1000),
            unprivileged_clone: Some(1),
            apparmor_restricts: Some(1),
            none_of: None,
        };
        told(&forbidden(apparmor, false), "AppArmor");
        let time = Settings {
            none_of: Some("time"),
            ..Settings::default()
        };
        told(&forbidden(time, false), "user.max_time_namespaces=0");
        told(&namespaces(Err(Errno::ENOSPC), &none, false), "the limit");
    }

    #[test]
    fn what_yama_forbids_is_named() {
        assert_eq!(yama(Scope::SameUser, false).grade, Grade::Good);
        assert_eq!(yama(Scope::Descendants, true).grade, Grade::Good);
        told(&yama(Scope::Descendants, false), "ptrace_scope=1");
        told(&yama(Scope::Privileged, false), "ptrace_scope=2");
        told(&yama(Scope::Privileged, true), "ptrace_scope=2");
        told(&yama(Scope::Nobody, true), "ptrace_scope=3");
    }

    #[test]
    fn what_is_missing_of_userfaultfd_and_limits_is_named() {
        assert_eq!(userfaultfd(Ok(()), true).grade, Grade::Good);
        told(&userfaultfd(Ok(()), false), "unprivileged_userfaultfd=0");
        told(&userfaultfd(Err(Errno::ENOSYS), false), "No userfaultfd");
        assert_eq!(locked_memory(64 << 20, false).grade, Grade::Good);
        told(&locked_memory(8 << 20, false), "8192 KiB");
        assert_eq!(files(1 << 16).grade, Grade::Good);
        told(&files(256), "256 files");
    }
}
