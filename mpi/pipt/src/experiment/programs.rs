//! The programs of others that the experiment needs.

use super::error::ExperimentError;
use std::path::{Path, PathBuf};

/// How the core's programs are had.
const CORE: &str =
    "install Whimbrel (make install), or build it (make build) and call the pipt beside it";
/// What lies beside `whim`.
const BESIDE: [&str; 3] = ["whimd", "whim-home", "whim-guest"];
const LIBRARY: &str = "libwhim_mpi_openmpi.so";

/// Where they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Programs {
    pub pipt: PathBuf,
    pub whim: PathBuf,
    pub mpirun: PathBuf,
}

impl Programs {
    /// # Errors
    ///
    /// One of them is missing, or this process may not do what they need.
    pub fn find() -> Result<Self, ExperimentError> {
        let pipt = std::env::current_exe()
            .map_err(|error| ExperimentError::file("found", Path::new("pipt"), error))?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let found = Self::among(&pipt, &on_path)?;
        match nix::unistd::geteuid().is_root() {
            true => Ok(found),
            false => Err(ExperimentError::NotRoot),
        }
    }

    /// The same for a given program and directories.
    fn among(pipt: &Path, on_path: &[PathBuf]) -> Result<Self, ExperimentError> {
        let beside = pipt.parent().map(Path::to_owned);
        let places: Vec<PathBuf> = beside.into_iter().chain(on_path.iter().cloned()).collect();
        let whim = find("whim", &places)
            .ok_or_else(|| ExperimentError::Missing("whim".to_owned(), CORE))?;
        for name in BESIDE {
            if !whim.with_file_name(name).is_file() {
                let name = format!("{name}, which belongs beside {}", whim.display());
                return Err(ExperimentError::Missing(name, CORE));
            }
        }
        let mpirun = find("mpirun.openmpi", on_path).ok_or_else(|| {
            let how = "install Open MPI (on Debian: apt-get install openmpi-bin)";
            ExperimentError::Missing("mpirun.openmpi".to_owned(), how)
        })?;
        if find(LIBRARY, &pipt_load::places(pipt)).is_none() {
            let how = "build it (make pipt-mpi), and install it (make install-pipt)";
            return Err(ExperimentError::Missing(LIBRARY.to_owned(), how));
        }
        Ok(Self {
            pipt: pipt.to_owned(),
            whim,
            mpirun,
        })
    }
}

fn find(name: &str, places: &[PathBuf]) -> Option<PathBuf> {
    let files = places.iter().map(|place| place.join(name));
    files.into_iter().find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_missing_is_named_with_what_to_do() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path();
        let pipt = place.join("pipt");
        let on_path = [place.join("elsewhere")];
        fs::create_dir(&on_path[0]).expect("a directory");
        let wants = [
            ("whim", place.to_owned(), "whim is not there"),
            ("whimd", place.to_owned(), "whimd, which belongs beside"),
            ("whim-home", place.to_owned(), "whim-home"),
            ("whim-guest", place.to_owned(), "whim-guest"),
            (
                "mpirun.openmpi",
                on_path[0].clone(),
                "apt-get install openmpi-bin",
            ),
            (LIBRARY, place.to_owned(), "make pipt-mpi"),
        ];
        for (name, at, says) in wants {
            let error = Programs::among(&pipt, &on_path)
                .expect_err(name)
                .to_string();
            assert!(error.contains(says), "{error}");
            fs::write(at.join(name), "").expect("a file");
        }
        let found = Programs::among(&pipt, &on_path).expect("all is there");
        assert_eq!(found.whim, place.join("whim"));
        assert_eq!(found.mpirun, on_path[0].join("mpirun.openmpi"));
    }
}
