//! What `whim run` was told of a program, in the program's environment: a daemon that did not hear of it, and is asked to
//! take it up later, finds it there, with the program and with what that starts; so does a `whim run` of the program's own.

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

/// The options of a program that one starts which runs under rules of its own: these hold for what it starts.
///
/// # Errors
/// They cannot hold together.
pub fn within(outer: &RunOptions, options: RunOptions) -> Result<RunOptions, String> {
    let only = match (&outer.only[..], &options.only[..]) {
        ([], _) => options.only,
        (_, []) => outer.only.clone(),
        (outer, inner) => {
            let both: Vec<String> = inner
                .iter()
                .filter(|name| outer.contains(name))
                .cloned()
                .collect();
            if both.is_empty() {
                let (outer, inner) = (outer.join(","), inner.join(","));
                return Err(format!(
                    "--only {inner} cannot hold for a program that one starts which was started with --only {outer}"
                ));
            }
            both
        }
    };
    let mut avoid = options.avoid;
    let more = outer.avoid.iter().filter(|name| !avoid.contains(name));
    let more: Vec<String> = more.cloned().collect();
    avoid.extend(more);
    let both = RunOptions {
        only,
        avoid,
        pin: outer.pin || options.pin,
        class: options.class.or(outer.class),
        lease: options.lease.or(outer.lease),
        ..options
    };
    both.check()?;
    Ok(both)
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
    if value.is_empty() {
        return RunOptions::default();
    }
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
    fn the_rules_of_who_starts_a_program_hold_for_it() {
        let only = |names: &[&str]| RunOptions {
            only: names.iter().map(ToString::to_string).collect(),
            ..RunOptions::default()
        };
        let outer = RunOptions {
            avoid: vec!["n9".into()],
            pin: true,
            ..only(&["n1", "@gpu"])
        };
        let inner = RunOptions {
            avoid: vec!["n8".into()],
            ..only(&["n2", "@gpu"])
        };
        let both = RunOptions {
            avoid: vec!["n8".into(), "n9".into()],
            pin: true,
            ..only(&["@gpu"])
        };
        assert_eq!(within(&outer, inner.clone()), Ok(both));
        assert_eq!(within(&RunOptions::default(), inner.clone()), Ok(inner));
        assert_eq!(within(&outer, RunOptions::default()), Ok(outer.clone()));
        let on = |name: &str| RunOptions {
            on: Some(name.into()),
            ..RunOptions::default()
        };
        let free = only(&["n1", "n2"]);
        assert!(within(&free, on("n2")).is_ok() && within(&free, on("best")).is_ok());
        for (outer, inner, names) in [
            (&free, only(&["n3"]), "--only n3"),
            (&free, on("n3"), "--on n3"),
            (&outer, on("n1"), "--pin"),
        ] {
            let error = within(outer, inner).expect_err(names);
            assert!(error.contains(names), "{error}");
        }
    }

    #[test]
    fn what_is_not_understood_goes_nowhere() {
        let many = format!("{{\"only\":[{}\"n\"]}}", "\"n\",".repeat(300));
        let long = format!("{{\"only\":[\"{}\"]}}", "n".repeat(VALUE_MAX));
        assert_eq!(found(&environment("")), RunOptions::default());
        for value in ["{", "{\"pin\":3}", "{\"unheard\":1}", &many, &long] {
            assert!(found(&environment(value)).pin, "{value:.40}");
        }
    }
}
