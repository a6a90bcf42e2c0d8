//! One thing that is wrong with a configuration, and where.

use serde::Serialize;
use std::fmt;
use toml::de::{DeTable, DeValue};

use super::number;
use crate::similar;

/// All that the parser says of a key with too many dots; not even where it is.
const TOO_DEEP: &str = "recursion limit";

/// A fault of a configuration.
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
        write!(f, "{}", self.without_advice())?;
        if self.line.is_some() {
            write!(
                f,
                "; correct that line, or take it out: the default holds then"
            )?;
        }
        Ok(())
    }
}

impl Fault {
    /// Where it is, and what.
    pub(super) fn without_advice(&self) -> String {
        let line = self.line.map(|line| format!("line {line}: "));
        let key = self.key.as_ref().filter(|key| !self.reason.contains(*key));
        let key = key.map(|key| format!("{key}: "));
        [line, key, Some(self.reason.clone())]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// A value that is out of range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Odd {
    /// The key, such as `guests.max`.
    pub key: &'static str,
    pub reason: String,
    /// Another key whose value is part of the reason.
    pub(super) beside: Option<&'static str>,
}

impl Odd {
    pub(super) fn new(key: &'static str, reason: String) -> Self {
        Self {
            key,
            reason,
            beside: None,
        }
    }

    pub(super) fn beside(self, other: &'static str) -> Self {
        Self {
            beside: Some(other),
            ..self
        }
    }

    /// The fault, with the line of the text that sets the key, or else the one beside it.
    pub(super) fn of(self, tree: &DeTable<'_>, text: &str) -> Fault {
        let mut keys = [Some(self.key), self.beside].into_iter().flatten();
        let offset = keys.find_map(|key| begin(tree, key));
        Fault {
            line: offset.map(|offset| line(text, offset)),
            key: Some(self.key.to_owned()),
            reason: self.reason,
        }
    }
}

impl Fault {
    /// The fault that the TOML parser has found in a text, whose tree is this, as far as it is TOML.
    pub(super) fn read(error: &toml::de::Error, tree: Option<&DeTable<'_>>, text: &str) -> Self {
        let offset = error.span().map(|span| span.start);
        let key = offset.and_then(|offset| key_at(tree?, offset));
        // One line, so that it fits into a sentence and a log.
        let reason = error.message().trim_end().replace('\n', ", ");
        if offset.is_none() && reason == TOO_DEEP {
            return Self {
                line: deep_line(text),
                key: None,
                reason: "a key here has more parts than are read, with dots between them"
                    .to_owned(),
            };
        }
        Self {
            line: offset.map(|offset| line(text, offset)),
            reason: match number::told(key.as_deref(), &reason) {
                Some(told) => told,
                None => format!("{reason}{}", meant(&reason)),
            },
            key,
        }
    }
}

/// Of a key that is not known: which one was meant perhaps. The parser has named it, and those that it knows.
fn meant(reason: &str) -> String {
    let unknown = reason.strip_prefix("unknown field `");
    match unknown.and_then(|rest| rest.rsplit_once("`, expected ")) {
        Some((key, known)) => similar::question(key, known.split('`').skip(1).step_by(2)),
        None => String::new(),
    }
}

fn line(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or_default();
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

/// The first line with a key that is nested too deeply: the shortest beginning of the text in which there is one ends
/// with it.
fn deep_line(text: &str) -> Option<usize> {
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let ends = [ends.as_slice(), &[text.len()]].concat();
    let is_deep = |end: usize| {
        let read = DeTable::parse(text.get(..end).unwrap_or_default());
        read.is_err_and(|error| error.message() == TOO_DEEP)
    };
    let before = ends.partition_point(|end| !is_deep(*end));
    (before < ends.len()).then_some(before + 1)
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
