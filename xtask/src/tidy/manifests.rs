//! Checks of the manifests: every dependency has a reason, and one place where its version stands.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::{Table, Value};

use crate::workspace::Workspace;

const REASONS: &str = "docs/dependencies.md";
/// Where the image toolkit's crates are.
const TOOLKIT: &str = "mpi";
/// Workspaces of their own: fuzz targets are built with other flags, cargo-fuzz's with another compiler.
const APART: &[&str] = &["fuzz", "mpi/fuzz"];

pub(super) fn manifest(workspace: &Workspace, path: &Path) -> Result<Table> {
    let text = workspace
        .text(path)?
        .with_context(|| format!("{} is not text", path.display()))?;
    text.parse()
        .with_context(|| format!("{} is not TOML", path.display()))
}

/// Every dependency from outside has a line in `docs/dependencies.md`, and none is there in vain.
pub(super) fn dependency_reasons(workspace: &Workspace) -> Result<Vec<String>> {
    let names = outside(&manifest(workspace, Path::new("Cargo.toml"))?);
    let text = workspace.text(Path::new(REASONS))?.unwrap_or_default();
    Ok(compare(&names, &reasons(&text)))
}

/// Every dependency that the workspace names is used by a member.
pub(super) fn unused(workspace: &Workspace) -> Result<Vec<String>> {
    let mut names = outside(&manifest(workspace, Path::new("Cargo.toml"))?);
    for path in member_manifests(workspace)? {
        let member = manifest(workspace, &path)?;
        for name in dependencies(&member).map(|(name, _)| name) {
            names.remove(name);
        }
    }
    Ok(names
        .iter()
        .map(|name| format!("Cargo.toml: no member uses {name}: remove it"))
        .collect())
}

fn member_manifests(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let mut files = workspace.files()?;
    let own = |path: &Path| {
        path != Path::new("Cargo.toml") && !APART.iter().any(|other| path.starts_with(other))
    };
    files.retain(|path| own(path) && path.ends_with("Cargo.toml"));
    Ok(files)
}

/// All dependencies of a member, of every kind.
fn dependencies(manifest: &Table) -> impl Iterator<Item = (&String, &Value)> {
    ["dependencies", "dev-dependencies", "build-dependencies"]
        .into_iter()
        .filter_map(|table| manifest.get(table).and_then(Value::as_table))
        .flatten()
}

/// The names in `[workspace.dependencies]` that are not crates of this workspace.
fn outside(manifest: &Table) -> BTreeSet<String> {
    let dependencies = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("dependencies"))
        .and_then(Value::as_table);
    dependencies
        .into_iter()
        .flatten()
        .filter(|(_, value)| value.get("path").is_none())
        .map(|(name, _)| name.clone())
        .collect()
}

/// The names in the first column of the tables: "| `name` | why | ...".
fn reasons(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name.to_owned())
        .collect()
}

fn compare(used: &BTreeSet<String>, explained: &BTreeSet<String>) -> Vec<String> {
    let missing = used.difference(explained).map(|name| {
        format!(
            "{REASONS}: add a line for {name}: why, weight, licence, what we would write instead"
        )
    });
    let stale = explained
        .difference(used)
        .map(|name| format!("{REASONS}: remove {name}, which is not in Cargo.toml"));
    missing.chain(stale).collect()
}

/// Members take versions, edition, licence and lints from the workspace, and the gate runs for all but the toolkit.
pub(super) fn members(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = default_findings(&manifest(workspace, Path::new("Cargo.toml"))?);
    for path in member_manifests(workspace)? {
        let manifest = manifest(workspace, &path)?;
        for finding in member_findings(&manifest) {
            findings.push(format!("{}: {finding}", path.display()));
        }
    }
    Ok(findings)
}

/// Members that cargo leaves out where nothing names them, but for the toolkit: no gate would run for them.
fn default_findings(root: &Table) -> Vec<String> {
    let listed = |key: &str| -> BTreeSet<&str> {
        let paths = root
            .get("workspace")
            .and_then(|workspace| workspace.get(key));
        let paths = paths.and_then(Value::as_array).into_iter().flatten();
        paths.filter_map(Value::as_str).collect()
    };
    let defaults = listed("default-members");
    let mut core = listed("members");
    core.retain(|path| !Path::new(path).starts_with(TOOLKIT));
    core.symmetric_difference(&defaults)
        .map(|path| format!("Cargo.toml: {path} is in one of members and default-members alone"))
        .collect()
}

fn member_findings(manifest: &Table) -> Vec<String> {
    let inherited = |value: &Value| value.get("workspace") == Some(&Value::Boolean(true));
    let mut findings = Vec::new();
    let package = manifest.get("package").and_then(Value::as_table);
    for key in ["version", "edition", "rust-version", "license", "publish"] {
        if !package
            .and_then(|package| package.get(key))
            .is_some_and(inherited)
        {
            findings.push(format!("write {key}.workspace = true"));
        }
    }
    if !manifest.get("lints").is_some_and(inherited) {
        findings.push("write [lints] workspace = true".to_owned());
    }
    for (name, value) in dependencies(manifest) {
        if !inherited(value) {
            findings.push(format!(
                "write {name}.workspace = true, the version in Cargo.toml"
            ));
        }
    }
    findings
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn missing_and_stale_reasons_are_found() {
        let manifest: Table = "[workspace.dependencies]\na = \"1\"\nb = { version = \"2\" }\n\
             own = { path = \"crates/own\" }\n"
            .parse()
            .unwrap();
        let findings = compare(
            &outside(&manifest),
            &reasons("| name |\n| `b` | x |\n| `c` | y |"),
        );
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].contains("line for a:"));
        assert!(findings[1].contains("remove c,"));
    }

    #[test]
    fn a_member_that_no_gate_looks_at_is_found() {
        let manifest: Table = "[workspace]\nmembers = [\"crates/*\", \"new\", \"mpi/pipt*\"]\n\
             default-members = [\"crates/*\"]\n"
            .parse()
            .unwrap();
        let findings = default_findings(&manifest);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].contains(": new is"), "{findings:?}");
    }

    #[test]
    fn a_member_with_values_of_its_own_is_found() {
        let manifest: Table = "[package]\nversion.workspace = true\nedition = \"2021\"\n\
             rust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n\
             [lints]\nworkspace = true\n[dependencies]\na = \"1\"\nb.workspace = true\n"
            .parse()
            .unwrap();
        let findings = member_findings(&manifest);
        assert_eq!(findings.len(), 2, "{findings:?}");
    }
}
