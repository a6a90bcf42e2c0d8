//! How often programs are moved: less often than anybody would notice.
//!
//! There are three limits, and each alone ends ping-pong:
//!
//! - *Of a program.* It may move so many times an hour, counted for each cause by itself. A program that has
//!   come home for its calls stays there for a while, and longer after each return. Otherwise a program that
//!   reads and computes in turns of seconds would be sent away and called home in each turn.
//! - *Of a node.* Moves for load answer news: a program or a node that has come or gone. Each piece of news
//!   allows one move, for [`Pace::NEWS_LASTS`]; without any there is one move a minute. Loads that swing by
//!   themselves are no news, so a cluster whose programs stay the same comes to rest.
//! - *At once.* Only so many moves go on at the same time, so that what is known of the nodes keeps up.
//!
//! When memory runs out, only the last limit holds, because a program that does not go is killed.

use crate::Millis;
use std::collections::{HashMap, VecDeque};
use whim_journey::cause::Cause;

/// The most moves of a program in an hour for this cause; `None`: any number.
#[must_use]
pub fn most(cause: Cause) -> Option<usize> {
    match counts_as(cause) {
        Cause::Load => Some(6),
        Cause::Calls | Cause::Terminal => Some(12),
        // Moves for lack of memory, or ordered by somebody.
        _ => None,
    }
}

/// Turns count as moves for load.
fn counts_as(cause: Cause) -> Cause {
    if cause == Cause::Turn {
        Cause::Load
    } else {
        cause
    }
}

/// An hour, in milliseconds.
const HOUR: Millis = 3_600_000;

/// What has been moved lately.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    moves: HashMap<u64, VecDeque<(Millis, Cause)>>,
    /// When each unanswered piece of news came.
    news: VecDeque<Millis>,
    /// When the last move that answered no news was begun.
    unasked: Option<Millis>,
}

impl Pace {
    /// News that no move has answered within this time no longer counts, in milliseconds.
    pub const NEWS_LASTS: Millis = 25_000;
    /// Time between two moves for load that answer no news, in milliseconds.
    pub const UNASKED_EVERY: Millis = 60_000;
    /// Moves that go on at the same time.
    pub const AT_ONCE: usize = 4;
    /// How long a program that has come home for its calls stays, in milliseconds: after the first, the second
    /// and each further return within an hour. So there are hardly more than three returns an hour.
    pub const STAYS: [Millis; 3] = [5_000, 300_000, HOUR];
    /// The most news that is kept: even a thousand programs that begin at once are spread by fewer.
    const NEWS_MAX: usize = 256;

    /// A program or a node has come, or gone.
    pub fn news(&mut self, now: Millis) {
        self.news.push_back(now);
        if self.news.len() > Self::NEWS_MAX {
            self.news.pop_front();
        }
    }

    /// Whether this program has been moved for this cause as often in the last hour as it may be.
    #[must_use]
    pub fn is_spent(&self, now: Millis, process: u64, cause: Cause) -> bool {
        let lately = || self.lately(now, process, cause).count();
        most(cause).is_some_and(|most| lately() >= most)
    }

