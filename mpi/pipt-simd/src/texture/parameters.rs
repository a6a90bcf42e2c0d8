//! What is asked for: windows, offsets, conventions and features.

use std::fmt;

/// From the first pixel of a pair to its second one, in pixels to the right and downwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Offset {
    pub dx: i32,
    pub dy: i32,
}

impl Offset {
    /// The four directions at distance 1: 0, 45, 90 and 135 degrees.
    pub const FOUR: [Self; 4] = [
        Self::new(1, 0),
        Self::new(1, 1),
        Self::new(0, 1),
        Self::new(-1, 1),
    ];

    #[must_use]
    pub const fn new(dx: i32, dy: i32) -> Self {
        Self { dx, dy }
    }

    /// From the second pixel to the first one.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self::new(self.dx.saturating_neg(), self.dy.saturating_neg())
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{},{}", self.dx, self.dy)
    }
}

/// Which pairs of pixels belong to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pairs {
    /// Those of which both pixels lie within it.
    Inside,
    /// Those of which the first one does.
    Reach,
}

/// What becomes of several offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    /// Each offset has outputs of its own.
    Separate,
    /// The features' mean over the offsets. An offset without any valid pair is left out of it.
    Mean,
    /// One matrix counts the pairs of all offsets.
    Sum,
}

/// The unit of entropies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Logarithm {
    /// Bits.
    Binary,
    /// Nats.
    Natural,
}

/// A number that is made of a co-occurrence matrix.
///
/// `P` is the matrix of a window divided by its sum, `i` and `j` are levels from 0, `d = |i - j|`,
/// `s = i + j`, `mu` and `var` are the mean and the variance of the levels after `P`'s margins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// The largest `P`.
    Max,
    /// Sum of `P^2`: Haralick's angular second moment (his 1).
    Energy,
    /// Sum of `d^exponent P`; with exponent 2 Haralick's 2, elsewhere "inertia".
    Contrast { exponent: u32 },
    /// Sum of `P / (1 + d^2)`: Haralick's inverse difference moment (his 5).
    InverseDifferenceMoment,
    /// Sum of `P / d^exponent` where `i` and `j` differ: after Gonzalez and Woods.
    InverseMoment { exponent: u32 },
    /// Sum of `P / (1 + d)`.
    Homogeneity,
    /// Sum of `(i - mu_i) (j - mu_j) P / sqrt(var_i var_j)` (Haralick's 3).
    /// [`Parameters::flat_correlation`] where a variance is 0.
    Correlation,
    /// The same divided by the variance once more, as ITK and OTB do it. It is asked of symmetric
    /// matrices.
    CorrelationByVariance,
    /// `(Sum of (i - 1) (j - 1) P - m^2) / v` with the mean `m` and the variance `v` of the matrix's margin,
    /// which has as many entries as there are levels: what OTB 8.1.1 gives as "Haralick correlation".
    /// (Its documentation has `i j`; its results are those of levels that are 1 less.) It is asked of
    /// symmetric matrices, and [`Parameters::flat_correlation`] where `v` is 0.
    HaralickCorrelation,
    /// Sum of `(i - mu_i) (j - mu_i) P / var_i^2`: the first level's mean and variance for both, which is ITK's
    /// correlation. [`Parameters::flat_correlation`] where `var_i` is 0.
    FirstCorrelation,
    /// `(Sum of i j P - m^2) / v` with the mean `m` and the variance `v` of the first levels' margin, which
    /// has as many entries as there are levels: ITK's Haralick correlation. Where `v` is 0, since every
    /// level is as frequent, ITK divides by 0 or by what rounding leaves; here it is
    /// [`Parameters::flat_correlation`].
    FirstHaralickCorrelation,
    /// Minus the sum of `P log P` (Haralick's 9).
    Entropy,
    /// Sum of `(s - mu_i - mu_j)^exponent P`: tendency (2), shade (3), prominence (4).
    Cluster { exponent: u32 },
    /// Sum of `(s - 2 mu_i)^exponent P`, the first level's mean for both: ITK's shade (3) and
    /// prominence (4).
    FirstCluster { exponent: u32 },
    /// Sum of `(i - mu_i)^2 P` (Haralick's 4).
    Variance,
    /// Sum of `s P` (Haralick's 6, with levels from 0: with levels from 1 it would be 2 more).
    SumAverage,
    /// Variance of `s` (Haralick's 7; in his paper the sum entropy stands where the sum average is
    /// meant).
    SumVariance,
    /// Entropy of `s` (Haralick's 8).
    SumEntropy,
    /// Variance of `d` (Haralick's 10).
    DifferenceVariance,
    /// Entropy of `d` (Haralick's 11).
    DifferenceEntropy,
    /// `(H - H_i - H_j) / max(H_i, H_j)`, 0 where both are 0 (Haralick's 12).
    InformationMeasure1,
    /// `sqrt(1 - exp(-2 (H_i + H_j - H)))` (Haralick's 13), with entropies in the unit asked for: in
    /// nats as Haralick has it, in bits as GRASS has it.
    InformationMeasure2,
    /// The second largest singular value of `P` divided by the roots of its margins (Haralick's 14);
    /// 0 where only one level occurs. Slow: its cost is the cube of the number of levels in a window.
    MaximalCorrelation,
}

