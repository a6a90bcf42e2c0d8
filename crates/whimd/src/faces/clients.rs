//! Who is connected to the control socket: everybody may connect, and nobody may keep others from it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::settings::CLIENTS_OF_USER_MAX;

/// Connections of all users together. Those of root and of administrators come on top, so that they can
/// still see who has taken all the others.
pub(crate) const CLIENTS_MAX: usize = 512;
/// So many connections of each user are admitted even beyond that limit, so that four users together
/// keep nobody out.
const FIRST_OF_USER: usize = 2;
/// How many connections are admitted beyond that limit in all, because a user may have thousands of uids
/// (subuid(5)).
const FIRST_MAX: usize = 512;

/// For how long the group of administrators is taken to have the number that it was found to have, and for how long it
/// is taken to be missing: somebody may be about to make it.
const FOUND_HOLDS: Duration = Duration::from_secs(10);
const MISSING_HOLDS: Duration = Duration::from_secs(1);

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ClientError {
    #[error(
        "User {uid} has {CLIENTS_OF_USER_MAX} connections to the daemon already: wait until some of those commands have ended"
    )]
    User { uid: u32 },
    #[error(
        "{CLIENTS_MAX} commands are connected to the daemon already: wait until some of them have ended"
    )]
    All,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_user: HashMap<u32, usize>,
}

/// The connections that there are.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    counts: Mutex<Counts>,
    pub(crate) administrators: Administrators,
}

/// The number of the group of administrators. To look it up takes dozens of calls, or a server, and each command waits
/// for that: it is done once in a while. Who belongs to the group is asked of the kernel each time.
#[derive(Debug, Default)]
pub(crate) struct Administrators {
    found: Mutex<Option<(Instant, Option<u32>)>>,
}

impl Administrators {
    /// The number; `None` if there is no such group.
    pub(crate) fn gid(&self, now: Instant, look: impl FnOnce() -> Option<u32>) -> Option<u32> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |gid: Option<u32>| gid.map_or(MISSING_HOLDS, |_| FOUND_HOLDS);
        match *found {
            Some((at, gid)) if now < at + holds(gid) => gid,
            _ => {
                let gid = look();
                *found = Some((now, gid));
                gid
            }
        }
    }
}

/// The place of one connection; dropped when it ends.
#[derive(Debug)]
pub(crate) struct Place {
    clients: Arc<Clients>,
    uid: Option<u32>,
}

impl Clients {
    /// A place for one more connection.
    ///
    /// # Errors
    /// This user, or all of them together, have as many as they may.
    pub(crate) fn admit(self: &Arc<Self>, uid: u32, admin: bool) -> Result<Place, ClientError> {
        let clients = Arc::clone(self);
        if admin {
            return Ok(Place { clients, uid: None });
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let own = counts.by_user.get(&uid).copied().unwrap_or(0);
        let room = match own < FIRST_OF_USER {
            true => CLIENTS_MAX + FIRST_MAX,
            false => CLIENTS_MAX,
        };
        if counts.all >= room {
            return Err(ClientError::All);
        }
        if own >= CLIENTS_OF_USER_MAX {
            return Err(ClientError::User { uid });
        }
        counts.by_user.insert(uid, own + 1);
        counts.all += 1;
        drop(counts);
        Ok(Place {
            clients,
            uid: Some(uid),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(uid) = self.uid else {
            return;
        };
        let counts = self.clients.counts.lock();
        let mut counts = counts.unwrap_or_else(PoisonError::into_inner);
        counts.all = counts.all.saturating_sub(1);
        if let Some(own) = counts.by_user.get_mut(&uid) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                counts.by_user.remove(&uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_looked_up_again_after_a_while_and_sooner_if_it_is_missing() {
        let administrators = Administrators::default();
        let begun = Instant::now();
        let unwanted = || unreachable!("it is known");
        assert_eq!(administrators.gid(begun, || None), None);
        let soon = begun + MISSING_HOLDS / 2;
        assert_eq!(administrators.gid(soon, unwanted), None);
        let made = begun + MISSING_HOLDS;
        assert_eq!(administrators.gid(made, || Some(7)), Some(7));
        let later = made + FOUND_HOLDS / 2;
        assert_eq!(administrators.gid(later, unwanted), Some(7));
        assert_eq!(administrators.gid(made + FOUND_HOLDS, || Some(8)), Some(8));
    }

    #[test]
    fn clients_are_admitted_up_to_their_limits() {
        let clients = Arc::new(Clients::default());
        let mut places = Vec::new();
        for uid in 0..4 {
            for _ in 0..CLIENTS_OF_USER_MAX {
                places.push(clients.admit(uid, false).expect("below both limits"));
            }
            if uid < 3 {
                let error = clients.admit(uid, false).expect_err("one above its own");
                assert_eq!(error, ClientError::User { uid });
            }
        }
        assert_eq!(places.len(), CLIENTS_MAX);
        let error = clients.admit(3, false).expect_err("one above all");
        assert_eq!(error, ClientError::All);
        for _ in 0..FIRST_OF_USER {
            places.push(clients.admit(9, false).expect("nobody is kept out"));
        }
        let error = clients.admit(9, false).expect_err("one above all");
        assert_eq!(error, ClientError::All);
        for uid in 10.. {
            match clients.admit(uid, false) {
                Ok(place) => places.push(place),
                Err(ClientError::All) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(places.len(), CLIENTS_MAX + FIRST_MAX);
        let _admin = clients.admit(9, true).expect("root always");
        places.clear();
        let _again = clients.admit(9, false).expect("all have ended");
        assert_eq!(clients.counts.lock().expect("whole").by_user.len(), 1);
    }
}
