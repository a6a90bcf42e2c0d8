//! What is made of how often each code occurs: numbers that are sums over the codes of a margin.

use super::{code, levels_of};
use crate::texture::histogram::Slots;
use crate::texture::moments::{self, Moment, Wanted};
use crate::texture::quantities::{Margin, Quantities};

/// Bits of a piece of a term: products with signed bytes are summed up.
const PIECE: u32 = 7;

/// Pieces of each of several numbers of a sum: 255 times as many bits fit 32.
const MOST_PIECES: u8 = 3;

/// The largest term that makes but one number.
const MOST_NARROW: u64 = 1 << 24;

/// What a plan wants of the counts.
pub(in crate::texture) struct Asked<'a> {
    pub levels: u32,
    pub symmetric: bool,
    pub quantities: &'a Quantities,
    /// The moments to make, and the row of the first one of them.
    pub wanted: &'a [Wanted],
    pub first_row: usize,
    /// Bits after the point of fixed-point terms.
    pub fraction: u32,
    /// Whether sums of logarithms have six bytes instead of four.
    pub fine: bool,
}

/// An integer of 32 bits of each window, and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Number {
    pub row: usize,
    /// What it is multiplied by and then added to the number before, which is of the same row.
    pub scale: Option<f64>,
}

/// The sum of a function of the codes: the bytes of fours of codes, from the highest piece to the lowest.
pub(in crate::texture) struct Sum {
    pub number: usize,
    pub pieces: Vec<Vec<[u8; 4]>>,
}

/// What the counts of a margin are made into. Codes are filled up to fours with what is never counted.
pub(in crate::texture) struct Recipe {
    /// Of each code of a margin: the pairs' codes, by their places, that it counts. None of pairs' own.
    pub(super) sources: Vec<Vec<usize>>,
    /// Pairs of equal levels, which count twice in a symmetric matrix, begin there.
    pub first_equal: usize,
    /// Whether each code is counted in two parts, of which the second ones come after all the first ones.
    pub halves: bool,
    /// The numbers: logarithms of six bytes make two, of which the second has the upper three.
    pub energy: Option<usize>,
    pub log: Option<usize>,
    pub most: Option<usize>,
    pub sums: Vec<Sum>,
}

/// All that is made of the counts of pairs' codes.
pub(super) struct Recipes {
    /// The codes that are counted, in fours.
    pub codes: Vec<u8>,
    /// Pairs' own last.
    pub all: Vec<Recipe>,
    pub numbers: Vec<Number>,
}

impl Recipes {
    pub(super) fn new(asked: &Asked<'_>) -> Self {
        let (codes, first_equal) = codes(asked);
        let mut recipes = Self {
            all: Vec::new(),
            numbers: Vec::new(),
            codes,
        };
        let counted = asked.quantities.margins();
        for margin in Margin::ALL.into_iter().rev() {
            let slots = counted.iter().find(|(of, _)| *of == margin);
            let slots = slots.map_or(Slots::default(), |(_, slots)| *slots);
            let moments = asked.wanted.iter().zip(asked.first_row..);
            let moments: Vec<_> = moments
                .filter(|(wanted, _)| margin_of(wanted.moment) == margin)
                .map(|(wanted, row)| (wanted.moment, row))
                .collect();
            if slots == Slots::default() && moments.is_empty() {
                continue;
            }
            let mut recipe = recipes.counts(margin, asked);
            if margin == Margin::Joint {
                recipe.first_equal = first_equal;
            }
            recipe.energy = slots.energy.map(|row| recipes.number(row, None));
            recipe.log = slots.log.map(|row| recipes.number(row, None));
            if let (Some(row), true) = (slots.log, asked.fine) {
                recipes.number(row, Some(f64::from(1 << 24)));
            }
            recipe.most = slots.most.map(|row| recipes.number(row, None));
            for (moment, row) in moments {
                let terms = recipes.terms(&recipe, moment, asked.fraction);
                recipe.sums.extend(recipes.sums(&terms, row));
            }
            recipes.all.push(recipe);
        }
        recipes
    }

    fn number(&mut self, row: usize, scale: Option<f64>) -> usize {
        self.numbers.push(Number { row, scale });
        self.numbers.len() - 1
    }

