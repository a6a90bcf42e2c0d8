//! Connected pixels: which touch each other, at a side or at a corner.

use pipt_raster::Size;

/// Pixels that are not among those that are connected have this number.
pub(super) const NONE: u32 = u32::MAX;

/// Regions of a part of an image, numbered from 0 in the order of their first pixels, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions {
    /// Of each pixel.
    pub numbers: Vec<u32>,
    pub count: usize,
}

impl Regions {
    /// Of the pixels for which `is_in` holds. A pixel is joined with those before it (A. Rosenfeld and J. Pfaltz,
    /// "Sequential Operations in Digital Picture Processing", Journal of the ACM 13, 1966).
    #[must_use]
    pub fn of(size: Size, is_in: impl Fn(usize) -> bool) -> Self {
        let (width, pixels) = (
            size.width as usize,
            size.width as usize * size.height as usize,
        );
        let mut sets = Sets::default();
        let mut numbers = vec![NONE; pixels];
        for place in (0..pixels).filter(|place| is_in(*place)) {
            let (x, is_below) = (place % width, place >= width);
            let before = [
                (x > 0).then(|| place - 1),
                (is_below && x > 0).then(|| place - width - 1),
                is_below.then(|| place - width),
                (is_below && x + 1 < width).then(|| place + 1 - width),
            ];
            for before in before.into_iter().flatten() {
                let other = numbers[before];
                if other != NONE {
                    numbers[place] = match numbers[place] {
                        NONE => other,
                        own => sets.join(own, other),
                    };
                }
            }
            if numbers[place] == NONE {
                numbers[place] = sets.add();
            }
        }
        let mut dense = vec![NONE; sets.parents.len()];
        let mut count = 0;
        for number in numbers.iter_mut().filter(|number| **number != NONE) {
            let root = sets.root(*number) as usize;
            if dense[root] == NONE {
                dense[root] = count;
                count += 1;
            }
            *number = dense[root];
        }
        Self {
            numbers,
            count: count as usize,
        }
    }
}

/// Sets that are joined (B. Galler and M. Fisher, "An Improved Equivalence Algorithm", Communications of the ACM 7, 1964).
#[derive(Clone, Debug, Default)]
pub(super) struct Sets {
    /// Of each member another one of its set; itself at the root.
    parents: Vec<u32>,
}

impl Sets {
    /// A new member, alone in its set.
    pub(super) fn add(&mut self) -> u32 {
        let number = u32::try_from(self.parents.len()).unwrap_or(NONE);
        self.parents.push(number);
        number
    }

    /// The member that stands for the set of this one.
    pub(super) fn root(&mut self, member: u32) -> u32 {
        let mut at = member;
        while self.parents[at as usize] != at {
            // Each is hung one higher, so that ways stay short.
            let above = self.parents[self.parents[at as usize] as usize];
            self.parents[at as usize] = above;
            at = above;
        }
        at
    }

    /// Makes one set of two; gives its root.
    pub(super) fn join(&mut self, one: u32, other: u32) -> u32 {
        let (one, other) = (self.root(one), self.root(other));
        let (first, second) = (one.min(other), one.max(other));
        self.parents[second as usize] = first;
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same by spreading from each pixel.
    fn spread(size: Size, is_in: &[bool]) -> Regions {
        let (width, height) = (size.width as usize, size.height as usize);
        let mut numbers = vec![NONE; is_in.len()];
        let mut count = 0;
        for first in 0..is_in.len() {
            if !is_in[first] || numbers[first] != NONE {
                continue;
            }
            let mut waiting = vec![first];
            while let Some(place) = waiting.pop() {
                if numbers[place] != NONE {
                    continue;
                }
                numbers[place] = count;
                let (x, y) = (place % width, place / width);
                let near = |at: usize, end: usize| at.saturating_sub(1)..(at + 2).min(end);
                for y in near(y, height) {
                    waiting.extend(
                        near(x, width)
                            .map(|x| y * width + x)
                            .filter(|at| is_in[*at]),
                    );
                }
            }
            count += 1;
        }
        Regions {
            numbers,
            count: count as usize,
        }
    }

    proptest! {
        #[test]
        fn regions_are_what_can_be_reached(is_in in proptest::collection::vec(any::<bool>(), 7 * 9)) {
            let size = Size::new(9, 7);
            prop_assert_eq!(Regions::of(size, |place| is_in[place]), spread(size, &is_in));
        }
    }
}
