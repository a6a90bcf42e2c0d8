//! What the launcher says in its variables.

use crate::error::LoadError;
use std::fmt;

/// Ranks that a job may have.
const RANKS_MAX: usize = 1 << 24;

/// The variables of a size and of a rank that `mpirun` of Open MPI sets.
const OPEN_MPI: (&str, &str) = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK");
/// Those of Hydra, which is `mpirun` of MPICH, and of `srun --mpi=pmi2`.
const PMI: (&str, &str) = ("PMI_SIZE", "PMI_RANK");
/// A rank of what speaks `PMIx`, as `srun --mpi=pmix` does. It sets no size.
const PMIX_RANK: &str = "PMIX_RANK";
/// The number of a process that `srun` has started, whatever it gave it to talk.
const SLURM_RANK: &str = "SLURM_PROCID";
/// The processes of one `srun`.
const SLURM_STEP: &str = "SLURM_STEP_NUM_TASKS";
/// The same where it was given, or the job's.
const SLURM_TASKS: &str = "SLURM_NTASKS";
/// What the user says of all this.
const OURS: &str = "PIPT_MPI";

/// An MPI, as far as its libraries can be exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Mpich,
    OpenMpi,
}

impl Family {
    /// The file name of the library for it.
    #[must_use]
    pub fn library(self) -> &'static str {
        match self {
            Self::Mpich => "libwhim_mpi_mpich.so",
            Self::OpenMpi => "libwhim_mpi_openmpi.so",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Mpich => "MPICH",
            Self::OpenMpi => "Open MPI",
        })
    }
}

/// How this process was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    pub family: Family,
    /// How many ranks there are.
    pub size: usize,
    /// Which one this is, from 0 on.
    pub rank: usize,
}

/// What the launcher says in its variables; none: this process was started by no launcher.
///
/// # Errors
///
/// They contradict each other, or a launcher started several processes that cannot talk.
pub fn launch(variables: &dyn Fn(&str) -> Option<String>) -> Result<Option<Launch>, LoadError> {
    let wanted = match variables(OURS).as_deref() {
        None | Some("") => None,
        Some("mpich") => Some(Family::Mpich),
        Some("openmpi") => Some(Family::OpenMpi),
        Some("none") => return Ok(None),
        Some(other) => return Err(LoadError::Variable(OURS.to_owned(), other.to_owned())),
    };
    let found = match (
        pair(variables, OPEN_MPI, Family::OpenMpi)?,
        pair(variables, PMI, Family::Mpich)?,
    ) {
        // Where one launcher was started by the other, the user knows which was the last.
        (Some(_), Some(hydra)) if wanted == Some(Family::Mpich) => Some(hydra),
        (Some(found), _) | (None, Some(found)) => Some(found),
        (None, None) => slurm(variables)?,
    };
    Ok(found.map(|launch| Launch {
        family: wanted.unwrap_or(launch.family),
        ..launch
    }))
}

fn pair(
    variables: &dyn Fn(&str) -> Option<String>,
    (size, rank): (&str, &str),
    family: Family,
) -> Result<Option<Launch>, LoadError> {
    let half =
        |there: &str, missing: &str| Err(LoadError::Half(there.to_owned(), missing.to_owned()));
    match (number(variables, size)?, number(variables, rank)?) {
        (None, None) => Ok(None),
        (Some(_), None) => half(size, rank),
        (None, Some(_)) => half(rank, size),
        (Some(count), Some(own)) => checked(size, count, rank, own, family).map(Some),
    }
}

/// A process of `srun`, which says by its variables how its processes talk.
fn slurm(variables: &dyn Fn(&str) -> Option<String>) -> Result<Option<Launch>, LoadError> {
    let step = number(variables, SLURM_STEP)?;
    if let Some(rank) = number(variables, PMIX_RANK)? {
        let (name, size) = match (step, number(variables, SLURM_TASKS)?) {
            (Some(size), _) => (SLURM_STEP, size),
            (None, Some(size)) => (SLURM_TASKS, size),
            (None, None) => {
                let missing = format!("{SLURM_STEP} or {SLURM_TASKS}");
                return Err(LoadError::Half(PMIX_RANK.to_owned(), missing));
            }
        };
        return checked(name, size, PMIX_RANK, rank, Family::OpenMpi).map(Some);
    }
    match (step, number(variables, SLURM_RANK)?) {
        (Some(processes), Some(_)) if processes > 1 => Err(LoadError::Mute(processes)),
        _ => Ok(None),
    }
}