impl Feature {
    /// The eight of the parallel image processing toolkit of the 1990s, in its order.
    pub const EIGHT: [Self; 8] = [
        Self::Max,
        Self::Energy,
        Self::Contrast { exponent: 2 },
        Self::InverseDifferenceMoment,
        Self::Homogeneity,
        Self::Correlation,
        Self::Entropy,
        Self::Cluster { exponent: 2 },
    ];

    /// Haralick's fourteen, in his order (Haralick, Shanmugam and Dinstein 1973, appendix I).
    pub const HARALICK: [Self; 14] = [
        Self::Energy,
        Self::Contrast { exponent: 2 },
        Self::Correlation,
        Self::Variance,
        Self::InverseDifferenceMoment,
        Self::SumAverage,
        Self::SumVariance,
        Self::SumEntropy,
        Self::Entropy,
        Self::DifferenceVariance,
        Self::DifferenceEntropy,
        Self::InformationMeasure1,
        Self::InformationMeasure2,
        Self::MaximalCorrelation,
    ];

    /// Its name, with the exponent where there is one.
    #[must_use]
    pub fn name(self) -> String {
        let plain = match self {
            Self::Max => "max",
            Self::Energy => "energy",
            Self::Contrast { exponent } => return format!("contrast-{exponent}"),
            Self::InverseDifferenceMoment => "inverse-difference-moment",
            Self::InverseMoment { exponent } => return format!("inverse-moment-{exponent}"),
            Self::Homogeneity => "homogeneity",
            Self::Correlation => "correlation",
            Self::CorrelationByVariance => "correlation-by-variance",
            Self::HaralickCorrelation => "haralick-correlation",
            Self::FirstCorrelation => "first-correlation",
            Self::FirstHaralickCorrelation => "first-haralick-correlation",
            Self::Entropy => "entropy",
            Self::Cluster { exponent } => return format!("cluster-{exponent}"),
            Self::FirstCluster { exponent } => return format!("first-cluster-{exponent}"),
            Self::Variance => "variance",
            Self::SumAverage => "sum-average",
            Self::SumVariance => "sum-variance",
            Self::SumEntropy => "sum-entropy",
            Self::DifferenceVariance => "difference-variance",
            Self::DifferenceEntropy => "difference-entropy",
            Self::InformationMeasure1 => "information-measure-1",
            Self::InformationMeasure2 => "information-measure-2",
            Self::MaximalCorrelation => "maximal-correlation",
        };
        plain.to_owned()
    }
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Width and height of the window in pixels: odd, 3 to [`Parameters::MOST_WINDOW`].
    pub window: usize,
    /// Number of grey levels: 2 to [`Parameters::MOST_LEVELS`]. The image's are `0..levels`.
    pub levels: u32,
    /// 1 to [`Parameters::MOST_OFFSETS`] of them, none of them (0, 0), shorter than the window.
    pub offsets: Vec<Offset>,
    pub pairs: Pairs,
    pub combine: Combine,
    /// Whether a pair counts in both orders.
    pub symmetric: bool,
    /// At least one.
    pub features: Vec<Feature>,
    pub logarithm: Logarithm,
    /// What correlations are where a variance is 0. GRASS, ITK and OTB all say 0; NaN is possible.
    pub flat_correlation: f32,
}

impl Parameters {
    pub const MOST_WINDOW: usize = 63;
    pub const MOST_LEVELS: u32 = 65_536;
    pub const MOST_OFFSETS: usize = 8;

    /// Symmetric matrices of pairs within the window, the mean of the four directions, bits: as GRASS's
    /// `r.texture` with its default size of 3 changed to `window`.
    #[must_use]
    pub fn new(window: usize, levels: u32, features: &[Feature]) -> Self {
        Self {
            window,
            levels,
            offsets: Offset::FOUR.to_vec(),
            pairs: Pairs::Inside,
            combine: Combine::Mean,
            symmetric: true,
            features: features.to_vec(),
            logarithm: Logarithm::Binary,
            flat_correlation: 0.0,
        }
    }

    /// The conventions of GRASS's `r.texture`, and those of its features that have the textbook's
    /// definition: ASM, Contrast, Corr, Var, IDM, Entr, MOC-1 and MOC-2. (Its sum and difference
    /// features count the levels of a window instead of the levels themselves.)
    #[must_use]
    pub fn grass(window: usize, levels: u32) -> Self {
        let features = [
            Feature::Energy,
            Feature::Contrast { exponent: 2 },
            Feature::Correlation,
            Feature::Variance,
            Feature::InverseDifferenceMoment,
            Feature::Entropy,
            Feature::InformationMeasure1,
            Feature::InformationMeasure2,
        ];
        Self::new(window, levels, &features)
    }

