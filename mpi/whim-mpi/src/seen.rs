//! How many bytes a view shows of a file of some length.
//!
//! ROMIO, which reads the files of MPICH, says of a view with gaps that it has read as much as was asked for, also
//! beyond the file's end.

/// What a rank sees of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    All,
    /// From where on, a block, and the distance of two.
    Blocks(u64, u64, u64),
    /// From where on, the bytes of an element, and of each side its length, the part's length and its start.
    Part(u64, u64, Vec<[u64; 3]>),
}

impl Seen {
    /// The bytes that can be seen of a file of this length. Sides and distances are not 0.
    pub(crate) fn of(&self, length: u64) -> u64 {
        match self {
            Self::All => length,
            Self::Blocks(displacement, block, stride) => {
                let rest = length.saturating_sub(*displacement);
                (rest / stride).saturating_mul(*block) + (rest % stride).min(*block)
            }
            Self::Part(displacement, element, sides) => {
                let rest = length.saturating_sub(*displacement);
                let (whole, part) = extents(*element, sides);
                (rest / whole).saturating_mul(part) + within(rest % whole, *element, sides)
            }
        }
    }
}

/// The bytes of an array, and those of its part.
fn extents(element: u64, sides: &[[u64; 3]]) -> (u64, u64) {
    sides
        .iter()
        .fold((element, element), |(whole, seen), [side, part, _]| {
            (whole.saturating_mul(*side), seen.saturating_mul(*part))
        })
}

/// The bytes that can be seen of the first ones of an array.
fn within(bytes: u64, element: u64, sides: &[[u64; 3]]) -> u64 {
    let Some(([_, part, start], inner)) = sides.split_first() else {
        return bytes.min(element);
    };
    let (whole, seen) = extents(element, inner);
    let bytes = bytes.saturating_sub(start.saturating_mul(whole));
    match bytes / whole {
        rows if rows >= *part => part.saturating_mul(seen),
        rows => rows * seen + within(bytes % whole, element, inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, by asking each byte.
    fn counted(length: u64, is_seen: impl Fn(u64) -> bool) -> u64 {
        (0..length).filter(|place| is_seen(*place)).count() as u64
    }

    #[test]
    fn blocks_are_counted_as_by_hand() {
        for length in 0..60 {
            let wanted = counted(length, |place| place >= 7 && (place - 7) % 10 < 3);
            assert_eq!(Seen::Blocks(7, 3, 10).of(length), wanted, "{length} bytes");
            assert_eq!(Seen::All.of(length), length);
        }
    }

    #[test]
    fn parts_are_counted_as_by_hand() {
        // 2 layers of 5 rows of 4 elements of 3 bytes.
        let sides = vec![[2, 1, 1], [5, 3, 1], [4, 2, 2]];
        let seen = Seen::Part(5, 3, sides);
        for length in 0..300 {
            let wanted = counted(length, |place| {
                let Some(place) = place.checked_sub(5) else {
                    return false;
                };
                let element = place % 120 / 3;
                let (layer, row, column) = (element / 20, element / 4 % 5, element % 4);
                layer == 1 && (1..4).contains(&row) && column >= 2
            });
            assert_eq!(seen.of(length), wanted, "{length} bytes");
        }
    }
}
