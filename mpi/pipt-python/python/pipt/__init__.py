"""Texture, order statistics, filters and noise of images of any size.

`pipt.texture(a)`, `pipt.median(a, size=15)` and a function for each routine work on NumPy arrays of rows x columns, or
with bands on the last axis (or, by `channel_axis=0`, on the first). `pipt.open("big.tif")` is an image of a file that
is read, computed and written in parts. `pipt.register` gives kernels of your own names. `comm=` shares work among the
ranks of mpi4py.
"""

from __future__ import annotations

import os
from typing import Any

from . import _mpi, _native
from ._arrays import apply, texture
from ._image import MEMORY, Image
from ._kernels import kernels, register
from ._native import PiptError, __version__
from ._routines import FUNCTIONS
from ._table import settings

globals().update(FUNCTIONS)

_INPUT = [
    {"name": "page", "kind": "int", "is": "a whole number from 0"},
    {"name": "bands", "kind": "text", "is": "which, as '1,3-5'"},
    {"name": "nodata", "kind": "float", "is": "a number"},
    {"name": "mask", "kind": "text", "is": "a file of the same size"},
]


def open(
    path: "str | os.PathLike[str]",
    *,
    page: "int | None" = None,
    bands: "str | None" = None,
    nodata: "float | None" = None,
    mask: "str | os.PathLike[str] | None" = None,
    threads: "int | None" = None,
    memory: int = MEMORY,
) -> Image:
    """An image of a file: TIFF, and with an installed GDAL whatever that reads. Nothing but its head is read now.

    `page` is of a file with several images, from 0; `bands` as "1,3-5", from 1; `nodata` the sample that stands for no
    data instead of the file's own; `mask` a file that is 0 where there is no data. `threads` (one for each CPU) and
    `memory` (bytes) are those of all that is computed of it.
    """
    given = {"page": page, "bands": bands, "nodata": nodata, "mask": mask}
    image = Image([("file", os.fspath(path), settings(_INPUT, given, "open"))], threads, memory)
    image._chain
    return image


def median(image: Any, size: int = 3, **keywords: Any) -> Any:
    """The median of a square of `size` x `size` pixels around each: `pipt.square_median`."""
    return apply("SquareMedian", image, size=size, **keywords)


def noise(image: Any, kind: str = "gaussian", **keywords: Any) -> Any:
    """The image with noise, the same however the work is divided: kind is gaussian, uniform, bit-error, salt-pepper,
    laplacian or speckle; keywords are those of `pipt.add_gaussian` and so on, with `seed`.
    """
    routine = _NOISES.get(kind)
    if routine is None:
        raise ValueError(f"kind={kind!r} cannot be: it is {', '.join(_NOISES)}")
    return apply(routine, image, **keywords)


_NOISES = {
    "gaussian": "AddGaussian",
    "uniform": "AddUniform",
    "bit-error": "AddBitError",
    "salt-pepper": "AddSaltPepper",
    "laplacian": "AddLaplacian",
    "speckle": "AddSpeckle",
}


def run(
    job: str,
    *,
    threads: "int | None" = None,
    memory: int = MEMORY,
    overwrite: bool = False,
    resume: bool = False,
    comm: Any = None,
) -> "list[dict[str, Any]]":
    """Does what the text of a batch file says; gives for each file that was written its path, bytes, pixels, bands and
    seconds. With `comm`, a communicator of mpi4py, its ranks share the work; all of them call this.
    """
    with _mpi.own(comm) as ranks:
        return list(_native.run(job, threads, memory, overwrite, resume, ranks))


__all__ = [
    "Image",
    "PiptError",
    "__version__",
    "apply",
    "kernels",
    "median",
    "noise",
    "open",
    "register",
    "run",
    "texture",
    *sorted(FUNCTIONS),
]
