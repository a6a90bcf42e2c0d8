//! All faults of a configuration: whoever mends the first one shall not meet the next at the next start.

use std::fmt;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, Deserializer, Error};

use super::written::Written;
use super::{Config, Fault, Odd};

/// The most that are told of one text: who has mended these asks again.
pub const FAULTS_MAX: usize = 32;
/// Of a longer text that is no TOML only the first fault is told: the parser would note as many as there are letters.
const SLIPS_SOUGHT_MAX: usize = 64 << 10;

/// What is wrong with one text: at least one fault, in the order of the lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    found: Vec<Fault>,
    /// Whether all were looked for.
    complete: bool,
}

impl Faults {
    /// At least one.
    #[must_use]
    pub fn as_slice(&self) -> &[Fault] {
        &self.found
    }

    /// In order, and no more than may be.
    fn new(mut found: Vec<Fault>) -> Self {
        found.sort_by_key(|fault| fault.line.unwrap_or(usize::MAX));
        let complete = found.len() <= FAULTS_MAX;
        found.truncate(FAULTS_MAX);
        Self { found, complete }
    }

    /// What is out of range in a text all of whose keys could be read; `None`: nothing.
    pub(super) fn of_odds(odds: Vec<Odd>, text: &str) -> Option<Self> {
        if odds.is_empty() {
            return None;
        }
        let tree = DeTable::parse(text).map(Spanned::into_inner);
        let tree = tree.unwrap_or_default();
        let faults = odds.into_iter().map(|odd| odd.of(&tree, text));
        Some(Self::new(faults.collect()))
    }

    /// What else is wrong with a text that gives this error: each of its keys is read by itself. `base` gives the
    /// values that cannot be read.
    pub(super) fn sought(error: &Error, text: &str, base: Config) -> Self {
        let Ok(tree) = DeTable::parse(text) else {
            return Self::new(slips(error, text));
        };
        let tree = tree.get_ref();
        let (config, mut found) = read_apart(tree, text, base);
        if found.is_empty() {
            found.push(Fault::read(error, Some(tree), text));
        }
        let is_unread = |key: &str| found.iter().any(|fault| fault.key.as_deref() == Some(key));
        let odds = config.odds().into_iter();
        // A value that could not be read is not the default, by which it would be judged here.
        let odds = odds.filter(|odd| !odd.beside.is_some_and(is_unread));
        let odds: Vec<Fault> = odds.map(|odd| odd.of(tree, text)).collect();
        Self::new(found.into_iter().chain(odds).collect())
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.found.as_slice() {
            return write!(f, "{only}");
        }
        let more = if self.complete { "" } else { "more than " };
        writeln!(f, "it has {more}{} faults:", self.found.len())?;
        for fault in &self.found {
            writeln!(f, "  {}", fault.without_advice())?;
        }
        write!(
            f,
            "Correct these lines, or take them out: the defaults hold then"
        )
    }
}

/// Where a text is no TOML, the first slip of each line. What its keys are cannot be told.
fn slips(error: &Error, text: &str) -> Vec<Fault> {
    let begin = |error: &Error| error.span().map_or(0, |span| span.start);
    let mut errors = match text.len() <= SLIPS_SOUGHT_MAX {
        true => DeTable::parse_recoverable(text).1,
        false => vec![error.clone()],
    };
    errors.sort_by_key(begin);
    let in_one_line = |later: &mut Error, earlier: &mut Error| {
        let between = text.as_bytes().get(begin(earlier)..begin(later));
        between.is_some_and(|between| !between.contains(&b'\n'))
    };
    errors.dedup_by(in_one_line);
    let read = errors.iter().take(FAULTS_MAX + 1);
    read.map(|error| Fault::read(error, None, text)).collect()
}

/// Reads each key by itself: what can be read, over `base`, and the faults of the others, one more than are told at
/// most.
fn read_apart(tree: &DeTable<'_>, text: &str, base: Config) -> (Config, Vec<Fault>) {
    let mut config = base;
    let mut found = Vec::new();
    for (name, value) in in_order(tree) {
        for alone in pieces(name, value) {
            match Written::deserialize(Deserializer::from(Spanned::new(0..0, alone))) {
                Ok(written) => config = written.over(config),
                Err(error) => {
                    let fault = Fault::read(&error, Some(tree), text);
                    let below = format!("{}.", name.get_ref());
                    let is_below = fault.key.as_ref().is_some_and(|k| k.starts_with(&below));
                    found.push(fault);
                    if found.len() > FAULTS_MAX {
                        return (config, found);
                    }
                    if !is_below {
                        // All else in this table would have the same fault.
                        break;
                    }
                }
            }
        }
    }
    (config, found)
}

type Key<'a> = Spanned<DeString<'a>>;
type Value<'a> = Spanned<DeValue<'a>>;

