//! Parameters of routines: what there is, what may be given, and what was.

use std::collections::BTreeMap;
use std::fmt;

/// One parameter of a routine, as `pipt list` shows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: Kind,
    /// As it would be written; None where it has to be given.
    pub default: Option<&'static str>,
    pub about: &'static str,
}

impl Parameter {
    /// One that need not be given: `default` is taken then, or nothing if that is empty.
    #[must_use]
    pub const fn new(
        name: &'static str,
        kind: Kind,
        default: &'static str,
        about: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            default: Some(default),
            about,
        }
    }
}

/// What may be given for a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A whole number from the first to the second.
    Whole(u64, u64),
    /// The same, and odd.
    Odd(u64, u64),
    /// Any finite number from the first to the second.
    Number(f64, f64),
    Choice(&'static [&'static str]),
    YesNo,
    /// Pairs of whole numbers, `DX:DY`, separated by commas.
    Offsets,
    /// Some of these words, separated by commas, or `all`.
    Words(&'static [&'static str]),
    /// One of the words, or `LEAST:MOST`.
    Range(&'static [&'static str]),
    /// Numbers, separated by commas.
    Numbers,
    /// Anything: the name of a file.
    Text,
}

/// What was given for a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Whole(u64),
    Number(f64),
    Word(String),
    Flag(bool),
    Offsets(Vec<(i32, i32)>),
    Words(Vec<&'static str>),
    Range(f64, f64),
    Numbers(Vec<f64>),
}

/// Numbers in a list have this limit, and offsets this one to either side.
const LIST_MAX: usize = 64;
const OFFSET_MAX: i32 = 1024;

/// Why a parameter cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterError {
    /// There is no such parameter: the name, and those that there are.
    Unknown(String, Vec<&'static str>),
    Twice(String),
    Missing(&'static str),
    /// The name, what was given, and what may be.
    Wrong(&'static str, String, String),
}

impl fmt::Display for ParameterError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name, there_are) if there_are.is_empty() => {
                write!(to, "'{name}' is no parameter here: it has none")
            }
            Self::Unknown(name, there_are) => {
                write!(
                    to,
                    "'{name}' is no parameter here: it has {}",
                    there_are.join(", ")
                )
            }
            Self::Twice(name) => write!(to, "'{name}' is given twice"),
            Self::Missing(name) => write!(to, "'{name}' is missing: give {name}=VALUE"),
            Self::Wrong(name, given, expected) => {
                write!(to, "{name}={given} cannot be: it is {expected}")
            }
        }
    }
}

impl std::error::Error for ParameterError {}

impl fmt::Display for Kind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(least, most) => write!(to, "a whole number from {least} to {most}"),
            Self::Odd(least, most) => write!(to, "an odd number from {least} to {most}"),
            Self::Number(least, most) if *least == f64::MIN && *most == f64::MAX => {
                write!(to, "a number")
            }
            Self::Number(least, most) if *most == f64::MAX => {
                write!(to, "a number, at least {least}")
            }
            Self::Number(least, most) => write!(to, "a number from {least} to {most}"),
            Self::Choice(words) => write!(to, "{}", words.join(" or ")),
            Self::YesNo => write!(to, "yes or no"),
            Self::Offsets => write!(
                to,
                "pairs DX:DY, separated by commas, each from -{OFFSET_MAX} to {OFFSET_MAX} and not 0:0"
            ),
            Self::Words(words) => write!(
                to,
                "all, or some of {}, separated by commas",
                words.join(", ")
            ),
            Self::Range(words) => write!(to, "{} or LEAST:MOST", words.join(", ")),
            Self::Numbers => write!(to, "numbers, separated by commas, at most {LIST_MAX}"),
            Self::Text => write!(to, "a name"),
        }
    }
}

