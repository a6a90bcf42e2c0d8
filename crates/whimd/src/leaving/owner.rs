//! A node that belongs to somebody: while its owner sits before it, guests leave.
//!
//! Activity is what logind considers activity (a session of the seat that is not idle, as desktops
//! report it), or use of a local terminal: the kernel notes when a terminal was last read and written.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc::unbounded_channel;
use whim_balance::Millis;

use crate::host::orders::Orders;
use crate::leaving::evacuation;
use crate::moves::Moves;

/// How often terminals are checked; guests have to leave soon after the owner's return.
const LOOK: Duration = Duration::from_millis(500);
/// How often logind is asked.
const ASK: Duration = Duration::from_secs(2);
/// The kernel notes the use of a terminal in steps of 8 seconds, so a use that is not older may be
/// happening now.
const STEP: Duration = Duration::from_secs(8);
/// Where programs are looked for. We do not use our PATH, because the environment may be a user's, and
/// programs are run with our rights.
const SYSTEMS_PROGRAMS: &str = "/usr/local/bin:/usr/bin:/bin:/run/current-system/sw/bin";
/// logind is there if this directory is.
const LOGIND: &str = "/run/systemd/seats";

/// Whether the owner is there, from one check to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Presence {
    last_active: Option<Millis>,
    is_here: bool,
}

impl Presence {
    /// Takes a sample. After `idle_ms` without activity nobody is there. Returns whether the owner is
    /// there, if that has changed.
    pub(crate) fn sample(&mut self, now: Millis, active: bool, idle_ms: Millis) -> Option<bool> {
        if active {
            self.last_active = Some(now);
        }
        let here = self
            .last_active
            .is_some_and(|last| active || now < last + idle_ms);
        let changed = here != self.is_here;
        self.is_here = here;
        changed.then_some(here)
    }
}

/// Runs for ever, if this node has an owner.
pub(crate) async fn watch(moves: Arc<Moves>) {
    let owner = moves.ground().config().owner.clone();
    if !owner.enabled {
        return;
    }
    let mut presence = Presence::default();
    let mut interval = tokio::time::interval(LOOK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut asked = (tokio::time::Instant::now() - ASK, false);
    loop {
        let now = interval.tick().await;
        if now.saturating_duration_since(asked.0) >= ASK {
            asked = (now, seat_is_active().await);
        }
        let used = terminals_are_used(&owner.terminals, SystemTime::now());
        let idle_ms = owner.idle.saturating_mul(1000);
        match presence.sample(moves.ground().clock_ms(), asked.1 || used, idle_ms) {
            Some(true) => arrives(&moves),
            Some(false) => {
                moves
                    .ground()
                    .events()
                    .add(None, "owner", "Nobody sits before this node any more");
                follow(&moves, false);
            }
            None => {}
        }
    }
}

fn arrives(moves: &Arc<Moves>) {
    moves.ground().events().add(
        None,
        "owner",
        "Its owner sits before this node: guests leave",
    );
    follow(moves, true);
    let moves = Arc::clone(moves);
    tokio::spawn(async move {
        let (answers, _unheard) = unbounded_channel();
        evacuation::clear(&moves, &answers, Orders::refuses).await;
    });
}

fn follow(moves: &Moves, owner: bool) {
    let told = moves.host().change_orders(|orders| orders.owner = owner);
    if let Err(error) = told {
        tracing::warn!(%error, "whether the owner is here");
    }
}

/// Whether one of these terminals was used a moment ago.
fn terminals_are_used(terminals: &[PathBuf], now: SystemTime) -> bool {
    let recent = |path: &PathBuf| {
        let Ok(about) = std::fs::metadata(path) else {
            return false;
        };
        let seconds = u64::try_from(about.atime()).unwrap_or(0);
        let used = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        now.duration_since(used).is_ok_and(|ago| ago <= STEP)
    };
    terminals
        .iter()
        .flat_map(|pattern| matching(pattern))
        .any(|path| recent(&path))
}

/// The files that a pattern names: its last part may end with a `*`.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let Some(beginning) = name.as_deref().and_then(|name| name.strip_suffix('*')) else {
        return vec![pattern.to_owned()];
    };
    let directory = pattern.parent().unwrap_or(Path::new("/"));
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| {
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            name.is_some_and(|name| name.starts_with(beginning))
        })
        .collect()
}

/// Whether logind considers somebody at this machine's seat active; false if there is no logind.
async fn seat_is_active() -> bool {
    if !Path::new(LOGIND).is_dir() {
        return false;
    }
    let words = [
        "show-seat",
        "seat0",
        "--property=ActiveSession",
        "--property=IdleHint",
    ];
    let mut command = tokio::process::Command::new("loginctl");
    let asked = command
        .args(words)
        .env("PATH", SYSTEMS_PROGRAMS)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output();
    let Ok(Ok(told)) = tokio::time::timeout(ASK, asked).await else {
        return false;
    };
    is_active(&String::from_utf8_lossy(&told.stdout))
}

fn is_active(told: &str) -> bool {
    let field = |name: &str| told.lines().find_map(|line| line.strip_prefix(name));
    let somebody = field("ActiveSession=").is_some_and(|session| !session.is_empty());
    somebody && field("IdleHint=") == Some("no")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_here_until_nothing_was_done_for_a_while() {
        let mut presence = Presence::default();
        assert_eq!(presence.sample(0, false, 1000), None);
        assert_eq!(presence.sample(100, true, 1000), Some(true));
        assert_eq!(presence.sample(200, true, 1000), None);
        assert_eq!(presence.sample(1199, false, 1000), None);
        assert_eq!(presence.sample(1200, false, 1000), Some(false));
        assert_eq!(presence.sample(1300, true, 0), Some(true));
        assert_eq!(presence.sample(1301, false, 0), Some(false));
    }

    #[test]
    fn logind_is_understood() {
        for (told, active) in [
            ("ActiveSession=2\nIdleHint=no\n", true),
            ("ActiveSession=2\nIdleHint=yes\n", false),
            ("ActiveSession=\nIdleHint=no\n", false),
            ("Seat not found", false),
        ] {
            assert_eq!(is_active(told), active, "{told}");
        }
    }

    #[test]
    fn terminals_are_found_by_the_beginning_of_their_names() {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["tty1", "tty10", "tty2"] {
            std::fs::write(directory.path().join(name), "").expect("written");
        }
        let pattern = |name: &str| directory.path().join(name);
        assert_eq!(matching(&pattern("tty1*")).len(), 2);
        assert_eq!(matching(&pattern("tty2")), [pattern("tty2")]);
        let now = SystemTime::now();
        assert!(terminals_are_used(&[pattern("tty*")], now));
        assert!(!terminals_are_used(
            &[pattern("tty*")],
            now + Duration::from_secs(60)
        ));
        assert!(!terminals_are_used(
            &[pattern("none*"), pattern("none")],
            now
        ));
    }
}
