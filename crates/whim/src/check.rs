//! `whim config check`: the daemon's own reading of a configuration, without the daemon.

use anyhow::{Result, bail};
use serde::Serialize;
use std::path::{Path, PathBuf};
use whim_control::config::{Config, ConfigError, Fault};
use whim_control::places::Places;

use crate::output;

/// What was found, with `--json`; the names are stable.
#[derive(Debug, Serialize)]
struct Checked {
    file: PathBuf,
    valid: bool,
    /// Without a file the defaults hold.
    present: bool,
    /// Of the first fault. Null, each, where it is valid, and where that cannot be told.
    line: Option<usize>,
    key: Option<String>,
    reason: Option<String>,
    faults: Vec<Fault>,
    /// Why a daemon of this user would not take a valid file as it lies there. Null if it would.
    exposed: Option<String>,
}

impl Checked {
    /// `optional`: the defaults hold where there is no such file.
    fn new(
        file: &Path,
        read: &Result<Option<Config>, ConfigError>,
        optional: bool,
        exposed: Option<String>,
    ) -> Self {
        let plain = |reason| {
            vec![Fault {
                line: None,
                key: None,
                reason,
            }]
        };
        let faults = match read {
            Ok(None) if !optional => plain("it is not there".to_owned()),
            Ok(_) => Vec::new(),
            Err(ConfigError::Invalid { faults, .. }) => faults.as_slice().to_vec(),
            Err(other) => plain(other.to_string()),
        };
        let first = faults.first().cloned();
        Self {
            file: file.to_owned(),
            valid: faults.is_empty(),
            present: !matches!(read, Ok(None)),
            line: first.as_ref().and_then(|fault| fault.line),
            key: first.as_ref().and_then(|fault| fault.key.clone()),
            reason: first.map(|fault| fault.reason),
            faults,
            exposed,
        }
    }
}

/// Says whether the file can be used, or what its faults are.
///
/// # Errors
/// It cannot be used: with file, lines and keys.
pub(crate) fn perform(named: Option<&Path>, json: bool) -> Result<()> {
    let usual = Places::here().config;
    let file = named.unwrap_or(&usual);
    let optional = file == usual;
    // Who will use another file is not known.
    let read = if optional {
        Config::load_own(file, Config::default())
    } else {
        Config::load(file)
    };
    let exposed = match &read {
        Ok(Some(_)) => Config::exposure(file),
        _ => None,
    };
    if let Some(why) = &exposed {
        output::aside(&format!(
            "whim: No daemon of yours would take this file as it lies there: {why}"
        ));
    }
    if json {
        output::json(&Checked::new(file, &read, optional, exposed));
    }
    let place = file.display();
    match read? {
        None if !optional => bail!("The configuration {place} is not there"),
        _ if json => {}
        None => output::line(&format!("{place} is not there: the defaults hold")),
        Some(_) => output::line(&format!("{place} is valid")),
    }
    Ok(())
}