impl Kind {
    /// What `pipt list --json` calls it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Whole(..) => "whole",
            Self::Odd(..) => "odd",
            Self::Number(..) => "number",
            Self::Choice(_) => "choice",
            Self::YesNo => "yes-no",
            Self::Offsets => "offsets",
            Self::Words(_) => "words",
            Self::Range(_) => "range",
            Self::Numbers => "numbers",
            Self::Text => "text",
        }
    }

    /// The least and the greatest number that may be given; None where there is no limit, or no number.
    #[must_use]
    pub fn limits(&self) -> (Option<serde_json::Number>, Option<serde_json::Number>) {
        match *self {
            Self::Whole(least, most) | Self::Odd(least, most) => {
                (Some(least.into()), Some(most.into()))
            }
            Self::Number(least, most) => {
                let limit = |number: f64, none: f64| {
                    serde_json::Number::from_f64(number).filter(|_| number != none)
                };
                (limit(least, f64::MIN), limit(most, f64::MAX))
            }
            _ => (None, None),
        }
    }

    /// The words that may be given.
    #[must_use]
    pub const fn words(&self) -> &'static [&'static str] {
        match self {
            Self::Choice(words) | Self::Words(words) | Self::Range(words) => words,
            _ => &[],
        }
    }

    /// Reads what was given.
    fn read(&self, given: &str) -> Option<Value> {
        match *self {
            Self::Whole(least, most) => whole(given, least, most).map(Value::Whole),
            Self::Odd(least, most) => {
                let odd = whole(given, least, most).filter(|number| number % 2 == 1);
                odd.map(Value::Whole)
            }
            Self::Number(least, most) => number(given)
                .filter(|number| (least..=most).contains(number))
                .map(Value::Number),
            Self::Choice(words) => words
                .contains(&given)
                .then(|| Value::Word(given.to_owned())),
            Self::YesNo => match given {
                "yes" => Some(Value::Flag(true)),
                "no" => Some(Value::Flag(false)),
                _ => None,
            },
            Self::Offsets => offsets(given).map(Value::Offsets),
            Self::Words(words) => some_of(given, words).map(Value::Words),
            Self::Range(words) => match given.split_once(':') {
                _ if words.contains(&given) => Some(Value::Word(given.to_owned())),
                Some((least, most)) => {
                    let (least, most) = (number(least)?, number(most)?);
                    (least < most).then_some(Value::Range(least, most))
                }
                None => None,
            },
            Self::Numbers => numbers(given).map(Value::Numbers),
            Self::Text => (!given.is_empty()).then(|| Value::Word(given.to_owned())),
        }
    }
}

fn whole(given: &str, least: u64, most: u64) -> Option<u64> {
    let number = given.parse().ok()?;
    (least..=most).contains(&number).then_some(number)
}

fn number(given: &str) -> Option<f64> {
    given.parse().ok().filter(|number: &f64| number.is_finite())
}

fn numbers(given: &str) -> Option<Vec<f64>> {
    let all: Vec<&str> = given.split(',').take(LIST_MAX + 1).collect();
    let all = (all.len() <= LIST_MAX).then_some(all)?;
    all.into_iter().map(number).collect()
}

fn offsets(given: &str) -> Option<Vec<(i32, i32)>> {
    let one = |pair: &str| {
        let (dx, dy) = pair.split_once(':')?;
        let offset = (dx.parse().ok()?, dy.parse().ok()?);
        let near = |distance: i32| (-OFFSET_MAX..=OFFSET_MAX).contains(&distance);
        (near(offset.0) && near(offset.1) && offset != (0, 0)).then_some(offset)
    };
    let all: Vec<&str> = given.split(',').take(LIST_MAX + 1).collect();
    if all.len() > LIST_MAX {
        return None;
    }
    all.into_iter().map(one).collect()
}

fn some_of(given: &str, words: &[&'static str]) -> Option<Vec<&'static str>> {
    if given == "all" {
        return Some(words.to_vec());
    }
    let mut chosen = Vec::new();
    for word in given.split(',') {
        let word = words.iter().find(|known| **known == word)?;
        if chosen.contains(word) {
            return None;
        }
        chosen.push(*word);
    }
    Some(chosen)
}

/// What was given for all parameters of a routine, or is taken instead.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    all: BTreeMap<&'static str, Value>,
    /// Those that were given.
    given: Vec<&'static str>,
}

impl Values {
    /// # Errors
    ///
    /// Something is given that there is not, or twice, or that cannot be; or something is missing.
    pub fn read<'a>(
        parameters: &[Parameter],
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ParameterError> {
        let mut values = Self::default();
        for (name, text) in given {
            let known = parameters.iter().find(|parameter| parameter.name == name);
            let Some(parameter) = known else {
                let names = parameters.iter().map(|parameter| parameter.name);
                return Err(ParameterError::Unknown(name.to_owned(), names.collect()));
            };
            let value = read(parameter, text)?;
            if values.all.insert(parameter.name, value).is_some() {
                return Err(ParameterError::Twice(name.to_owned()));
            }
            values.given.push(parameter.name);
        }
        for parameter in parameters {
            if values.all.contains_key(parameter.name) {
                continue;
            }
            let default = parameter
                .default
                .ok_or(ParameterError::Missing(parameter.name))?;
            if !default.is_empty() {
                values.all.insert(parameter.name, read(parameter, default)?);
            }
        }
        Ok(values)
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.all.get(name)
    }

    /// Whether it was given, and not taken by itself.
    #[must_use]
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains(&name)
    }

    #[must_use]
    pub fn whole(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Some(Value::Whole(number)) => Some(*number),
            _ => None,
        }
    }

    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.get(name) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// The two numbers of a range; None where it is a word.
    #[must_use]
    pub fn range(&self, name: &str) -> Option<(f64, f64)> {
        match self.get(name) {
            Some(Value::Range(least, most)) => Some((*least, *most)),
            _ => None,
        }
    }

    #[must_use]
    pub fn word(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Value::Word(word)) => Some(word),
            _ => None,
        }
    }

    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.get(name) == Some(&Value::Flag(true))
    }
}

