"""Images of files that are read, computed and written in parts."""

from __future__ import annotations

import operator
import os
from typing import Any, Iterator

import numpy as np

from . import _mpi, _native
from ._table import ROUTINES, settings, snake

MEMORY = 1 << 30


class Image:
    """An image of a file, or what routines make of some; nothing is computed before it is read or written.

    `shape` is rows x columns, or with `bands_first` (the default of several bands) bands x rows x columns. Where a
    routine has to know a whole image (grey levels, histograms), the first look at `shape` reads all of it once.
    """

    def __init__(self, steps: "list[tuple[Any, ...]]", threads: "int | None" = None, memory: int = MEMORY) -> None:
        self._steps = steps
        self._threads = threads
        self._memory = memory
        self._made: Any = None

    @property
    def _chain(self) -> Any:
        if self._made is None:
            self._made = _native.Chain(self._steps, self._threads, self._memory, False)
        return self._made

    @property
    def shape(self) -> "tuple[int, ...]":
        """Rows and columns; bands before them, where there are several."""
        shape: "tuple[int, int, int]" = self._chain.shape
        return shape[1:] if shape[0] == 1 else shape

    @property
    def ndim(self) -> int:
        """2, or 3 where there are several bands."""
        return len(self.shape)

    @property
    def dtype(self) -> "np.dtype[Any]":
        """Of the samples."""
        return np.dtype(self._chain.dtype)

    @property
    def bands(self) -> "list[str]":
        """The names of the bands; empty, where one has none."""
        names: "list[str]" = self._chain.bands
        return names

    @property
    def nodata(self) -> "float | None":
        """The sample that stands for no data."""
        number: "float | None" = self._chain.nodata
        return number

    def __reduce__(self) -> "tuple[Any, ...]":
        # A copy at another process, as of dask, opens the files there.
        return Image, (self._steps, self._threads, self._memory)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<pipt.Image of {len(self._steps)} steps>"

    def read(self, row: int = 0, column: int = 0, height: "int | None" = None, width: "int | None" = None) -> Any:
        """The samples of a window, in pixels from the upper left corner: an array of rows x columns, or of bands x
        rows x columns. Only that part of the file, and what routines look at around it, is read.
        """
        bands, rows, columns = self._chain.shape
        height = rows - row if height is None else height
        width = columns - column if width is None else width
        if min(row, column) < 0 or min(height, width) < 1 or row + height > rows or column + width > columns:
            raise ValueError(
                f"The window of {height} rows and {width} columns at row {row}, column {column} does not lie in the "
                f"image, which has {rows} rows and {columns} columns"
            )
        out = np.empty((bands, height, width), self.dtype)
        self._chain.read(column, row, out, None)
        return out[0] if bands == 1 else out

    def windows(self, height: int = 1024, width: int = 1024) -> "Iterator[tuple[int, int, int, int]]":
        """Rectangles `(row, column, height, width)` that cover the image, row by row: for `read(*window)`."""
        rows, columns = self._chain.shape[1:]
        if height < 1 or width < 1:
            raise ValueError("A window has at least one row and one column")
        for row in range(0, rows, height):
            for column in range(0, columns, width):
                yield row, column, min(height, rows - row), min(width, columns - column)

    def __getitem__(self, key: Any) -> Any:
        """As of an array: integers, slices and `...`; only what the slices of rows and columns have is read."""
        key = key if isinstance(key, tuple) else (key,)
        shape = self.shape
        if any(one is None or isinstance(one, (np.ndarray, list)) for one in key) or key.count(Ellipsis) > 1:
            raise IndexError("An image is cut by integers, slices and '...'")
        if Ellipsis in key:
            place = key.index(Ellipsis)
            key = key[:place] + (slice(None),) * (len(shape) - len(key) + 1) + key[place + 1 :]
        key = key + (slice(None),) * (len(shape) - len(key))
        if len(key) > len(shape):
            raise IndexError(f"An image of {len(shape)} axes is not cut by {len(key)}")
        ranges = []
        for one, size in zip(key, shape):
            if isinstance(one, slice):
                ranges.append(range(size)[one])
            else:
                place = operator.index(one)
                if not -size <= place < size:
                    raise IndexError(f"{place} is beyond an axis of {size}")
                ranges.append(range(place % size, place % size + 1))
        lengths = tuple(len(of) for of, one in zip(ranges, key) if isinstance(one, slice))
        if any(len(of) == 0 for of in ranges):
            return np.empty(lengths, self.dtype)
        (top, bottom), (left, right) = ((min(of), max(of) + 1) for of in ranges[-2:])
        read = self.read(top, left, bottom - top, right - left)
        cut: "list[Any]" = []
        for of, one, start in zip(ranges, key, [0] * (len(shape) - 2) + [top, left]):
            if not isinstance(one, slice):
                cut.append(of[0] - start)
                continue
            end = of[-1] - start + (1 if of.step > 0 else -1)
            cut.append(slice(of[0] - start, None if end < 0 else end, of.step))
        return read[tuple(cut)]

    def __array__(self, dtype: Any = None, copy: "bool | None" = None) -> Any:
        if copy is False:
            raise ValueError("An image of a file is no array before it is read")
        return np.asarray(self.read(), dtype)

    def apply(self, routine: str, *others: "Image", **parameters: Any) -> "Image":
        """What a routine makes of this image, lazily; `others` are the further images that it takes."""
        return made(routine, (self, *others), parameters)

    def __getattr__(self, name: str) -> Any:
        routine = _SNAKES.get(name)
        if routine is None:
            raise AttributeError(f"An image has no attribute '{name}'")

        def method(*others: "Image", **parameters: Any) -> "Image":
            return made(routine, (self, *others), parameters)

        return method

    def write(
        self,
        path: "str | os.PathLike[str]",
        *,
        overwrite: bool = False,
        resume: bool = False,
        comm: Any = None,
        **how: Any,
    ) -> "dict[str, Any]":
        """Computes it block by block, into a TIFF file; gives its path, bytes, pixels, bands and seconds.

        `how` is as for `write` in batch files: compress, level, tile, scale, overviews, bigtiff. With `comm`, a
        communicator of mpi4py, its ranks share the work and write one file; all of them call this.
        """
        options = settings(_OUTPUT, how, "write")
        with _mpi.own(comm) as ranks:
            written = _native.write(
                self._steps, os.fspath(path), options, self._threads, self._memory, overwrite, resume, ranks
            )
        return dict(written[0]) if written else {}


