//! Which nodes are asked before a decision, where there are many.
//!
//! In a large cluster, what a node has heard of most others is old, and weighing all of them is work. So above
//! [`ALL_UP_TO`] nodes, a decision asks some nodes, chosen at random, for their present state. Their number
//! grows with the logarithm of the cluster's. That is fast, and it keeps nodes that decide at the same time
//! from choosing the same target, because the best of a few is a different node for each.
//!
//! Source: Backhand, as its authors' slides have it: "evaluate only O(log n) candidates: fast, and avoids
//! oscillations".

/// Up to this many nodes, all are weighed, by what was heard of them.
pub const ALL_UP_TO: usize = 256;
/// With more nodes, the number of those that are asked is this times the logarithm (to base 2) of their number.
const FACTOR: usize = 2;

/// How many of `all` nodes are asked: all of them up to `above`, which is usually [`ALL_UP_TO`].
#[must_use]
pub fn size(all: usize, above: usize) -> usize {
    if all <= above {
        return all;
    }
    let logarithm = usize::try_from(all.max(1).ilog2()).unwrap_or(usize::MAX);
    (FACTOR * (logarithm + 1)).min(all)
}

/// The indices of the nodes that are asked, among `all`, each at most once. `below(n)` gives a random number
/// below n.
#[must_use]
pub fn some(all: usize, above: usize, mut below: impl FnMut(usize) -> usize) -> Vec<usize> {
    let wanted = size(all, above);
    if wanted == all {
        return (0..all).collect();
    }
    // Floyd's algorithm (Bentley, Floyd 1987): each set is as likely as any other, and no list of all is
    // needed.
    let mut chosen = Vec::with_capacity(wanted);
    for last in all - wanted..all {
        let place = below(last + 1).min(last);
        let place = if chosen.contains(&place) { last } else { place };
        chosen.push(place);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn few_are_all_asked_and_of_many_some() {
        assert_eq!(some(ALL_UP_TO, ALL_UP_TO, |_| 0).len(), ALL_UP_TO);
        let asked = |all| size(all, ALL_UP_TO);
        assert_eq!(
            (asked(ALL_UP_TO + 1), asked(1024), asked(10_000)),
            (18, 22, 28)
        );
        assert!(some(0, 0, |_| 0).is_empty());
        assert_eq!((size(1, 0), size(3, 0), size(10, 4)), (1, 3, 8));
    }

    proptest! {
        #[test]
        fn nobody_is_asked_twice(
            all in 0..20_000usize, above in 0..300usize,
            numbers in proptest::collection::vec(any::<usize>(), 64),
        ) {
            let mut numbers = numbers.into_iter().cycle();
            let chosen = some(all, above, |limit| numbers.next().unwrap_or(0) % limit);
            prop_assert_eq!(chosen.len(), size(all, above));
            prop_assert!(chosen.iter().all(|place| *place < all));
            let different: HashSet<usize> = chosen.iter().copied().collect();
            prop_assert_eq!(different.len(), chosen.len());
        }
    }
}