/// An entry of the text, or if it is a table each entry of that, as if there was no other.
fn pieces<'t, 'i>(
    name: &'t Key<'i>,
    value: &'t Value<'i>,
) -> Box<dyn Iterator<Item = DeTable<'i>> + 't> {
    let alone = |value| DeTable::from_iter([(name.clone(), value)]);
    match value.get_ref() {
        DeValue::Table(below) if !below.is_empty() => {
            Box::new(in_order(below).into_iter().map(move |(inner, one)| {
                let table = DeTable::from_iter([(inner.clone(), one.clone())]);
                alone(Spanned::new(value.span(), DeValue::Table(table)))
            }))
        }
        _ => Box::new(std::iter::once(alone(value.clone()))),
    }
}

/// Entries as they follow each other in the text.
fn in_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<(&'t Key<'i>, &'t Value<'i>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::ConfigError;

    fn faults(text: &str) -> Faults {
        match Config::parse(text, Path::new("config.toml")) {
            Err(ConfigError::Invalid { faults, .. }) => faults,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn places(text: &str) -> Vec<(usize, String)> {
        let found = faults(text);
        let found = found.as_slice().iter();
        let place = |fault: &Fault| Some((fault.line?, fault.key.clone().unwrap_or_default()));
        found.filter_map(place).collect()
    }

    #[test]
    fn each_fault_is_told_in_the_order_of_the_lines() {
        let text = "web = {names = [\"a b\"], key = 3}\nlisen = 1\nlease = true\n\n[guests]\nmax = \"many\"\n\
                    pids = 3\nown_vdso = false\nmox = 1\nmemory_percent = 0\n[gests]\nmax = 1\npids = 2\n\
                    [cpu]\nhide = [\"avx3\"]";
        let expected = [
            (1, "web.key"),
            (1, "web.names"),
            (2, "lisen"),
            (3, "lease"),
            (6, "guests.max"),
            (7, "guests.pids"),
            (9, "guests.mox"),
            (10, "guests.memory_percent"),
            (11, "gests"),
            (15, "cpu.hide"),
        ];
        let expected = expected.map(|(line, key)| (line, key.to_owned()));
        assert_eq!(places(text), expected);
        let said = faults(text).to_string();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), expected.len() + 2, "{said}");
        assert_eq!(lines[0], "it has 10 faults:");
        assert!(lines[3].contains("(did you mean listen?)"), "{said}");
        assert!(lines[7].contains("(did you mean max?)"), "{said}");
        assert!(lines[9].contains("(did you mean guests?)"), "{said}");
        assert!(said.ends_with("the defaults hold then"), "{said}");
    }

    #[test]
    fn several_values_out_of_range_are_told_when_all_can_be_read() {
        let text = "[guests]\npids = 1\nuid_count = 0\n[cpu]\nspeed = 0.0";
        let expected = [
            (2, "guests.pids"),
            (3, "guests.uid_start"),
            (5, "cpu.speed"),
        ];
        assert_eq!(
            places(text),
            expected.map(|(line, key)| (line, key.to_owned()))
        );
    }

    /// It would have been judged by the default, and would say that the other one is missing.
    #[test]
    fn a_value_that_cannot_be_read_has_no_second_fault() {
        let text = "[web]\ncertificate = \"/c\"\nkey = 3";
        assert_eq!(places(text), [(3, "web.key".to_owned())]);
        let alone = "[web]\ncertificate = \"/c\"\nnemes = []";
        assert_eq!(places(alone).len(), 2);
    }

    #[test]
    fn slips_in_the_language_are_told_for_each_line() {
        let text = "lease = = 1\nallow_root = maybe\n[guests\nmax = 1\n";
        let lines: Vec<usize> = places(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 2, 3]);
        assert_eq!(places("lease = 1\nlease = 2"), [(2, String::new())]);
        let padding = "#".repeat(SLIPS_SOUGHT_MAX);
        assert_eq!(places(&format!("{text}{padding}")).len(), 1);
    }

    #[test]
    fn faults_are_told_up_to_their_limit() {
        let keys = |count: usize| (0..count).map(|n| format!("key{n} = {n}\n"));
        let all = faults(&keys(FAULTS_MAX).collect::<String>());
        assert_eq!((all.as_slice().len(), all.complete), (FAULTS_MAX, true));
        for text in [
            keys(FAULTS_MAX + 1).collect::<String>(),
            keys(20_000).collect(),
            "= 1\n".repeat(1000),
        ] {
            let cut = faults(&text);
            assert_eq!(cut.as_slice().len(), FAULTS_MAX);
            assert_eq!(cut.as_slice()[0].line, Some(1));
            assert!(cut.to_string().starts_with("it has more than 32 faults:"));
        }
    }
}
