//! Migration classes: between which machines a program can move there and back unharmed.
//!
//! A class has two halves. The *register layout* decides whether a thread's registers, and those that the
//! kernel has put on its stack for a signal handler, mean the same elsewhere. The *features* decide which
//! instructions run. Libraries check them once, when they are loaded, and choose their code accordingly. So
//! both have to be equal: even a machine with more features will not do, because a library that is loaded there
//! would choose code that does not run at home. A program that was started with only the features that all
//! nodes have (`whim run --portable`) needs just those.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use thiserror::Error;
use whim_sys::cpu;
use xxhash_rust::xxh3::xxh3_64;

use crate::features::{self, NAMES};

/// The most bytes of either half as text: together they fit into the list of members.
const TEXT_MAX: usize = 2000;
/// The most leaves of features that are read; no machine has so many.
const LEAVES_MAX: usize = 32;
/// The most features that a message names.
const NAMED: usize = 6;

/// Migration class of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// Maker of the CPU, and where each part of the registers lies ([`Layout`] as text).
    #[serde(deserialize_with = "bounded")]
    layout: String,
    /// [`Features`] as text.
    #[serde(deserialize_with = "bounded")]
    features: String,
    /// Digest of the features that the CPU really has, if the configuration hides some.
    #[serde(default, deserialize_with = "bounded")]
    hidden: String,
}

fn bounded<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.len() > TEXT_MAX {
        let reason = format!("half of a migration class has {} bytes", text.len());
        return Err(serde::de::Error::custom(reason));
    }
    Ok(text)
}

/// The short name: equal for equal classes, and in its first half for equal register layouts.
impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |text: &str| xxh3_64(text.as_bytes()) >> 40;
        let features = format!("{}{}", self.features, self.hidden);
        write!(f, "{:06x}-{:06x}", short(&self.layout), short(&features))
    }
}

/// What a program from one node would miss, or find different, on another one: a sentence without its full
/// stop, in which "its" refers to the host.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Difference {
    #[error("its CPU is made by {there} and not by {here}")]
    Maker { here: String, there: String },
    #[error("its CPU's registers are laid out otherwise ({0})")]
    Registers(String),
    #[error(
        "its CPU {0}. Programs that were started by 'whim run --portable' can go there, others could not go on there and come back unharmed"
    )]
    Features(String),
    #[error("its CPU lacks {0}, with which this program was started")]
    Needed(String),
}

impl Class {
    /// Class of this machine, without the features of the names in `hide`.
    #[must_use]
    pub fn here(hide: &[String]) -> Self {
        let all = Features::here();
        let shown = all.without(hide);
        let hidden = shown != all;
        Self {
            layout: Layout::from(&cpu::register_layout()).0,
            features: shown.to_string(),
            hidden: if hidden {
                format!("{:016x}", xxh3_64(all.to_string().as_bytes()))
            } else {
                String::new()
            },
        }
    }

