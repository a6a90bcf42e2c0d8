"""A function for each routine, made from the engine's table when the package is imported."""

from __future__ import annotations

import inspect
from typing import Any

from ._arrays import _OWN, apply
from ._table import ROUTINES, documentation, image_names, python_name, snake


def _function(routine: "dict[str, Any]") -> Any:
    name, count = routine["name"], len(image_names(routine))
    names = image_names(routine)

    def function(*images: Any, **keywords: Any) -> Any:
        images = images + tuple(keywords.pop(one) for one in names[len(images) :] if one in keywords)
        if not routine["images"] <= len(images) <= count:
            raise TypeError(f"{snake(name)} takes {routine['images']} to {count} images, not {len(images)}")
        return apply(name, *[image for place, image in enumerate(images) if _is_given(routine, place, image)], **keywords)

    function.__name__ = function.__qualname__ = snake(name)
    function.__module__ = "pipt"
    function.__doc__ = documentation(routine, False)
    either, key = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    images = [
        inspect.Parameter(one, either, default=inspect.Parameter.empty if place < routine["images"] else None)
        for place, one in enumerate(names)
    ]
    parameters = [
        inspect.Parameter(
            python_name(one["name"]), key, default=inspect.Parameter.empty if one["default"] is None else None
        )
        for one in routine["parameters"]
    ]
    own = [inspect.Parameter(one, key, default=_DEFAULTS.get(one)) for one in _OWN]
    function.__signature__ = inspect.Signature(images + parameters + own)  # type: ignore[attr-defined]
    return function


def _is_given(routine: "dict[str, Any]", place: int, image: Any) -> bool:
    """An optional image that is None is none; with comm, None stands for one that another rank has."""
    return place < routine["images"] or image is not None


_DEFAULTS = {"channel_axis": -1, "memory": 1 << 30, "overwrite": False}

FUNCTIONS = {snake(name): _function(routine) for name, routine in ROUTINES.items()}
