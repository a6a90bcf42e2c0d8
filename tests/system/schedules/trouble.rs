//! What was wrong when, and whether a program could have gone on.
//!
//! Home gives a host up when it has not heard of it for a lease (T2), and the host ends a guest when
//! it has not heard of home for two; the guest has stood still since a third of one (T1). That a
//! side was *silent* is all that either can know. Here, where everything is known, the promise is
//! about what caused the silence:
//!
//! - A *disturbance* of two sides is a time in which nothing gets from one to the other, because the
//!   link is cut or one of them stands still; or the moment in which a connection of theirs loses
//!   or reorders a frame, or breaks.
//! - Two live sides hear each other again within [`RECOVERY`] after a disturbance, unless another one
//!   begins meanwhile.
//! - So a program **could go on** at the moment when it is given up if, since the last word that was
//!   heard, there has been a stretch of `RECOVERY` without a disturbance, and both sides live. To
//!   give it up then is an error of the supervisors, whichever side does it.
//!
//! - Whoever stood still has not listened: a lease (two, at the host) of *listening* without a word has
//!   to be over before a side gives up.
//!
//! In the terms of a user: a disturbance of less than a quarter of the lease costs no program, nor do
//! many, if three quarters of a lease lie between one and the next. One that is longer may, and one of
//! a whole lease does (T2), because home must not wait for ever.
//!
//! Both sides excuse their own stalls (`whim_journey::lease::STALL`), which are no silence of the
//! other's. So home may give a host up long after that has ended the guest, two leases after the last
//! word; that is no error of home's. (A first attempt at this judgement looked at the last one and a
//! half leases before home's decision alone. It accused home in seeds 19286 and 100728, in which home
//! stood still and the link was cut for more than two leases.)

use super::world::LEASE;

/// Time in which two live sides find each other: a third of the lease until home takes silence for a
/// dead connection, a tenth until it looks at its clocks, a quarter between two tries to connect, and
/// a few trips.
pub(super) const RECOVERY: u64 = LEASE * 3 / 4;

#[derive(Clone, Copy, Debug)]
struct Disturbance {
    begin: u64,
    end: u64,
    /// The host with which home cannot talk; none: all of them.
    host: Option<usize>,
}

/// A pause as short as this is not noticed by who looks at its clock now and then.
const BLINK: u64 = LEASE / 4;

/// All that was wrong so far.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    list: Vec<Disturbance>,
    /// Node, begin and end.
    pauses: Vec<(usize, u64, u64)>,
}

impl Troubles {
    pub(super) fn add(&mut self, begin: u64, end: u64, host: Option<usize>) {
        self.list.push(Disturbance { begin, end, host });
    }

    pub(super) fn pause(&mut self, node: usize, begin: u64, end: u64) {
        self.pauses.push((node, begin, end));
    }

    /// For how long a node has listened between these moments.
    pub(super) fn listened(&self, node: usize, since: u64, now: u64) -> u64 {
        let mut listened = now - since;
        let mut counted = since;
        for (_, begin, end) in self.pauses.iter().filter(|(of, ..)| *of == node) {
            let (begin, end) = ((*begin).max(counted), (*end).min(now));
            if end > begin {
                listened -= (end - begin).saturating_sub(BLINK);
                counted = end;
            }
        }
        listened
    }

    /// Whether home and this host had time to find each other between these moments.
    pub(super) fn left_time(&self, since: u64, now: u64, host: usize) -> bool {
        let concerns =
            |one: &&Disturbance| one.host.is_none_or(|of| of == host) && one.end >= since;
        let mut list: Vec<_> = self.list.iter().filter(concerns).collect();
        list.sort_by_key(|one| one.begin);
        let mut quiet_since = since;
        for one in list.into_iter().filter(|one| one.begin <= now) {
            if one.begin >= quiet_since + RECOVERY {
                return true;
            }
            quiet_since = quiet_since.max(one.end);
        }
        now >= quiet_since + RECOVERY
    }
}

/// Tries of the definition itself.
pub(super) fn is_sound() -> bool {
    let mut troubles = Troubles::default();
    let short = RECOVERY - 1;
    let nothing = troubles.left_time(0, RECOVERY, 1) && !troubles.left_time(0, short, 1);
    troubles.add(short, short, Some(1));
    let struck = !troubles.left_time(0, LEASE, 1) && troubles.left_time(0, LEASE, 2);
    troubles.add(short, short + LEASE, None);
    let end = short + LEASE;
    let after = !troubles.left_time(0, end + short, 1) && troubles.left_time(0, end + RECOVERY, 1);
    troubles.pause(1, LEASE, 2 * LEASE);
    let listened = troubles.listened(1, 0, 2 * LEASE) == LEASE + BLINK
        && troubles.listened(0, 0, 2 * LEASE) == 2 * LEASE;
    nothing && struck && after && listened
}
