//! What has to be summed up and counted for the features that are asked for.

use super::histogram::{Kind, Slots};
use super::moments::{Moment, Size, Wanted};
use super::parameters::{Feature, Parameters, TextureError};

/// What is counted in a histogram of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Margin {
    /// Pairs.
    Joint,
    /// Sums of levels.
    Sum,
    /// Differences of levels.
    Difference,
    /// The levels of first pixels, and of symmetric matrices those of second ones with them.
    First,
    /// Of matrices that are not symmetric: the levels of second pixels.
    Second,
}

impl Margin {
    pub(super) const ALL: [Self; 5] = [
        Self::Joint,
        Self::Sum,
        Self::Difference,
        Self::First,
        Self::Second,
    ];

    /// What each pair puts into the histogram.
    pub(super) const fn kinds(self, symmetric: bool) -> &'static [Kind] {
        match (self, symmetric) {
            (Self::Joint, true) => &[Kind::Unordered],
            (Self::Joint, false) => &[Kind::Ordered],
            (Self::Sum, _) => &[Kind::Sum],
            (Self::Difference, _) => &[Kind::Difference],
            (Self::First, true) => &[Kind::First, Kind::Second],
            (Self::First, false) => &[Kind::First],
            (Self::Second, _) => &[Kind::Second],
        }
    }
}

/// A number of each window that features are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Moment(Moment),
    /// See [`Slots`].
    Energy(Margin),
    Log(Margin),
    Most,
    /// The feature itself.
    MaximalCorrelation,
}

impl Quantity {
    const fn is_summed(self) -> bool {
        matches!(self, Self::Moment(_))
    }
}

/// The sum that is always there: the number of pairs.
pub(super) const COUNT: usize = 0;
/// Moments follow.
pub(super) const FIRST_FREE: usize = 1;

/// All the quantities, each once. Their order is that of sums and of counted rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Quantities {
    all: Vec<Quantity>,
}

impl Quantities {
    pub(super) fn of(parameters: &Parameters, most_pairs: usize) -> Result<Self, TextureError> {
        let mut quantities = Self::default();
        for feature in &parameters.features {
            quantities.take(*feature, parameters, most_pairs)?;
        }
        Ok(quantities)
    }

    /// How many sums there are.
    pub(super) fn sums(&self) -> usize {
        FIRST_FREE + self.all.iter().filter(|all| all.is_summed()).count()
    }

    pub(super) fn all_moments(&self) -> impl Iterator<Item = Moment> {
        self.all.iter().filter_map(|quantity| match quantity {
            Quantity::Moment(moment) => Some(*moment),
            _ => None,
        })
    }

    /// How many rows of what is not summed up there are.
    pub(super) fn rows(&self) -> usize {
        self.all.iter().filter(|all| !all.is_summed()).count()
    }

    /// The place of a moment among sums. One that is not there has that of the count; [`take`](Self::take)
    /// has taken all that a feature reads.
    pub(super) fn sum(&self, moment: Moment) -> usize {
        let place = self.place(Quantity::Moment(moment));
        place.map_or(COUNT, |place| FIRST_FREE + place)
    }

    /// The row of any other quantity.
    pub(super) fn slot(&self, quantity: Quantity) -> usize {
        self.place(quantity).unwrap_or(0)
    }

    fn place(&self, quantity: Quantity) -> Option<usize> {
        let summed = quantity.is_summed();
        let mut alike = self.all.iter().filter(|all| all.is_summed() == summed);
        alike.position(|all| *all == quantity)
    }

    /// Whether a feature needs the logarithm of the number of pairs.
    pub(super) fn has_logarithms(&self) -> bool {
        let mut all = self.all.iter();
        all.any(|quantity| matches!(quantity, Quantity::Log(_)))
    }

    pub(super) fn has(&self, quantity: Quantity) -> bool {
        self.all.contains(&quantity)
    }

    /// The sums to keep for windows of so many pairs; the number of pairs is one of them, last, where not
    /// every pair is valid.
    pub(super) fn wanted(
        &self,
        levels: u32,
        fraction: u32,
        pairs: usize,
        masked: bool,
    ) -> Vec<Wanted> {
        let size = |moment: Moment| {
            let largest = moment.largest(levels, fraction);
            Size::of(largest.saturating_mul(pairs as u128))
        };
        let moments = self.all.iter().filter_map(|quantity| match quantity {
            Quantity::Moment(moment) => Some(Wanted {
                moment: *moment,
                slot: self.sum(*moment),
                size: size(*moment),
            }),
            _ => None,
        });
        let count = masked.then_some(Wanted {
            moment: Moment::Count,
            slot: COUNT,
            size: size(Moment::Count),
        });
        moments.chain(count).collect()
    }

    /// The histograms to keep.
    pub(super) fn margins(&self) -> Vec<(Margin, Slots)> {
        let slot = |quantity| self.has(quantity).then(|| self.slot(quantity));
        let all = Margin::ALL.into_iter().map(|margin| {
            let slots = Slots {
                energy: slot(Quantity::Energy(margin)),
                log: slot(Quantity::Log(margin)),
                most: (margin == Margin::Joint)
                    .then(|| slot(Quantity::Most))
                    .flatten(),
            };
            (margin, slots)
        });
        all.filter(|(_, slots)| slots.energy.or(slots.log).or(slots.most).is_some())
            .collect()
    }

    fn add(&mut self, quantities: &[Quantity]) {
        for quantity in quantities {
            if !self.has(*quantity) {
                self.all.push(*quantity);
            }
        }
    }

    fn moments(&mut self, moments: &[Moment]) {
        let quantities: Vec<Quantity> = moments.iter().copied().map(Quantity::Moment).collect();
        self.add(&quantities);
    }

