"""Functions, docstrings and stubs, all of them made from the engine's table of routines."""

from __future__ import annotations

import keyword
import os
import re
from typing import Any

from . import _native

ROUTINES: "dict[str, dict[str, Any]]" = {one["name"]: one for one in _native.routines()}


_OTHERS = {"Open": "opening", "Close": "closing"}


def snake(name: str) -> str:
    """`ATrimmedSqMean` as `a_trimmed_sq_mean`; what opens a file is `pipt.open`, so `Open` is `opening`."""
    if name in _OTHERS:
        return _OTHERS[name]
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z])([A-Z][a-z])", r"\1_\2", name).lower()


def python_name(parameter: str) -> str:
    """A parameter as a keyword of Python."""
    name = parameter.replace("-", "_")
    return name + "_" if keyword.iskeyword(name) else name


def _listed(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ",".join(_text("", one) for one in value)


def _number(value: Any) -> str:
    if isinstance(value, (bool, str)):
        raise TypeError(f"a number is wanted, and not {value!r}")
    value = value.item() if hasattr(value, "item") else value
    return str(value) if isinstance(value, int) else repr(float(value))


def _text(kind: str, value: Any) -> str:
    if kind == "bool" or isinstance(value, bool):
        if value in ("yes", "no"):
            return str(value)
        if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
            return "yes" if value else "no"
        raise TypeError(f"True or False is wanted, and not {value!r}")
    if kind in ("offsets",) and not isinstance(value, str):
        return ",".join(f"{int(dx)}:{int(dy)}" for dx, dy in value)
    if kind == "range" and not isinstance(value, str):
        least, most = value
        return f"{_number(least)}:{_number(most)}"
    if kind in ("words", "numbers") and not isinstance(value, (str, int, float)):
        return _listed(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value if isinstance(value, str) else _number(value)


def settings(parameters: "list[dict[str, Any]]", given: "dict[str, Any]", of: str) -> "list[tuple[str, str]]":
    """Keywords as the engine takes them; None counts as not given."""
    known = {python_name(one["name"]): one for one in parameters}
    made = []
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"{of} has no parameter '{name}': it has {', '.join(known) or 'none'}")
        if value is None:
            continue
        one = known[name]
        try:
            made.append((one["name"], _text(one["kind"], value)))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{of}: {name}={value!r} cannot be: it is {one['is']}") from error
    return made


def documentation(routine: "dict[str, Any]", of_image: bool) -> str:
    """A docstring: what it does, shapes, and all parameters."""
    about = routine["about"]
    lines = [f"{routine['name']}: {about}.", ""]
    lines += ["Parameters", "----------"]
    if not of_image:
        names = image_names(routine)
        for place, name in enumerate(names):
            optional = ", optional" if place >= routine["images"] else ""
            lines.append(f"{name} : array of rows x columns, or with bands on `channel_axis`, or a lazy image{optional}")
    for parameter in routine["parameters"]:
        default = parameter["default"]
        end = "" if default is None else f", default {default}" if default else ", optional"
        lines.append(f"{python_name(parameter['name'])} : {parameter['is']}{end}")
        lines.append(f"    {parameter['about']}")
    if not of_image:
        lines += [
            "channel_axis : -1 (the default) or 0",
            "    where the bands of an array of three axes are",
            "nodata : float, optional",
            "    the sample that stands for no data; NaN always does",
        ]
    lines += ["", "Returns", "-------"]
    if of_image:
        lines.append("A lazy image: nothing is computed until it is read or written.")
    else:
        lines.append(
            "An array of rows x columns; of several bands, those are on `channel_axis` (the first axis, where one band "
            "gives several). Lengths are in pixels. A lazy image gives a lazy image."
        )
    return "\n".join(lines) + "\n"


def image_names(routine: "dict[str, Any]") -> "list[str]":
    """Names of the arrays that a routine is made of."""
    count = routine["images"] + routine["optional"]
    return ["image", "other"][:count] if count <= 2 else [f"image{place}" for place in range(count)]