    /// The conventions and the eight "simple" features of OTB's `HaralickTextureExtraction`, in its order,
    /// for one offset.
    #[must_use]
    pub fn otb(window: usize, levels: u32, offset: Offset) -> Self {
        let features = [
            Feature::Energy,
            Feature::Entropy,
            Feature::CorrelationByVariance,
            Feature::InverseDifferenceMoment,
            Feature::Contrast { exponent: 2 },
            Feature::Cluster { exponent: 3 },
            Feature::Cluster { exponent: 4 },
            Feature::HaralickCorrelation,
        ];
        Self {
            offsets: vec![offset],
            pairs: Pairs::Reach,
            combine: Combine::Separate,
            ..Self::new(window, levels, &features)
        }
    }

    /// The conventions and the eight features of `CoocurrenceTextureFeaturesImageFilter` of ITK's module
    /// of texture features (4.0.1), in its order. Its matrices are not symmetric, and yet four of the
    /// features have one mean and one variance for both levels of a pair: those of the first one. Its
    /// offsets point backwards, so the first pixel of a pair is the right or the lower one.
    #[must_use]
    pub fn itk(window: usize, levels: u32) -> Self {
        let features = [
            Feature::Energy,
            Feature::Entropy,
            Feature::FirstCorrelation,
            Feature::InverseDifferenceMoment,
            Feature::Contrast { exponent: 2 },
            Feature::FirstCluster { exponent: 3 },
            Feature::FirstCluster { exponent: 4 },
            Feature::FirstHaralickCorrelation,
        ];
        Self {
            offsets: Offset::FOUR.map(Offset::reversed).to_vec(),
            combine: Combine::Sum,
            symmetric: false,
            ..Self::new(window, levels, &features)
        }
    }
}

/// What is asked for cannot be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextureError {
    Window(usize),
    Levels(u32),
    Offsets(usize),
    Offset(Offset, usize),
    NoFeature,
    /// The feature's exponent is not one of these.
    Exponent(String, u32, u32),
    /// Sums of this feature could be larger than what is exact.
    TooLarge(String),
    /// The feature is defined for symmetric matrices alone.
    NotSymmetric(String),
    /// There are too many levels for this feature.
    TooManyLevels(String, u32),
    /// The levels' buffer has so many samples where so many are needed.
    Image(usize, usize),
    /// The mask's buffer has so many samples where so many are needed.
    Mask(usize, usize),
    /// A row has so many samples and must have so many.
    Stride(usize, usize),
    /// A level of the image is not below the number of levels.
    Level(u32, u32),
    /// There are so many outputs and must be so many.
    Outputs(usize, usize),
    /// An output has so many values and must have so many.
    Output(usize, usize),
    /// The rectangle is too large for this machine's addresses.
    Size(usize, usize),
}

impl fmt::Display for TextureError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window(window) => write!(
                to,
                "A window of {window} x {window} pixels has no texture here: give an odd number from 3 to {}",
                Parameters::MOST_WINDOW
            ),
            Self::Levels(levels) => write!(
                to,
                "{levels} grey levels cannot be counted: give 2 to {}",
                Parameters::MOST_LEVELS
            ),
            Self::Offsets(count) => write!(
                to,
                "{count} offsets are too few or too many: give 1 to {}",
                Parameters::MOST_OFFSETS
            ),
            Self::Offset(offset, window) => write!(
                to,
                "The offset ({offset}) is zero or not shorter than the window of {window} pixels"
            ),
            Self::NoFeature => write!(to, "No feature is asked for: name at least one"),
            Self::Exponent(name, least, most) => {
                write!(to, "The exponent of {name} must be from {least} to {most}")
            }
            Self::TooLarge(name) => write!(
                to,
                "Sums of {name} would not be exact: take fewer levels or a smaller exponent"
            ),
            Self::NotSymmetric(name) => {
                write!(
                    to,
                    "{name} is defined for symmetric matrices: ask for these"
                )
            }
            Self::TooManyLevels(name, most) => {
                write!(
                    to,
                    "{name} is computed for at most {most} levels: quantise to fewer"
                )
            }
            other => other.of_buffers(to),
        }
    }
}

impl TextureError {
    /// What is wrong with what a plan is run on.
    fn of_buffers(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(is, needed) => write!(
                to,
                "The image has {is} levels, and {needed} are needed with its margins"
            ),
            Self::Mask(is, needed) => {
                write!(to, "The mask has {is} samples, and {needed} are needed")
            }
            Self::Stride(is, needed) => write!(
                to,
                "A row of the image has {is} levels, and {needed} are needed with its margins"
            ),
            Self::Level(level, levels) => write!(
                to,
                "The image has level {level}, but levels must be below {levels}: quantise it"
            ),
            Self::Outputs(is, needed) => {
                write!(to, "{is} outputs were given, and there are {needed}")
            }
            Self::Output(is, needed) => {
                write!(
                    to,
                    "An output has room for {is} values, and {needed} are written"
                )
            }
            Self::Size(width, height) => {
                write!(
                    to,
                    "{width} x {height} pixels are too many to address: cut the image"
                )
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for TextureError {}
