//! What `whim run` was told of a program that it runs without a daemon, in the program's environment: the daemon that is
//! asked to take it up later finds it there, with the program and with what that starts.

use crate::protocol::RunOptions;

/// The variable that holds them.
pub const VARIABLE: &str = "WHIM_RULES";
/// The most bytes of its value.
const VALUE_MAX: usize = 64 << 10;

/// What holds for as long as the program runs.
fn lasting(options: RunOptions) -> RunOptions {
    RunOptions {
        on: None,
        portable: false,
        run: None,
        ..options
    }
}

/// The value of [`VARIABLE`] for a program with these options; `None` where any node may have it.
#[must_use]
pub fn written(options: &RunOptions) -> Option<String> {
    let lasting = lasting(options.clone());
    if lasting == RunOptions::default() {
        return None;
    }
    serde_json::to_string(&lasting).ok()
}

/// The rules in an environment, which consists of words that end with a zero byte. Those that are not understood let the
/// program go nowhere.
#[must_use]
pub fn found(environment: &[u8]) -> RunOptions {
    let name = |word: &&[u8]| {
        word.starts_with(VARIABLE.as_bytes()) && word.get(VARIABLE.len()) == Some(&b'=')
    };
    let Some(word) = environment.split(|byte| *byte == 0).find(name) else {
        return RunOptions::default();
    };
    let value = &word[VARIABLE.len() + 1..];
    let read = (value.len() <= VALUE_MAX).then(|| serde_json::from_slice::<RunOptions>(value));
    match read {
        Some(Ok(options)) if options.check().is_ok() => lasting(options),
        _ => RunOptions {
            pin: true,
            ..RunOptions::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(value: &str) -> Vec<u8> {
        format!("HOME=/\0WHIM_RULES_=x\0{VARIABLE}={value}\0TERM=\0").into_bytes()
    }

    #[test]
    fn what_is_written_is_found() {
        let rules = RunOptions {
            only: vec!["n1".into(), "@gpu".into()],
            avoid: vec!["n2".into()],
            pin: true,
            ..RunOptions::default()
        };
        let told = RunOptions {
            on: Some("n1".into()),
            portable: true,
            ..rules.clone()
        };
        let value = written(&told).expect("rules");
        assert_eq!(found(&environment(&value)), rules);
        assert_eq!(written(&RunOptions::default()), None);
        assert_eq!(found(b"HOME=/\0"), RunOptions::default());
    }

    #[test]
    fn what_is_not_understood_goes_nowhere() {
        let many = format!("{{\"only\":[{}\"n\"]}}", "\"n\",".repeat(300));
        let long = format!("{{\"only\":[\"{}\"]}}", "n".repeat(VALUE_MAX));
        for value in ["", "{", "{\"pin\":3}", "{\"unheard\":1}", &many, &long] {
            assert!(found(&environment(value)).pin, "{value:.40}");
        }
    }
}
