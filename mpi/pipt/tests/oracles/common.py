"""Runs routines by the command on small images, and compares their results with what other programs give.

An image has 61 x 47 pixels or so, and is worked on in blocks of 16 to 64, so that results also show what happens where
blocks meet.
"""

import json
import logging
import pathlib
import random
import subprocess
import tempfile

import numpy
import tifffile

WHOLE = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
FLOATS = ["float32", "float64"]
TYPES = WHOLE + FLOATS

# Edges of ours, and those of scipy.ndimage.
EDGES = {"reflect": "reflect", "mirror": "mirror", "replicate": "nearest", "constant": "constant"}

_program = None
# Of each routine what was compared: types, edges, and whether bands and pixels without data.
covered = {}
_blocks = random.Random(1)


def begin(program):
    global _program
    _program = program
    # It says of each 8-bit number for no data that it is none.
    logging.getLogger("tifffile").setLevel(logging.CRITICAL)


def image(kind, seed=0, shape=(47, 61), least=None, most=None):
    """Random samples of that type: of all its values, or of those between two limits; of floats up to 1000."""
    chance = numpy.random.default_rng([seed, sum(kind.encode())])
    if numpy.dtype(kind).kind == "f":
        least, most = -1000 if least is None else least, 1000 if most is None else most
        return chance.uniform(least, most, shape).astype(kind)
    limits = numpy.iinfo(kind)
    # Most of the others compute in 64-bit floats, in which larger integers are not exact.
    least = max(limits.min, -(2**52)) if least is None else least
    most = min(limits.max, 2**52) if most is None else most
    return chance.integers(least, most, shape, dtype=kind, endpoint=True)


def with_holes(kind, shape, nodata, seed=0, least=1, most=99):
    """Two bands of samples between the limits, a fifth of which has the number for no data, and where."""
    bands = numpy.stack([image(kind, seed + band, shape, least, most) for band in range(2)])
    holes = numpy.random.default_rng([seed, 5]).random(bands.shape) < 0.2
    # A corner without any sample, larger than the windows.
    holes[0, -9:, -9:] = True
    bands[holes] = nodata
    return bands, holes


# What numpy.pad calls the edges of ours.
FRAMES = {"reflect": "symmetric", "mirror": "reflect", "replicate": "edge"}


def framed(values, there, width, edge, value=0):
    """An image with what lies beyond its edge, and whether that is there."""
    if edge in FRAMES:
        return tuple(numpy.pad(of, width, mode=FRAMES[edge]) for of in (values, there))
    return numpy.pad(values, width, constant_values=value), numpy.pad(there, width, constant_values=edge == "constant")


def outside(shape, half):
    """The pixels whose windows leave the image."""
    within = numpy.zeros(shape, bool)
    within[half : shape[0] - half, half : shape[1] - half] = True
    return ~within


def run(routine, images, nodata=None, block=None, **parameters):
    """The result of a routine; `images` are arrays of rows, of one band or, with three dimensions, of several."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory)
        job = _job(path, routine, images, nodata, parameters)
        _done(path, job + ["write r r.tif compress=none tile=16"], block)
        return tifffile.imread(path / "r.tif")


def table(routine, images, nodata=None, **parameters):
    """The table that a routine writes: a list of numbers of each line."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory)
        _done(path, _job(path, routine, images, nodata, {**parameters, "write-table": "t.csv"}))
        lines = (path / "t.csv").read_text().splitlines()[1:]
        return [[float(value) for value in line.split(",")] for line in lines]


def _job(path, routine, images, nodata, parameters):
    images = images if isinstance(images, (list, tuple)) else [images]
    seen = covered.setdefault(routine, set())
    seen.add(images[0].dtype.name)
    if "edge" in parameters:
        seen.add(f"edge={parameters['edge']}")
    if images[0].ndim == 3:
        seen.add("bands")
    if nodata is not None:
        seen.add("no data")
    words = " ".join(f"{name.rstrip('_')}={_written(value)}" for name, value in parameters.items())
    names = [f"i{number}" for number in range(len(images))]
    job = []
    for name, samples in zip(names, images):
        planar = {"planarconfig": "separate"} if samples.ndim == 3 else {}
        tifffile.imwrite(path / f"{name}.tif", samples, photometric="minisblack", **planar)
        job.append(f"in {name}.tif" + ("" if nodata is None else f" nodata={nodata}"))
    return job + [f"r = {routine} {' '.join(names)} {words}"]


