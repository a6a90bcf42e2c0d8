//! What somebody may have meant who made a slip in a name.

/// Longest word that is compared: slips in longer ones are found by reading.
const WORD_MAX: usize = 64;

/// A question that names the known word which is closest to `word`, to be put behind a sentence; empty where none is
/// close.
#[must_use]
pub fn question<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(word, known).map_or(String::new(), |meant| format!(" (did you mean {meant}?)"))
}

/// The known word that differs by the fewest slips, small letters and capitals being the same: at most one in three
/// letters. In shorter words any other one would be close; and names with other numbers are names of others.
fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_MAX {
        return None;
    }
    let letters = |text: &str| text.chars().count();
    let (small, number) = (word.to_lowercase(), digits(word));
    let near = known.into_iter().filter(|known| known.len() <= WORD_MAX);
    let near = near.filter(|known| digits(known) == number);
    let near = near.map(|known| (slips(&small, &known.to_lowercase()), known));
    let near = near.filter(|(slips, known)| {
        let most = letters(word).max(3) / 3;
        *slips == 0 || *slips <= most && letters(word).max(letters(known)) >= 3
    });
    near.min().map(|(_, known)| known)
}

/// The digits of a word, one that was pressed twice counting once.
fn digits(word: &str) -> Vec<char> {
    let mut digits: Vec<char> = word.chars().filter(char::is_ascii_digit).collect();
    digits.dedup();
    digits
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
        assert_eq!(said("N1"), " (did you mean n1?)");
        assert_eq!(said("Alhpa"), " (did you mean alpha?)");
        assert_eq!(said("zebra"), "");
        assert_eq!(said(&"n1".repeat(1000)), "");
    }

    /// Of `n9` the first node was proposed, whatever it was called.
    #[test]
    fn a_name_with_another_number_is_no_slip() {
        let known = ["n1", "n2", "gb", "node-7"];
        for word in ["n9", "n12", "n", "ga", "node-8", "node-77a"] {
            let said = question(word, known);
            let meant = if word == "node-77a" {
                " (did you mean node-7?)"
            } else {
                ""
            };
            assert_eq!(said, meant, "{word}");
        }
    }
}
