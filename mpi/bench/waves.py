#!/usr/bin/env python3
"""An image that is made up, of 8 bits: `waves.py OUT.tif SIDE`. Waves with grain, seed 1, the same for everybody."""

import sys

import numpy

TILE = 256


def rows(side):
    """Luminance from 0 to 65535, a row after the other."""
    random = numpy.random.default_rng(1)
    x = numpy.arange(side)
    for y in range(side):
        hills = 0.5 + 0.2 * numpy.sin(x / 37.0 + y / 91.0) + 0.2 * numpy.cos(y / 23.0 - x / 140.0)
        grey = hills + random.normal(0, 0.03, side)
        yield (grey.clip(0, 1) * 65535).round().astype("u2")


def main():
    import tifffile

    out, side = sys.argv[1], int(sys.argv[2])
    image = numpy.stack([(row >> 8).astype("u1") for row in rows(side)])
    tifffile.imwrite(out, image, tile=(TILE, TILE), photometric="minisblack")


if __name__ == "__main__":
    main()
