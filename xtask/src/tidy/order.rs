//! The order of crates: a crate depends only on those above it in the table of ARCHITECTURE.md.

use std::path::Path;

use anyhow::{Context, Result};

use toml::Table;

use super::manifests::manifest;
use super::rooms::names_in_table;
use crate::workspace::Workspace;

const DOCUMENT: &str = "ARCHITECTURE.md";
const TITLE: &str = "## Crates";

/// No crate of the table depends on one that stands below it; what only tests use is not meant.
///
/// # Errors
/// When files cannot be read.
pub(crate) fn of_crates(workspace: &Workspace) -> Result<Vec<String>> {
    let text = workspace.text(Path::new(DOCUMENT))?.unwrap_or_default();
    let order =
        names_in_table(&text, TITLE).with_context(|| format!("{DOCUMENT} has no '{TITLE}'"))?;
    let files = workspace.files()?;
    let mut findings = Vec::new();
    for (place, name) in order.iter().enumerate() {
        let path = Path::new("crates").join(name).join("Cargo.toml");
        // The last rows are no crates of `crates`.
        if !files.contains(&path) {
            continue;
        }
        let manifest = manifest(workspace, &path)?;
        let below = order[place..].iter();
        findings.extend(below.filter(|other| depends_on(&manifest, other)).map(|other| {
            format!("{}: {name} depends on {other}, which stands below it in {DOCUMENT}: move what it needs into a crate above", path.display())
        }));
    }
    Ok(findings)
}

/// Whether a manifest names a crate among its dependencies.
fn depends_on(manifest: &Table, name: &str) -> bool {
    manifest
        .get("dependencies")
        .and_then(|dependencies| dependencies.get(name))
        .is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_crate_is_built_with_counts() {
        let manifest =
            "[dependencies]\na.workspace = true\n[dev-dependencies]\nb.workspace = true\n"
                .parse()
                .expect("TOML");
        assert!(depends_on(&manifest, "a"));
        assert!(!depends_on(&manifest, "b"));
        assert!(!depends_on(&manifest, "c"));
    }
}
