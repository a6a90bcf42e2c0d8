"""Point operations beside Python's whole numbers, which have any size, and NumPy's 64-bit floats."""

from fractions import Fraction

import numpy

from common import FLOATS, TYPES, WHOLE, image, run

NAMES = {
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "i8": "int8", "i16": "int16", "i32": "int32",
    "i64": "int64", "f32": "float32", "f64": "float64",
}
SHAPE = (23, 37)


def full(kind, seed=0):
    """All values of the type, among them the least and the greatest."""
    if kind in FLOATS:
        return image(kind, seed, SHAPE)
    limits = numpy.iinfo(kind)
    chance = numpy.random.default_rng([seed, sum(kind.encode())])
    samples = chance.integers(limits.min, limits.max, SHAPE, dtype=kind, endpoint=True)
    samples[0, :4] = [limits.min, limits.max, 0, 1]
    return samples


def limits(kind):
    return (0, 1) if kind in FLOATS else (int(numpy.iinfo(kind).min), int(numpy.iinfo(kind).max))


def exactly(kind, samples, *others, of):
    """The type's nearest numbers to those of a function of whole numbers."""
    low, high = limits(kind)
    places = zip(samples.ravel().tolist(), *(other.ravel().tolist() for other in others))
    found = [min(max(of(*numbers), low), high) for numbers in places]
    return numpy.array(found, dtype=kind).reshape(samples.shape)


def nearest(kind, real):
    if kind in FLOATS:
        return real.astype(kind)
    low, high = limits(kind)
    wide = numpy.rint(numpy.nan_to_num(real, nan=0.0, posinf=2.0**70, neginf=-(2.0**70)))
    found = [low if n <= low else high if n >= high else int(n) for n in wide.ravel().tolist()]
    return numpy.array(found, dtype=kind).reshape(real.shape)


def compare(lines):
    for kind in TYPES:
        _two(lines, kind)
        _one(lines, kind)
    _missing(lines)


def _two(lines, kind):
    whole = {
        "Add": lambda a, b: a + b,
        "Subtract": lambda a, b: a - b,
        "Multiply": lambda a, b: a * b,
        "Divide": lambda a, b: round(Fraction(a, b)),
    }
    real = {"Add": numpy.add, "Subtract": numpy.subtract, "Multiply": numpy.multiply, "Divide": numpy.divide}
    one = full(kind, 1)
    for other in ["uint8", "int16", "int64", "uint64", "float32"]:
        two = full(other, 2)
        two[two == 0] = 3
        for to, name in [(kind, None), ("float64", "f64"), ("int32", "i32")]:
            given = {} if name is None else {"type": name}
            about = f"{kind} {other} {to}"
            for routine in whole:
                given = {**given, "by-zero": 0} if routine == "Divide" else given
                got = run(routine, [one, two], **given)
                if kind in WHOLE and other in WHOLE and to in WHOLE:
                    lines.compare(routine, about, got, exactly(to, one, two, of=whole[routine]))
                    continue
                found = real[routine](one.astype("float64"), two.astype("float64"))
                lines.compare(routine, about, got, nearest(to, found))
        if kind in WHOLE and other in WHOLE and numpy.dtype(kind).itemsize >= numpy.dtype(other).itemsize:
            bits = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
            for word, of in bits.items():
                got = run("AndOrXor", [one, two], bits=word)
                lines.compare("AndOrXor", f"{kind} {other} {word}", got, exactly(kind, one, two, of=of))


def _one(lines, kind):
    samples, positive = full(kind), image(kind, least=0, most=100, shape=SHAPE)
    wide, low = positive.astype("float64"), limits(kind)
    if kind in WHOLE:
        inverted = exactly(kind, samples, of=lambda a: low[0] + low[1] - a)
        cut = exactly(kind, samples, of=lambda a: min(max(a, 7), 99))
    else:
        inverted, cut = (1 - samples.astype("float64")).astype(kind), numpy.clip(samples, 6.5, 99.5)
    lines.compare("Invert", kind, run("Invert", samples), inverted)
    lines.compare("Invert", kind, run("Invert", positive, range="0:100"), nearest(kind, 100 - wide))
    lines.compare("Clip", kind, run("Clip", samples, least=6.5, most=99.5), cut)
    inside = ((wide >= 20) & (wide <= 60.5)).astype("uint8")
    lines.compare("Threshold", kind, run("Threshold", positive, least=20, most=60.5), inside)
    to = "float32" if numpy.dtype(kind).itemsize <= 2 or kind == "float32" else "float64"
    close = {"relative": 1e-7 if to == "float32" else 1e-14}
    for base, log, power in [("e", numpy.log, numpy.exp), ("2", numpy.log2, numpy.exp2)]:
        with numpy.errstate(divide="ignore"):
            found = numpy.where(wide > 0, log(wide), numpy.nan).astype(to)
        lines.compare("LogExp", f"{kind} {base}", run("LogExp", positive, base=base), found, **close)
        got = run("LogExp", positive, function="exp", base=base)
        lines.compare("LogExp", f"{kind} {base}", got, power(wide).astype(to), **close)
    for gamma in [0.45, 1, 2.2]:
        real = 100 * (wide / 100) ** gamma
        got = run("Gamma", positive, gamma=gamma, range="0:100")
        near = numpy.abs(real - numpy.floor(real) - 0.5) < 1e-9
        if kind in WHOLE:
            got, real = numpy.where(near, 0, got), numpy.where(near, 0, numpy.rint(real))
        lines.compare("Gamma", f"{kind} {gamma}", got, real, relative=1e-6 if kind == "float32" else 1e-13)
    for levels in [5, 1000]:
        step = numpy.clip(numpy.floor(wide / 100 * levels), 0, levels - 1)
        got = run("Quantise", positive, levels=levels, range="0:100")
        lines.compare("Quantise", f"{kind} {levels}", got, step.astype("uint8" if levels < 257 else "uint16"))
        got = run("Quantise", positive, levels=levels, range="0:100", **{"as": "middle"})
        middle = (step + 0.5) * (100 / levels)
        lines.compare("Quantise", f"{kind} {levels}", got, nearest(kind, middle), relative=1e-6)


def _missing(lines):
    """Bands with one band; a quotient by 0, and what either image lacks."""
    bands = numpy.stack([image("int16", seed, least=1, most=99) for seed in range(3)])
    other = image("int16", 7, least=0, most=3)
    bands[:, 4, 5], other[6, 7] = -1, -1
    there = (bands != -1) & (other != -1)
    sums = numpy.where(there, bands + other, -1)
    lines.compare("Add", "missing pixels", run("Add", [bands, other], nodata=-1), sums)
    got = run("Divide", [bands, other], nodata=-1, **{"by-zero": 77})
    with numpy.errstate(divide="ignore", invalid="ignore"):
        found = numpy.where(there, numpy.where(other == 0, 77, numpy.rint(bands / other)), -1)
    lines.compare("Divide", "by 0", got, found)
    there &= other != 0
    with numpy.errstate(divide="ignore", invalid="ignore"):
        found = numpy.where(there, numpy.rint(bands / other), -1)
    lines.compare("Divide", "missing pixels", run("Divide", [bands, other], nodata=-1), found)
