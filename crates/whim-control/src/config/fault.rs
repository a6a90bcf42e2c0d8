//! What is wrong with a configuration, and where.

use serde::Serialize;
use std::fmt;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The first fault of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Counted from 1; `None`: the fault is not in a single line.
    pub line: Option<usize>,
    /// The key, such as `guests.max`; `None`: the text is not TOML there.
    pub key: Option<String>,
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if let Some(key) = self.key.as_ref().filter(|key| !self.reason.contains(*key)) {
            write!(f, "{key}: ")?;
        }
        write!(f, "{}", self.reason)?;
        if self.line.is_some() {
            write!(
                f,
                "; correct that line, or take it out: the default holds then"
            )?;
        }
        Ok(())
    }
}

/// A value that is out of range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Odd {
    /// The key, such as `guests.max`.
    pub key: &'static str,
    pub reason: String,
}

impl Odd {
    pub(super) fn new(key: &'static str, reason: String) -> Self {
        Self { key, reason }
    }

    /// The fault, with the line of the text that sets the key.
    pub(super) fn of(self, text: &str) -> Fault {
        let offset = tree(text).and_then(|tree| begin(tree.get_ref(), self.key));
        Fault {
            line: offset.map(|offset| line(text, offset)),
            key: Some(self.key.to_owned()),
            reason: self.reason,
        }
    }
}

impl Fault {
    /// The fault that the TOML parser has found in a text.
    pub(super) fn read(error: &toml::de::Error, text: &str) -> Self {
        let offset = error.span().map(|span| span.start);
        let key = offset.and_then(|offset| key_at(tree(text)?.get_ref(), offset));
        Self {
            line: offset.map(|offset| line(text, offset)),
            key,
            // One line, so that it fits into a sentence and a log.
            reason: error.message().trim_end().replace('\n', ", "),
        }
    }
}

fn tree(text: &str) -> Option<Spanned<DeTable<'_>>> {
    DeTable::parse(text).ok()
}

fn line(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or_default();
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Where a key such as `guests.max` is written.
fn begin(table: &DeTable<'_>, key: &str) -> Option<usize> {
    let (first, rest) = match key.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (key, None),
    };
    let (name, value) = table
        .iter()
        .find(|(name, _)| name.get_ref().as_ref() == first)?;
    match (rest, value.get_ref()) {
        (None, _) => Some(name.span().start),
        (Some(rest), DeValue::Table(below)) => begin(below, rest),
        (Some(_), _) => None,
    }
}

/// The key whose name or value is at this offset.
fn key_at(table: &DeTable<'_>, offset: usize) -> Option<String> {
    table.iter().find_map(|(name, value)| {
        let own = name.get_ref();
        if let DeValue::Table(below) = value.get_ref()
            && let Some(found) = key_at(below, offset)
        {
            return Some(format!("{own}.{found}"));
        }
        let here = name.span().contains(&offset) || value.span().contains(&offset);
        here.then(|| own.to_string())
    })
}
