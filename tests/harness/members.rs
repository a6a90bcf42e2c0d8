//! What the nodes of a lab know of each other.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::Cluster;
use crate::process::eventually;

impl Cluster {
    /// What node `on` says of every node.
    ///
    /// # Errors
    /// When it says nothing, or its output is not as documented.
    pub fn members(&self, on: &str) -> Result<Vec<Value>> {
        let text = self.whim(on, &["nodes", "--json"])?;
        text.lines()
            .map(|line| serde_json::from_str(line).with_context(|| format!("Not a row: {line}")))
            .collect()
    }

    /// What node `on` says of node `of`.
    ///
    /// # Errors
    /// When it does not know of that one.
    pub fn member(&self, on: &str, of: &str) -> Result<Value> {
        let mut rows = self.members(on)?.into_iter();
        rows.find(|row| row["name"] == of)
            .with_context(|| format!("{on} does not list {of}"))
    }

    /// Waits until node `on` knows this of node `of`.
    ///
    /// # Errors
    /// When it does not within that time.
    pub fn await_member(
        &self,
        (on, of): (&str, &str),
        (what, value): (&str, impl Into<Value>),
        most: Duration,
    ) -> Result<()> {
        let value = value.into();
        eventually(most, &format!("{on} knows {what} {value} of {of}"), || {
            Ok((self.member(on, of)?[what] == value).then_some(()))
        })
    }

    /// Whether all nodes of the lab are up, as node `on` has it.
    ///
    /// # Errors
    /// When it says nothing.
    pub fn sees_all_up(&self, on: &str) -> Result<bool> {
        let rows = self.members(on)?;
        Ok(rows.len() == self.nodes() && rows.iter().all(|row| row["state"] == "up"))
    }

    /// Waits until all nodes of the lab are up, as node `on` has it.
    ///
    /// # Errors
    /// When they are not within that time.
    pub fn await_all_up(&self, on: &str, most: Duration) -> Result<()> {
        eventually(most, &format!("{on} reaches all"), || {
            Ok(self.sees_all_up(on)?.then_some(()))
        })
    }
}
