//! Which parts of the guest's address space show files of home, and which of their pages are here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use whim_model::{MappingFlags, MappingId, PAGE_SIZE, Range};

/// A page of a mapping in home's attic: mapping and page number in it.
pub type Page = (MappingId, u64);

/// A piece of the address space that shows a mapping of home's attic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub start: u64,
    pub end: u64,
    pub mapping: MappingId,
    /// Offset of `start` from the beginning of the mapping in the attic.
    pub offset: u64,
}

impl Piece {
    #[must_use]
    pub fn range(&self) -> Range {
        Range {
            start: self.start,
            end: self.end,
        }
    }

    /// The page at an address in the piece.
    #[must_use]
    pub fn page(&self, address: u64) -> Page {
        (
            self.mapping,
            (self.offset + (address - self.start)) / PAGE_SIZE,
        )
    }
}

/// How a page came here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSource {
    /// It was fetched; the hash of what home has.
    Fetched(u64),
    /// It came with the image: the guest's own copy, which home does not have.
    Own,
    /// It did not come. It is behind the end of its file, where home has nothing either.
    Nothing,
}

/// The table. Pieces are disjoint, and no two of them show the same page.
#[derive(Debug, Default)]
pub struct Table {
    pieces: BTreeMap<u64, Piece>,
    /// Where the pieces of each mapping begin.
    starts: BTreeSet<(MappingId, u64)>,
    pages: HashMap<Page, PageSource>,
    /// Whether a page was ever noted that is behind the end of its file: most guests never have one.
    has_nothing: bool,
    /// How many pieces show a mapping.
    shown: HashMap<MappingId, usize>,
    /// Mappings that no piece shows any more, until home is told.
    released: Vec<MappingId>,
    /// How often home's file has changed, for mappings for which it has.
    generations: HashMap<MappingId, u64>,
    /// Mappings: whether they may never become writable, and executable.
    restricted: HashMap<MappingId, (bool, bool)>,
    /// Mappings that begin with what another one shows, and where in that one: of what they were made longer.
    /// Known only of those that were made at this host.
    parents: HashMap<MappingId, (MappingId, u64)>,
    /// What a thread is made to move or to make longer just now. That is noted when it has, whatever the kernel
    /// tells of it.
    moving: Option<Range>,
}

impl Table {
    /// Adds a piece; nothing may be there.
    pub fn insert(&mut self, piece: Piece) {
        if piece.start < piece.end {
            self.pieces.insert(piece.start, piece);
            *self.shown.entry(piece.mapping).or_default() += 1;
            self.starts.insert((piece.mapping, piece.start));
        }
    }

    /// Pieces that overlap a range, cut to it, ascending.
    pub fn overlapping(&self, range: Range) -> impl Iterator<Item = Piece> {
        let first = self
            .pieces
            .range(..=range.start)
            .next_back()
            .map_or(range.start, |(start, _)| *start);
        self.pieces
            .range(first..range.end.max(first))
            .map(|(_, piece)| *piece)
            .filter(move |piece| piece.end > range.start && piece.start < range.end)
            .map(move |piece| cut(piece, range))
    }

    /// How often what a range shows does not go on from one piece to the next: how many mappings there may be
    /// at home beside the first. Nothing, if a part of the range shows no file.
    #[must_use]
    pub fn seams(&self, range: Range) -> Option<usize> {
        let (mut at, mut next, mut seams) = (range.start, None, 0);
        for piece in self.overlapping(range) {
            if piece.start != at {
                return None;
            }
            let (origin, offset) = self.origin(piece.mapping, piece.offset);
            seams += usize::from(next.is_some_and(|next| next != (origin, offset)));
            at = piece.end;
            next = Some((origin, offset.wrapping_add(piece.end - piece.start)));
        }
        (at == range.end && next.is_some()).then_some(seams)
    }

    /// A place of a mapping, as one of the mapping that was made longer.
    fn origin(&self, mapping: MappingId, offset: u64) -> (MappingId, u64) {
        let parent = self.parents.get(&mapping);
        parent.map_or((mapping, offset), |(origin, before)| {
            (*origin, before.wrapping_add(offset))
        })
    }

    /// Home has made one more mapping, which begins with what another one shows from this place on.
    pub fn note_longer(&mut self, mapping: MappingId, (of, offset): (MappingId, u64)) {
        let origin = self.origin(of, offset);
        self.parents.insert(mapping, origin);
    }