    /// The class as text, for the list of members.
    #[must_use]
    pub fn describe(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads what [`Class::describe`] wrote.
    #[must_use]
    pub fn described(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    #[must_use]
    pub fn features(&self) -> Features {
        Features::parse(&self.features)
    }

    /// Whether the registers of a thread mean the same on both.
    #[must_use]
    pub fn same_layout(&self, other: &Self) -> bool {
        self.layout == other.layout
    }

    /// What keeps a program of this node from `host`; `needed` are the features that a portable
    /// program was started with.
    #[must_use]
    pub fn difference(&self, host: &Self, needed: Option<&Features>) -> Option<Difference> {
        if self == host {
            return None;
        }
        if !self.same_layout(host) {
            return Some(Layout(self.layout.clone()).difference(&Layout(host.layout.clone())));
        }
        let (here, there) = (self.features(), host.features());
        if let Some(needed) = needed {
            let lacks = there.lacks(needed);
            return (!lacks.is_empty()).then(|| Difference::Needed(lacks.names()));
        }
        // Trap: a-richer-cpu
        let (less, more) = (there.lacks(&here), here.lacks(&there));
        Some(Difference::Features(
            match (less.is_empty(), more.is_empty()) {
                (false, true) => format!("lacks {}", less.names()),
                (true, false) => format!("has {} besides", more.names()),
                (false, false) => {
                    format!("lacks {} and has {} besides", less.names(), more.names())
                }
                (true, true) => {
                    "hides features, or has some that this version does not know".into()
                }
            },
        ))
    }
}

/// [`cpu::RegisterLayout`] as text: the maker, the parts that are switched on, and the place and size of each.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layout(String);

impl From<&cpu::RegisterLayout> for Layout {
    fn from(layout: &cpu::RegisterLayout) -> Self {
        let vendor = layout.vendor.iter().map(|byte| char::from(*byte));
        let mut text: String = vendor.filter(char::is_ascii_alphanumeric).collect();
        let _ = write!(text, " {:x}", layout.enabled);
        for (part, offset, size) in &layout.parts {
            let _ = write!(text, " {part}:{offset}+{size}");
        }
        Self(text)
    }
}

impl Layout {
    /// The maker, the parts that are switched on, and the places of the parts from the third on.
    fn read(&self) -> (String, u64, BTreeMap<u32, String>) {
        let mut words = self.0.split(' ');
        let vendor = words.next().unwrap_or_default().chars();
        let vendor = vendor
            .filter(char::is_ascii_alphanumeric)
            .take(12)
            .collect();
        let enabled = words
            .next()
            .and_then(|word| u64::from_str_radix(word, 16).ok());
        let places = words.filter_map(|word| {
            let (part, place) = word.split_once(':')?;
            Some((part.parse().ok()?, place.to_string()))
        });
        (vendor, enabled.unwrap_or(0), places.collect())
    }

    fn difference(&self, host: &Self) -> Difference {
        let (here, there) = (self.read(), host.read());
        if here.0 != there.0 {
            return Difference::Maker {
                here: here.0,
                there: there.0,
            };
        }
        let names = |parts: u64| {
            let parts = (0..64).filter(|part| parts & (1u64 << part) != 0);
            let mut names: Vec<&str> = parts.map(features::part).collect();
            names.dedup();
            names.join(", ")
        };
        let (less, more) = (here.1 & !there.1, there.1 & !here.1);
        let mut what = Vec::new();
        if less != 0 {
            what.push(format!("it has none of {}", names(less)));
        }
        if more != 0 {
            what.push(format!("it has {} besides", names(more)));
        }
        let moved = here
            .2
            .iter()
            .filter(|(part, place)| there.2.get(part).is_some_and(|other| other != *place));
        let moved = moved.fold(0, |parts, (part, _)| {
            parts | 1u64.checked_shl(*part).unwrap_or(0)
        });
        if moved != 0 {
            what.push(format!("{} have another place", names(moved)));
        }
        Difference::Registers(what.join("; "))
    }
}

/// CPU features: the bits of eax, ebx, ecx and edx of each leaf and subleaf of CPUID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Features(BTreeMap<(u32, u32), [u32; 4]>);

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for ((leaf, subleaf), [a, b, c, d]) in &self.0 {
            write!(f, "{between}{leaf:x}.{subleaf:x}:{a:x}.{b:x}.{c:x}.{d:x}")?;
            between = " ";
        }
        Ok(())
    }
}

impl From<Features> for String {
    fn from(features: Features) -> Self {
        features.to_string()
    }
}

impl TryFrom<String> for Features {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.len() > TEXT_MAX {
            return Err(format!("CPU features have {} bytes", text.len()));
        }
        Ok(Self::parse(&text))
    }
}

impl Features {
    /// The features of this machine.
    #[must_use]
    pub fn here() -> Self {
        let leaves = cpu::features().into_iter();
        Self(
            leaves
                .map(|leaf| ((leaf.leaf, leaf.subleaf), leaf.registers))
                .collect(),
        )
    }