    /// Which codes of pairs a margin's codes count.
    fn counts(&self, margin: Margin, asked: &Asked<'_>) -> Recipe {
        let levels = asked.levels as usize;
        let halves = margin == Margin::First && asked.symmetric;
        let half = levels.next_multiple_of(4);
        let of = |place: usize| {
            let (first, second) = levels_of(self.codes[place])?;
            let (first, second) = (usize::from(first), usize::from(second));
            Some(match margin {
                Margin::Joint => [Some(place), None],
                Margin::Sum => [Some(first + second), None],
                Margin::Difference => [Some(first.abs_diff(second)), None],
                Margin::First if halves => [Some(first), Some(half + second)],
                Margin::First => [Some(first), None],
                Margin::Second => [Some(second), None],
            })
        };
        let mut sources: Vec<Vec<usize>> = Vec::new();
        if margin != Margin::Joint {
            for place in 0..self.codes.len() {
                for code in of(place).into_iter().flatten().flatten() {
                    let length = sources.len().max(code + 1).next_multiple_of(4);
                    sources.resize(length, Vec::new());
                    sources[code].push(place);
                }
            }
        }
        Recipe {
            first_equal: usize::MAX,
            sources,
            halves,
            energy: None,
            log: None,
            most: None,
            sums: Vec::new(),
        }
    }

    /// A moment's term of each code of a margin: all the pairs of one have the same.
    fn terms(&self, recipe: &Recipe, moment: Moment, fraction: u32) -> Vec<u64> {
        let of = |place: usize| {
            let pair = levels_of(self.codes[place]);
            pair.map_or(0, |pair| moments::term(moment, fraction, pair))
        };
        if recipe.sources.is_empty() {
            return (0..self.codes.len()).map(of).collect();
        }
        let firsts = recipe.sources.iter().map(|sources| sources.first());
        firsts
            .map(|first| first.map_or(0, |place| of(*place)))
            .collect()
    }

    /// One number, or one of the lower pieces and one of the others.
    fn sums(&mut self, terms: &[u64], row: usize) -> Vec<Sum> {
        let largest = terms.iter().copied().max().unwrap_or(0);
        let pieces = (u64::BITS - largest.leading_zeros()).div_ceil(PIECE).max(1);
        let piece = |piece: u32| {
            let byte = |term: &u64| (term >> (PIECE * piece)).to_le_bytes()[0] & 0x7f;
            let bytes: Vec<u8> = terms.iter().map(byte).collect();
            bytes.as_chunks().0.to_vec()
        };
        let pieces: Vec<Vec<[u8; 4]>> = (0..pieces).map(piece).collect();
        let length = if largest <= MOST_NARROW {
            pieces.len()
        } else {
            usize::from(MOST_PIECES)
        };
        let numbers = pieces.chunks(length).enumerate();
        let sums = numbers.map(|(order, pieces)| {
            let scale = f64::from(1 << (PIECE * u32::from(MOST_PIECES)));
            Sum {
                number: self.number(row, (order > 0).then_some(scale)),
                pieces: pieces.iter().rev().cloned().collect(),
            }
        });
        sums.collect()
    }
}

/// The codes in fours, and where those of equal levels begin if they count twice.
fn codes(asked: &Asked<'_>) -> (Vec<u8>, usize) {
    let levels = 0..u8::try_from(asked.levels).unwrap_or(u8::MAX);
    let mut codes = Vec::new();
    let first_equal = if asked.symmetric {
        let pairs = levels
            .clone()
            .flat_map(|large| (0..large).map(move |small| code(small, large)));
        codes.extend(pairs);
        fill_up(&mut codes);
        let first_equal = codes.len();
        codes.extend(levels.map(|level| code(level, level)));
        first_equal
    } else {
        let pairs = levels
            .clone()
            .flat_map(|first| levels.clone().map(move |second| code(first, second)));
        codes.extend(pairs);
        usize::MAX
    };
    fill_up(&mut codes);
    (codes, first_equal)
}

fn fill_up(codes: &mut Vec<u8>) {
    codes.resize(codes.len().next_multiple_of(4), super::NOTHING);
}

/// The margin with the fewest codes that tell a moment's terms apart.
const fn margin_of(moment: Moment) -> Margin {
    match moment {
        Moment::Count
        | Moment::Same
        | Moment::Difference(_)
        | Moment::InverseDifference
        | Moment::InverseSquare
        | Moment::InversePower(_) => Margin::Difference,
        Moment::Sum(_) | Moment::SumHigh(_) | Moment::SumLow(_) => Margin::Sum,
        Moment::First(_) => Margin::First,
        Moment::Second(_) => Margin::Second,
        Moment::Product => Margin::Joint,
    }
}
