//! Where things are: the programs under test, and room for files that the lab's nodes see too.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// A node of a lab has directories of its own in place of these.
const HIDDEN_IN_NODES: [&str; 3] = ["/tmp", "/run", "/dev/shm"];
/// Used when the build directory cannot be seen from within nodes.
const OUTSIDE: &str = "/var/tmp/whim-system-tests";
/// What has to be beside each other.
const PROGRAMS: [&str; 4] = ["whim", "whimd", "whim-home", "whim-guest"];

/// Whether nodes of a lab have something else of their own at this path.
#[must_use]
pub fn is_hidden(path: &Path) -> bool {
    HIDDEN_IN_NODES
        .iter()
        .any(|directory| path.starts_with(directory))
}

/// The directory in which cargo puts programs; `WHIM_BIN_DIR` wins.
///
/// # Errors
/// When nothing has been built.
pub fn built() -> Result<PathBuf> {
    if let Some(directory) = std::env::var_os("WHIM_BIN_DIR") {
        return Ok(PathBuf::from(directory));
    }
    let own = std::env::current_exe().context("Could not find out where the test's program is")?;
    let above = own.ancestors().find(|path| path.join("whim").is_file());
    above.map(Path::to_owned).context(
        "The programs under test are not beside the tests: \
         run `cargo build --bins` first, or set WHIM_BIN_DIR",
    )
}

/// A directory for everything that tests write, seen by all nodes at the same path.
///
/// # Errors
/// When it cannot be made.
pub fn room() -> Result<PathBuf> {
    let beside = built()
        .ok()
        .and_then(|path| Some(path.parent()?.join("system-tests")));
    let room = beside
        .filter(|path| !is_hidden(path))
        .unwrap_or_else(|| PathBuf::from(OUTSIDE));
    fs::create_dir_all(&room).with_context(|| format!("Could not make {}", room.display()))?;
    fs::canonicalize(&room).with_context(|| format!("Could not find {}", room.display()))
}

/// Where plain users of this lab have their homes: nobody else may change anything on the way there, and whose
/// the build directory is is not known.
#[must_use]
pub fn accounts(lab: &str) -> PathBuf {
    Path::new(OUTSIDE).join(format!("accounts-{lab}"))
}

/// What is made once and used by many tests: compiled guests, large inputs.
///
/// # Errors
/// When it cannot be made.
pub fn cache() -> Result<PathBuf> {
    let cache = room()?.join("cache");
    fs::create_dir_all(&cache).with_context(|| format!("Could not make {}", cache.display()))?;
    Ok(cache)
}

/// The directory that holds the programs under test, seen by all nodes of the lab of this name:
/// where they were built, or copies that go with the lab.
///
/// # Errors
/// When they have not been built, or cannot be copied to where nodes see them.
pub fn programs(lab: &str) -> Result<PathBuf> {
    let built = built()?;
    for program in PROGRAMS {
        ensure!(
            built.join(program).is_file(),
            "{} is missing in {}: run `cargo build --bins` first",
            program,
            built.display()
        );
    }
    if !is_hidden(&built) {
        return Ok(built);
    }
    let copies = room()?.join(copies_of(lab));
    // Of a run that was killed, whose number has come again: those may be other programs.
    let _ = fs::remove_dir_all(&copies);
    fs::create_dir_all(&copies)?;
    for program in PROGRAMS.iter().chain(&["whim-lab-node"]) {
        let (from, to) = (built.join(program), copies.join(program));
        if from.is_file() {
            // A link costs nothing; another file system wants a copy.
            fs::hard_link(&from, &to)
                .or_else(|_| fs::copy(&from, &to).map(drop))
                .with_context(|| format!("Could not copy {}", from.display()))?;
        }
    }
    Ok(copies)
}

/// File with the limits of a limited program, beside it.
pub const LIMITS: &str = "limits";

/// A directory of programs below `directory`, in which `limited` sets its limits when it starts.
///
/// # Errors
/// When it cannot be made.
pub fn limited_programs(built: &Path, directory: &Path, limited: &str) -> Result<PathBuf> {
    let own = directory.join("programs");
    fs::create_dir_all(&own)?;
    for program in PROGRAMS.iter().chain(&["whim-lab-node"]) {
        let from = built.join(program);
        let name = if *program == limited {
            format!("{program}.real")
        } else {
            (*program).to_owned()
        };
        if from.is_file() {
            let to = own.join(name);
            fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop))?;
        }
    }
    let script = format!(
        "#!/bin/sh\n. {0}/{LIMITS}\nexec {0}/{limited}.real \"$@\"\n",
        own.display()
    );
    let wrapper = own.join(limited);
    fs::write(&wrapper, script)?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    Ok(own)
}

/// The name of the directory of the programs' copies for one lab.
#[must_use]
pub fn copies_of(lab: &str) -> String {
    format!("programs-{lab}")
}

/// The sources of the guests.
#[must_use]
pub fn guests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("guests")
}

/// What the bootstrap put below `.toolchain`.
#[must_use]
pub fn toolchain() -> PathBuf {
    std::env::var_os("WHIM_TOOLCHAIN_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../.toolchain"),
        PathBuf::from,
    )
}