    /// Reads what [`Features`] prints. Words that it does not understand, as a newer node may send, are
    /// skipped.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let hex = |word: &str| u32::from_str_radix(word, 16).ok();
        let leaves = text.split(' ').take(LEAVES_MAX).filter_map(|word| {
            let (place, values) = word.split_once(':')?;
            let (leaf, subleaf) = place.split_once('.')?;
            let mut values = values.split('.').map(hex);
            let mut next = || values.next().flatten();
            let registers = [next()?, next()?, next()?, next()?];
            Some(((hex(leaf)?, hex(subleaf)?), registers))
        });
        Self(leaves.collect())
    }

    /// Whether the bit of this feature is set; it is not if the leaf is missing.
    fn has(&self, feature: &features::Name) -> bool {
        let registers = self.0.get(&(feature.leaf, feature.subleaf));
        registers.is_some_and(|all| all[feature.register] & (1 << feature.bit) != 0)
    }

    /// The features that both have.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        let both = self.0.iter().filter_map(|(place, ours)| {
            let theirs = other.0.get(place)?;
            Some((
                *place,
                std::array::from_fn(|index| ours[index] & theirs[index]),
            ))
        });
        Self(both.collect())
    }

    /// The features of `wanted` that are missing here.
    #[must_use]
    pub fn lacks(&self, wanted: &Self) -> Self {
        let missing = wanted.0.iter().map(|(place, wanted)| {
            let ours = self.0.get(place).copied().unwrap_or_default();
            (
                *place,
                std::array::from_fn(|index| wanted[index] & !ours[index]),
            )
        });
        Self(missing.collect())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.values().flatten().all(|bits| *bits == 0)
    }

    /// These features without those of the given names.
    fn without(&self, names: &[String]) -> Self {
        let mut rest = self.clone();
        for feature in NAMES
            .iter()
            .filter(|f| names.iter().any(|name| name == f.name))
        {
            if let Some(registers) = rest.0.get_mut(&(feature.leaf, feature.subleaf)) {
                registers[feature.register] &= !(1 << feature.bit);
            }
        }
        rest
    }

    /// The names of the first few features, and how many more there are.
    fn names(&self) -> String {
        let mut found: Vec<_> = NAMES.iter().filter(|name| self.has(name)).collect();
        // First the features by which libraries choose their code.
        found.sort_by_key(|name| name.glibc.is_none());
        let mut names: Vec<String> = found.iter().map(|name| name.name.to_string()).collect();
        let count: u32 = self
            .0
            .values()
            .flatten()
            .map(|bits| bits.count_ones())
            .sum();
        names.truncate(NAMED);
        let named = u32::try_from(names.len()).unwrap_or(0);
        match (count.saturating_sub(named), named) {
            (0, _) => {}
            (1, 0) => names.push("a feature without a common name".into()),
            (more, 0) => names.push(format!("{more} features without a common name")),
            (more, _) => names.push(format!("{more} more")),
        }
        match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            Some((last, _)) => last.clone(),
            None => "nothing".into(),
        }
    }

    /// What the C library (glibc) of a machine with these features must be told not to use, so that it makes do
    /// with the features of `common`: words for its tunable `glibc.cpu.hwcaps`.
    #[must_use]
    pub fn masked(&self, common: &Self) -> Vec<&'static str> {
        let gone = |feature: &&features::Name| self.has(feature) && !common.has(feature);
        let gone: Vec<_> = NAMES.iter().filter(gone).collect();
        let mut words: Vec<&str> = gone.iter().filter_map(|feature| feature.glibc).collect();
        // glibc concludes this from AVX and AVX2 before it reads the tunable, and chooses by it how to copy
        // memory.
        if words.contains(&"AVX") || words.contains(&"AVX2") {
            words.push("AVX_Fast_Unaligned_Load");
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(layout: &str, features: &str) -> Class {
        Class {
            layout: layout.into(),
            features: features.into(),
            hidden: String::new(),
        }
    }

    const HASWELL: &str = "GenuineIntel 7 2:576+256";
    const SKYLAKE: &str = "GenuineIntel e7 2:576+256 5:1088+64 6:1152+512 7:1664+1024";
    const ELSEWHERE: &str = "GenuineIntel e7 2:576+256 5:832+64 6:896+512 7:1408+1024";

    fn said(here: &Class, there: &Class) -> String {
        here.difference(there, None)
            .map_or_else(String::new, |difference| difference.to_string())
    }

    #[test]
    fn what_differs_in_the_registers_is_named() {
        let (haswell, skylake) = (class(HASWELL, ""), class(SKYLAKE, ""));
        let of_amd = HASWELL.replace("GenuineIntel", "AuthenticAMD");
        for (host, expected) in [
            (class(HASWELL, ""), ""),
            (
                class(&of_amd, ""),
                "its CPU is made by AuthenticAMD and not by GenuineIntel",
            ),
            (
                skylake.clone(),
                "its CPU's registers are laid out otherwise (it has AVX-512 besides)",
            ),
        ] {
            assert_eq!(said(&haswell, &host), expected);
        }
        for (host, expected) in [
            (haswell, "it has none of AVX-512"),
            (class(ELSEWHERE, ""), "AVX-512 have another place"),
        ] {
            assert!(said(&skylake, &host).contains(expected), "{expected}");
        }
    }

    #[test]
    fn what_differs_in_the_features_is_named() {
        // FMA, AVX; BMI1, AVX2.
        let rich = class(HASWELL, "1.0:0.0.10001000.0 7.0:0.28.0.0");
        let poor = class(HASWELL, "1.0:0.0.10000000.0");
        let odd = class(HASWELL, "1.0:0.0.10000000.0 7.0:0.0.8000.0");
        assert!(said(&rich, &poor).starts_with("its CPU lacks fma, bmi1 and avx2."));
        assert!(said(&poor, &rich).starts_with("its CPU has fma, bmi1 and avx2 besides."));
        let expected =
            "its CPU lacks fma, bmi1 and avx2 and has a feature without a common name besides";
        assert!(
            said(&rich, &odd).starts_with(expected),
            "{}",
            said(&rich, &odd)
        );
    }

    #[test]
    fn a_portable_program_needs_what_it_was_started_with() {
        let rich = class(HASWELL, "1.0:0.0.10001000.0 7.0:0.28.0.0");
        let poor = class(HASWELL, "1.0:0.0.10001000.0");
        let common = rich.features().common(&poor.features());
        assert_eq!(common, poor.features());
        let with_registers = class(SKYLAKE, &poor.features);
        assert_eq!(rich.difference(&poor, Some(&common)), None);
        assert_eq!(poor.difference(&rich, Some(&common)), None);
        let lacks = Difference::Needed("bmi1 and avx2".into());
        assert_eq!(rich.difference(&poor, Some(&rich.features())), Some(lacks));
        assert!(matches!(
            rich.difference(&with_registers, Some(&common)),
            Some(Difference::Registers(_))
        ));
        assert_eq!(
            rich.features().masked(&common),
            ["BMI1", "AVX2", "AVX_Fast_Unaligned_Load"]
        );
        assert!(common.masked(&rich.features()).is_empty());
    }

    #[test]
    fn a_node_that_hides_something_is_of_a_class_of_its_own() {
        let here = Class::here(&[]);
        let hides = Class::here(&["sse3".into()]);
        assert!(said(&here, &hides).starts_with("its CPU lacks sse3."));
        let poor = Class {
            hidden: String::new(),
            ..hides.clone()
        };
        assert!(said(&poor, &hides).contains("hides"));
        let names = [&here, &hides, &poor].map(ToString::to_string);
        assert!(
            names.iter().all(|name| name[..7] == names[0][..7]),
            "{names:?}"
        );
        assert_ne!(names[0], names[1]);
        assert_ne!(names[1], names[2]);
    }

    #[test]
    fn classes_survive_the_list_of_members_and_long_ones_do_not_come_in() {
        let here = Class::here(&["sse3".into()]);
        assert_eq!(Class::described(&here.describe()), Some(here.clone()));
        assert!(here.describe().len() < whim_net::roster::CLASS_LENGTH_MAX / 2);
        assert_eq!(
            Features::parse(&here.features().to_string()),
            here.features()
        );
        for text in [
            "",
            "0123456789abcdef/0123456789abcdef",
            &class(&"x".repeat(TEXT_MAX + 1), "").describe(),
            &class("", &"x".repeat(TEXT_MAX + 1)).describe(),
        ] {
            assert_eq!(Class::described(text), None);
        }
        assert!(Features::try_from("x".repeat(TEXT_MAX + 1)).is_err());
        let strange = Features::parse("nonsense 1.0:1 :. 1.0:g.0.0.0 1.0:1.2.3.4 2.0:1.2.3.4.5");
        assert_eq!(strange.to_string(), "1.0:1.2.3.4 2.0:1.2.3.4");
    }

    /// Asks the loader which features it uses with each word switched off: only the bit that we take the word
    /// for may be gone.
    #[test]
    fn each_word_for_the_c_library_switches_off_the_feature_that_we_take_it_for() {
        let loader = "/lib64/ld-linux-x86-64.so.2";
        let active = |words: &str| -> BTreeMap<(usize, usize), u32> {
            let output = std::process::Command::new(loader)
                .arg("--list-diagnostics")
                .env("GLIBC_TUNABLES", format!("glibc.cpu.hwcaps={words}"))
                .output()
                .expect("the loader runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let hex = |word: &str| usize::from_str_radix(word, 16).ok();
            let lines = text.lines().filter_map(|line| {
                let rest = line.strip_prefix("x86.cpu_features.features[0x")?;
                let (index, rest) = rest.split_once("].active[0x")?;
                let (register, value) = rest.split_once("]=0x")?;
                let value = u32::from_str_radix(value, 16).ok()?;
                Some(((hex(index)?, hex(register)?), value))
            });
            lines.collect()
        };
        let all = active("");
        let mut seen = 0;
        for name in NAMES {
            // glibc's own numbers of the leaves.
            let leaf = match (name.leaf, name.subleaf) {
                (1, 0) => 0,
                (7, 0) => 1,
                (0x8000_0001, 0) => 2,
                (0xd, 1) => 3,
                _ => continue,
            };
            let Some(word) = name.glibc else { continue };
            if all[&(leaf, name.register)] & (1 << name.bit) == 0 {
                continue;
            }
            let mut expected = all.clone();
            let bits = expected.get_mut(&(leaf, name.register)).expect("known");
            *bits &= !(1 << name.bit);
            assert_eq!(active(&format!("-{word}")), expected, "{word}");
            seen += 1;
        }
        assert!(
            seen >= 3,
            "This loader says nothing of its features: {all:x?}"
        );
    }
}
