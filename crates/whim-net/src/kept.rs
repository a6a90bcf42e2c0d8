//! Frames that were sent and may have to be sent again. This module only stores them in order;
//! `whim_journey::session` decides which are kept.

use std::collections::VecDeque;

use whim_journey::frame::Kind;

/// Bytes of memory that an empty store keeps.
const IDLE_ROOM: usize = 256 << 10;

#[derive(Clone, Copy, Debug)]
struct Head {
    kind: Kind,
    epoch: u32,
    length: usize,
}

/// The frames, one after the other in one buffer, so that adding or removing one allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    heads: VecDeque<Head>,
    bytes: VecDeque<u8>,
    /// Number of the last frame that is no longer kept.
    forgotten: u64,
}

/// A frame that is to be written again; its payload may be in two pieces.
pub(crate) struct Again<'a> {
    pub(crate) kind: Kind,
    pub(crate) epoch: u32,
    pub(crate) parts: [&'a [u8]; 2],
}

impl Kept {
    pub(crate) fn push(&mut self, kind: Kind, epoch: u32, parts: &[&[u8]]) {
        let before = self.bytes.len();
        for part in parts {
            self.bytes.extend(*part);
        }
        self.heads.push_back(Head {
            kind,
            epoch,
            length: self.bytes.len() - before,
        });
    }

    pub(crate) fn forget(&mut self, through: u64) {
        let mut length = 0;
        while self.forgotten < through
            && let Some(head) = self.heads.pop_front()
        {
            length += head.length;
            self.forgotten += 1;
        }
        self.bytes.drain(..length);
        if self.bytes.is_empty() && self.bytes.capacity() > IDLE_ROOM {
            self.bytes.shrink_to(IDLE_ROOM);
        }
    }

    /// All frames from this number on, with their numbers.
    pub(crate) fn from(&self, first: u64) -> impl Iterator<Item = (u64, Again<'_>)> {
        let mut offset = 0;
        let all = self.heads.iter().zip(self.forgotten + 1..);
        all.filter_map(move |(head, number)| {
            let begin = offset;
            offset += head.length;
            (number >= first).then(|| (number, self.again(head, begin)))
        })
    }

    fn again(&self, head: &Head, begin: usize) -> Again<'_> {
        let (front, back) = self.bytes.as_slices();
        let end = begin + head.length;
        let cut = |slice: &'_ [u8], from: usize, to: usize| -> (usize, usize) {
            (from.min(slice.len()), to.min(slice.len()))
        };
        let (a, b) = cut(front, begin, end);
        let shift = front.len();
        let (c, d) = cut(back, begin.saturating_sub(shift), end.saturating_sub(shift));
        Again {
            kind: head.kind,
            epoch: head.epoch,
            parts: [&front[a..b], &back[c..d]],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_not_forgotten_comes_back_as_it_was(
            steps in prop::collection::vec((0usize..3000, 0u64..4), 1..200),
        ) {
            let mut kept = Kept::default();
            let mut all: Vec<Vec<u8>> = Vec::new();
            let mut forgotten = 0;
            for (length, done) in steps {
                let payload = vec![u8::try_from(all.len() % 251).expect("fits"); length];
                let (a, b) = payload.split_at(length / 3);
                kept.push(Kind::Data, 1, &[a, b]);
                all.push(payload);
                forgotten = (forgotten + done).min(all.len() as u64);
                kept.forget(forgotten);
                let first = forgotten + 1;
                let mut count = 0;
                for (number, again) in kept.from(first) {
                    prop_assert_eq!(number, first + count);
                    let place = usize::try_from(number - 1).expect("fits");
                    prop_assert_eq!(&again.parts.concat(), &all[place]);
                    count += 1;
                }
                prop_assert_eq!(forgotten + count, all.len() as u64);
            }
        }
    }
}
