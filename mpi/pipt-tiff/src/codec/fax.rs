//! CCITT compression of black and white rows: ITU-T T.4 (Group 3) and T.6 (Group 4), and TIFF's run lengths
//! without ends of lines. The tables of codes are those of the crate `fax`; its decoders know neither
//! two-dimensional Group 3 nor bare run lengths.

use std::convert::Infallible;

use fax::BitReader;
use fax::maps::{Mode, black, mode, white};

/// A way to code rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fax {
    /// Bare run lengths; each row begins at a multiple of so many bits.
    Rows {
        align: u32,
    },
    Group3 {
        two_dimensional: bool,
    },
    Group4,
}

/// Bits, the highest of each byte first; zeros behind the last one.
struct Bits<'a> {
    data: &'a [u8],
    at: usize,
}

impl BitReader for Bits<'_> {
    type Error = Infallible;

    fn peek(&self, bits: u8) -> Option<u16> {
        let byte = |further: usize| self.data.get(self.at / 8 + further).copied().unwrap_or(0);
        let word = u32::from_be_bytes([byte(0), byte(1), byte(2), 0]) << (self.at % 8);
        u16::try_from(u64::from(word) >> (32 - u32::from(bits.min(16)))).ok()
    }

    fn consume(&mut self, bits: u8) -> Result<(), Infallible> {
        self.at += usize::from(bits);
        Ok(())
    }

    fn bits_to_byte_boundary(&self) -> u8 {
        u8::try_from(self.at.next_multiple_of(8) - self.at).unwrap_or(0)
    }
}

impl Bits<'_> {
    fn ended(&self) -> bool {
        self.at >= self.data.len() * 8
    }

    fn take(&mut self) -> bool {
        let bit = self.peek(1) == Some(1);
        self.at += 1;
        bit
    }

    /// Whether an end of a line is next: eleven zeros, with which no other code begins.
    fn line_ends(&self) -> bool {
        self.at + 11 <= self.data.len() * 8 && self.peek(11) == Some(0)
    }

    /// Skips the end of a line, if there is one: eleven or more zeros and a one.
    fn end_of_line(&mut self) -> bool {
        if self.peek(11) != Some(0) {
            return false;
        }
        while !self.ended() {
            if self.take() {
                return true;
            }
        }
        false
    }

    fn run(&mut self, is_black: bool) -> Result<u32, String> {
        let mut sum = 0_u32;
        loop {
            let code = if is_black {
                black::decode(self)
            } else {
                white::decode(self)
            };
            let code = code.ok_or("a run has a code that there is none of")?;
            sum = sum.saturating_add(code.into());
            if code < 64 {
                return Ok(sum);
            }
            if self.ended() {
                return Err("it ends within a run".to_owned());
            }
        }
    }
}

/// Where a row changes its colour, from white on: no place is smaller than the one before. Two changes at one
/// place are a run of no pixel. T.6 has none of these within a row, but some encoders write them and go by them in
/// the row below, so they have to stay.
#[derive(Default)]
struct Row {
    changes: Vec<u32>,
}

impl Row {
    fn change(&mut self, at: u32, width: u32) -> Result<(), String> {
        if at < width {
            self.changes.push(at);
        }
        // Runs of no pixel have no end by themselves.
        match self.changes.len() as u64 > 2 * (u64::from(width) + 32) {
            true => Err("a row has more runs than pixels".to_owned()),
            false => Ok(()),
        }
    }

    fn one_dimensional(&mut self, bits: &mut Bits<'_>, width: u32) -> Result<(), String> {
        self.changes.clear();
        let (mut at, mut is_black, mut before) = (0_u32, false, 1);
        while at < width {
            let run = bits.run(is_black)?;
            at = at.saturating_add(run);
            self.change(at, width)?;
            // A white and a black run of no pixel one after the other are none to libtiff either.
            if is_black && run == 0 && before == 0 {
                self.changes.truncate(self.changes.len().saturating_sub(2));
            }
            (before, is_black) = (run, !is_black);
        }
        Ok(())
    }

