"""Noise beside Philox4x32-10 written down again from its authors' paper, in NumPy, and quantiles of SciPy."""

import numpy
from scipy import stats

from common import FLOATS, TYPES, image, limits, rounded, run

SHAPE = (47, 61)
SEED = 0x123456789ABCDEF


def philox(counter, key):
    """Ten rounds of Philox with four words (Salmon and others, 2011); all are arrays of 64 bits that hold 32."""
    low = numpy.uint64(0xFFFFFFFF)
    a, b, c, d = counter
    first, second = key
    for _ in range(10):
        one, other = a * numpy.uint64(0xD2511F53), c * numpy.uint64(0xCD9E8D57)
        half = numpy.uint64(32)
        a, b, c, d = (other >> half) ^ b ^ first, other & low, (one >> half) ^ d ^ second, one & low
        first, second = (first + numpy.uint64(0x9E3779B9)) & low, (second + numpy.uint64(0xBB67AE85)) & low
    return a, b, c, d


def words(purpose, shape=SHAPE, band=0):
    """The pixels' random words, and those that stand beside them: pixel 64 g + 16 j + i has word j of counter
    16 g + i."""
    pixel = numpy.arange(shape[0] * shape[1], dtype=numpy.uint64).reshape(shape)
    counter = pixel // numpy.uint64(64) * numpy.uint64(16) + pixel % numpy.uint64(16)
    constant = [numpy.full(shape, n, numpy.uint64) for n in (0, band, purpose)]
    key = numpy.uint64(SEED & 0xFFFFFFFF), numpy.uint64(SEED >> 32)
    four = numpy.stack(philox([counter, *constant], key))
    which = (pixel // numpy.uint64(16) % numpy.uint64(4)).astype(int)
    return four, which


def own(purpose, **where):
    four, which = words(purpose, **where)
    return numpy.take_along_axis(four, which[None], 0)[0]


def normal(purpose, **where):
    """Words 0 and 1 are a radius and an angle of two numbers, words 2 and 3 those of two more."""
    four, which = words(purpose, **where)
    radius = numpy.where(which < 2, four[0], four[2])
    angle = numpy.where(which < 2, four[1], four[3]).astype(float) * (2 * numpy.pi / 2**32)
    radius = numpy.sqrt(-2 * numpy.log(unit(radius)))
    return radius * numpy.where(which % 2 == 0, numpy.cos(angle), numpy.sin(angle))


def unit(word):
    return (word >> numpy.uint64(1)).astype(float) / 2**31 + 1 / 2**32


def uniform(kind, low, high):
    word = own(1)
    narrow = numpy.dtype(kind).itemsize < 4
    part = ((word >> numpy.uint64(9)).astype(float) + 0.5) / 2**23 if narrow else (word.astype(float) + 0.5) / 2**32
    return stats.uniform.ppf(part, low, high - low)


def laplacian(mean, deviation):
    word = own(3)
    tail = unit(word) / 2
    side = numpy.where(word & numpy.uint64(1), -1.0, 1.0)
    return mean + side * -stats.laplace.ppf(tail, 0, deviation / numpy.sqrt(2))


def compare(lines):
    for kind in TYPES:
        samples = image(kind, shape=SHAPE, least=-300 if numpy.dtype(kind).kind != "u" else 0, most=300) \
            if numpy.dtype(kind).itemsize > 1 else image(kind, shape=SHAPE)
        _added(lines, kind, samples)
        _replaced(lines, kind, samples)
        _turned(lines, kind, samples)
    _bands(lines)


def _added(lines, kind, samples):
    real = samples.astype(float)
    many = {
        "AddUniform": (uniform(kind, -30.5, 40), {"least": -30.5, "most": 40}),
        "AddGaussian": (3 + 25 * normal(2), {"mean": 3, "deviation": 25}),
        "AddLaplacian": (laplacian(-2, 25), {"mean": -2, "deviation": 25}),
        "AddSpeckle": ((0.1 + 0.4 * normal(4)) * real, {"mean": 0.1, "deviation": 0.4}),
    }
    for routine, (noise, parameters) in many.items():
        got = run(routine, samples, seed=SEED, **parameters)
        # Random numbers are made with 24 bits, and those of 600 and less: the rest are sums of them.
        off = 2e-4
        if kind in FLOATS:
            lines.compare(routine, kind, got, (real + noise).astype(kind), absolute=off)
            continue
        near = numpy.abs(noise - numpy.floor(noise) - 0.5) < off
        expected = rounded(real + numpy.rint(noise), kind)
        lines.compare(routine, kind, numpy.where(near, 0, got), numpy.where(near, 0, expected))


def _replaced(lines, kind, samples):
    least, most = limits(kind)
    word = own(5)
    for ends, chosen in [("type", (least, most)), ("10:20", (10, 20))]:
        got = run("AddSaltPepper", samples, probability=0.25, salt=0.75, ends=ends, seed=SEED)
        low, high = rounded(numpy.array(chosen, dtype=float), kind)
        expected = numpy.where(word < 0.1875 * 2**32, high, numpy.where(word < 0.25 * 2**32, low, samples))
        lines.compare("AddSaltPepper", f"{kind} {ends}", got, expected.astype(kind))


def _turned(lines, kind, samples):
    got = run("AddBitError", samples, probability=0.125, seed=SEED)
    size = numpy.dtype(kind).itemsize
    bits = samples.view(f"u{size}").astype(numpy.uint64)
    for bit in range(8 * size):
        turned = own(256 + bit) < 2**29
        bits ^= turned.astype(numpy.uint64) << numpy.uint64(bit)
    # Of floats what is no number is missing, and its bits are not kept.
    expected = bits.astype(f"u{size}").view(kind)
    lines.compare("AddBitError", kind, got, expected)


def _bands(lines):
    """Each band has noise of its own."""
    samples = numpy.stack([image("int16", seed, SHAPE, -1000, 1000) for seed in range(3)])
    got = run("AddSaltPepper", samples, probability=0.25, salt=0, ends="0:1", seed=SEED)
    expected = [numpy.where(own(5, band=n) < 2**30, 0, band) for n, band in enumerate(samples)]
    lines.compare("AddSaltPepper", "three bands", got, numpy.array(expected, dtype="int16"))
