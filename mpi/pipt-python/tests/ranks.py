"""What each rank runs: `ranks.py DIRECTORY`."""

import os
import sys

import numpy as np
import pipt
from mpi4py import MPI

comm = MPI.COMM_WORLD
assert os.environ["PIPT_WANTED_MPI"] in MPI.Get_library_version()
array = np.random.default_rng(3).integers(0, 500, (97, 83)).astype("u2")
wanted = pipt.texture(pipt.median(array, size=5), window=5, levels=16)
calm = pipt.median(array if comm.rank == 0 else None, size=5, comm=comm)
rough = pipt.texture(calm, window=5, levels=16, comm=comm)
assert all(np.array_equal(rough[name], wanted[name], equal_nan=True) for name in wanted)
at_root = pipt.median(array, size=5, comm=comm, root=comm.size - 1)
assert (at_root is None) == (comm.rank != comm.size - 1)
try:
    pipt.median(array if comm.rank else np.zeros((2, 2), "c8"), comm=comm)
    raise SystemExit("it was not refused")
except (TypeError, pipt.PiptError):
    pass
chain = pipt.open(f"{sys.argv[1]}/scene.tif").square_median(size=5)
chain.write(f"{sys.argv[1]}/ranks-{comm.size}.tif", comm=comm)
comm.Barrier()
print("done", flush=True)
