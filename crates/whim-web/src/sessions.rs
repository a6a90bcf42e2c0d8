//! Who may see the page: links that work once, and the sessions that they open.
//!
//! Links and sessions are known by secrets, of which only a digest is kept. The time in milliseconds and random
//! bytes are passed in, so that this module needs neither a clock nor a source of randomness.

use std::collections::HashMap;
use std::fmt::Write as _;
use thiserror::Error;

/// A link is good for five minutes, in milliseconds.
pub const LINK_LASTS: u64 = 5 * 60_000;
/// A session ends after this long without a request, and after this long in any case, in milliseconds.
pub const IDLE_LASTS: u64 = 60 * 60_000;
pub const SESSION_LASTS: u64 = 12 * 60 * 60_000;
/// The most unopened links, and the most sessions, of one user; the oldest gives way to a new one.
pub const OF_USER_MAX: usize = 16;
/// The most of all users together; beyond that nobody gets another one.
pub const ALL_MAX: usize = 512;

/// Random bytes of a secret.
pub const SECRET: usize = 24;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum SessionError {
    #[error(
        "This link was used already, or is older than five minutes: 'whim web' gives another one"
    )]
    Link,
    #[error("This link is another user's: ask for your own by 'whim web'")]
    Foreign,
    #[error("Nobody is known here by this browser's cookie: open the link that 'whim web' gives")]
    Session,
    #[error(
        "{ALL_MAX} sessions are open already: wait until some of them have ended, or restart the daemon"
    )]
    Full,
}

