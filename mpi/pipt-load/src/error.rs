//! Why there is no world, or something in it failed.

use crate::launch::Family;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;

/// Why there is no world, or something in it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// A variable of the launcher's, and its value.
    Variable(String, String),
    /// The variable that is there, and those of which one is missing.
    Half(String, String),
    /// Started by a launcher that lets its processes not talk: so many of them.
    Mute(usize),
    /// Started by no launcher.
    Alone,
    /// No library for this MPI, in these directories.
    Missing(Family, Vec<PathBuf>),
    /// The library, and what the dynamic linker says.
    Open(PathBuf, String),
    /// The library has no table of this version.
    Version(PathBuf, u32),
    /// The library, what the MPI calls itself that it is built for, and the launcher's family.
    Family(PathBuf, String, Family),
    /// The world's size in the launcher's words and in the library's, and what MPI the library is built for.
    Size(usize, usize, String),
    /// The rank in the launcher's words and in the library's.
    Rank(usize, usize),
    /// A world was opened before in this process.
    Twice,
    /// A rank, and the number of ranks.
    NoRank(usize, usize),
    /// A tag, and the largest.
    Tag(u32, u32),
    /// A message of so many bytes.
    TooLong(u64),
    /// There is no memory for so many bytes.
    Memory(u64),
    /// A file's name with a zero in it.
    Name(PathBuf),
    /// A view that there cannot be.
    View(String),
    /// What failed, and what the library says.
    Mpi(String, String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name, value) if name == "PIPT_MPI" => write!(
                to,
                "PIPT_MPI is {value:?}, and can be mpich, openmpi or none"
            ),
            Self::Variable(name, value) => write!(
                to,
                "The launcher's variable {name} is {value:?}, which is no number that it can be: start this by \
                 mpirun, or with PIPT_MPI=none as one process"
            ),
            Self::Half(there, missing) => write!(
                to,
                "There is the launcher's variable {there} without {missing}: start this by mpirun, or with \
                 PIPT_MPI=none as one process"
            ),
            Self::Mute(processes) => write!(
                to,
                "srun started {processes} processes that cannot talk to each other, and each would do all of the \
                 work: give srun --mpi=pmi2 (MPICH) or --mpi=pmix (Open MPI), or set PIPT_MPI=none if this is meant"
            ),
            Self::Alone => write!(
                to,
                "This process was started by no MPI launcher: start it by mpirun, as in: mpirun -n 4 pipt ..."
            ),
            Self::Missing(..)
            | Self::Open(..)
            | Self::Version(..)
            | Self::Family(..)
            | Self::Size(..)
            | Self::Rank(..)
            | Self::Twice => self.library(to),
            Self::NoRank(rank, size) => {
                write!(to, "There is no rank {rank}: there are {size}, from 0 on")
            }
            Self::Tag(tag, most) => {
                write!(
                    to,
                    "A message cannot have the tag {tag}: the largest is {most}"
                )
            }
            Self::TooLong(bytes) => write!(
                to,
                "A message of {bytes} bytes is too long: {} can be, send it in parts",
                crate::MESSAGE_BYTES_MAX
            ),
            Self::Memory(bytes) => write!(
                to,
                "There is no memory for {bytes} bytes of other ranks: work in smaller parts, or with fewer ranks"
            ),
            Self::Name(path) => write!(to, "{path:?} is no name: there is a zero in it"),
            Self::View(what) => write!(to, "A file cannot be seen so: {what}"),
            Self::Mpi(what, said) => write!(to, "MPI cannot {what}: {said}"),
        }
    }
}

impl LoadError {
    /// What is wrong with a library.
    fn library(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(family, directories) => {
                let places: Vec<String> = directories
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect();
                write!(
                    to,
                    "This process was started by a launcher of {family}, and there is no {} in {}: build it by \
                     `make pipt-mpi` (and `make install-pipt`), or name it in PIPT_MPI_LIBRARY",
                    family.library(),
                    places.join(", ")
                )
            }
            Self::Open(path, said) => write!(
                to,
                "The library {} cannot be opened: {said}: build it by `make pipt-mpi`, on a machine with the MPI \
                 of this one",
                path.display()
            ),
            Self::Version(path, version) => write!(
                to,
                "The library {} has no functions of version {version}, which this program calls: build it anew \
                 by `make pipt-mpi`, with this program's sources",
                path.display()
            ),
            Self::Family(path, name, launcher) => write!(
                to,
                "The library {} is built for {name}, and the launcher is one of {launcher}: start this by the \
                 library's own mpirun, or let PIPT_MPI_LIBRARY name {}",
                path.display(),
                launcher.library()
            ),
            Self::Size(launcher, world, name) => write!(
                to,
                "The launcher started {launcher} ranks, and the library, which is built for {name}, sees {world}: \
                 they are of different MPIs. Start this by the library's own mpirun (mpirun.mpich or \
                 mpirun.openmpi), or set PIPT_MPI to the launcher's MPI: mpich or openmpi"
            ),
            Self::Rank(launcher, world) => write!(
                to,
                "This is rank {launcher} in the launcher's words and rank {world} in those of the MPI: start it \
                 by mpirun itself, not by a process of another launcher"
            ),
            // All that are left.
            _ => write!(
                to,
                "The MPI was opened before, and one process can open it once"
            ),
        }
    }
}

impl Error for LoadError {}
