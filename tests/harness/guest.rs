//! Guests: programs written for the tests, compiled once, and large inputs, generated once.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::place;
use crate::process::succeed;

const COMPILE_LIMIT: Duration = Duration::from_secs(240);

/// A guest's source.
#[must_use]
pub fn source(name: &str) -> PathBuf {
    place::guests().join(name)
}

/// A guest's source at a path that nodes see too, for its interpreter.
///
/// # Errors
/// When it cannot be copied to where nodes see it.
pub fn script(name: &str) -> Result<PathBuf> {
    let original = source(name);
    if !place::is_hidden(&original) {
        return Ok(original);
    }
    let copies = once(&name_of("scripts", &original, &[])?, |draft| {
        fs::create_dir(draft)?;
        fs::copy(&original, draft.join(name))?;
        Ok(())
    })?;
    Ok(copies.join(name))
}

/// Makes something in the cache unless it is there already. It appears under its name when it is
/// complete, so that a test that is killed leaves nothing half done.
///
/// # Errors
/// Those of `make`, which gets the path to write.
pub fn once(name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let path = place::cache()?.join(name);
    if path.exists() {
        return Ok(path);
    }
    let draft = place::cache()?.join(format!("{name}.draft-{}", std::process::id()));
    let _ = fs::remove_dir_all(&draft);
    make(&draft)?;
    match fs::rename(&draft, &path) {
        Ok(()) => Ok(path),
        // Another test was faster.
        Err(_) if path.exists() => Ok(path),
        Err(error) => Err(error).with_context(|| format!("Could not make {}", path.display())),
    }
}

/// A name that changes with what it is made from: a source, and what several guests include.
fn name_of(stem: &str, source: &Path, options: &[&str]) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    options.hash(&mut hasher);
    for file in [source, &self::source("meet.h")] {
        fs::read(file)
            .with_context(|| format!("Could not read {}", file.display()))?
            .hash(&mut hasher);
    }
    Ok(format!("{stem}-{:016x}", hasher.finish()))
}

/// Compiles a C guest; the program's path.
///
/// # Errors
/// When it does not compile.
pub fn c(name: &str) -> Result<PathBuf> {
    c_with(name, &[])
}

/// The same with further options of gcc.
///
/// # Errors
/// When it does not compile.
pub fn c_with(name: &str, options: &[&str]) -> Result<PathBuf> {
    c_at(name, &source(&format!("{name}.c")), options)
}

/// The same for a source elsewhere.
///
/// # Errors
/// When it does not compile.
pub fn c_at(name: &str, source: &Path, options: &[&str]) -> Result<PathBuf> {
    let usual = ["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];
    let all: Vec<&str> = usual.iter().chain(options).copied().collect();
    once(&name_of(name, source, &all)?, |draft| {
        let mut command = Command::new("gcc");
        command
            .args(&all)
            .arg("-o")
            .arg(draft)
            .arg(source)
            .arg("-lm");
        succeed(&mut command, COMPILE_LIMIT).map(drop)
    })
}

/// Compiles a C guest of several sources in one directory; the program's path.
///
/// # Errors
/// When it does not compile.
pub fn c_of(directory: &str, name: &str, files: &[&str]) -> Result<PathBuf> {
    let directory = source(directory);
    let usual = ["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];
    let mut hasher = DefaultHasher::new();
    usual.hash(&mut hasher);
    for file in files {
        let path = directory.join(file);
        fs::read(&path)
            .with_context(|| format!("Could not read {}", path.display()))?
            .hash(&mut hasher);
    }
    once(&format!("{name}-{:016x}", hasher.finish()), |draft| {
        let sources = files.iter().filter(|file| file.ends_with(".c"));
        let mut command = Command::new("gcc");
        command
            .args(usual)
            .arg("-o")
            .arg(draft)
            .args(sources.map(|file| directory.join(file)))
            .args(["-lrt", "-lutil"]);
        succeed(&mut command, COMPILE_LIMIT).map(drop)
    })
}

/// Compiles a Go guest; the program's path.
///
/// # Errors
/// When it does not compile.
pub fn go(name: &str) -> Result<PathBuf> {
    let source = source(&format!("{name}.go"));
    once(&name_of(&format!("{name}-go"), &source, &[])?, |draft| {
        let cache = place::cache()?;
        let mut command = Command::new("go");
        command
            .args(["build", "-o"])
            .arg(draft)
            .arg(&source)
            .env("GOCACHE", cache.join("go-build"))
            .env("GOPATH", cache.join("go"))
            .envs([
                ("GOTOOLCHAIN", "local"),
                ("GOPROXY", "off"),
                ("GO111MODULE", "off"),
            ]);
        succeed(&mut command, COMPILE_LIMIT).map(drop)
    })
}

/// Compiles a Java guest; the directory of its classes.
///
/// # Errors
/// When it does not compile.
pub fn java(name: &str) -> Result<PathBuf> {
    let source = source(&format!("{name}.java"));
    once(&name_of(&format!("{name}-java"), &source, &[])?, |draft| {
        let mut command = Command::new("javac");
        command.arg("-d").arg(draft).arg(&source);
        succeed(&mut command, COMPILE_LIMIT).map(drop)
    })
}

/// Compiles a guest in C# for Mono; the program's path.
///
/// # Errors
/// When it does not compile.
pub fn mono(name: &str) -> Result<PathBuf> {
    let source = source(&format!("{name}.cs"));
    once(&name_of(&format!("{name}.exe"), &source, &[])?, |draft| {
        let mut command = Command::new("mcs");
        command
            .arg(format!("-out:{}", draft.display()))
            .arg(&source);
        succeed(&mut command, COMPILE_LIMIT).map(drop)
    })
}

/// A file of `bytes` bytes of text, the same on every machine.
///
/// # Errors
/// When it cannot be made.
pub fn text(bytes: u64) -> Result<PathBuf> {
    let generator = c("generate")?;
    once(&format!("text-{bytes}"), |draft| {
        let mut command = Command::new(&generator);
        command.arg(bytes.to_string()).arg(draft);
        succeed(&mut command, COMPILE_LIMIT).map(drop)
    })
}