/// The secret that a browser or a link presents; written as hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    #[must_use]
    pub fn new(chance: [u8; SECRET]) -> Self {
        let mut text = String::with_capacity(2 * SECRET);
        for byte in chance {
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }

    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// Logs show no secrets.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

type Digest = [u8; 32];

fn digest(text: &str) -> Digest {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let mut bytes = Digest::default();
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

#[derive(Clone, Debug)]
struct Entry<W> {
    who: W,
    uid: u32,
    since: u64,
    used: u64,
    token: Secret,
}

/// What is known of the session of a request.
#[derive(Clone, Debug)]
pub struct Known<W> {
    pub who: W,
    pub uid: u32,
    /// The token that its page sends along with each order; other pages do not know it.
    pub token: Secret,
}

/// The links and sessions of all users. `W` says who a user is, and with which rights.
#[derive(Debug)]
pub struct Sessions<W> {
    links: HashMap<Digest, Entry<W>>,
    sessions: HashMap<Digest, Entry<W>>,
}

impl<W> Default for Sessions<W> {
    fn default() -> Self {
        Self {
            links: HashMap::new(),
            sessions: HashMap::new(),
        }
    }
}

/// Makes room for one more of this user.
fn make_room<W>(entries: &mut HashMap<Digest, Entry<W>>, uid: u32) -> Result<(), SessionError> {
    let own = entries.iter().filter(|(_, entry)| entry.uid == uid);
    if own.clone().count() >= OF_USER_MAX {
        let oldest = own.min_by_key(|(_, entry)| entry.used);
        if let Some(digest) = oldest.map(|(digest, _)| *digest) {
            entries.remove(&digest);
        }
    }
    if entries.len() < ALL_MAX {
        Ok(())
    } else {
        Err(SessionError::Full)
    }
}

impl<W: Clone> Sessions<W> {
    fn forget_old(&mut self, now: u64) {
        self.links.retain(|_, link| now < link.since + LINK_LASTS);
        self.sessions.retain(|_, session| {
            now < session.used + IDLE_LASTS && now < session.since + SESSION_LASTS
        });
    }

    /// A link for this user, which can be opened once.
    ///
    /// # Errors
    /// [`SessionError::Full`].
    pub fn invite(
        &mut self,
        now: u64,
        uid: u32,
        who: W,
        chance: [u8; SECRET],
    ) -> Result<Secret, SessionError> {
        self.forget_old(now);
        make_room(&mut self.links, uid)?;
        let key = Secret::new(chance);
        let entry = Entry {
            who,
            uid,
            since: now,
            used: now,
            token: key.clone(),
        };
        self.links.insert(digest(key.text()), entry);
        Ok(key)
    }

    /// Opens a session by a link; `connected` is the user of the connection, where that can be known. A link
    /// stays valid for its owner if another user's connection presents it.
    ///
    /// # Errors
    /// [`SessionError::Link`], [`SessionError::Foreign`], [`SessionError::Full`].
    pub fn enter(
        &mut self,
        now: u64,
        key: &str,
        connected: Option<u32>,
        chance: [[u8; SECRET]; 2],
    ) -> Result<Secret, SessionError> {
        self.forget_old(now);
        let name = digest(key);
        let link = self.links.get(&name).ok_or(SessionError::Link)?;
        if connected.is_some_and(|uid| uid != link.uid) {
            return Err(SessionError::Foreign);
        }
        let uid = link.uid;
        make_room(&mut self.sessions, uid)?;
        let mut entry = self.links.remove(&name).ok_or(SessionError::Link)?;
        let [session, token] = chance.map(Secret::new);
        (entry.since, entry.used, entry.token) = (now, now, token);
        self.sessions.insert(digest(session.text()), entry);
        Ok(session)
    }

    /// Finds a session, which counts as used now.
    ///
    /// # Errors
    /// [`SessionError::Session`], also if it belongs to another user than the connection.
    pub fn known(
        &mut self,
        now: u64,
        session: &str,
        connected: Option<u32>,
    ) -> Result<Known<W>, SessionError> {
        self.forget_old(now);
        let found = self.sessions.get_mut(&digest(session));
        let found = found.filter(|found| connected.is_none_or(|uid| uid == found.uid));
        let found = found.ok_or(SessionError::Session)?;
        found.used = now;
        Ok(Known {
            who: found.who.clone(),
            uid: found.uid,
            token: found.token.clone(),
        })
    }

    /// Ends a session; true if there was one.
    pub fn leave(&mut self, session: &str) -> bool {
        self.sessions.remove(&digest(session)).is_some()
    }

    /// Whether anybody has a link or a session.
    pub fn is_empty(&mut self, now: u64) -> bool {
        self.forget_old(now);
        self.links.is_empty() && self.sessions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chance(number: usize) -> [u8; SECRET] {
        let mut bytes = [0; SECRET];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn two(number: usize) -> [[u8; SECRET]; 2] {
        [chance(number), chance(number + 1)]
    }

    #[test]
    fn a_link_opens_one_session() {
        let mut sessions = Sessions::default();
        let key = sessions.invite(0, 7, "seven", chance(1)).expect("room");
        let session = sessions
            .enter(10, key.text(), Some(7), two(10))
            .expect("its own");
        let known = sessions.known(20, session.text(), Some(7)).expect("open");
        assert_eq!((known.who, known.uid), ("seven", 7));
        assert_ne!(known.token, session);
        let again = sessions.enter(30, key.text(), Some(7), two(20));
        assert_eq!(again, Err(SessionError::Link));
        assert!(sessions.leave(session.text()) && !sessions.leave(session.text()));
        let ended = sessions.known(40, session.text(), Some(7));
        assert_eq!(ended.err(), Some(SessionError::Session));
        assert!(sessions.is_empty(40));
    }

    #[test]
    fn a_link_is_its_owner_s_alone() {
        let mut sessions = Sessions::default();
        let key = sessions.invite(0, 7, (), chance(1)).expect("room");
        let foreign = sessions.enter(1, key.text(), Some(8), two(10));
        assert_eq!(foreign, Err(SessionError::Foreign));
        let session = sessions
            .enter(2, key.text(), Some(7), two(20))
            .expect("it is still good");
        assert!(sessions.known(3, session.text(), Some(8)).is_err());
        assert!(sessions.known(3, session.text(), None).is_ok());
    }

    #[test]
    fn links_and_sessions_grow_old() {
        let mut sessions = Sessions::default();
        let key = sessions.invite(0, 7, (), chance(1)).expect("room");
        let late = sessions.enter(LINK_LASTS, key.text(), None, two(10));
        assert_eq!(late, Err(SessionError::Link));
        let key = sessions.invite(0, 7, (), chance(2)).expect("room");
        let session = sessions.enter(0, key.text(), None, two(20)).expect("fresh");
        let text = session.text();
        assert!(sessions.known(IDLE_LASTS - 1, text, None).is_ok());
        assert!(sessions.known(2 * IDLE_LASTS - 1, text, None).is_err());
        let key = sessions.invite(0, 7, (), chance(3)).expect("room");
        let session = sessions.enter(0, key.text(), None, two(30)).expect("fresh");
        for now in (0..SESSION_LASTS).step_by(30 * 60_000) {
            assert!(sessions.known(now, session.text(), None).is_ok(), "{now}");
        }
        let over = sessions.known(SESSION_LASTS, session.text(), None);
        assert_eq!(over.err(), Some(SessionError::Session));
    }

    #[test]
    fn nobody_has_all_of_them() {
        let mut sessions = Sessions::default();
        let mut count = 0;
        let first = sessions.invite(0, 7, (), chance(0)).expect("room");
        for number in 1..=OF_USER_MAX {
            let now = u64::try_from(number).expect("small");
            sessions.invite(now, 7, (), chance(number)).expect("room");
            count = number;
        }
        // This was one link more than a user may have, so the oldest is gone.
        let gone = sessions.enter(50, first.text(), None, two(5000));
        assert_eq!(gone, Err(SessionError::Link));
        let mut full = None;
        for uid in 100..2000 {
            count += 1;
            if let Err(error) = sessions.invite(60, uid, (), chance(count)) {
                full = Some(error);
                break;
            }
        }
        assert_eq!(full, Some(SessionError::Full));
        assert_eq!(sessions.links.len(), ALL_MAX);
        assert!(
            sessions
                .invite(60 + LINK_LASTS, 9, (), chance(9999))
                .is_ok()
        );
    }

    #[test]
    fn secrets_are_not_printed() {
        let secret = Secret::new(chance(0x1234));
        assert_eq!(secret.text().len(), 2 * SECRET);
        assert!(!format!("{secret:?}").contains(secret.text()));
    }
}