    /// False where the end of the block stands in the row's place.
    fn two_dimensional(
        &mut self,
        bits: &mut Bits<'_>,
        width: u32,
        above: &Self,
    ) -> Result<bool, String> {
        self.changes.clear();
        let (mut at, mut is_black, mut cursor) = (None, false, 0);
        while at.unwrap_or(0) < width {
            let (b1, b2) = above.next(&mut cursor, at, is_black, width);
            let from = at.unwrap_or(0);
            match mode::decode(bits).ok_or("a mode has a code that there is none of")? {
                Mode::Pass => at = Some(b2),
                Mode::Horizontal => {
                    let middle = from.saturating_add(bits.run(is_black)?);
                    let end = middle.saturating_add(bits.run(!is_black)?);
                    self.change(middle, width)?;
                    self.change(end, width)?;
                    at = Some(end);
                }
                Mode::Vertical(by) => {
                    let to = b1.checked_add_signed(by.into());
                    let to = to.filter(|to| *to >= from && *to <= width);
                    let to = to.ok_or("a row changes its colour outside of it")?;
                    self.change(to, width)?;
                    is_black = !is_black;
                    at = Some(to);
                }
                Mode::Extension => return Err("it has an extension (uncompressed mode)".to_owned()),
                Mode::EOF if at.is_none() => return Ok(false),
                Mode::EOF => return Err("it ends within a row".to_owned()),
            }
            if bits.ended() && at.unwrap_or(0) < width {
                return Err("it ends within a row".to_owned());
            }
        }
        Ok(true)
    }

    /// The next change to the other colour right of `at`, and the one behind it.
    fn next(&self, cursor: &mut usize, at: Option<u32>, is_black: bool, width: u32) -> (u32, u32) {
        let right = |place: u32| at.is_none_or(|at| place > at);
        while *cursor > 0 && right(self.changes[*cursor - 1]) {
            *cursor -= 1;
        }
        while self
            .changes
            .get(*cursor)
            .is_some_and(|place| !right(*place))
        {
            *cursor += 1;
        }
        let first = *cursor + usize::from((*cursor % 2 == 1) != is_black);
        let place = |index: usize| self.changes.get(index).copied().unwrap_or(width);
        (place(first), place(first + 1))
    }

    /// Black pixels as ones, from the highest bit of each byte on.
    fn paint(&self, out: &mut [u8], width: u32) {
        for run in self.changes.chunks(2) {
            let end = run.get(1).copied().unwrap_or(width);
            let (mut at, end) = (run[0] as usize, end as usize);
            while at < end {
                if at.is_multiple_of(8) && end - at >= 8 {
                    out[at / 8] = 0xff;
                    at += 8;
                } else {
                    out[at / 8] |= 0x80 >> (at % 8);
                    at += 1;
                }
            }
        }
    }
}

impl Fax {
    /// Rows of bits, of which ones are black.
    pub(super) fn decode(self, data: &[u8], width: u32, rows: u32) -> Result<Vec<u8>, String> {
        // A row takes one bit or more.
        if (data.len() as u64).saturating_mul(8) < rows.into() {
            return Err(format!("{} bytes cannot hold {rows} rows", data.len()));
        }
        let row_bytes = width.div_ceil(8) as usize;
        let mut out = Vec::new();
        let mut bits = Bits { data, at: 0 };
        let (mut above, mut row) = (Row::default(), Row::default());
        let is_group_3 = matches!(self, Self::Group3 { .. });
        let begins_bare = is_group_3 && !bits.line_ends();
        for number in 0..rows {
            if begins_bare && number == 1 && bits.line_ends() {
                // T.4 has one before each line; libtiff and tifffile skip what is before the first.
                return Err(
                    "its lines have ends between them, and none before the first".to_owned(),
                );
            }
            let go_on = self.row(&mut bits, width, &mut row, &above);
            if !go_on.map_err(|problem| format!("{problem}, in row {number}"))? {
                break;
            }
            let from = out.len();
            out.resize(from + row_bytes, 0);
            row.paint(&mut out[from..], width);
            std::mem::swap(&mut above, &mut row);
        }
        // The block may end before the rows do: those below are white.
        out.resize(row_bytes * rows as usize, 0);
        Ok(out)
    }

