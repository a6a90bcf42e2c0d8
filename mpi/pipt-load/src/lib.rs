//! The ranks of an MPI job, for a program that links no MPI.
//!
//! [`launch`] reads in the launcher's variables whether this process is a rank, and of which MPI. [`World::open`]
//! opens the library that was built for it, `libwhim_mpi_mpich.so` or `libwhim_mpi_openmpi.so` (`make pipt-mpi`),
//! and refuses what does not match: where a rank sees a world of its own, each would do all of the work.
//!
//! Nothing here waits within the MPI, which spins: a [`World`] looks, and sleeps between two looks, for 20
//! microseconds at first and up to a millisecond, so that a rank that waits leaves its processor to those that
//! compute.
//!
//! # Variables
//!
//! | variable | set by | meaning |
//! |---|---|---|
//! | `OMPI_COMM_WORLD_SIZE`, `OMPI_COMM_WORLD_RANK` | `mpirun` of Open MPI | a rank of Open MPI |
//! | `PMI_SIZE`, `PMI_RANK` | `mpirun` of MPICH (Hydra), `srun --mpi=pmi2` | a rank of MPICH |
//! | `PMIX_RANK`, with `SLURM_STEP_NUM_TASKS` or `SLURM_NTASKS` | `srun --mpi=pmix` | a rank of Open MPI |
//! | `SLURM_PROCID`, with a `SLURM_STEP_NUM_TASKS` above 1 | `srun --mpi=none` | refused: its ranks cannot talk |
//! | `PIPT_MPI` | the user | `mpich` or `openmpi`: of which MPI the ranks are; `none`: no rank |
//! | `PIPT_MPI_LIBRARY` | the user | the library's path |
//!
//! They are looked for in this order, for who starts a shell by `srun` starts `mpirun` there.

mod error;
mod file;
pub mod kernel;
mod launch;
mod library;
mod world;

pub use error::LoadError;
pub use file::{File, Mode, View};
pub use launch::{Family, Launch, launch};
pub use library::places;
pub use world::{MESSAGE_BYTES_MAX, Message, Reduction, World};
