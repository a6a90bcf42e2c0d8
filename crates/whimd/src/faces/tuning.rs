//! `whim tune`: the part of the configuration that can change while the daemon runs.
//!
//! A change lasts until the daemon ends. What is to last longer belongs in the configuration file, which
//! only its administrator writes. Keys that are read only once, at the start (addresses, uids, the
//! owner's terminals), and `allow_root`, which decides about trust, cannot be changed.

use serde_json::{Value, json};

use crate::ground::Ground;
use whim_control::config::Config;
use whim_control::places::Places;
use whim_control::protocol::{Knob, LeaseChoice};
use whim_control::similar;

/// Longest value, in bytes.
const VALUE_MAX: usize = 4096;

type Read = fn(&Config) -> Value;

/// Keys, and what a configuration says of each.
const KNOBS: &[(&str, Read)] = &[
    ("lease", |config| match config.lease.0 {
        LeaseChoice::Infinite => json!("inf"),
        LeaseChoice::Milliseconds(ms) if ms % 1000 == 0 => json!(ms / 1000),
        LeaseChoice::Milliseconds(ms) => {
            json!(std::time::Duration::from_millis(ms).as_secs_f64())
        }
    }),
    ("labels", |config| json!(config.labels)),
    ("guests.max", |config| json!(config.guests.max)),
    ("guests.per_user", |config| json!(config.guests.per_user)),
    ("guests.memory_percent", |config| {
        json!(config.guests.memory_percent)
    }),
    ("guests.pids", |config| json!(config.guests.pids)),
    ("guests.own_vdso", |config| json!(config.guests.own_vdso)),
    ("balance.enabled", |config| json!(config.balance.enabled)),
    ("balance.sessions", |config| json!(config.balance.sessions)),
    ("balance.beyond_job", |config| {
        json!(config.balance.beyond_job)
    }),
    ("balance.fair", |config| json!(config.balance.fair)),
    ("balance.ask_above", |config| {
        json!(config.balance.ask_above)
    }),
    ("balance.uid_min", |config| json!(config.balance.uid_min)),
];

fn knob(key: &str) -> Result<(&'static str, Read), String> {
    let found = KNOBS.iter().find(|(name, _)| *name == key).copied();
    found.ok_or_else(|| {
        let names: Vec<&str> = KNOBS.iter().map(|(name, _)| *name).collect();
        format!(
            "{key:?} is no key that can be changed while the daemon runs; these can: {}{}. All else stands in the \
             configuration, and holds from the next start of whimd on",
            names.join(", "),
            similar::question(key, names.iter().copied())
        )
    })
}

/// The value that holds now and the one with which the daemon was started: of one key, or of all.
///
/// # Errors
/// The key is none of these.
pub(crate) fn show(ground: &Ground, key: Option<&str>) -> Result<Vec<Knob>, String> {
    let (now, started) = (ground.config(), &ground.settings().configured);
    let one = |(key, read): (&str, Read)| Knob {
        key: key.to_owned(),
        value: read(&now),
        configured: read(started),
    };
    match key {
        Some(key) => Ok(vec![one(knob(key)?)]),
        None => Ok(KNOBS.iter().copied().map(one).collect()),
    }
}

/// A value as the configuration has it (`true`, `40`, `["gpu"]`), or a word, which needs no quotes.
fn value(text: &str) -> toml::Value {
    text.parse()
        .unwrap_or_else(|_| toml::Value::String(text.to_owned()))
}

/// A configuration with another value of one key.
fn changed(config: &Config, key: &str, text: &str) -> Result<Config, String> {
    let (key, _) = knob(key)?;
    if text.len() > VALUE_MAX {
        return Err(format!("The value is longer than {VALUE_MAX} bytes"));
    }
    let changed = config.with(key, value(text));
    changed.map_err(|fault| format!("{fault}; nothing was changed"))
}

/// Changes a key, and says what was done.
///
/// # Errors
/// The key is none of these, or the value does not fit it.
pub(crate) fn set(ground: &Ground, key: &str, text: &str) -> Result<String, String> {
    let (name, read) = knob(key)?;
    let (before, after) = ground.change_config(|config| changed(config, key, text))?;
    let (old, new) = (read(&before), read(&after));
    if old == new {
        return Ok(format!("{name} is {new} already"));
    }
    ground
        .events()
        .add(None, "tuned", format!("{name} is {new}, it was {old}"));
    Ok(format!(
        "{name} is {new} now, it was {old}; for what comes after the daemon's next start write it into {}",
        Places::here().config.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_knob_takes_what_it_shows_and_changes_nothing_else() {
        let config = Config::default();
        for (key, read) in KNOBS {
            let shown = read(&config).to_string();
            assert_eq!(changed(&config, key, &shown), Ok(config.clone()), "{key}");
        }
        for (key, text, expected) in [
            ("balance.fair", "true", json!(true)),
            (
                "balance.sessions",
                "[\"batch.slice\"]",
                json!(["batch.slice"]),
            ),
            ("balance.uid_min", "0", json!(0)),
            ("guests.max", "0", json!(0)),
            ("lease", "inf", json!("inf")),
            ("lease", "2.5", json!(2.5)),
            ("labels", "[\"gpu\"]", json!(["gpu"])),
        ] {
            let other = changed(&config, key, text).expect(key);
            for (name, read) in KNOBS {
                let wanted = if *name == key {
                    expected.clone()
                } else {
                    read(&config)
                };
                assert_eq!(read(&other), wanted, "{name} after {key} = {text}");
            }
        }
    }

    #[test]
    fn other_keys_and_values_are_refused_by_name() {
        let config = Config::default();
        for (key, text, word) in [
            (
                "allow_root",
                "true",
                "no key that can be changed while the daemon runs",
            ),
            ("listen", "[::]:1", "no key that can be"),
            ("guests.uid_start", "5000", "no key that can be"),
            ("balance.fairness", "true", "balance.fair"),
            ("balance.fair", "maybe", "balance.fair"),
            ("balance.fair", "true\nallow_root = true", "balance.fair"),
            ("balance.uid_min", "-1", "balance.uid_min"),
            ("guests.memory_percent", "101", "1 to 100"),
            ("balance.sessions", "[\"..\"]", "control group"),
            ("labels", "[\"a b\"]", "a label has"),
            ("lease", "0", "lease"),
        ] {
            let error = changed(&config, key, text).expect_err(key);
            assert!(error.contains(word), "{key} = {text}: {error}");
        }
        let long = "x".repeat(VALUE_MAX + 1);
        let error = changed(&config, "labels", &long).expect_err("too long");
        assert!(error.contains("4096 bytes"), "{error}");
    }
}