    /// The piece at an address.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<Piece> {
        let (_, piece) = self.pieces.range(..=address).next_back()?;
        (address < piece.end).then_some(*piece)
    }

    /// Adds a piece that the kernel has just mapped. What the table has there is there no more.
    pub fn show(&mut self, piece: Piece) {
        self.unmap(piece.range());
        self.insert(piece);
    }

    /// Takes out what is in a range; returns it.
    fn remove(&mut self, range: Range) -> Vec<Piece> {
        let taken: Vec<Piece> = self.overlapping(range).collect();
        for piece in &taken {
            let Some(whole) = self.at(piece.start) else {
                continue;
            };
            self.pieces.remove(&whole.start);
            if let Some(count) = self.shown.get_mut(&whole.mapping) {
                *count -= 1;
            }
            self.starts.remove(&(whole.mapping, whole.start));
            let before = Range {
                start: whole.start,
                end: piece.start,
            };
            let behind = Range {
                start: piece.end,
                end: whole.end,
            };
            self.insert(cut(whole, before));
            self.insert(cut(whole, behind));
        }
        taken
    }

    /// A range was unmapped.
    pub fn unmap(&mut self, range: Range) {
        let taken = self.remove(range);
        for piece in &taken {
            for (_, page, _) in self.here(piece) {
                self.pages.remove(&page);
            }
        }
        for piece in taken {
            if self.shown.get(&piece.mapping) == Some(&0) {
                self.release(piece.mapping);
            }
        }
    }

    /// The pages of a piece of which is known how they came, ascending, with their addresses.
    #[must_use]
    pub fn here(&self, piece: &Piece) -> Vec<(u64, Page, PageSource)> {
        let count = (piece.end - piece.start) / PAGE_SIZE;
        let at = |page: Page, arrival| {
            let offset = (page.1 * PAGE_SIZE).checked_sub(piece.offset)?;
            let address = piece.start + offset;
            (page.0 == piece.mapping && address < piece.end).then_some((address, page, arrival))
        };
        if count > self.pages.len() as u64 {
            // A mapping may be far longer than what has come of it.
            let all = self.pages.iter();
            let mut found: Vec<_> = all
                .filter_map(|(page, arrival)| at(*page, *arrival))
                .collect();
            found.sort_unstable_by_key(|(address, ..)| *address);
            return found;
        }
        let pages = (0..count).map(|index| piece.page(piece.start + index * PAGE_SIZE));
        pages
            .filter_map(|page| at(page, self.arrival(page)?))
            .collect()
    }

    /// Home's mapping is not needed any more.
    pub fn release(&mut self, mapping: MappingId) {
        self.shown.remove(&mapping);
        self.generations.remove(&mapping);
        self.parents.remove(&mapping);
        self.released.push(mapping);
    }

    /// What is to be told to home, at most so many.
    pub fn take_released(&mut self, most: usize) -> Vec<MappingId> {
        let count = self.released.len().min(most);
        self.released.drain(..count).collect()
    }

    /// The pieces that show a mapping.
    pub fn of(&self, mapping: MappingId) -> impl Iterator<Item = &Piece> {
        let starts = self.starts.range((mapping, 0)..=(mapping, u64::MAX));
        starts.filter_map(|(_, start)| self.pieces.get(start))
    }

    /// The file of a mapping has changed at home: what was asked for before is not to be placed.
    pub fn renew(&mut self, mapping: MappingId) {
        if self.shown.contains_key(&mapping) {
            *self.generations.entry(mapping).or_default() += 1;
        }
    }

    /// How often that was, so far.
    #[must_use]
    pub fn generation(&self, mapping: MappingId) -> u64 {
        self.generations.get(&mapping).copied().unwrap_or(0)
    }

    /// A thread is made to move a range or to make it longer. Until that is noted, an address without a piece may
    /// get one.
    pub fn begin_move(&mut self, from: Range) {
        self.moving = Some(from);
    }

    /// It has, and that is noted.
    pub fn end_move(&mut self) {
        self.moving = None;
    }

    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    /// The kernel tells that `mremap` has moved a range.
    pub fn moved(&mut self, from: u64, to: u64, length: u64) {
        if self.moving.is_none_or(|moving| moving.start != from) {
            self.relocate(from, to, length);
        }
    }

    /// The kernel tells that a range was unmapped. Of what was moved it tells that as well.
    pub fn unmapped(&mut self, range: Range) {
        if self.moving != Some(range) {
            self.unmap(range);
        }
    }

    /// Notes what is in a range at the place to which `mremap` has moved it.
    pub fn relocate(&mut self, from: u64, to: u64, length: u64) {
        let end = from.saturating_add(length);
        let taken = self.remove(Range { start: from, end });
        for piece in taken {
            let start = to + (piece.start - from);
            self.show(Piece {
                start,
                end: start + (piece.end - piece.start),
                ..piece
            });
        }
    }

    /// Where pages of a mapping are: pieces that show any of `length` bytes from `offset` on, cut to
    /// them.
    #[must_use]
    pub fn places(&self, mapping: MappingId, offset: u64, length: u64) -> Vec<Piece> {
        let starts = self.starts.range((mapping, 0)..=(mapping, u64::MAX));
        let shows = starts.filter_map(|(_, start)| self.pieces.get(start));
        let wanted = shows.filter_map(|piece| {
            let last = piece.offset + (piece.end - piece.start);
            let from = piece.offset.max(offset);
            let to = last.min(offset + length);
            (from < to).then(|| Piece {
                start: piece.start + (from - piece.offset),
                end: piece.start + (to - piece.offset),
                mapping,
                offset: from,
            })
        });
        wanted.collect()
    }

    /// Notes what a mapping may never become.
    pub fn restrict(&mut self, mapping: MappingId, flags: MappingFlags) {
        let rights = (flags.never_write, flags.never_execute);
        self.restricted.insert(mapping, rights);
    }

    /// Whether a mapping may never become writable, and executable. Of what another one was made longer by nobody
    /// here knows whether it may be executed; what is mapped privately may be written.
    #[must_use]
    pub fn restrictions(&self, mapping: MappingId) -> (bool, bool) {
        let known = self.restricted.get(&mapping).copied();
        known.unwrap_or((false, true))
    }

    /// Notes a page that is here now.
    pub fn note(&mut self, page: Page, arrival: PageSource) {
        self.has_nothing |= arrival == PageSource::Nothing;
        self.pages.insert(page, arrival);
    }

    /// Forgets a page: the guest has dropped it and wants it again.
    pub fn forget(&mut self, page: Page) {
        self.pages.remove(&page);
    }

    #[must_use]
    pub fn arrival(&self, page: Page) -> Option<PageSource> {
        self.pages.get(&page).copied()
    }

    /// The addresses of pages of a range that were behind the end of their file when they were asked for,
    /// ascending.
    #[must_use]
    pub fn behind_end(&self, address: u64, length: u64) -> Vec<u64> {
        if length == 0 || !self.has_nothing {
            return Vec::new();
        }
        let start = address & !(PAGE_SIZE - 1);
        let end = address.saturating_add(length);
        let end = end.checked_next_multiple_of(PAGE_SIZE).unwrap_or(end);
        let pieces = self.overlapping(Range { start, end });
        let pages = pieces.flat_map(|piece| {
            let addresses = (piece.start..piece.end).step_by(4096);
            addresses.map(move |at| (at, piece.page(at)))
        });
        pages
            .filter(|(_, page)| self.arrival(*page) == Some(PageSource::Nothing))
            .map(|(at, _)| at)
            .collect()
    }

    /// The parts of a range whose pages have not come yet, ascending, page aligned.
    #[must_use]
    pub fn missing(&self, address: u64, length: u64) -> Vec<Range> {
        if length == 0 || self.pieces.is_empty() {
            return Vec::new();
        }
        let start = address & !(PAGE_SIZE - 1);
        let end = address.saturating_add(length);
        let end = end.checked_next_multiple_of(PAGE_SIZE).unwrap_or(end);
        let mut found: Vec<Range> = Vec::new();
        for piece in self.overlapping(Range { start, end }) {
            for at in (piece.start..piece.end).step_by(4096) {
                if self.pages.contains_key(&piece.page(at)) {
                    continue;
                }
                match found.last_mut() {
                    Some(last) if last.end == at => last.end = at + PAGE_SIZE,
                    _ => found.push(Range {
                        start: at,
                        end: at + PAGE_SIZE,
                    }),
                }
            }
        }
        found
    }
}

