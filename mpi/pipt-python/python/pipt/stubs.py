"""Writes the package's type stubs from the table of routines: `python -m pipt.stubs DIRECTORY`, or `--check`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ._table import ROUTINES, image_names, python_name, snake

_KINDS = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "offsets": "str | Sequence[tuple[int, int]]",
    "numbers": "str | float | Sequence[float]",
    "text": "str | os.PathLike[str]",
}

_HEAD = '''# Made by `python -m pipt.stubs` from the table of routines: not to be edited.
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._native import PiptError as PiptError, __version__ as __version__

'''

_IMAGE = '''class Image:
    def __init__(self, steps: list[tuple[Any, ...]], threads: int | None = None, memory: int = ...) -> None: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def bands(self) -> list[str]: ...
    @property
    def nodata(self) -> float | None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...
    def read(self, row: int = 0, column: int = 0, height: int | None = None, width: int | None = None) -> NDArray[Any]: ...
    def windows(self, height: int = 1024, width: int = 1024) -> Iterator[tuple[int, int, int, int]]: ...
    def apply(self, routine: str, *others: Image, **parameters: Any) -> Image: ...
    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False, resume: bool = False, comm: Any = None, **how: Any) -> dict[str, Any]: ...
'''

_FUNCTIONS = '''
def open(path: str | os.PathLike[str], *, page: int | None = None, bands: str | None = None, nodata: float | None = None, mask: str | os.PathLike[str] | None = None, threads: int | None = None, memory: int = ...) -> Image: ...
def run(job: str, *, threads: int | None = None, memory: int = ..., overwrite: bool = False, resume: bool = False, comm: Any = None) -> list[dict[str, Any]]: ...
def register(name: str, kernel: Callable[..., Any] | str | os.PathLike[str] | Any, halo: int | tuple[int, int] = 0, *, bands: int | list[str] = 1, takes: Any = None, dtype: Any = None) -> None: ...
def kernels() -> list[str]: ...
@overload
def apply(routine: str, image: Image, /, *images: Image, **keywords: Any) -> Image: ...
@overload
def apply(routine: str, *images: ArrayLike | None, **keywords: Any) -> NDArray[Any]: ...
@overload
def texture(image: Image, window: int = 9, levels: int = 64, **keywords: Any) -> Image: ...
@overload
def texture(image: ArrayLike, window: int = 9, levels: int = 64, **keywords: Any) -> dict[str, NDArray[np.float32]]: ...
@overload
def median(image: Image, size: int = 3, **keywords: Any) -> Image: ...
@overload
def median(image: ArrayLike, size: int = 3, **keywords: Any) -> NDArray[Any]: ...
@overload
def noise(image: Image, kind: str = "gaussian", **keywords: Any) -> Image: ...
@overload
def noise(image: ArrayLike, kind: str = "gaussian", **keywords: Any) -> NDArray[Any]: ...
'''

_OWN = (
    "channel_axis: int = -1, nodata: float | None = None, threads: int | None = None, memory: int = ..., "
    "overwrite: bool = False, comm: Any = None, root: int | None = None"
)


def _kind(parameter: "dict[str, Any]") -> str:
    kind, words = parameter["kind"], parameter["words"]
    literal = f"Literal[{', '.join(repr(word) for word in words)}]"
    if kind == "choice":
        return literal
    if kind == "words":
        return "str | Sequence[str]"
    if kind == "range":
        return f"{literal} | tuple[float, float] | str"
    return _KINDS[kind]


def _routine(routine: "dict[str, Any]") -> str:
    names = image_names(routine)
    parameters = []
    for one in routine["parameters"]:
        name, kind = python_name(one["name"]), _kind(one)
        parameters.append(f"{name}: {kind}" if one["default"] is None else f"{name}: {kind} | None = None")

    def images(kind: str) -> str:
        all_of = [
            f"{name}: {kind}" if place < routine["images"] else f"{name}: {kind} | None = None"
            for place, name in enumerate(names)
        ]
        return ", ".join(all_of)

    end = ", ".join(["*", *parameters, _OWN])
    lines = [
        "@overload",
        f"def {snake(routine['name'])}({images('Image')}, {end}) -> Image: ...",
        "@overload",
        f"def {snake(routine['name'])}({images('ArrayLike')}, {end}) -> NDArray[Any]: ...",
    ]
    return "\n".join(lines) + "\n"


def text() -> str:
    """The stub of the package."""
    names = ["Image", "PiptError", "__version__", "apply", "kernels", "median", "noise", "open", "register", "run"]
    names += ["texture", *sorted(snake(name) for name in ROUTINES)]
    listed = "__all__ = [\n" + "".join(f'    "{name}",\n' for name in names) + "]\n\n"
    return _HEAD + listed + _IMAGE + _FUNCTIONS + "".join(_routine(one) for one in ROUTINES.values())


def main() -> int:
    """Writes or checks; gives the exit status."""
    words = sys.argv[1:]
    check = "--check" in words
    directories = [Path(word) for word in words if word != "--check"]
    path = (directories or [Path(__file__).parent])[0] / "__init__.pyi"
    if check:
        is_current = path.exists() and path.read_text() == text()
        if not is_current:
            print(f"{path} is not what the table of routines gives: run python -m pipt.stubs", file=sys.stderr)
        return 0 if is_current else 1
    path.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
