//! Circles of imports: files of which each needs all others to be understood.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use super::rooms::code_lines;
use crate::workspace::Workspace;

/// How many files a circle has at most, in crates that grew large ones before.
const LARGEST: &[(&str, usize)] = &[("whimd", 6), ("whim-guest", 3), ("whim-home", 3)];

/// Which modules a module names.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// No circle of imports has more files than its crate's may.
///
/// # Errors
/// When files cannot be read.
pub(crate) fn are_small(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for (package, most) in LARGEST {
        let sources = Path::new("crates").join(package).join("src");
        let mut modules = BTreeMap::new();
        for path in workspace.files()? {
            let inner = path.strip_prefix(&sources);
            let Some(module) = inner.ok().and_then(module) else {
                continue;
            };
            if let Some(source) = workspace.text(&path)? {
                modules.insert(module, source);
            }
        }
        let large = circles(&arrows(&modules));
        let large = large.into_iter().filter(|circle| circle.len() > *most);
        findings.extend(large.map(|circle| {
            let files = circle.into_iter().collect::<Vec<_>>().join(", ");
            format!(
                "{}: these import each other in a circle, of which {most} may: {files}: move what they share below them",
                sources.display()
            )
        }));
    }
    Ok(findings)
}

/// The module that a file is, `a::b` for `a/b.rs`; none for what binds all together, and for tests.
fn module(inner: &Path) -> Option<String> {
    let name = inner.to_str()?.strip_suffix(".rs")?;
    let is_root = ["lib", "main"].contains(&name);
    let is_test = name.ends_with("/tests");
    (!is_root && !is_test).then(|| name.replace('/', "::"))
}

fn arrows(modules: &BTreeMap<String, String>) -> Arrows {
    let named = |(module, source): (&String, &String)| {
        let named = paths(module, source).into_iter();
        let named = named.filter_map(|path| innermost(&path, modules));
        let others = named.filter(|other| other != module).collect();
        (module.clone(), others)
    };
    modules.iter().map(named).collect()
}

/// The paths within the crate that a source names outside of its tests, from the crate's root.
fn paths(module: &str, source: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for line in code_lines(source) {
        for (root, base) in [("crate::", ""), ("super::", module)] {
            for (at, _) in line.match_indices(root) {
                let is_letter =
                    |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
                if line[..at].ends_with(is_letter) {
                    continue;
                }
                let rest = &line[at + root.len()..];
                let end = rest.find(|letter| !is_letter(letter)).unwrap_or(rest.len());
                let outer = base.rsplit_once("::").map_or("", |(outer, _)| outer);
                paths.push(
                    format!("{outer}::{}", &rest[..end])
                        .trim_start_matches(':')
                        .to_owned(),
                );
            }
        }
    }
    paths
}

/// The longest part of a path that is a module.
fn innermost(path: &str, modules: &BTreeMap<String, String>) -> Option<String> {
    let ends = path
        .match_indices("::")
        .map(|(at, _)| at)
        .chain([path.len()]);
    let parts = ends.map(|end| &path[..end]);
    parts
        .filter(|part| modules.contains_key(*part))
        .last()
        .map(str::to_owned)
}

/// Each set of modules that reach each other, of two or more.
fn circles(arrows: &Arrows) -> BTreeSet<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = arrows
        .keys()
        .map(|module| (module, reach(module, arrows)))
        .collect();
    let circle = |module: &&String| -> BTreeSet<String> {
        let mutual = reached[module]
            .iter()
            .filter(|other| reached[*other].contains(module));
        mutual.map(ToString::to_string).collect()
    };
    let circles = arrows.keys().collect::<Vec<_>>();
    circles
        .iter()
        .map(circle)
        .filter(|circle| circle.len() > 1)
        .collect()
}

/// All that a module needs, by whatever way.
fn reach<'a>(module: &'a String, arrows: &'a Arrows) -> BTreeSet<&'a String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![module]);
    while let Some(module) = next.pop() {
        for other in &arrows[module] {
            if reached.insert(other) {
                next.push(other);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_found_by_its_imports() {
        let sources = [
            ("a", "use crate::b::{X, Y};\n"),
            ("b", "fn x() { crate::c::d::y() }\n"),
            ("c", "// crate::b\n"),
            ("c::d", "use super::e::Z;\nuse crate::a;\n"),
            ("c::e", "#[cfg(test)]\nmod tests {\nuse crate::a;\n}\n"),
        ];
        let modules = sources.map(|(name, source)| (name.to_owned(), source.to_owned()));
        let arrows = arrows(&modules.into());
        assert_eq!(arrows["c::d"], ["a", "c::e"].map(str::to_owned).into());
        let circle = ["a", "b", "c::d"].map(str::to_owned).into();
        assert_eq!(circles(&arrows), [circle].into());
    }

    #[test]
    fn files_are_modules() {
        let module = |path| super::module(Path::new(path));
        assert_eq!(module("a/b.rs").as_deref(), Some("a::b"));
        assert_eq!(module("lib.rs"), None);
        assert_eq!(module("a/tests.rs"), None);
        assert_eq!(module("a.c"), None);
    }
}