def _done(path, job, block=None):
    (path / "job.txt").write_text("\n".join(job) + "\n")
    block = block or _blocks.choice([16, 32, 64])
    command = [_program, "run", "job.txt", "--threads", "2", "--work-tile", str(block), "--quiet"]
    done = subprocess.run(command, cwd=path, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{job}: {done.stderr}")


def listed():
    """The routines that the program has, and what a comparison of each has to cover."""
    said = subprocess.run([_program, "list", "--json"], check=True, capture_output=True, text=True).stdout
    needed = {}
    for line in said.splitlines():
        routine = json.loads(line)
        # What it computes is the kernel's, not ours; `tests/kernels.rs` runs kernels with all types and edges.
        if routine["routine"] == "User":
            continue
        edges = [each["is"].split(" or ") for each in routine["parameters"] if each["name"] == "edge"]
        # Bits are those of whole numbers alone.
        types = WHOLE if routine["routine"] == "AndOrXor" else TYPES
        every = {*types, "bands", "no data", *(f"edge={edge}" for edges in edges for edge in edges)}
        needed[routine["routine"]] = every
    return needed


def _written(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value


def limits(kind):
    """The least and the greatest number of the type; of floats 0 and 1."""
    kind = numpy.dtype(kind)
    return (0.0, 1.0) if kind.kind == "f" else (float(numpy.iinfo(kind).min), float(numpy.iinfo(kind).max))


def rounded(values, kind):
    kind = numpy.dtype(kind)
    if kind.kind == "f":
        return values.astype(kind)
    # Whole numbers of 64 bits are saturated where a float is beyond them.
    wide = numpy.rint(values)
    low, high = limits(kind)
    whole = numpy.where(wide >= high, 0, numpy.where(wide <= low, 0, wide)).astype(kind)
    ends = numpy.iinfo(kind)
    return numpy.where(wide >= high, ends.max, numpy.where(wide <= low, ends.min, whole)).astype(kind)


def nearly(lines, routine, samples, got, real):
    """Whole numbers are the nearest ones; those next to a half may be either."""
    about = f"{samples.dtype} {samples.shape}"
    if samples.dtype.kind == "f":
        digits = 1e-6 if samples.dtype == numpy.float32 else 1e-11
        absolute = digits * float(numpy.abs(samples).max())
        lines.compare(routine, about, got, real, relative=digits, absolute=absolute)
        return
    near = numpy.abs(real - numpy.floor(real) - 0.5) < 1e-6 * numpy.maximum(numpy.abs(real), 1)
    expected = rounded(real, samples.dtype)
    lines.compare(routine, about, numpy.where(near, 0, got), numpy.where(near, 0, expected), relative=1e-15)


class Lines:
    """What was compared, a line for each routine."""

    def __init__(self):
        self.failed = 0
        self.compared = {}

    def compare(self, routine, about, got, expected, relative=0.0, absolute=0.0):
        """Every pixel, and NaN with NaN. A result may be off by the larger of both tolerances together."""
        expected = numpy.asarray(expected)
        count, worst = self.compared.get(routine, (0, 0.0))
        if got.shape != expected.shape:
            print(f"DIFFERS  {routine} {about}: {got.shape} instead of {expected.shape}")
            self.failed += 1
            return
        wide = numpy.longdouble
        a, b = got.astype(wide), expected.astype(wide)
        with numpy.errstate(invalid="ignore"):
            off = numpy.where((a == b) | (numpy.isnan(a) & numpy.isnan(b)), 0, numpy.abs(a - b))
            allowed = relative * numpy.nan_to_num(numpy.maximum(numpy.abs(a), numpy.abs(b))) + absolute
            wrong = ~(off <= allowed)
        if wrong.any():
            at = tuple(int(n) for n in numpy.argwhere(wrong)[0])
            print(
                f"DIFFERS  {routine} {about}: {int(wrong.sum())} of {wrong.size} pixels, first at {at}: "
                f"{got[at]} instead of {expected[at]}"
            )
            self.failed += 1
        worst = max(worst, float(numpy.nanmax(numpy.nan_to_num(off, nan=0.0))))
        self.compared[routine] = (count + got.size, worst)

    def show(self):
        for routine, (count, worst) in self.compared.items():
            print(f"{routine:<20}{count:>10} pixels, largest difference {worst:.3g}")
        print(f"{len(self.compared)} routines, {self.failed} comparisons failed")

    def check_all(self):
        """That nothing was left out: no routine, type or edge, neither bands nor pixels without data."""
        for routine, needed in listed().items():
            missing = needed - covered.get(routine, set())
            if routine not in self.compared or missing:
                print(f"LEFT OUT {routine}: {', '.join(sorted(missing))}")
                self.failed += 1
