//! What is said of a number that does not fit: the parser names types of its own language, and no limits.

use super::UID_MAX;

/// Keys whose values are whole numbers, with the least and the greatest that the check of the configuration takes.
const RANGES: [(&str, u64, u64); 9] = [
    ("guests.max", 0, 65_536),
    ("guests.per_user", 0, u32::MAX as u64),
    ("guests.memory_percent", 1, 100),
    ("guests.pids", 16, 65_536),
    ("guests.uid_start", 1000, UID_MAX as u64 - 1),
    ("guests.uid_count", 1, UID_MAX as u64 - 1000),
    ("balance.uid_min", 0, u32::MAX as u64),
    ("balance.ask_above", 0, u64::MAX),
    ("owner_idle", 0, u64::MAX),
];

/// What a value of this key must be, if it is a number.
fn bounds(key: &str) -> Option<String> {
    match key {
        "lease" => Some("0.1 seconds to a year, or \"inf\"".to_owned()),
        "cpu.speed" => Some("0.01 to 100: 1 is an ordinary core".to_owned()),
        _ => {
            let (_, least, greatest) = RANGES.iter().find(|(name, ..)| *name == key)?;
            Some(format!("{least} to {greatest}"))
        }
    }
}

/// The parser's reason in other words, if it is that a number does not fit.
pub(super) fn told(key: Option<&str>, reason: &str) -> Option<String> {
    let quoted = |rest: &str| rest.split_once('`').map(|(digits, _)| digits.to_owned());
    let digits = if reason.ends_with("number overflowed") {
        None
    } else if let Some(rest) = reason.strip_prefix("invalid value: integer `") {
        Some(quoted(rest)?)
    } else {
        let rest = reason.strip_prefix("invalid type: integer `")?;
        let is_long =
            reason.contains("` as i128, expected ") || reason.contains("` as u128, expected ");
        Some(quoted(rest).filter(|_| is_long)?)
    };
    let size = match &digits {
        Some(digits) if digits.starts_with('-') => "small",
        _ => "large",
    };
    let Some((key, bounds)) = key.and_then(|key| Some((key, bounds(key)?))) else {
        // Where no number stands.
        return digits.map(|_| {
            reason
                .replacen(" as i128", "", 1)
                .replacen(" as u128", "", 1)
        });
    };
    let is = digits.map(|digits| format!("is {digits}, which "));
    let is = is.unwrap_or_default();
    Some(format!("{key} {is}is too {size}: it must be {bounds}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigError};
    use std::path::Path;

    fn refused(text: &str) -> String {
        match Config::parse(text, Path::new("config.toml")) {
            Err(ConfigError::Invalid { faults, .. }) => faults.to_string(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_told_with_their_limits() {
        for (text, said) in [
            (
                "lease = 99999999999999999999",
                "lease is 99999999999999999999, which is too large: it must be 0.1 seconds to a year, or \"inf\"",
            ),
            (
                "lease = -99999999999999999999",
                "which is too small: it must be 0.1 seconds",
            ),
            (
                "lease = 9999999999999999999999999999999999999999999",
                "lease is too large: it must be",
            ),
            (
                "guests.max = 99999999999999999999",
                "which is too large: it must be 0 to 65536",
            ),
            (
                "guests.max = -1",
                "guests.max is -1, which is too small: it must be 0 to 65536",
            ),
            (
                "guests.memory_percent = 300",
                "which is too large: it must be 1 to 100",
            ),
            (
                "cpu.speed = 99999999999999999999",
                "which is too large: it must be 0.01 to 100",
            ),
            (
                "cpu.speed = 1e999",
                "cpu.speed is too large: it must be 0.01 to 100",
            ),
            (
                "allow_root = 99999999999999999999",
                "allow_root: invalid type: integer `99999999999999999999`, expected a boolean",
            ),
        ] {
            let refused = refused(text);
            assert!(refused.starts_with("line 1: "), "{refused}");
            assert!(refused.contains(said), "{text}: {refused}");
        }
        let tuned = Config::default().with("guests.pids", toml::Value::Integer(-5));
        let said = tuned.expect_err("too small").to_string();
        assert!(said.contains("it must be 16 to 65536"), "{said}");
    }

    #[test]
    fn limits_that_are_told_are_those_that_hold() {
        for (key, least, greatest) in RANGES {
            // One of the range of uids leaves the other no room.
            let beside = match key {
                "guests.uid_start" => "guests.uid_count = 1\n",
                "guests.uid_count" => "guests.uid_start = 1000\n",
                _ => "",
            };
            let parse =
                |value: u128| Config::parse(&format!("{beside}{key} = {value}"), Path::new("x"));
            parse(least.into()).expect(key);
            if i64::try_from(greatest).is_ok() {
                parse(greatest.into()).expect(key);
            }
            parse(u128::from(greatest) + 1).expect_err(key);
            if let Some(less) = least.checked_sub(1) {
                parse(less.into()).expect_err(key);
            }
        }
    }

    #[test]
    fn a_key_with_too_many_parts_is_told_with_its_line() {
        let deep = |depth: usize| format!("{} = 1\n", vec!["a"; depth].join("."));
        let said = refused(&format!(
            "lease = 3\n\nlabels = [\n]\n{}lease = 4\n",
            deep(20_000)
        ));
        assert!(
            said.starts_with("line 5: a key here has more parts"),
            "{said}"
        );
        let said = refused(&format!("lease = 3\n{}", deep(90).repeat(2)));
        assert!(said.starts_with("line 2: "), "{said}");
        let said = refused(&format!("lease = 3\n[{}]\nx = 1", vec!["a"; 200].join(".")));
        assert!(said.starts_with("line 2: "), "{said}");
    }
}
