//! `whim tune`: what a running daemon goes by.

use anyhow::Result;
use whim_control::client::Client;
use whim_control::protocol::{Answer, Knob, Request};

use crate::output;

/// Shows keys, or changes one and says what was done.
///
/// # Errors
/// When there is no such key, when the value does not fit, or when the caller may not change it.
pub(crate) fn perform(
    mut client: Client,
    key: Option<String>,
    value: Option<String>,
    json: bool,
) -> Result<()> {
    let mut knobs = Vec::new();
    let said = client.ask(&Request::Tune { key, value }, |answer| {
        if let Answer::Knob(knob) = answer {
            knobs.push(knob);
        }
    })?;
    match said {
        _ if json => knobs.iter().for_each(output::json),
        Some(text) => output::line(&text),
        None => show(&knobs),
    }
    Ok(())
}

fn show(knobs: &[Knob]) {
    let cells: Vec<Vec<String>> = knobs
        .iter()
        .map(|knob| {
            let configured = if knob.value == knob.configured {
                "as configured".to_owned()
            } else {
                format!("configured: {}", knob.configured)
            };
            vec![knob.key.clone(), knob.value.to_string(), configured]
        })
        .collect();
    output::table(&["KEY", "VALUE", ""], &[], &cells);
}
