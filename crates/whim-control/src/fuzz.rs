//! Entries of fuzz targets in `fuzz/`; their corpus is replayed by the tests of this crate and of `whimd`.

use std::fmt::Debug;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::{Config, ConfigError, FAULTS_MAX, Fault, Lease};
use crate::protocol::{Answer, LeaseChoice, Request};

/// What can be parsed is the same after it was written and parsed again.
pub fn again<T: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    if let Ok(first) = serde_json::from_slice::<T>(data) {
        let text = serde_json::to_vec(&first).expect("written");
        let second: T = serde_json::from_slice(&text).expect("taken again");
        assert_eq!(first, second);
    }
}

/// As [`again`], for types with fractions, whose last digit may change when they are read.
pub fn again_nearly<T: Serialize + DeserializeOwned>(data: &[u8]) {
    if let Ok(first) = serde_json::from_slice::<T>(data) {
        let text = serde_json::to_vec(&first).expect("written");
        let _: T = serde_json::from_slice(&text).expect("taken again");
    }
}

/// Requests to the control socket, and answers from it.
pub fn protocol(data: &[u8]) {
    again::<Request>(data);
    again_nearly::<Answer>(data);
    if let Ok(Request::Register { options }) = serde_json::from_slice(data)
        && let Some(lease) = options.lease
    {
        let _ = lease.milliseconds();
    }
    let text = String::from_utf8_lossy(data);
    if let Ok(lease) = text.parse::<LeaseChoice>() {
        assert!(is_sound(lease), "{text:?} is {lease:?}");
    }
}

fn is_sound(lease: LeaseChoice) -> bool {
    lease
        .milliseconds()
        .is_none_or(|ms| (100..=31_536_000_000).contains(&ms))
}

/// What is wrong is told from the first line on, once, and up to a limit.
fn faults_in_order(faults: &[Fault]) {
    assert!((1..=FAULTS_MAX).contains(&faults.len()), "{faults:?}");
    let lines: Vec<usize> = faults.iter().filter_map(|fault| fault.line).collect();
    assert!(lines.is_sorted(), "{faults:?}");
    for (index, fault) in faults.iter().enumerate() {
        assert!(!faults[..index].contains(fault), "{faults:?}");
    }
}

/// A configuration that is accepted respects every limit, and allows nothing that was not written.
pub fn config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let path = Path::new("config.toml");
    let config = match Config::parse(&text, path) {
        Ok(config) => config,
        Err(ConfigError::Invalid { faults, .. }) => return faults_in_order(faults.as_slice()),
        Err(_) => return,
    };
    config.check().expect("it was checked");
    let Lease(lease) = config.lease;
    assert!(is_sound(lease), "{lease:?}");
    let guests = &config.guests;
    assert!(guests.max <= 65_536);
    assert!((1..=100).contains(&guests.memory_percent) && (16..=65_536).contains(&guests.pids));
    assert!(guests.uid_start >= 1000 && guests.uid_start.checked_add(guests.uid_count).is_some());
    for total in [0, 1, 1 << 30, u64::MAX] {
        assert!(guests.share(total) <= total);
    }
    if !text.contains("allow_root") && !text.contains('\\') {
        assert!(!config.allow_root, "nobody has allowed it");
    }
}

#[cfg(test)]
mod tests {
    use whim_corpus::replay;

    #[test]
    fn corpus_of_configurations() {
        replay("config", super::config);
    }
}
