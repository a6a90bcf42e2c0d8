"""Communicators of mpi4py."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import Any, Iterator

import numpy as np

# Bytes of one message.
_CHUNK = 1 << 28
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def check(comm: Any) -> None:
    """Refuses what is no communicator, and ranks that do not see each other."""
    if not all(hasattr(comm, name) for name in ("Get_rank", "Get_size", "Dup", "allgather")):
        raise TypeError(f"comm is a communicator of mpi4py, as MPI.COMM_WORLD, and not {type(comm).__name__}")
    from mpi4py import MPI

    world = MPI.COMM_WORLD.Get_size()
    for name in _SIZES:
        started = os.environ.get(name, "")
        if world == 1 and started.isdigit() and int(started) > 1:
            library = MPI.Get_library_version().split(",")[0].split("\n")[0].strip("\0 ")
            raise ValueError(
                f"The launcher has started {started} processes ({name}), and mpi4py's {library} sees one: each would "
                "do all of the work. Start them by that MPI's own mpirun, or install mpi4py for the launcher's MPI"
            )
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise ValueError("MPI was started for one thread alone: leave mpi4py.rc.thread_level at its default")


@contextmanager
def own(comm: Any) -> "Iterator[Any]":
    """A duplicate of a communicator, so that no message meets another program's; None of None."""
    if comm is None:
        yield None
        return
    check(comm)
    ours = comm.Dup()
    try:
        yield ours
    finally:
        ours.Free()


def agree(comm: Any, error: "BaseException | None") -> None:
    """Raises what has failed at any rank at all of them."""
    told = comm.allgather(None if error is None else f"{type(error).__name__}: {error}")
    if error is not None:
        raise error
    for rank, what in enumerate(told):
        if what is not None:
            from . import PiptError

            raise PiptError(f"Rank {rank} has failed: {what}")


def share(comm: Any, part: Any, owner: int, root: "int | None") -> None:
    """Brings what a rank has in a part of an array to all ranks, or to one."""
    rank = comm.Get_rank()
    if root is not None and rank not in (owner, root):
        return
    if root == owner or part.size == 0:
        return
    whole = np.ascontiguousarray(part)
    flat = whole.reshape(-1).view(np.uint8)
    for begin in range(0, flat.size, _CHUNK):
        piece = flat[begin : begin + _CHUNK]
        if root is None:
            comm.Bcast(piece, root=owner)
        elif rank == owner:
            comm.Send(piece, dest=root, tag=2)
        else:
            comm.Recv(piece, source=owner, tag=2)
    if rank != owner and not np.shares_memory(whole, part):
        part[...] = whole
