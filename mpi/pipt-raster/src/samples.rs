//! Samples of a type that is known when the program runs.

use crate::sample::{Sample, SampleType};

/// Samples of one band, row by row.
#[derive(Clone, Debug, PartialEq)]
pub enum Samples {
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// The same for samples of each type: `each!(samples, values => expression)`.
#[macro_export]
macro_rules! each {
    ($samples:expr, $values:ident => $done:expr) => {
        match $samples {
            $crate::Samples::U8($values) => $done,
            $crate::Samples::U16($values) => $done,
            $crate::Samples::U32($values) => $done,
            $crate::Samples::U64($values) => $done,
            $crate::Samples::I8($values) => $done,
            $crate::Samples::I16($values) => $done,
            $crate::Samples::I32($values) => $done,
            $crate::Samples::I64($values) => $done,
            $crate::Samples::F32($values) => $done,
            $crate::Samples::F64($values) => $done,
        }
    };
}

/// The same with a type that is known when the program runs: `of_type!(kind, T => expression)`.
#[macro_export]
macro_rules! of_type {
    ($kind:expr, $type:ident => $done:expr) => {
        match $kind {
            $crate::SampleType::U8 => {
                type $type = u8;
                $done
            }
            $crate::SampleType::U16 => {
                type $type = u16;
                $done
            }
            $crate::SampleType::U32 => {
                type $type = u32;
                $done
            }
            $crate::SampleType::U64 => {
                type $type = u64;
                $done
            }
            $crate::SampleType::I8 => {
                type $type = i8;
                $done
            }
            $crate::SampleType::I16 => {
                type $type = i16;
                $done
            }
            $crate::SampleType::I32 => {
                type $type = i32;
                $done
            }
            $crate::SampleType::I64 => {
                type $type = i64;
                $done
            }
            $crate::SampleType::F32 => {
                type $type = f32;
                $done
            }
            $crate::SampleType::F64 => {
                type $type = f64;
                $done
            }
        }
    };
}

impl Samples {
    /// So many zeros.
    #[must_use]
    pub fn zeros(kind: SampleType, count: usize) -> Self {
        of_type!(kind, T => vec![T::default(); count].into())
    }

    #[must_use]
    pub fn kind(&self) -> SampleType {
        fn kind<T: Sample>(_: &[T]) -> SampleType {
            T::TYPE
        }
        each!(self, values => kind(values))
    }

    #[must_use]
    pub fn len(&self) -> usize {
        each!(self, values => values.len())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The nearest numbers, as [`Sample::to_f64`].
    #[must_use]
    pub fn to_f64(&self) -> Vec<f64> {
        each!(self, values => values.iter().map(|value| value.to_f64()).collect())
    }
}

macro_rules! from {
    ($($type:ident $kind:ident)*) => {$(
        impl From<Vec<$type>> for Samples {
            fn from(values: Vec<$type>) -> Self {
                Self::$kind(values)
            }
        }
    )*};
}

from!(u8 U8 u16 U16 u32 U32 u64 U64 i8 I8 i16 I16 i32 I32 i64 I64 f32 F32 f64 F64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_know_their_type() {
        for kind in SampleType::ALL {
            let zeros = Samples::zeros(kind, 3);
            assert_eq!((zeros.kind(), zeros.len()), (kind, 3));
            assert_eq!(zeros.to_f64(), [0.0; 3]);
        }
        assert!(Samples::zeros(SampleType::F32, 0).is_empty());
    }
}
