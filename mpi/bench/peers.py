"""Other programs' side: prints the seconds of CPU time of each repetition, for an image that is in memory.

    peers.py REPEAT PEER texture WINDOW LEVELS IMAGE SIDE
    peers.py REPEAT PEER median|trimmed SIZE u8|u16|f32 IMAGE SIDE
    peers.py REPEAT PEER gaussian DEVIATION u8 IMAGE SIDE

PEER is itk, opencv, libvips, scipy or scikit-image. It works on one thread; a process measures one of them.
"""

import os
import sys
import time

os.environ |= {
    "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "VIPS_CONCURRENCY": "1",
}

import numpy  # noqa: E402 (libraries look at the environment when they are loaded)

TYPES = {"u8": "u1", "u16": "<u2", "f32": "<f4"}


def itk_texture(levels, window, count):
    """All eight features, which this filter always makes."""
    import itk

    image = itk.image_from_array(levels.astype("f4"))
    kind = itk.Image[itk.F, 2]
    features = itk.VectorImage[itk.F, 2]
    filter_of = itk.CoocurrenceTextureFeaturesImageFilter
    made = filter_of[kind, features].New(
        Input=image,
        NumberOfBinsPerAxis=count,
        HistogramMinimum=0,
        HistogramMaximum=count,
        NeighborhoodRadius=[window // 2] * 2,
    )
    return image, made


def opencv_median(image, size):
    import cv2

    cv2.setNumThreads(1)
    return lambda: cv2.medianBlur(image, size)


def libvips_median(image, size):
    import pyvips

    # The array is looked at, not copied: `held` keeps it.
    held = pyvips.Image.new_from_array(image)
    middle = size * size // 2
    return lambda: held.rank(size, size, middle).write_to_memory()


def scipy_median(image, size):
    from scipy import ndimage

    return lambda: ndimage.median_filter(image, size)


def scikit_trimmed(image, size):
    from skimage.filters import rank

    window = numpy.ones((size, size), "u1")
    return lambda: rank.mean_percentile(image, window, p0=0.25, p1=0.75)


def opencv_gaussian(image, deviation):
    import cv2

    cv2.setNumThreads(1)
    noise = numpy.zeros(image.shape, "i2")
    result = numpy.zeros_like(image)

    def add():
        cv2.randn(noise, 0, deviation)
        cv2.add(image, noise, result, dtype=cv2.CV_8U)

    return add


def work_of(peer, what, rest):
    if what == "texture":
        window, count, path, side = rest
        levels = numpy.fromfile(path, "u1").reshape(int(side), -1)
        _, made = itk_texture(levels, int(window), int(count))

        def texture():
            made.Modified()
            made.Update()

        return texture
    number, kind, path, side = rest
    image = numpy.fromfile(path, TYPES[kind]).reshape(int(side), -1)
    make = {
        ("opencv", "median"): opencv_median,
        ("libvips", "median"): libvips_median,
        ("scipy", "median"): scipy_median,
        ("scikit-image", "trimmed"): scikit_trimmed,
        ("opencv", "gaussian"): opencv_gaussian,
    }[peer, what]
    return make(image, int(number))


def main():
    repeat, peer, what, *rest = sys.argv[1:]
    work = work_of(peer, what, rest)

    def timed(rounds):
        begin = time.process_time()
        for _ in range(rounds):
            work()
        return time.process_time() - begin

    # What is quick is done many times, after having been done once: memory is touched then.
    rounds = 1
    first = timed(rounds)
    if first < 0.5:
        while timed(rounds) < 0.06:
            rounds *= 2
        times = [timed(rounds) / rounds for _ in range(int(repeat))]
    else:
        times = [first] + [timed(rounds) for _ in range(int(repeat) - 1)]
    for seconds in times:
        print(f"{seconds:.9f}")


if __name__ == "__main__":
    main()
