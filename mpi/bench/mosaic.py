#!/usr/bin/env python3
"""A mosaic of one scene and its mirror images, larger than memory: `mosaic.py SCENE OUT COLUMNS ROWS`.

No gigapixel image can be had from a package index, so a real scene of some megapixels is laid out many times,
each mirrored so that it goes on smoothly where the last one ends. Written tile by tile, with one row of tiles in
memory.
"""

import sys

import numpy
import tifffile

TILE = 512


def rows_of(scene, columns, rows):
    """Rows of tiles of the mosaic, each as high as a tile, the last one filled with zeros."""
    line = numpy.concatenate([scene, scene[:, ::-1]], axis=1)
    line = numpy.tile(line, (1, (columns + 1) // 2))[:, : columns * scene.shape[1]]
    height = rows * scene.shape[0]
    across = -(-line.shape[1] // TILE) * TILE
    period = 2 * scene.shape[0]
    for top in range(0, height, TILE):
        numbers = numpy.arange(top, min(top + TILE, height)) % period
        numbers = numpy.where(numbers < scene.shape[0], numbers, period - 1 - numbers)
        block = numpy.zeros((TILE, across), scene.dtype)
        block[: len(numbers), : line.shape[1]] = line[numbers]
        yield block


def tiles(scene, columns, rows):
    for block in rows_of(scene, columns, rows):
        for left in range(0, block.shape[1], TILE):
            yield numpy.ascontiguousarray(block[:, left : left + TILE])


def main():
    scene, out, columns, rows = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    scene = tifffile.imread(scene)
    shape = (rows * scene.shape[0], columns * scene.shape[1])
    tifffile.imwrite(
        out, tiles(scene, columns, rows), shape=shape, dtype=scene.dtype, tile=(TILE, TILE), bigtiff=True,
        compression="zstd", compressionargs={"level": 1}, predictor=True, photometric="minisblack",
    )
    print(f"{out}: {shape[1]} x {shape[0]}, {shape[0] * shape[1] / 1e9:.2f} gigapixels")


if __name__ == "__main__":
    main()
