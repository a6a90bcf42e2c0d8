//! Types of samples, and one sample.

use std::fmt;
use std::str::FromStr;

/// What a sample is. Integers and floats are as the machine has them; files may hold narrower ones, which
/// their readers widen, and others (16-bit floats, complex numbers), which they convert or refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SampleType {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

impl SampleType {
    pub const ALL: [Self; 10] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F32,
        Self::F64,
    ];

    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

impl fmt::Display for SampleType {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

/// No type has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownType(pub String);

impl fmt::Display for UnknownType {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = SampleType::ALL.map(SampleType::name).join(", ");
        write!(to, "'{}' is no type of samples: there are {names}", self.0)
    }
}

impl std::error::Error for UnknownType {}

impl FromStr for SampleType {
    type Err = UnknownType;

    fn from_str(text: &str) -> Result<Self, UnknownType> {
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.name() == text)
            .ok_or_else(|| UnknownType(text.to_owned()))
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A number of one of the types of [`SampleType`].
pub trait Sample:
    sealed::Sealed + Copy + Default + PartialEq + PartialOrd + fmt::Debug + Send + Sync + 'static
{
    const TYPE: SampleType;

    /// A number that orders as the samples do, and of which each stands for one sample: the rank transform
    /// works on it. Of floats the order is that of IEEE 754's `totalOrder`: -NaN, -inf .. -0, +0 .. inf, NaN.
    fn key(self) -> u64;

    /// The sample of a key.
    fn of_key(key: u64) -> Self;

    /// The nearest `f64`.
    fn to_f64(self) -> f64;

    /// The nearest sample, ties to even; what is too large or too small becomes the largest or smallest
    /// one. NaN becomes 0 where there is none.
    fn of_f64(value: f64) -> Self;

    /// Whether it is a number.
    fn is_nan(self) -> bool;
}

macro_rules! unsigned {
    ($($type:ident $kind:ident)*) => {$(
        impl sealed::Sealed for $type {}
        impl Sample for $type {
            const TYPE: SampleType = SampleType::$kind;

            fn key(self) -> u64 {
                u64::from(self)
            }

            #[allow(clippy::cast_possible_truncation, reason = "a key came from this type")]
            fn of_key(key: u64) -> Self {
                key as Self
            }

            #[allow(clippy::cast_precision_loss, reason = "documented: the nearest one")]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "`as` saturates, as documented"
            )]
            fn of_f64(value: f64) -> Self {
                value.round_ties_even() as Self
            }

            fn is_nan(self) -> bool {
                false
            }
        }
    )*};
}

macro_rules! signed {
    ($($type:ident $unsigned:ident $kind:ident)*) => {$(
        impl sealed::Sealed for $type {}
        impl Sample for $type {
            const TYPE: SampleType = SampleType::$kind;

            fn key(self) -> u64 {
                // The sign's bit turned round: the smallest becomes 0.
                u64::from(self.cast_unsigned() ^ (1 << ($unsigned::BITS - 1)))
            }

            #[allow(clippy::cast_possible_truncation, reason = "a key came from this type")]
            fn of_key(key: u64) -> Self {
                ((key as $unsigned) ^ (1 << ($unsigned::BITS - 1))).cast_signed()
            }

            #[allow(clippy::cast_precision_loss, reason = "documented: the nearest one")]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[allow(clippy::cast_possible_truncation, reason = "`as` saturates, as documented")]
            fn of_f64(value: f64) -> Self {
                value.round_ties_even() as Self
            }

            fn is_nan(self) -> bool {
                false
            }
        }
    )*};
}

unsigned!(u8 U8 u16 U16 u32 U32 u64 U64);
signed!(i8 u8 I8 i16 u16 I16 i32 u32 I32 i64 u64 I64);

macro_rules! float {
    ($($type:ident $bits:ident $kind:ident)*) => {$(
        impl sealed::Sealed for $type {}
        impl Sample for $type {
            const TYPE: SampleType = SampleType::$kind;

            fn key(self) -> u64 {
                let (bits, sign) = (self.to_bits(), 1 << ($bits::BITS - 1));
                // Negative ones are turned round, so that the largest magnitude is the smallest.
                u64::from(if bits & sign == 0 { bits | sign } else { !bits })
            }

            #[allow(clippy::cast_possible_truncation, reason = "a key came from this type")]
            fn of_key(key: u64) -> Self {
                let (key, sign) = (key as $bits, 1 << ($bits::BITS - 1));
                Self::from_bits(if key & sign == 0 { !key } else { key & !sign })
            }

            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[allow(clippy::cast_possible_truncation, reason = "the nearest one")]
            fn of_f64(value: f64) -> Self {
                value as Self
            }

            fn is_nan(self) -> bool {
                self.is_nan()
            }
        }
    )*};
}

float!(f32 u32 F32 f64 u64 F64);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ordered<T: Sample>(mut samples: Vec<T>) {
        samples.sort_by_key(|sample| sample.key());
        for pair in samples.windows(2) {
            assert!(pair[0] <= pair[1], "{:?} before {:?}", pair[0], pair[1]);
        }
        for sample in samples {
            assert!(sample == T::of_key(sample.key()), "{sample:?}");
        }
    }

    proptest! {
        #[test]
        fn keys_order_as_samples_do(words in proptest::collection::vec(any::<i64>(), 20)) {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            {
                ordered(words.iter().map(|word| *word as u8).collect());
                ordered(words.iter().map(|word| *word as i8).collect());
                ordered(words.iter().map(|word| *word as u16).collect());
                ordered(words.iter().map(|word| *word as i16).collect());
                ordered(words.iter().map(|word| *word as u32).collect());
                ordered(words.iter().map(|word| *word as i32).collect());
                ordered(words.iter().map(|word| *word as u64).collect());
            }
            ordered(words);
        }

        #[test]
        fn keys_order_as_floats_do(numbers in proptest::collection::vec(any::<f64>(), 20)) {
            let numbers: Vec<f64> = numbers.into_iter().filter(|n| !n.is_nan()).collect();
            #[allow(clippy::cast_possible_truncation)]
            ordered(numbers.iter().map(|number| *number as f32).collect());
            ordered(numbers);
        }
    }

    #[test]
    fn what_does_not_fit_is_the_nearest_that_does() {
        assert_eq!(
            (u8::of_f64(300.0), u8::of_f64(-1.0), u8::of_f64(2.5)),
            (255, 0, 2)
        );
        assert_eq!((i16::of_f64(-1e9), i16::of_f64(f64::NAN)), (i16::MIN, 0));
        assert!(f32::of_f64(f64::NAN).is_nan() && f32::of_f64(1e300).is_infinite());
    }

    #[test]
    fn types_have_names() {
        for kind in SampleType::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert!(kind.name().ends_with(&(8 * kind.bytes()).to_string()));
        }
        let unknown = "u7".parse::<SampleType>().expect_err("no type");
        assert!(unknown.to_string().contains("u8, u16"), "{unknown}");
    }
}
