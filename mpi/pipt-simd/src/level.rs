//! Instruction sets, and functions that are compiled for each of them.

use std::fmt;
use std::str::FromStr;

/// An instruction set. A later one has all that an earlier one has.
///
/// The sets are those of the levels v2, v3 and v4 that the x86-64 psABI defines, so that a CPU either has
/// all of one or does not count as one that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// What every CPU of the architecture has.
    Scalar,
    Sse42,
    Avx2,
    Avx512,
}

impl Level {
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Sse42, Self::Avx2, Self::Avx512];

    /// The last one that this machine has.
    #[must_use]
    pub fn best() -> Self {
        let mut all = Self::ALL.into_iter().rev();
        all.find(|level| level.is_here()).unwrap_or(Self::Scalar)
    }

    /// Those that this machine has.
    pub fn here() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|level| level.is_here())
    }

    /// Whether this machine has it.
    #[must_use]
    #[cfg(target_arch = "x86_64")]
    pub fn is_here(self) -> bool {
        // Each is asked for once and kept by the standard library.
        match self {
            Self::Scalar => true,
            Self::Sse42 => {
                is_x86_feature_detected!("sse3")
                    && is_x86_feature_detected!("ssse3")
                    && is_x86_feature_detected!("sse4.1")
                    && is_x86_feature_detected!("sse4.2")
                    && is_x86_feature_detected!("popcnt")
            }
            Self::Avx2 => {
                Self::Sse42.is_here()
                    && is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("lzcnt")
            }
            Self::Avx512 => {
                Self::Avx2.is_here()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512cd")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
        }
    }

    #[must_use]
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_here(self) -> bool {
        self == Self::Scalar
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Sse42 => "sse4.2",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

/// There is no such instruction set, or this machine does not have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoLevel(pub String);

impl fmt::Display for NoLevel {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let here: Vec<&str> = Level::here().map(Level::name).collect();
        write!(
            to,
            "This machine has no instruction set '{}': it has {}",
            self.0,
            here.join(", ")
        )
    }
}

impl std::error::Error for NoLevel {}

impl FromStr for Level {
    type Err = NoLevel;

    fn from_str(text: &str) -> Result<Self, NoLevel> {
        Self::here()
            .find(|level| level.name() == text)
            .ok_or_else(|| NoLevel(text.to_owned()))
    }
}

/// Defines functions that take a [`Level`] first and run another one, which must be `#[inline(always)]`,
/// compiled for it:
///
/// ```ignore
/// for_each_level! {
///     /// Adds.
///     pub fn sum(values: &[u32]) -> u32 = add;
/// }
/// #[inline(always)]
/// fn add(values: &[u32]) -> u32 { values.iter().sum() }
/// ```
///
/// A level that this machine does not have is refused by a panic: [`Level`]s come from [`Level::best`],
/// [`Level::here`] or a name that was looked up there.
#[macro_export]
macro_rules! for_each_level {
    ($($(#[$about:meta])* $seen:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?)
        $(-> $result:ty)? = $body:path;)*) => {$(
        $(#[$about])*
        $seen fn $name(level: $crate::Level, $($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            mod levels {
                #[allow(unused_imports, reason = "types and function are wherever the caller has them")]
                use super::*;

                #[target_feature(enable = "sse3,ssse3,sse4.1,sse4.2,popcnt")]
                pub(super) fn sse42($($argument: $type),*) $(-> $result)? {
                    $body($($argument),*)
                }

                #[target_feature(enable = "sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,bmi1,bmi2,lzcnt")]
                pub(super) fn avx2($($argument: $type),*) $(-> $result)? {
                    $body($($argument),*)
                }

                #[target_feature(
                    enable = "sse3,ssse3,sse4.1,sse4.2,popcnt,avx,avx2,bmi1,bmi2,lzcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl"
                )]
                pub(super) fn avx512($($argument: $type),*) $(-> $result)? {
                    $body($($argument),*)
                }
            }
            assert!(level.is_here(), "This machine has no {level}");
            #[cfg(target_arch = "x86_64")]
            match level {
                $crate::Level::Scalar => $body($($argument),*),
                // JUSTIFICATION: there is no other way to call a function that is compiled for more than
                // every CPU has.
                // SAFETY: the assertion above asked the CPU for exactly these features.
                $crate::Level::Sse42 => unsafe { levels::sse42($($argument),*) },
                // JUSTIFICATION: as above.
                // SAFETY: as above.
                $crate::Level::Avx2 => unsafe { levels::avx2($($argument),*) },
                // JUSTIFICATION: as above.
                // SAFETY: as above.
                $crate::Level::Avx512 => unsafe { levels::avx512($($argument),*) },
            }
            #[cfg(not(target_arch = "x86_64"))]
            $body($($argument),*)
        }
    )*};
}

#[cfg(test)]
mod tests {
    use super::*;

    for_each_level! {
        fn sum(values: &[u32]) -> u32 = add;
    }

    #[inline(always)]
    fn add(values: &[u32]) -> u32 {
        values.iter().sum()
    }

    #[test]
    fn each_level_gives_the_same() {
        let values: Vec<u32> = (0..1000).collect();
        for level in Level::here() {
            assert_eq!(sum(level, &values), 499_500, "{level}");
        }
    }

    #[test]
    fn levels_have_names() {
        for level in Level::here() {
            assert_eq!(level.name().parse(), Ok(level));
        }
        let none = "mmx".parse::<Level>().expect_err("no level");
        assert!(none.to_string().contains("it has scalar"), "{none}");
    }
}
