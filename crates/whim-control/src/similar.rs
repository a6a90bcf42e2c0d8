//! What somebody may have meant who made a slip in a name.

/// Longest word that is compared: slips in longer ones are found by reading.
const WORD_MAX: usize = 64;

/// A question that names the known word which is closest to `word`, to be put behind a sentence; empty where none is
/// close.
#[must_use]
pub fn question<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(word, known).map_or(String::new(), |meant| format!(" (did you mean {meant}?)"))
}

/// The known word that differs by the fewest slips: at most one in three letters, and not in all of them.
fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_MAX {
        return None;
    }
    let most = (word.chars().count() / 3).max(1);
    let near = known.into_iter().filter(|known| known.len() <= WORD_MAX);
    let near = near.map(|known| (slips(word, known), known));
    let near = near.filter(|(slips, known)| *slips <= most && *slips < known.chars().count());
    near.min().map(|(_, known)| known)
}

/// Letters that were left out, added, exchanged, or swapped with the next one.
fn slips(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, there) in other.iter().enumerate() {
            let exchanged = last[column] + usize::from(letter != there);
            let mut least = exchanged.min(last[column + 1] + 1).min(next[column] + 1);
            let swapped =
                row > 0 && column > 0 && *letter == other[column - 1] && one[row - 1] == *there;
            if swapped {
                least = least.min(before[column - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut last, next);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_counted() {
        for (one, other, count) in [
            ("", "abc", 3),
            ("fair", "fair", 0),
            ("fiar", "fair", 1),
            ("balance.fiar", "balance.fair", 1),
            ("maple", "apple", 2),
        ] {
            assert_eq!(
                (slips(one, other), slips(other, one)),
                (count, count),
                "{one} {other}"
            );
        }
    }

    #[test]
    fn who_is_close_is_asked_about() {
        let known = ["n1", "alpha", "balance.fair", "guests.max"];
        let said = |word| question(word, known);
        assert_eq!(said("aplha"), " (did you mean alpha?)");
        assert_eq!(said("balance.fairr"), " (did you mean balance.fair?)");
        assert_eq!(said("n11"), " (did you mean n1?)");
        assert_eq!(said("zebra"), "");
        assert_eq!(said(&"n1".repeat(1000)), "");
    }
}