fn cut(piece: Piece, range: Range) -> Piece {
    let start = piece.start.max(range.start);
    let end = piece.end.min(range.end);
    Piece {
        start,
        end,
        offset: piece.offset + (start.saturating_sub(piece.start)),
        ..piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAGE_SIZE;

    fn piece(start: u64, end: u64, mapping: u32, offset: u64) -> Piece {
        Piece {
            start: start * P,
            end: end * P,
            mapping: MappingId(mapping),
            offset: offset * P,
        }
    }

    fn range(start: u64, end: u64) -> Range {
        Range {
            start: start * P,
            end: end * P,
        }
    }

    #[test]
    fn what_does_not_go_on_is_counted() {
        let mut table = Table::default();
        table.insert(piece(10, 12, 1, 5));
        table.insert(piece(12, 13, 1, 7));
        assert_eq!(table.seams(range(10, 13)), Some(0));
        assert_eq!(table.seams(range(10, 14)), None);
        assert_eq!(table.seams(range(9, 13)), None);
        assert_eq!(table.seams(range(20, 21)), None);
        // Another file between two parts of one, which begin and end as one mapping would.
        table.show(piece(11, 12, 2, 0));
        assert_eq!(table.seams(range(10, 13)), Some(2));
        assert_eq!(table.seams(range(11, 13)), Some(1));
    }

    #[test]
    fn what_was_made_longer_goes_on() {
        let mut table = Table::default();
        table.insert(piece(10, 12, 1, 5));
        table.note_longer(MappingId(2), (MappingId(1), 5 * P));
        table.insert(piece(12, 13, 2, 2));
        table.note_longer(MappingId(3), (MappingId(2), P));
        table.insert(piece(13, 15, 3, 2));
        assert_eq!(table.seams(range(10, 15)), Some(0));
        table.unmap(range(13, 15));
        table.insert(piece(13, 15, 3, 2));
        assert_eq!(table.seams(range(10, 15)), Some(1));
    }

    #[test]
    fn a_hole_leaves_both_sides_with_their_offsets() {
        let mut table = Table::default();
        table.insert(piece(10, 20, 1, 5));
        assert_eq!(table.remove(range(13, 15)), [piece(13, 15, 1, 8)]);
        let left: Vec<Piece> = table.overlapping(range(0, 100)).collect();
        assert_eq!(left, [piece(10, 13, 1, 5), piece(15, 20, 1, 10)]);
        assert_eq!(table.at(14 * P), None);
        assert_eq!(
            table.at(15 * P).map(|p| p.page(16 * P)),
            Some((MappingId(1), 11))
        );
    }

    #[test]
    fn what_is_mapped_over_is_there_no_more() {
        let mut table = Table::default();
        table.insert(piece(10, 20, 1, 0));
        table.note((MappingId(1), 3), PageSource::Own);
        table.note((MappingId(1), 5), PageSource::Own);
        table.show(piece(12, 14, 2, 0));
        table.show(piece(13, 15, 3, 0));
        let here = [
            piece(10, 12, 1, 0),
            piece(12, 13, 2, 0),
            piece(13, 15, 3, 0),
            piece(15, 20, 1, 5),
        ];
        let all: Vec<Piece> = table.overlapping(range(0, 99)).collect();
        assert_eq!(all, here);
        assert_eq!(table.arrival((MappingId(1), 3)), None);
        assert_eq!(table.arrival((MappingId(1), 5)), Some(PageSource::Own));
        // What is moved there comes instead, and what nobody sees any more is home's again.
        table.relocate(15 * P, 12 * P, 5 * P);
        assert_eq!(table.take_released(9), [MappingId(2), MappingId(3)]);
        let all: Vec<Piece> = table.overlapping(range(0, 99)).collect();
        assert_eq!(all, [piece(10, 12, 1, 0), piece(12, 17, 1, 5)]);
    }

    #[test]
    fn what_is_made_to_move_is_noted_when_all_is_told() {
        let mut table = Table::default();
        table.insert(piece(10, 14, 1, 0));
        table.insert(piece(40, 42, 2, 0));
        table.begin_move(range(10, 14));
        table.moved(10 * P, 40 * P, 4 * P);
        table.unmapped(range(10, 14));
        // Another thread tells late that it has unmapped the place.
        table.unmapped(range(40, 44));
        assert_eq!(table.at(10 * P), Some(piece(10, 14, 1, 0)));
        assert!(table.is_moving());
        table.relocate(10 * P, 40 * P, 4 * P);
        table.end_move();
        let all: Vec<Piece> = table.overlapping(range(0, 99)).collect();
        assert_eq!(all, [piece(40, 44, 1, 0)]);
        // What stays where it is is not moved.
        table.begin_move(range(40, 44));
        table.relocate(40 * P, 40 * P, 4 * P);
        table.end_move();
        assert_eq!(table.at(40 * P), Some(piece(40, 44, 1, 0)));
        assert!(!table.is_moving());
        table.moved(40 * P, 60 * P, P);
        table.unmapped(range(40, 41));
        table.unmapped(range(41, 44));
        let all: Vec<Piece> = table.overlapping(range(0, 99)).collect();
        assert_eq!(all, [piece(60, 61, 1, 0)]);
    }

    #[test]
    fn a_moved_part_keeps_its_contents() {
        let mut table = Table::default();
        table.insert(piece(10, 20, 1, 0));
        table.relocate(12 * P, 40 * P, 4 * P);
        assert_eq!(
            table.at(41 * P).map(|p| p.page(41 * P)),
            Some((MappingId(1), 3))
        );
        assert_eq!(table.at(13 * P), None);
        assert_eq!(
            table.places(MappingId(1), P, 3 * P),
            [piece(11, 12, 1, 1), piece(40, 42, 1, 2)]
        );
    }

    #[test]
    fn a_mapping_is_given_back_when_no_piece_shows_it() {
        let mut table = Table::default();
        table.insert(piece(10, 20, 1, 0));
        table.note((MappingId(1), 2), PageSource::Own);
        table.note((MappingId(1), 7), PageSource::Own);
        table.unmap(range(11, 14));
        assert_eq!(table.arrival((MappingId(1), 2)), None, "it is unmapped");
        assert_eq!(table.arrival((MappingId(1), 7)), Some(PageSource::Own));
        table.relocate(10 * P, 40 * P, P);
        table.relocate(14 * P, 44 * P, 6 * P);
        assert_eq!(table.take_released(9), [], "two pieces show it");
        table.unmap(range(40, 41));
        assert_eq!(table.take_released(9), []);
        table.unmap(range(0, 99));
        assert_eq!(table.take_released(9), [MappingId(1)]);
        assert_eq!(table.take_released(9), []);
        (0..5).for_each(|id| table.release(MappingId(id)));
        assert_eq!(table.take_released(4).len(), 4);
        assert_eq!(table.take_released(4), [MappingId(4)]);
    }

    #[test]
    fn what_is_here_of_a_piece_is_found_however_long_it_is() {
        for end in [20, 1 << 40] {
            let mut table = Table::default();
            table.insert(piece(10, end, 1, 5));
            for (number, arrival) in [
                (9, PageSource::Own),
                (5, PageSource::Nothing),
                (4, PageSource::Own),
            ] {
                table.note((MappingId(1), number), arrival);
            }
            table.note((MappingId(2), 6), PageSource::Own);
            let whole = *table.of(MappingId(1)).next().expect("inserted");
            let here: Vec<_> = table.here(&whole);
            let page = |number| (MappingId(1), number);
            let expected = [
                (10 * P, page(5), PageSource::Nothing),
                (14 * P, page(9), PageSource::Own),
            ];
            assert_eq!(here, expected);
        }
    }

    #[test]
    fn generations_are_counted_for_what_is_shown() {
        let mut table = Table::default();
        table.insert(piece(10, 20, 1, 0));
        let (one, other) = (MappingId(1), MappingId(2));
        assert_eq!(table.generation(one), 0);
        table.renew(one);
        table.renew(one);
        // Home may name any mapping.
        table.renew(other);
        assert_eq!((table.generation(one), table.generation(other)), (2, 0));
        assert_eq!(table.of(one).count(), 1);
        assert_eq!(table.of(other).count(), 0);
    }

    #[test]
    fn missing_pages_are_those_that_never_came() {
        let mut table = Table::default();
        table.insert(piece(10, 20, 1, 0));
        table.note((MappingId(1), 2), PageSource::Own);
        assert_eq!(
            table.missing(11 * P + 7, 2 * P),
            [range(11, 12), range(13, 14)]
        );
        assert_eq!(table.missing(0, 5 * P), []);
        table.forget((MappingId(1), 2));
        assert_eq!(table.missing(12 * P, 1), [range(12, 13)]);
    }

    #[test]
    fn pages_behind_the_end_of_a_file_are_found() {
        let mut table = Table::default();
        table.insert(piece(10, 20, 1, 0));
        table.note((MappingId(1), 2), PageSource::Own);
        assert!(table.behind_end(0, 99 * P).is_empty());
        for number in [3, 4, 9] {
            table.note((MappingId(1), number), PageSource::Nothing);
        }
        assert_eq!(table.behind_end(0, 99 * P), [13 * P, 14 * P, 19 * P]);
        assert_eq!(table.behind_end(13 * P - 1, 2), [13 * P]);
        assert!(table.behind_end(11 * P, 2 * P).is_empty());
        assert!(table.behind_end(13 * P, 0).is_empty());
        table.forget((MappingId(1), 3));
        assert!(table.behind_end(13 * P, 1).is_empty());
    }
}
