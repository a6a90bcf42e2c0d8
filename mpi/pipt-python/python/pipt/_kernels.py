"""Kernels of users."""

from __future__ import annotations

import os
from typing import Any, Callable

import numpy as np

from . import _native


def _adapter(name: str, function: "Callable[..., Any]") -> "Callable[..., Any]":
    def adapter(
        samples: bytes,
        there: bytes,
        dtype: str,
        size: "tuple[int, int]",
        halo: "tuple[int, int]",
        band: int,
        parameters: "list[float]",
        gives: "tuple[str, int]",
    ) -> "tuple[bytes, bytes | None]":
        rows, columns = size
        shape = (rows + 2 * halo[1], columns + 2 * halo[0])
        window: Any = np.frombuffer(samples, dtype).reshape(shape)
        flags = np.frombuffer(there, np.bool_).reshape(shape)
        if not flags.all():
            window = np.ma.MaskedArray(window, ~flags)
        made = function(window, *parameters)
        kind, bands = gives
        mask = np.ma.getmaskarray(made) if isinstance(made, np.ma.MaskedArray) else None
        made = np.asarray(made.data if mask is not None else made)
        wanted = (rows, columns) if bands == 1 and made.ndim != 3 else (bands, rows, columns)
        if made.shape != wanted:
            raise ValueError(
                f"The kernel {name} gives an array of shape {made.shape} for {rows} rows and {columns} columns with a "
                f"halo of {halo[1]} and {halo[0]}: {wanted} is wanted"
            )
        if made.dtype != np.dtype(kind):
            raise TypeError(
                f"The kernel {name} gives samples of {made.dtype}, and not of {kind}: convert them, or register it "
                f"with dtype='{made.dtype}'"
            )
        return made.tobytes(), None if mask is None else (~mask).tobytes()

    return adapter


def register(
    name: str,
    kernel: Any,
    halo: "int | tuple[int, int]" = 0,
    *,
    bands: "int | list[str]" = 1,
    takes: Any = None,
    dtype: Any = None,
) -> None:
    """Gives a kernel a name, by which `pipt.user(a, kernel=name)` and `b = User a kernel=name` in batch files run it.

    `kernel` is one of

    - a function of a NumPy array of `rows + 2 * halo` x `columns + 2 * halo` samples (and of the numbers of
      `parameters=`, each an argument), which gives `rows` x `columns` samples, or `bands` x `rows` x `columns`. What
      lies beyond the edges stands there as edge= says. Where some samples have no data it is a masked array, and a
      masked array may be given back. It is called for parts of any size, one at a time, so it must give the same for a
      pixel whatever part that is in;
    - a `numba.cfunc` of the type that `pipt-kernel.h` calls `pipt_run`, which runs without the interpreter's lock; it
      has to name what it `takes`;
    - `"PATH.so:SYMBOL"`, a compiled kernel, which says all of this by itself.

    `halo` is pixels on each side, or (columns, rows). `takes` is the type of the samples that it takes (others are
    converted), `dtype` that of the samples that it gives; without them both are the image's.
    """
    if isinstance(kernel, (str, os.PathLike)):
        path = os.fspath(kernel)
        if ":" not in path:
            raise ValueError(f"A compiled kernel is PATH.so:SYMBOL, and not {path!r}")
        _native.register_compiled(name, path)
        return
    across, down = (halo, halo) if isinstance(halo, (int, np.integer)) else halo
    if min(across, down) < 0:
        raise ValueError(f"halo={halo!r} cannot be: it is pixels on each side, from 0")
    types = [None if one is None else np.dtype(one).str for one in (takes, dtype)]
    address = getattr(kernel, "address", None)
    if address is not None:
        if takes is None:
            raise ValueError("A compiled function has to say what it takes: give takes=, as 'float64'")
        if not isinstance(bands, int):
            raise ValueError("bands of a compiled function is a number")
        _native.register_address(name, int(address), kernel, (across, down), bands, *types)
        return
    if not callable(kernel):
        raise TypeError(f"A kernel is a function, a numba.cfunc, or PATH.so:SYMBOL, and not {type(kernel).__name__}")
    names = [str(one) for one in bands] if not isinstance(bands, int) else (
        [""] if bands == 1 else [f"result {place + 1}" for place in range(bands)]
    )
    _native.register(name, _adapter(name, kernel), (across, down), names, *types)


def kernels() -> "list[str]":
    """The names of the kernels that are registered."""
    names: "list[str]" = _native.kernels()
    return names