_SNAKES = {snake(name): name for name in ROUTINES}
_OUTPUT = [
    {"name": "compress", "kind": "choice", "is": "none, deflate, zstd or lzw"},
    {"name": "level", "kind": "int", "is": "a whole number from 1 to 22"},
    {"name": "tile", "kind": "int", "is": "a multiple of 16, up to 8192"},
    {"name": "scale", "kind": "choice", "is": "i16 or u16"},
    {"name": "overviews", "kind": "bool", "is": "True or False"},
    {"name": "bigtiff", "kind": "choice", "is": "auto, yes or no"},
]


def made(routine: str, images: "tuple[Any, ...]", parameters: "dict[str, Any]") -> Image:
    """What a routine makes of lazy images."""
    table = ROUTINES.get(routine)
    given = settings(table["parameters"], parameters, routine) if table else []
    steps: "list[tuple[Any, ...]]" = []
    places = []
    for image in images:
        if not isinstance(image, Image):
            raise TypeError("Lazy images go with lazy images: read one into an array, or open the file of the other")
        offset = len(steps)
        for step in image._steps:
            moved = step
            if step[0] == "routine":
                moved = (step[0], step[1], [place + offset for place in step[2]], step[3])
            steps.append(moved)
        places.append(len(steps) - 1)
    steps.append(("routine", routine, places, given))
    return Image(steps, images[0]._threads, images[0]._memory)