fn checked(
    size_name: &str,
    size: usize,
    rank_name: &str,
    rank: usize,
    family: Family,
) -> Result<Launch, LoadError> {
    if size == 0 || size > RANKS_MAX {
        return Err(LoadError::Variable(size_name.to_owned(), size.to_string()));
    }
    if rank >= size {
        return Err(LoadError::Variable(rank_name.to_owned(), rank.to_string()));
    }
    Ok(Launch { family, size, rank })
}

fn number(
    variables: &dyn Fn(&str) -> Option<String>,
    name: &str,
) -> Result<Option<usize>, LoadError> {
    let Some(value) = variables(name) else {
        return Ok(None);
    };
    match value.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(LoadError::Variable(name.to_owned(), value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(set: &[(&str, &str)]) -> Result<Option<Launch>, LoadError> {
        let set: Vec<(String, String)> = set
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        launch(&|wanted| {
            let found = set.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone())
        })
    }

    fn is(family: Family, size: usize, rank: usize) -> Result<Option<Launch>, LoadError> {
        Ok(Some(Launch { family, size, rank }))
    }

    /// As `mpirun` of Open MPI 4.1 sets them.
    const BY_OPEN_MPI: [(&str, &str); 3] = [
        ("OMPI_COMM_WORLD_SIZE", "3"),
        ("OMPI_COMM_WORLD_RANK", "2"),
        ("PMIX_RANK", "2"),
    ];
    /// As Hydra 4.0 sets them.
    const BY_HYDRA: [(&str, &str); 2] = [("PMI_SIZE", "4"), ("PMI_RANK", "1")];
    /// As `srun -n 5 --mpi=pmix` sets them.
    const BY_PMIX: [(&str, &str); 4] = [
        ("PMIX_RANK", "4"),
        ("SLURM_PROCID", "4"),
        ("SLURM_STEP_NUM_TASKS", "5"),
        ("SLURM_NTASKS", "8"),
    ];

    #[test]
    fn each_launcher_is_known_by_its_variables() {
        assert_eq!(with(&[]), Ok(None));
        assert_eq!(with(&BY_OPEN_MPI), is(Family::OpenMpi, 3, 2));
        assert_eq!(with(&BY_HYDRA), is(Family::Mpich, 4, 1));
        assert_eq!(with(&BY_PMIX), is(Family::OpenMpi, 5, 4));
        // A shell of `srun`, in which mpirun was started.
        assert_eq!(
            with(&[BY_PMIX.as_slice(), &BY_HYDRA].concat()),
            is(Family::Mpich, 4, 1)
        );
        assert_eq!(
            with(&[BY_HYDRA.as_slice(), &BY_OPEN_MPI].concat()),
            is(Family::OpenMpi, 3, 2)
        );
    }

    #[test]
    fn a_process_of_a_job_that_no_launcher_started_is_no_rank() {
        let script = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")];
        assert_eq!(with(&script), Ok(None));
        let step_of_one = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")];
        assert_eq!(with(&step_of_one), Ok(None));
    }

    #[test]
    fn processes_that_cannot_talk_are_refused() {
        let mute = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert_eq!(with(&mute), Err(LoadError::Mute(2)));
        let meant = [mute.as_slice(), &[("PIPT_MPI", "none")]].concat();
        assert_eq!(with(&meant), Ok(None));
    }

    #[test]
    fn the_user_decides_between_two() {
        let both = [BY_HYDRA.as_slice(), &BY_OPEN_MPI, &[("PIPT_MPI", "mpich")]].concat();
        assert_eq!(with(&both), is(Family::Mpich, 4, 1));
        let intel = [BY_PMIX.as_slice(), &[("PIPT_MPI", "mpich")]].concat();
        assert_eq!(with(&intel), is(Family::Mpich, 5, 4));
        let wrong = with(&[("PIPT_MPI", "lam")]).expect_err("there is none");
        assert!(
            wrong.to_string().contains("mpich, openmpi or none"),
            "{wrong}"
        );
    }

    #[test]
    fn contradictions_are_refused() {
        for wrong in [
            &[("PMI_SIZE", "4"), ("PMI_RANK", "4")],
            &[("PMI_SIZE", "0"), ("PMI_RANK", "0")],
            &[("PMI_SIZE", "-1"), ("PMI_RANK", "0")],
            &[("PMI_SIZE", "99999999"), ("PMI_RANK", "0")],
        ] {
            let error = with(wrong).expect_err("a wrong number");
            assert!(
                error.to_string().contains("The launcher's variable PMI_"),
                "{error}"
            );
        }
        for half in ["PMI_SIZE", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"] {
            let error = with(&[(half, "1")]).expect_err("the other is missing");
            assert!(
                error
                    .to_string()
                    .contains(&format!("variable {half} without")),
                "{error}"
            );
        }
    }
}
