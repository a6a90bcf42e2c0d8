"""Ranks of mpi4py by the launcher of Open MPI."""

import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pipt
import pytest
import tifffile

MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_results_are_those_of_one_process(ranks, tmp_path):
    assert shutil.which(MPIRUN[0]), "Open MPI is missing: scripts/bootstrap mpi"
    array = np.random.default_rng(4).integers(0, 900, (1100, 1300)).astype("u2")
    tifffile.imwrite(tmp_path / "scene.tif", array)
    work = [*MPIRUN, "-n", str(ranks), sys.executable, str(pathlib.Path(__file__).with_name("ranks.py")), str(tmp_path)]
    done = subprocess.run(work, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0 and done.stdout.count("done") == ranks, done.stdout + done.stderr
    pipt.open(tmp_path / "scene.tif").square_median(size=5).write(tmp_path / "one.tif")
    assert (tmp_path / f"ranks-{ranks}.tif").read_bytes() == (tmp_path / "one.tif").read_bytes()


def test_ranks_that_do_not_see_each_other_are_refused():
    code = "from mpi4py import MPI; import numpy, pipt; pipt.median(numpy.zeros((9, 9)), comm=MPI.COMM_WORLD)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PMI_SIZE": "3"}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0 and "has started 3 processes" in done.stderr, done.stderr
