"""Ranks of mpi4py by the launchers of Open MPI and MPICH."""

import ctypes.util
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pipt
import pytest
import tifffile

LAUNCHERS = {
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
    "mpich": ["mpirun.mpich"],
}


def setting(mpi, directory):
    """The environment in which mpi4py's wheel takes an MPI. Debian's MPICH has another name than the wheel asks for."""
    if mpi == "openmpi":
        return {**os.environ, "MPI4PY_MPIABI": "openmpi"}
    library = ctypes.util.find_library("mpich")
    assert library is not None, "MPICH's library is missing: scripts/bootstrap mpi"
    (directory / "libmpi.so.12").symlink_to(path_of(library))
    return {**os.environ, "MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": str(directory)}


def path_of(library):
    """Where the dynamic linker finds a library."""
    code = f"import ctypes; ctypes.CDLL('{library}'); print(open('/proc/self/maps').read())"
    maps = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return next(line.split()[-1] for line in maps.splitlines() if library.split(".so")[0] + ".so" in line)


@pytest.mark.parametrize("mpi", LAUNCHERS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_results_are_those_of_one_process(mpi, ranks, tmp_path):
    launcher = LAUNCHERS[mpi]
    assert shutil.which(launcher[0]), f"{launcher[0]} is missing: scripts/bootstrap mpi"
    array = np.random.default_rng(4).integers(0, 900, (1100, 1300)).astype("u2")
    tifffile.imwrite(tmp_path / "scene.tif", array)
    program = pathlib.Path(__file__).with_name("ranks.py")
    work = [*launcher, "-n", str(ranks), sys.executable, str(program), str(tmp_path)]
    (tmp_path / "library").mkdir()
    env = {**setting(mpi, tmp_path / "library"), "PIPT_WANTED_MPI": {"openmpi": "Open MPI", "mpich": "MPICH"}[mpi]}
    done = subprocess.run(work, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0 and done.stdout.count("done") == ranks, done.stdout + done.stderr
    pipt.open(tmp_path / "scene.tif").square_median(size=5).write(tmp_path / "one.tif")
    assert (tmp_path / f"ranks-{ranks}.tif").read_bytes() == (tmp_path / "one.tif").read_bytes()


def test_ranks_that_do_not_see_each_other_are_refused():
    code = "from mpi4py import MPI; import numpy, pipt; pipt.median(numpy.zeros((9, 9)), comm=MPI.COMM_WORLD)"
    env = {**os.environ, "MPI4PY_MPIABI": "openmpi", "PMI_SIZE": "3"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "has started 3 processes" in done.stderr, done.stderr