    fn take(
        &mut self,
        feature: Feature,
        parameters: &Parameters,
        most_pairs: usize,
    ) -> Result<(), TextureError> {
        check(feature, parameters)?;
        let before = self.all.len();
        self.add_of(feature, parameters.symmetric);
        if let Feature::Cluster { exponent } | Feature::FirstCluster { exponent } = feature {
            self.cluster(exponent, parameters, most_pairs);
        }
        let exact = self.all[before..].iter().all(|quantity| match quantity {
            Quantity::Moment(moment) => fits(*moment, parameters.levels, most_pairs),
            _ => true,
        });
        if exact {
            Ok(())
        } else {
            Err(TextureError::TooLarge(feature.name()))
        }
    }

    fn add_of(&mut self, feature: Feature, symmetric: bool) {
        match feature {
            Feature::Max => self.add(&[Quantity::Most]),
            Feature::Energy => self.add(&[Quantity::Energy(Margin::Joint)]),
            Feature::Contrast { exponent } => self.moments(&[Moment::Difference(exponent)]),
            Feature::InverseDifferenceMoment => self.moments(&[Moment::InverseSquare]),
            Feature::InverseMoment { exponent } => self.moments(&[Moment::InversePower(exponent)]),
            Feature::Homogeneity => self.moments(&[Moment::InverseDifference]),
            Feature::Correlation
            | Feature::Variance
            | Feature::CorrelationByVariance
            | Feature::FirstCorrelation
                if symmetric =>
            {
                self.moments(&[Moment::Sum(1), Moment::Sum(2), Moment::Difference(2)]);
            }
            Feature::Variance => self.moments(&[Moment::First(1), Moment::First(2)]),
            Feature::Correlation | Feature::CorrelationByVariance => self.moments(&[
                Moment::First(1),
                Moment::First(2),
                Moment::Second(1),
                Moment::Second(2),
                Moment::Product,
            ]),
            Feature::HaralickCorrelation => {
                self.moments(&[Moment::Product, Moment::Sum(1)]);
                self.add(&[Quantity::Energy(Margin::First)]);
            }
            Feature::FirstCorrelation => self.moments(&[
                Moment::First(1),
                Moment::First(2),
                Moment::Sum(1),
                Moment::Sum(2),
                Moment::Difference(2),
            ]),
            Feature::FirstHaralickCorrelation => {
                self.moments(&[Moment::Sum(2), Moment::Difference(2)]);
                self.add(&[Quantity::Energy(Margin::First)]);
            }
            Feature::FirstCluster { .. } if !symmetric => self.moments(&[Moment::First(1)]),
            Feature::Entropy => self.joint_entropy(symmetric),
            Feature::SumAverage => self.moments(&[Moment::Sum(1)]),
            Feature::SumVariance | Feature::Cluster { .. } | Feature::FirstCluster { .. } => {
                self.moments(&[Moment::Sum(1), Moment::Sum(2)])
            }
            Feature::SumEntropy => self.add(&[Quantity::Log(Margin::Sum)]),
            Feature::DifferenceVariance => {
                self.moments(&[Moment::Difference(1), Moment::Difference(2)]);
            }
            Feature::DifferenceEntropy => self.add(&[Quantity::Log(Margin::Difference)]),
            Feature::InformationMeasure1 | Feature::InformationMeasure2 => {
                self.joint_entropy(symmetric);
                self.add(&[Quantity::Log(Margin::First)]);
                if !symmetric {
                    self.add(&[Quantity::Log(Margin::Second)]);
                }
            }
            Feature::MaximalCorrelation => self.add(&[Quantity::MaximalCorrelation]),
        }
    }

    fn joint_entropy(&mut self, symmetric: bool) {
        self.add(&[Quantity::Log(Margin::Joint)]);
        if symmetric {
            self.moments(&[Moment::Same]);
        }
    }

    fn cluster(&mut self, exponent: u32, parameters: &Parameters, most_pairs: usize) {
        for power in 1..=exponent {
            if fits(Moment::Sum(power), parameters.levels, most_pairs) {
                self.moments(&[Moment::Sum(power)]);
            } else {
                self.moments(&[Moment::SumHigh(power), Moment::SumLow(power)]);
            }
        }
    }
}

/// Whether sums of it are below 2^53, and so exact as floats.
fn fits(moment: Moment, levels: u32, most_pairs: usize) -> bool {
    moment.largest(levels, 0).saturating_mul(most_pairs as u128) < 1 << 53
}

/// Levels that a maximal correlation is computed of: it needs a matrix of as many rows and columns.
const MOST_MAXIMAL: u32 = 256;

fn check(feature: Feature, parameters: &Parameters) -> Result<(), TextureError> {
    let within = |exponent: u32, least, most| {
        if (least..=most).contains(&exponent) {
            Ok(())
        } else {
            Err(TextureError::Exponent(feature.name(), least, most))
        }
    };
    match feature {
        Feature::Contrast { exponent } | Feature::InverseMoment { exponent } => {
            within(exponent, 1, 4)
        }
        Feature::Cluster { exponent } | Feature::FirstCluster { exponent } => {
            within(exponent, 2, 4)
        }
        Feature::CorrelationByVariance | Feature::HaralickCorrelation if !parameters.symmetric => {
            Err(TextureError::NotSymmetric(feature.name()))
        }
        Feature::MaximalCorrelation if parameters.levels > MOST_MAXIMAL => {
            Err(TextureError::TooManyLevels(feature.name(), MOST_MAXIMAL))
        }
        _ => Ok(()),
    }
}