fn read(parameter: &Parameter, given: &str) -> Result<Value, ParameterError> {
    let wrong =
        || ParameterError::Wrong(parameter.name, given.to_owned(), parameter.kind.to_string());
    parameter.kind.read(given).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn parameter(name: &'static str, kind: Kind, default: Option<&'static str>) -> Parameter {
        Parameter {
            name,
            kind,
            default,
            about: "",
        }
    }

    const ALL: [Parameter; 8] = [
        parameter("window", Kind::Odd(3, 63), Some("9")),
        parameter("levels", Kind::Whole(2, 65_536), Some("64")),
        parameter("mean", Kind::Number(f64::MIN, f64::MAX), None),
        parameter("pairs", Kind::Choice(&["inside", "reach"]), Some("inside")),
        parameter("symmetric", Kind::YesNo, Some("yes")),
        parameter("offsets", Kind::Offsets, Some("1:0,0:1")),
        parameter("features", Kind::Words(&["max", "energy"]), Some("all")),
        parameter("range", Kind::Range(&["minmax"]), Some("minmax")),
    ];

    #[test]
    fn what_is_not_given_is_taken() {
        let values = Values::read(&ALL, [("mean", "-2.5"), ("window", "5")]).expect("values");
        assert_eq!(
            (values.whole("window"), values.whole("levels")),
            (Some(5), Some(64))
        );
        assert_eq!(values.number("mean"), Some(-2.5));
        assert!(values.flag("symmetric") && values.word("pairs") == Some("inside"));
        assert_eq!(
            values.get("offsets"),
            Some(&Value::Offsets(vec![(1, 0), (0, 1)]))
        );
        assert_eq!(
            values.get("features"),
            Some(&Value::Words(vec!["max", "energy"]))
        );
        assert!(values.is_given("window") && !values.is_given("levels"));
    }

    #[test]
    fn what_cannot_be_is_refused_by_a_sentence_that_says_what_can() {
        let refused = |name, given| {
            let refused = Values::read(&ALL, [("mean", "0"), (name, given)]).expect_err(given);
            refused.to_string()
        };
        for (name, given, expected) in [
            ("window", "4", "an odd number from 3 to 63"),
            ("window", "65", "an odd number from 3 to 63"),
            ("levels", "-1", "a whole number from 2 to 65536"),
            ("pairs", "outside", "inside or reach"),
            ("symmetric", "true", "yes or no"),
            ("offsets", "0:0", "pairs DX:DY"),
            ("offsets", "1:2000", "pairs DX:DY"),
            ("features", "max,max", "max, energy"),
            ("range", "5:5", "minmax or LEAST:MOST"),
            ("range", "nan:1", "minmax or LEAST:MOST"),
        ] {
            let said = refused(name, given);
            assert!(
                said.starts_with(&format!("{name}={given} cannot be")),
                "{said}"
            );
            assert!(said.contains(expected), "{said}");
        }
        assert!(refused("size", "3").contains("it has window, levels"));
        assert_eq!(refused("mean", "1"), "'mean' is given twice");
        let missing = Values::read(&ALL, []).expect_err("mean");
        assert_eq!(missing.to_string(), "'mean' is missing: give mean=VALUE");
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused(name in "[a-z]{1,8}", given in ".{0,40}") {
            for parameter in ALL {
                let _ = Values::read(&ALL, [("mean", "1"), (parameter.name, given.as_str())]);
            }
            let _ = Values::read(&ALL, [(name.as_str(), given.as_str())]);
        }
    }
}