    /// Decodes one row; false where there is none any more.
    fn row(
        self,
        bits: &mut Bits<'_>,
        width: u32,
        row: &mut Row,
        above: &Row,
    ) -> Result<bool, String> {
        match self {
            Self::Group4 => row.two_dimensional(bits, width, above),
            Self::Rows { align } => {
                row.one_dimensional(bits, width)?;
                bits.at = bits.at.next_multiple_of(align as usize);
                Ok(true)
            }
            Self::Group3 { two_dimensional } => {
                let began = bits.end_of_line();
                let flat = !(two_dimensional && began) || bits.take();
                // Two ends in a row end the page.
                if bits.ended() || (began && bits.peek(11) == Some(0)) {
                    return Ok(false);
                }
                if flat {
                    row.one_dimensional(bits, width)?;
                    return Ok(true);
                }
                row.two_dimensional(bits, width, above)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fax::encoder::Encoder;
    use fax::{Color, VecWriter};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_come_back_from_group_4(
            width in 1_u32..70, rows in proptest::collection::vec(any::<[u8; 9]>(), 1..9),
        ) {
            let mut encoder = Encoder::new(VecWriter::new());
            let mut plain = Vec::new();
            for row in &rows {
                let pixel = |x: u32| row[x as usize / 8] & (0x80 >> (x % 8)) != 0;
                let colors = (0..width).map(|x| if pixel(x) { Color::Black } else { Color::White });
                encoder.encode_line(colors, width).expect("no error");
                let mut bytes = row[..width.div_ceil(8) as usize].to_vec();
                if width % 8 != 0 {
                    *bytes.last_mut().expect("a byte") &= !(0xff >> (width % 8));
                }
                plain.extend(bytes);
            }
            let data = encoder.finish().expect("no error").finish();
            let count = u32::try_from(rows.len()).expect("few");
            prop_assert_eq!(Fax::Group4.decode(&data, width, count), Ok(plain));
        }

        #[test]
        fn any_bytes_end(data in any::<Vec<u8>>(), width in 1_u32..100, rows in 0_u32..50) {
            let ways = [
                Fax::Group4, Fax::Rows { align: 8 }, Fax::Rows { align: 16 },
                Fax::Group3 { two_dimensional: false }, Fax::Group3 { two_dimensional: true },
            ];
            for way in ways {
                if let Ok(out) = way.decode(&data, width, rows) {
                    prop_assert_eq!(out.len(), (width.div_ceil(8) * rows) as usize);
                }
            }
        }
    }

    /// Bits as bytes, the highest first.
    fn packed(bits: &str) -> Vec<u8> {
        let bytes = bits.as_bytes().chunks(8).map(|bits| {
            let bit = |(at, bit): (usize, &u8)| u8::from(*bit == b'1') << (7 - at);
            bits.iter().enumerate().map(bit).sum()
        });
        bytes.collect()
    }

    const HORIZONTAL: &str = "001";
    const ZERO_BLACK: &str = "0000110111";

    /// What libtiff reads from these bytes.
    #[test]
    fn runs_of_no_pixel_count_in_the_row_below() {
        // White 3, black 0, white 2, black 3; then two changes straight below changes.
        let first = [HORIZONTAL, "1000", ZERO_BLACK, HORIZONTAL, "0111", "10"];
        let data = packed(&[&first.concat(), "11", "000000000001000000000001"].concat());
        assert_eq!(Fax::Group4.decode(&data, 8, 2), Ok(vec![0x07, 0x1f]));
    }

    /// libtiff and tifffile leave out the first line of such a file, so it is not theirs that would be read.
    #[test]
    fn lines_of_group_3_have_ends_before_all_or_none() {
        let (end, row) = ("000000000001", "1000110111");
        let way = Fax::Group3 {
            two_dimensional: false,
        };
        let decode = |bits: &[&str]| way.decode(&packed(&bits.concat()), 7, 2);
        assert_eq!(decode(&[end, row, end, row]), Ok(vec![0x18; 2]));
        assert_eq!(decode(&[row, row]), Ok(vec![0x18; 2]));
        let problem = decode(&[row, end, row, end]).expect_err("none before the first");
        assert!(problem.contains("none before the first"), "{problem}");
    }

    #[test]
    fn a_row_of_runs_of_no_pixel_ends() {
        let both = [HORIZONTAL, "00110101", ZERO_BLACK].concat();
        let data = packed(&both.repeat(1000));
        let problem = Fax::Group4.decode(&data, 8, 1).expect_err("no pixels");
        assert!(problem.contains("more runs than pixels"), "{problem}");
    }
}
