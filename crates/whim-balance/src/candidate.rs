//! Which processes the balancer may touch.
//!
//! It may touch only processes that a user has handed to it, by `whim run`, in `whim shell`, or by
//! `whim adopt`; and even of these none that the machine itself needs to live. A process that is no candidate
//! can still be moved by hand.

use std::fmt;

/// Users with this uid or a higher one are people; lower uids are the system's own (`UID_MIN` of login.defs).
pub const UID_MIN: u32 = 1000;

/// What Whimbrel, or the whole machine, stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemPart {
    /// The first process of the machine.
    First,
    /// A program of Whimbrel's own.
    Ours,
    /// Another node's program, which is a guest here.
    Guest,
}

/// What is known of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub part: Option<SystemPart>,
    /// Its real uid, and the lowest uid whose processes are candidates.
    pub uid: u32,
    pub uid_min: u32,
    /// It, or a process from which it descends, was handed to us.
    pub registered: bool,
    /// The user who handed it to us may not move it any more, because it has got other rights since.
    pub changed: bool,
    /// It belongs to this service of the system, such as `cron.service`.
    pub service: Option<String>,
    /// It leads a user's session of this kind, such as `wayland`: the session ends with it.
    pub leads: Option<String>,
}

/// Why a process is no candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotCandidate {
    Part(SystemPart),
    Unregistered,
    Changed,
    System { uid: u32, uid_min: u32 },
    Service(String),
    Leader(String),
}

impl fmt::Display for NotCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(SystemPart::First) => write!(f, "it is the first process of this machine"),
            Self::Part(SystemPart::Ours) => write!(f, "it is a program of Whimbrel's own"),
            Self::Part(SystemPart::Guest) => {
                write!(f, "it is another node's program, a guest here")
            }
            Self::Unregistered => write!(
                f,
                "it was started neither by 'whim run' nor in 'whim shell', or while no daemon was here ('whim adopt' makes it one)"
            ),
            Self::Changed => write!(
                f,
                "it runs with other rights than when it was put into Whimbrel's hands, or its user has lost the right to it ('whim adopt', by who may move it, puts it there again)"
            ),
            Self::System { uid, uid_min } => write!(
                f,
                "its user has uid {uid}, and those below {uid_min} are the system's ([balance] uid_min)"
            ),
            Self::Service(name) => write!(f, "it belongs to {name}, a service of the system"),
            Self::Leader(kind) => write!(f, "it leads a session ({kind}), which would end with it"),
        }
    }
}

/// Whether the balancer may touch a process. If there are several reasons against it, the one that its user can
/// do least about comes first.
///
/// # Errors
/// Why not.
pub fn check(facts: &Facts) -> Result<(), NotCandidate> {
    if let Some(part) = facts.part {
        return Err(NotCandidate::Part(part));
    }
    if let Some(service) = &facts.service {
        return Err(NotCandidate::Service(service.clone()));
    }
    if let Some(kind) = &facts.leads {
        return Err(NotCandidate::Leader(kind.clone()));
    }
    if facts.uid < facts.uid_min {
        let (uid, uid_min) = (facts.uid, facts.uid_min);
        return Err(NotCandidate::System { uid, uid_min });
    }
    if !facts.registered {
        return Err(NotCandidate::Unregistered);
    }
    if facts.changed {
        return Err(NotCandidate::Changed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            uid: 1000,
            uid_min: UID_MIN,
            registered: true,
            ..Facts::default()
        }
    }

    #[test]
    fn what_a_user_has_started_by_us_is_a_candidate() {
        assert_eq!(check(&facts()), Ok(()));
    }

    #[test]
    fn what_nobody_has_put_into_our_hands_is_none() {
        let other = Facts {
            registered: false,
            ..facts()
        };
        let why = check(&other).expect_err("not ours").to_string();
        assert!(
            why.contains("whim run") && why.contains("whim adopt"),
            "{why}"
        );
    }

    #[test]
    fn what_has_got_other_rights_since_is_none() {
        let other = Facts {
            changed: true,
            ..facts()
        };
        let why = check(&other).expect_err("changed").to_string();
        assert!(
            why.contains("other rights") && why.contains("whim adopt"),
            "{why}"
        );
    }

    #[test]
    fn what_the_system_s_users_run_is_none_unless_configured() {
        let system = Facts {
            uid: 999,
            ..facts()
        };
        let why = check(&system).expect_err("the system's").to_string();
        assert!(
            why.contains("uid 999") && why.contains("below 1000"),
            "{why}"
        );
        let lab = Facts {
            uid: 0,
            uid_min: 0,
            ..facts()
        };
        assert_eq!(check(&lab), Ok(()));
    }

    #[test]
    fn a_service_of_the_system_is_none() {
        let service = Facts {
            service: Some("cron.service".into()),
            ..facts()
        };
        let why = check(&service).expect_err("a service").to_string();
        assert!(why.contains("belongs to cron.service"), "{why}");
    }

    #[test]
    fn what_everything_stands_on_is_none_whatever_else_it_is() {
        for (part, sentence) in [
            (SystemPart::First, "first process of this machine"),
            (SystemPart::Ours, "Whimbrel's own"),
            (SystemPart::Guest, "a guest here"),
        ] {
            let facts = Facts {
                part: Some(part),
                service: Some("whimd.service".into()),
                ..facts()
            };
            let why = check(&facts).expect_err("a part").to_string();
            assert!(why.contains(sentence), "{why}");
        }
    }

    #[test]
    fn what_leads_a_session_is_none() {
        let leader = Facts {
            leads: Some("wayland".into()),
            ..facts()
        };
        let why = check(&leader).expect_err("a leader").to_string();
        assert!(why.contains("leads a session (wayland)"), "{why}");
    }
}
