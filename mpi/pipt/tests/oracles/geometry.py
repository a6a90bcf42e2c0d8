"""Pixels in other places: NumPy's slices and turns, Pillow's resampling in 32-bit floats."""

import numpy
from PIL import Image

from common import TYPES, WHOLE, image, run

TURNS = {
    "90": lambda samples: numpy.rot90(samples, -1),
    "180": lambda samples: numpy.rot90(samples, 2),
    "270": lambda samples: numpy.rot90(samples, 1),
    "left-right": numpy.fliplr,
    "top-bottom": numpy.flipud,
    "transpose": numpy.transpose,
    "transverse": lambda samples: numpy.rot90(samples, 2).T,
}
METHODS = {
    "average": Image.Resampling.BOX,
    "linear": Image.Resampling.BILINEAR,
    "cubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
SIZES = [(61, 47), (122, 94), (30, 23), (17, 111), (7, 5), (200, 3)]


def compare(lines):
    for kind in TYPES:
        samples = image(kind)
        for x, y, width, height in [(0, 0, 61, 47), (7, 11, 20, 30), (60, 46, 1, 1)]:
            given = {"x": x, "y": y, "width": width, "height": height}
            expected = samples[y : y + height, x : x + width]
            lines.compare("Crop", f"{kind} {given}", run("Crop", samples, **given), expected)
        for how, turn in TURNS.items():
            lines.compare("FlipRotate90", f"{kind} {how}", run("FlipRotate90", samples, how=how), turn(samples))
        for size in SIZES:
            _nearest(lines, samples, size)
    for kind in ["float32", "float64"] + WHOLE:
        for size in SIZES:
            for method in METHODS:
                _resample(lines, image(kind, least=0, most=100), size, method)
    bands = numpy.stack([image("uint16", seed) for seed in range(3)])
    expected = numpy.stack([numpy.rot90(band, -1) for band in bands])
    lines.compare("FlipRotate90", "three bands", run("FlipRotate90", bands, how="90"), expected)
    _missing(lines)


def _nearest(lines, samples, size):
    """The pixel that the middle of each new one lies in."""
    places = [
        numpy.floor((numpy.arange(new) + 0.5) * old / new).astype(int)
        for new, old in zip(size, samples.shape[::-1])
    ]
    expected = samples[numpy.ix_(places[1], places[0])]
    got = run("Resample", samples, width=size[0], height=size[1], method="nearest")
    lines.compare("Resample", f"{samples.dtype} {size} nearest", got, expected)


def _resample(lines, samples, size, method):
    pillow = Image.fromarray(samples.astype("float32")).resize(size, METHODS[method])
    expected = numpy.asarray(pillow).astype("float64")
    got = run("Resample", samples, width=size[0], height=size[1], method=method)
    about = f"{samples.dtype} {size} {method}"
    if samples.dtype.kind == "f":
        lines.compare("Resample", about, got, expected, relative=1e-5, absolute=1e-3)
        return
    limits = numpy.iinfo(samples.dtype)
    rounded = numpy.clip(numpy.rint(expected), max(limits.min, -(2**52)), min(limits.max, 2**52))
    # Pillow's sums have 32 bits: what lies next to a half may be rounded to either side.
    near = numpy.abs(expected - numpy.floor(expected) - 0.5) < 1e-3
    lines.compare("Resample", about, numpy.where(near, 0, got), numpy.where(near, 0, rounded))


def _missing(lines):
    """A mean of what is there, where that is at least a half: twice as few pixels in each direction."""
    samples = image("float64", least=1, most=100, shape=(40, 60))
    chance = numpy.random.default_rng(5)
    samples[chance.random(samples.shape) < 0.4] = -1
    fours = samples.reshape(20, 2, 30, 2).swapaxes(1, 2).reshape(20, 30, 4)
    count = (fours != -1).sum(axis=2)
    mean = numpy.where(fours != -1, fours, 0).sum(axis=2) / numpy.maximum(count, 1)
    expected = numpy.where(count >= 2, mean, -1)
    got = run("Resample", samples, nodata=-1, factor=0.5, method="average")
    lines.compare("Resample", "missing pixels", got, expected, relative=1e-12)
