"""Photographs of scikit-image's wheel that may be redistributed, and what its documentation says of each."""

import pathlib

import numpy
import skimage
from PIL import Image

DATA = pathlib.Path(skimage.__file__).parent / "data"
CREDITS = [
    "camera: CC0 by the photographer, Lav Varshney",
    "brick (CC0Textures, Bricks25), grass (DeviantArt, Grass-01 by linolafett), gravel (CC0Textures, Gravel04): CC0",
    "hubble: part of the Hubble eXtreme Deep Field, captured by NASA, may be freely used in the public domain",
    "retina: by Mikael Häggström, of Wikimedia Commons (Fundus photograph of normal left eye), CC0 1.0",
]


def grey(name):
    with Image.open(DATA / name) as image:
        return numpy.asarray(image.convert("L"))


def green(name):
    """Vessels are seen best in it."""
    with Image.open(DATA / name) as image:
        return numpy.ascontiguousarray(numpy.asarray(image.convert("RGB"))[:, :, 1])


def crops(side):
    """Squares of them at their full sharpness, and one of three textures beside a photograph."""
    camera = grey("camera.png")
    cut = lambda samples, x, y, size=side: numpy.ascontiguousarray(samples[y : y + size, x : x + size])
    half = side // 2
    brick, grass, gravel = (grey(f"{name}.png") for name in ("brick", "grass", "gravel"))
    parts = [cut(brick, 100, 100, half), cut(grass, 100, 100, half), cut(gravel, 100, 100, half), cut(camera, 20, 20, half)]
    return {
        "camera": cut(camera, 160, 50),
        "gravel": cut(gravel, 200, 200),
        "hubble": cut(grey("hubble_deep_field.jpg"), 560, 440),
        "retina": cut(green("retina.jpg"), 240, 560),
        "textures": numpy.block([parts[:2], parts[2:]]),
    }
