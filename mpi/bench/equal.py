"""Whether the toolkit gives what other programs give in their own conventions: a line for each result.

|a - b| <= 1e-5 max(|a|, |b|) + 1e-6 must hold at every pixel whose window lies within the image; integers
must be the same. Where a program computes in 32 bits and its own formula loses digits, the same formula in 64
bits is evaluated for every pixel, by brute force: ours must be equal to that one. The exit code is 1 if
a line fails.
"""

import subprocess
import sys

import numpy

import brute
from common import GRASS_METHODS, TEXTURES, PROGRAMS, WORK, Grass, Otb, levels_of, photograph, write, write_tiff
from peers import itk_texture

SIDE = 128
WANTED = sys.argv[1:]
lines = []


def is_wanted(*words):
    return not WANTED or any(part in " ".join(words) for part in WANTED)


def beyond(a, b):
    """Pixels that are too far apart; NaN is equal to NaN alone."""
    a, b = a.astype("f8"), b.astype("f8")
    near = abs(a - b) <= 1e-5 * numpy.maximum(abs(a), abs(b)) + 1e-6
    return ~(near | (numpy.isnan(a) & numpy.isnan(b)))


def report(name, count, wrong, largest, note=""):
    verdict = "equal" if wrong == 0 else "DIFFERS"
    lines.append((name, count, wrong, verdict))
    print(f"{verdict:8} {name:48} {wrong} of {count} beyond, largest difference {largest:.1e} {note}", flush=True)


def compare(name, ours, theirs, exact=None):
    """With `exact`, theirs may be wrong where ours are near it."""
    wrong = beyond(ours, theirs)
    largest = numpy.nanmax(abs(ours.astype("f8") - theirs))
    if exact is None or not wrong.any():
        return report(name, wrong.size, int(wrong.sum()), largest)
    ours_wrong, theirs_wrong = beyond(ours, exact), beyond(theirs, exact)
    report(
        name, wrong.size, int(ours_wrong.sum()), numpy.nanmax(abs(ours - exact)),
        f"from its formula in 64 bits; its own results are beyond that at {theirs_wrong.sum()} pixels, "
        f"by {numpy.nanmax(abs(theirs - exact)):.1e} at most",
    )


def ours(like, levels, window, count):
    """Results by name, for the pixels whose windows lie within the image, and where these begin."""
    path, result = write("levels.raw", levels), WORK / "texture.raw"
    command = [PROGRAMS / "texture_raw", path, levels.shape[1], like, window, count, result]
    said = subprocess.run(
        [str(word) for word in command], check=True, capture_output=True, text=True
    ).stdout.split()
    width, height, left, above = (int(word) for word in said[:4])
    values = numpy.fromfile(result, "f4").reshape(-1, height, width)
    part = (slice(above, above + height), slice(left, left + width))
    return dict(zip(said[4:], values)), part


def of_grass(grey):
    grass = Grass()
    for window, count in TEXTURES:
        levels = levels_of(grey, count)
        found, part = ours("grass", levels, window, count)
        grass.take("image", levels)
        grass.texture("image", window, GRASS_METHODS)
        exact = brute.of_grass(levels, window)
        for name, method in zip(found, GRASS_METHODS):
            compare(
                f"GRASS {GRASS_METHODS[method]} {window}/{count}",
                found[name], grass.result(method, levels.shape)[part], exact.get(name),
            )


def of_otb(grey):
    import tifffile

    for window, count in TEXTURES:
        levels = levels_of(grey, count)
        found, part = ours("otb", levels, window, count)
        image, result = write_tiff("levels.tif", levels), WORK / "otb.tif"
        Otb().texture(image, window, count, result)
        theirs = tifffile.imread(result)
        if theirs.shape[0] != 8:
            theirs = numpy.moveaxis(theirs, -1, 0)
        for name, values in zip(found, theirs):
            compare(f"OTB {name} {window}/{count}", found[name], values[part])


def of_itk(grey):
    import itk

    for window, count in TEXTURES:
        levels = levels_of(grey, count)
        found, part = ours("itk", levels, window, count)
        _, made = itk_texture(levels, window, count)
        made.Update()
        theirs = itk.array_from_image(made.GetOutput())
        exact = brute.of_itk(levels, window, count)
        for place, name in enumerate(found):
            compare(f"ITK {name} {window}/{count}", found[name], theirs[..., place][part], exact.get(name))


def main():
    grey, name = photograph(SIDE)
    print(f"{SIDE} x {SIDE} pixels of {name}")
    for name, is_here, comparison in [
        ("GRASS", Grass.is_here(), of_grass),
        ("OTB", Otb.is_here(), of_otb),
        ("ITK", True, of_itk),
    ]:
        if is_here and is_wanted(name):
            comparison(grey)
    failed = [line for line in lines if line[3] != "equal"]
    print(f"{len(lines)} comparisons, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