    /// The times at which this program was moved for this cause in the last hour.
    fn lately(&self, now: Millis, process: u64, cause: Cause) -> impl Iterator<Item = Millis> + '_ {
        let moves = self.moves.get(&process).into_iter().flatten();
        let same = moves.filter(move |(_, other)| counts_as(*other) == counts_as(cause));
        same.map(|(at, _)| *at).filter(move |at| at + HOUR > now)
    }

    /// Whether this program came home for its calls too short a time ago to be sent away for load.
    #[must_use]
    pub fn stays(&self, now: Millis, process: u64) -> bool {
        let returns = self.lately(now, process, Cause::Calls);
        let (count, last) = returns.fold((0, 0), |(count, _), at| (count + 1, at));
        let longest = Self::STAYS.len();
        let stays = Self::STAYS.iter().take(count.min(longest)).next_back();
        stays.is_some_and(|stays| last + stays > now)
    }

    /// Whether there is a piece of news that no move has answered.
    #[must_use]
    pub fn has_news(&self, now: Millis) -> bool {
        self.news.iter().any(|at| at + Self::NEWS_LASTS > now)
    }

    /// Whether this node may move a program for load now.
    #[must_use]
    pub fn allows(&self, now: Millis) -> bool {
        let unasked = self
            .unasked
            .is_none_or(|at| at + Self::UNASKED_EVERY <= now);
        unasked || self.has_news(now)
    }

    /// A move begins.
    pub fn note(&mut self, now: Millis, process: u64, cause: Cause) {
        let moves = self.moves.entry(process).or_default();
        moves.retain(|(at, _)| at + HOUR > now);
        moves.push_back((now, cause));
        if counts_as(cause) != Cause::Load {
            return;
        }
        self.news.retain(|at| at + Self::NEWS_LASTS > now);
        if self.news.pop_front().is_none() {
            self.unasked = Some(now);
        }
    }

    /// Forgets programs that have ended.
    pub fn retain(&mut self, lives: impl Fn(u64) -> bool) {
        self.moves.retain(|process, _| lives(*process));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_moved_so_often_an_hour_for_each_cause() {
        let mut pace = Pace::default();
        for minute in 0..6 {
            let now = minute * 60_000;
            assert!(!pace.is_spent(now, 7, Cause::Load), "{minute}");
            pace.note(now, 7, Cause::Load);
        }
        let now = 6 * 60_000;
        assert!(pace.is_spent(now, 7, Cause::Load));
        assert!(!pace.is_spent(now, 7, Cause::Calls) && !pace.is_spent(now, 8, Cause::Load));
        assert!(!pace.is_spent(HOUR, 7, Cause::Load));
        (0..100).for_each(|_| pace.note(now, 7, Cause::Memory));
        assert!(!pace.is_spent(now, 7, Cause::Memory));
    }

    #[test]
    fn who_came_home_for_its_calls_stays_longer_each_time() {
        let mut pace = Pace::default();
        pace.note(0, 7, Cause::Load);
        assert!(!pace.stays(1, 7));
        pace.note(10_000, 7, Cause::Calls);
        assert!(pace.stays(14_999, 7) && !pace.stays(15_000, 7) && !pace.stays(14_999, 8));
        pace.note(20_000, 7, Cause::Load);
        pace.note(30_000, 7, Cause::Calls);
        assert!(pace.stays(329_999, 7) && !pace.stays(330_000, 7));
        pace.note(400_000, 7, Cause::Calls);
        assert!(pace.stays(9_999 + HOUR, 7));
        // The first return is forgotten after an hour.
        assert!(!pace.stays(10_000 + HOUR, 7));
        (0..20).for_each(|_| pace.note(2 * HOUR, 7, Cause::Calls));
        assert!(pace.stays(3 * HOUR - 1, 7) && !pace.stays(3 * HOUR, 7));
    }

    #[test]
    fn who_reads_and_computes_by_turns_moves_six_times_an_hour() {
        let mut pace = Pace::default();
        let (mut at_home, mut moves) = (true, Vec::new());
        // The program is sent away when it may be, and is called home a second later.
        for now in (0..5 * HOUR).step_by(1_000) {
            if !at_home || !pace.stays(now, 7) {
                let cause = if at_home { Cause::Load } else { Cause::Calls };
                pace.note(now, 7, cause);
                moves.push(now);
                at_home = !at_home;
            }
        }
        let in_hour = |from: Millis| {
            moves
                .iter()
                .filter(|at| (from..from + HOUR).contains(at))
                .count()
        };
        let most = moves.iter().map(|from| in_hour(*from)).max();
        assert_eq!(most, Some(6), "{moves:?}");
    }

    #[test]
    fn each_piece_of_news_allows_a_move_and_otherwise_there_is_one_a_minute() {
        let mut pace = Pace::default();
        assert!(pace.allows(0));
        pace.note(0, 1, Cause::Load);
        assert!(!pace.allows(59_999) && pace.allows(60_000));
        pace.news(1_000);
        pace.news(2_000);
        pace.note(3_000, 2, Cause::Load);
        assert!(pace.allows(3_000));
        pace.note(3_000, 3, Cause::Load);
        assert!(!pace.allows(3_000));
        pace.news(10_000);
        assert!(pace.allows(34_999) && !pace.allows(35_000));
    }

    #[test]
    fn the_dead_are_forgotten() {
        let mut pace = Pace::default();
        (0..6).for_each(|_| pace.note(0, 1, Cause::Load));
        pace.retain(|process| process != 1);
        assert!(!pace.is_spent(0, 1, Cause::Load) && pace.moves.is_empty());
    }
}
