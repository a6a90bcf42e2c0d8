"""Routines on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _mpi, _native
from ._image import MEMORY, Image, made
from ._table import ROUTINES, settings


def _source(image: Any, channel_axis: int, nodata: "float | None") -> "tuple[tuple[Any, ...], int]":
    """A step for an array, and its number of axes."""
    mask = None
    if isinstance(image, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(image)
        image = image.data
    array = np.asarray(image)
    kind, size = array.dtype.kind, array.dtype.itemsize
    if array.dtype.fields is not None or kind not in "buif" or size > 8:
        raise TypeError(
            f"Samples of type {array.dtype} are not computed with: take integers, bool, float16, float32 or float64"
        )
    if array.dtype.kind == "f" and size == 2:
        array = array.astype(np.float32)
    elif not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.ndim not in (2, 3):
        raise ValueError(f"An image has two axes, or three with its bands, and not {array.ndim}")
    if array.size == 0:
        raise ValueError(f"An image has at least one pixel and one band: this one's shape is {array.shape}")

    def planes(one: Any) -> Any:
        if one.ndim == 2:
            return one[np.newaxis]
        if channel_axis not in (-1, 0, 2):
            raise ValueError(f"channel_axis={channel_axis} cannot be: it is -1 or 0")
        return one if channel_axis == 0 else np.moveaxis(one, -1, 0)

    flags = None if mask is None else planes(mask).view(np.uint8)
    return ("array", planes(array), flags, None if nodata is None else float(nodata)), array.ndim


def compute(
    routine: str,
    images: "tuple[Any, ...]",
    parameters: "dict[str, Any]",
    *,
    channel_axis: int = -1,
    nodata: "float | None" = None,
    threads: "int | None" = None,
    memory: int = MEMORY,
    overwrite: bool = False,
    comm: Any = None,
    root: "int | None" = None,
) -> "tuple[Any, list[str], int]":
    """The result of a routine, the names of its bands, and how many axes the first array has."""
    if comm is None:
        return _alone(routine, images, parameters, channel_axis, nodata, threads, memory, overwrite, None, None)
    with _mpi.own(comm) as ranks:
        size = ranks.Get_size()
        if root is not None and not 0 <= root < size:
            raise ValueError(f"root={root} is no rank: there are {size}")
        return _alone(routine, images, parameters, channel_axis, nodata, threads, memory, overwrite, ranks, root)


def _everywhere(images: "tuple[Any, ...]", ranks: Any) -> "tuple[Any, ...]":
    """Arrays that rank 0 alone has, at all ranks."""
    has = ranks.allgather([image is not None for image in images])
    told = []
    for place, image in enumerate(images):
        if all(at[place] for at in has):
            told.append(image)
        elif has[0][place]:
            told.append(ranks.bcast(image, root=0))
        else:
            raise ValueError("An array is at all ranks or at rank 0: None stands for it at the others")
    return tuple(told)


def _alone(
    routine: str,
    images: "tuple[Any, ...]",
    parameters: "dict[str, Any]",
    channel_axis: int,
    nodata: "float | None",
    threads: "int | None",
    memory: int,
    overwrite: bool,
    ranks: Any,
    root: "int | None",
) -> "tuple[Any, list[str], int]":
    if ranks is not None:
        images = _everywhere(images, ranks)
    error: "BaseException | None" = None
    chain: Any = None
    ndim, is_masked = 2, False
    try:
        table = ROUTINES.get(routine)
        given = settings(table["parameters"], parameters, routine) if table else []
        steps: "list[tuple[Any, ...]]" = []
        for image in images:
            step, axes = _source(image, channel_axis, nodata)
            ndim = axes if not steps else ndim
            steps.append(step)
        is_masked = any(isinstance(image, np.ma.MaskedArray) for image in images)
        chain = _native.Chain(steps + [("routine", routine, list(range(len(images))), given)], threads, memory, overwrite)
    except Exception as failed:
        if ranks is None:
            raise
        error = failed
    if ranks is not None:
        _mpi.agree(ranks, error)
    bands, height, width = chain.shape
    first = ndim == 2 or channel_axis == 0
    out = np.empty((bands, height, width) if first else (height, width, bands), chain.dtype)
    planes = out if first else np.moveaxis(out, -1, 0)
    mask = np.zeros((bands, height, width), np.uint8) if is_masked else None
    if ranks is None:
        chain.read(0, 0, planes, mask)
    else:
        _shared(chain, planes, mask, ranks, root)
    made: Any = out
    if mask is not None:
        flags = mask.view(np.bool_)
        made = np.ma.MaskedArray(out, flags if first else np.moveaxis(flags, 0, -1))
    if ranks is not None and root is not None and ranks.Get_rank() != root:
        made = None
    elif ndim == 2 and bands == 1:
        made = made[0]
    return made, chain.bands, ndim


def _shared(chain: Any, planes: Any, mask: Any, ranks: Any, root: "int | None") -> None:
    """Computes some rows, and brings those of all ranks together."""
    size, rank = ranks.Get_size(), ranks.Get_rank()
    height = planes.shape[1]
    ends = [height * number // size for number in range(size + 1)]
    error: "BaseException | None" = None
    try:
        if ends[rank] < ends[rank + 1]:
            rows = slice(ends[rank], ends[rank + 1])
            chain.read(0, ends[rank], planes[:, rows], None if mask is None else mask[:, rows])
    except Exception as failed:
        error = failed
    _mpi.agree(ranks, error)
    for owner in range(size):
        rows = slice(ends[owner], ends[owner + 1])
        for whole in [planes] if mask is None else [planes, mask]:
            _mpi.share(ranks, whole[:, rows], owner, root)


def apply(routine: str, *images: Any, **keywords: Any) -> Any:
    """Runs a routine by its name: `pipt.apply("SquareMedian", a, size=15)`.

    `images` are arrays of rows x columns, or with bands on `channel_axis` (-1, the default, or 0), as many as the
    routine takes; or lazy images, which give a lazy image. Keywords are the routine's parameters (`help` of the
    function of the routine's name lists them), and `channel_axis`, `nodata` (the sample that stands for no data),
    `threads`, `memory` (bytes), `overwrite` (of files that a routine writes beside), `comm` (a communicator of mpi4py:
    its ranks share the work; all call this, with the array at all of them or None at all but rank 0) and `root` (the
    rank that gets the result, others get None; without it all do).

    Gives an array of rows x columns; several bands are on `channel_axis`, or on the first axis where the image had
    two. Masked arrays give masked arrays.
    """
    if images and isinstance(images[0], Image):
        return made(routine, images, keywords)
    own = {name: keywords.pop(name) for name in _OWN if name in keywords}
    return compute(routine, images, keywords, **own)[0]


_OWN = ("channel_axis", "nodata", "threads", "memory", "overwrite", "comm", "root")


def texture(image: Any, window: int = 9, levels: int = 64, **keywords: Any) -> Any:
    """Features of grey-level co-occurrence around each pixel: `pipt.texture(a)["entropy"]`.

    `image` is an array of rows x columns, or with bands on `channel_axis`; `window` is pixels to a side, `levels` how
    many grey levels samples are reduced to. Further keywords are those of `pipt.co_occur` (features, offsets, pairs,
    combine, range, ...) and of `pipt.apply`.

    Gives a dict of the features' names, in their order, to arrays of float32 of the image's own shape. A lazy image
    gives a lazy image with a band for each.
    """
    keywords = {"window": window, "levels": levels, **keywords}
    if isinstance(image, Image):
        return made("CoOccur", (image,), keywords)
    own = {name: keywords.pop(name) for name in _OWN if name in keywords}
    channel_axis = own.get("channel_axis", -1)
    out, names, ndim = compute("CoOccur", (image,), keywords, **own)
    if out is None:
        return None
    if ndim == 2:
        planes = out if out.ndim == 3 else out[np.newaxis]
        return {name: planes[place] for place, name in enumerate(names)}
    planes = out if channel_axis == 0 else np.moveaxis(out, -1, 0)
    features = [name.split(": ", 1)[-1] for name in names]
    count = len(dict.fromkeys(features))
    made_of = {}
    for place in range(count):
        feature = planes[place::count]
        made_of[features[place]] = feature if channel_axis == 0 else np.moveaxis(feature, 0, -1)
    return made_of
