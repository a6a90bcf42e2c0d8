//! Figures: how many samples become one, how they are written down, and whether they are good.

use std::fs::OpenOptions;
use std::io::Write;

use serde_json::json;
use whim_system_tests::{Context, Result, ensure};

use super::load::Kept;

/// The value below which this share of the samples lies; 0 of none.
#[must_use]
pub(super) fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    // Truncation of a small, non-negative number is what is wanted.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss
    )]
    let index = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(index).copied().unwrap_or(0.0)
}

#[must_use]
pub(super) fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

/// One row of a table of the document.
#[derive(Clone, Debug)]
pub(super) struct Row {
    section: &'static str,
    case: String,
}

impl Row {
    pub(super) fn new(section: &'static str, case: impl Into<String>) -> Self {
        Self {
            section,
            case: case.into(),
        }
    }

    /// Writes one cell.
    ///
    /// # Errors
    /// When the file of results cannot be written.
    pub(super) fn put(&self, measure: &str, value: f64, unit: &str) -> Result<()> {
        let Self { section, case } = self;
        println!("{section}: {case}: {measure}: {value:.3} {unit}");
        let Some(path) = std::env::var_os("WHIM_BENCH_FILE") else {
            return Ok(());
        };
        let line = json!({
            "section": section, "case": case, "measure": measure, "value": value, "unit": unit,
        });
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        writeln!(file, "{line}").with_context(|| format!("Could not write {}", path.display()))
    }

    /// Writes median and 95th percentile of these samples; the median.
    ///
    /// # Errors
    /// When the file of results cannot be written.
    pub(super) fn spread(&self, measure: &str, samples: &[f64], unit: &str) -> Result<f64> {
        let middle = median(samples);
        self.put(&format!("{measure}, median"), middle, unit)?;
        self.put(&format!("{measure}, p95"), quantile(samples, 0.95), unit)?;
        Ok(middle)
    }

    /// Writes under which load this was measured.
    ///
    /// # Errors
    /// When the file of results cannot be written.
    pub(super) fn load<T>(&self, kept: &Kept<T>) -> Result<()> {
        self.put("foreign load", kept.foreign_percent, "%")?;
        self.put("discarded", f64::from(kept.discarded), "runs")
    }
}

/// Goals of one measurement. They are judged at its end, so that all figures are written first.
#[derive(Debug, Default)]
pub(super) struct Goals {
    missed: Vec<String>,
}

impl Goals {
    /// A figure of a machine that was busy with other things proves nothing either way.
    pub(super) fn judge(&mut self, what: &str, good: bool, disturbed: bool) {
        let verdict = match (good, disturbed) {
            (true, _) => "reached",
            (false, true) => "missed, on a machine that was busy with other things",
            (false, false) => "missed",
        };
        println!("goal: {what}: {verdict}");
        if verdict == "missed" {
            self.missed.push(what.to_owned());
        }
    }

    /// # Errors
    /// When a goal was missed.
    pub(super) fn conclude(self) -> Result<()> {
        ensure!(
            self.missed.is_empty(),
            "Goals missed: {}",
            self.missed.join("; ")
        );
        Ok(())
    }
}
