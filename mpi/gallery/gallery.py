"""`gallery.py PIPT`: each routine before and after, as pictures in `docs/pictures/pipt` and `docs/pipt-gallery.md`.

The images are those of the wheel of scikit-image that may be redistributed. Each routine is run by the command itself; a
result that is no picture by itself is shown from its 0.5th to its 99.5th percentile.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import skimage
import tifffile
from PIL import Image, ImageDraw

from sources import CREDITS, crops

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures" / "pipt"
SIDE = 180
JPEG = {"quality": 82, "optimize": True}

# Of each routine the image, what is given, and how the result is shown: as it is, or stretched.
AS_IS, STRETCHED, BOTH_SIDES = "as it is", "stretched", "0 is grey"
TEXTURE = {"window": 9, "levels": 16}
CASES = {
    "CoOccur": ("textures", {**TEXTURE, "features": "entropy,contrast,homogeneity"}, STRETCHED),
    "CoOccurMax": ("textures", TEXTURE, STRETCHED),
    "CoOccurEnergy": ("textures", TEXTURE, STRETCHED),
    "CoOccurContrast": ("textures", TEXTURE, STRETCHED),
    "CoOccurInverseMoment": ("textures", TEXTURE, STRETCHED),
    "CoOccurHomogeneity": ("textures", TEXTURE, STRETCHED),
    "CoOccurCorrelation": ("textures", {**TEXTURE, "offsets": "4:0"}, STRETCHED),
    "CoOccurEntropy": ("textures", TEXTURE, STRETCHED),
    "CoOccurCluster": ("textures", {**TEXTURE, "cluster": 2}, STRETCHED),
    "SquareMedian": ("camera-peppered", {"size": 5}, AS_IS),
    "CrossMedian": ("camera-peppered", {"size": 5}, AS_IS),
    "ATrimmedSqMean": ("camera-peppered", {"size": 5, "trim": 0.3}, AS_IS),
    "ATrimmedCrMean": ("camera-peppered", {"size": 5, "trim": 0.3}, AS_IS),
    "SquareMin": ("camera", {"size": 7}, AS_IS),
    "SquareMax": ("camera", {"size": 7}, AS_IS),
    "CrossMin": ("camera", {"size": 7}, AS_IS),
    "CrossMax": ("camera", {"size": 7}, AS_IS),
    "SquareRank": ("camera", {"size": 9, "rank": 70}, AS_IS),
    "CrossRank": ("camera", {"size": 9, "rank": 14}, AS_IS),
    "Erode": ("hubble", {"size": 5}, AS_IS),
    "Dilate": ("hubble", {"size": 9}, AS_IS),
    "Open": ("hubble", {"size": 9}, AS_IS),
    "Close": ("retina", {"size": 15}, AS_IS),
    "SquareMean": ("camera", {"size": 9}, AS_IS),
    "CrossMean": ("camera", {"size": 17}, AS_IS),
    "GaussianSmooth": ("camera", {"sigma": 3}, AS_IS),
    "GeometricMean": ("camera-salted", {"size": 3}, AS_IS),
    "HarmonicMean": ("camera-salted", {"size": 3}, AS_IS),
    "SigmaFilter": ("camera-noisy", {"size": 7, "within": 50}, AS_IS),
    "AdaptiveWiener": ("camera-noisy", {"size": 5}, AS_IS),
    "Sobel": ("camera", {}, STRETCHED),
    "Prewitt": ("camera", {}, STRETCHED),
    "Roberts": ("camera", {}, STRETCHED),
    "Kirsch": ("camera", {}, STRETCHED),
    "Laplacian": ("camera", {}, BOTH_SIDES),
    "LaplacianOfGaussian": ("camera", {"sigma": 2}, BOTH_SIDES),
    "UnsharpMask": ("camera", {"sigma": 2, "amount": 3}, AS_IS),
    "Convolve": ("camera", {"kernel": "-2,-1,0/-1,0,1/0,1,2"}, BOTH_SIDES),
    "Canny": ("camera", {"sigma": 1.5, "low": 30, "high": 90}, STRETCHED),
    "Add": (("camera", "gravel"), {"type": "u16"}, STRETCHED),
    "Subtract": (("camera", "gravel"), {"type": "i16"}, STRETCHED),
    "Multiply": (("camera", "gravel"), {"type": "f32"}, STRETCHED),
    "Divide": (("camera", "gravel"), {"type": "f32"}, STRETCHED),
    "AndOrXor": (("camera", "gravel"), {"bits": "xor"}, AS_IS),
    "Invert": ("camera", {}, AS_IS),
    "LogExp": ("hubble", {"function": "log"}, STRETCHED),
    "Gamma": ("hubble", {"gamma": 0.45}, AS_IS),
    "Threshold": ("camera", {"least": 0, "most": 60}, STRETCHED),
    "Clip": ("camera", {"least": 90, "most": 160}, AS_IS),
    "Quantise": ("camera", {"levels": 4, "as": "middle"}, AS_IS),
    "Histogram": ("camera", {"bins": 60}, AS_IS),
    "HistEqualise": ("camera-dull", {}, AS_IS),
    "HistMatch": (("camera", "gravel"), {}, AS_IS),
    "ContrastStretch": ("camera-dull", {}, AS_IS),
    "Stats": ("camera", {}, AS_IS),
    "Crop": ("camera", {"x": 50, "y": 10, "width": 90, "height": 110}, AS_IS),
    "FlipRotate90": ("camera", {"how": "90"}, AS_IS),
    "Resample": ("camera", {"factor": 0.2, "method": "average"}, AS_IS),
    "AddUniform": ("camera", {"least": -60, "most": 60}, AS_IS),
    "AddGaussian": ("camera", {"deviation": 30}, AS_IS),
    "AddBitError": ("camera", {"probability": 0.02}, AS_IS),
    "AddSaltPepper": ("camera", {"probability": 0.1}, AS_IS),
    "AddLaplacian": ("camera", {"deviation": 30}, AS_IS),
    "AddSpeckle": ("camera", {"deviation": 0.3}, AS_IS),
}


class Maker:
    def __init__(self, program, folder):
        self.program, self.folder = str(pathlib.Path(program).resolve()), folder

    def run(self, routine, sources, words, to):
        lines = [f"in {name}.tif as i{number}" for number, name in enumerate(sources)]
        images = " ".join(f"i{number}" for number in range(len(sources)))
        is_table = "write-table" in words
        lines.append(f"r = {routine} {images} " + " ".join(f"{name}={value}" for name, value in words.items()))
        lines += [] if is_table else [f"write r {to}.tif compress=none"]
        (self.folder / "job.txt").write_text("\n".join(lines) + "\n")
        done = subprocess.run(
            [self.program, "run", "job.txt", "--quiet", "--overwrite"], cwd=self.folder, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"{routine}: {done.stderr}")
        return None if is_table else tifffile.imread(self.folder / f"{to}.tif")

    def sources(self):
        for name, samples in crops(SIDE).items():
            tifffile.imwrite(self.folder / f"{name}.tif", samples, photometric="minisblack")
        self.run("AddSaltPepper", ["camera"], {"probability": 0.15}, "camera-peppered")
        self.run("AddSaltPepper", ["camera"], {"probability": 0.05, "salt": 1}, "camera-salted")
        self.run("AddGaussian", ["camera"], {"deviation": 25}, "camera-noisy")
        self.run("ContrastStretch", ["camera"], {"result": "100:150"}, "camera-dull")


def shown(samples, how):
    """Bytes of a picture."""
    if how == AS_IS:
        return samples
    samples = samples.astype("float64")
    axes = (-2, -1)
    low, high = (numpy.nanpercentile(samples, part, axis=axes, keepdims=True) for part in (0.5, 99.5))
    if how == BOTH_SIDES:
        high = numpy.maximum(abs(low), abs(high))
        low = -high
    grey = (samples - low) / numpy.where(high > low, high - low, 1)
    return (255 * numpy.clip(numpy.nan_to_num(grey), 0, 1)).astype("uint8")


def picture(samples):
    if samples.ndim == 3:
        samples = numpy.moveaxis(samples, 0, -1)
    image = Image.fromarray(samples)
    if image.width < SIDE // 3:
        image = image.resize((SIDE, SIDE), Image.Resampling.NEAREST)
    return image


def table(routine, text):
    """Numbers as a picture: bars, or lines of text."""
    names, *rows = [line.split(",") for line in text.splitlines()]
    image = Image.new("L", (SIDE, SIDE), 255)
    draw = ImageDraw.Draw(image)
    if routine == "Histogram":
        counts = [float(row[3]) for row in rows]
        for number, count in enumerate(counts):
            draw.rectangle((3 * number, SIDE - 1 - count / max(counts) * (SIDE - 8), 3 * number + 1, SIDE), 60)
        return image
    for number, (name, value) in enumerate(zip(names, rows[0])):
        draw.text((6, 8 + 18 * number), f"{name}: {value[:12]}", 0)
    return image


def main():
    program = sys.argv[1]
    listed = [json.loads(line) for line in subprocess.run(
        [program, "list", "--json"], capture_output=True, text=True, check=True).stdout.splitlines()]
    # The kernels of users are theirs to show.
    listed = [routine for routine in listed if routine["routine"] != "User"]
    left_out = {routine["routine"] for routine in listed} ^ set(CASES)
    if left_out:
        sys.exit(f"No picture, or no routine: {', '.join(sorted(left_out))}")
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        maker = Maker(program, pathlib.Path(folder))
        maker.sources()
        for routine in listed:
            make(maker, routine["routine"])
    write(listed)


def make(maker, routine):
    names, words, how = CASES[routine]
    names = names if isinstance(names, tuple) else (names,)
    for name in names:
        picture(tifffile.imread(maker.folder / f"{name}.tif")).save(PICTURES / f"before-{name}.jpg", **JPEG)
    if routine in ("Histogram", "Stats"):
        maker.run(routine, names, {**words, "write-table": "t.csv"}, "r")
        made = table(routine, (maker.folder / "t.csv").read_text())
    else:
        made = picture(shown(maker.run(routine, names, words, "r"), how))
    made.save(PICTURES / f"{routine}.jpg", **JPEG)


def write(listed):
    text = (
        "# What each routine does\n\n"
        "Made by `make pipt-gallery` from photographs that anybody may use (below), by the routines themselves, with the\n"
        "parameters that are shown. Results that are no bytes, and marks of 0 and 1, are shown from their 0.5th to their\n"
        "99.5th percentile; where both signs occur grey is 0. `CoOccur` has three of its features as red, green and blue.\n"
        "What each routine is, and what it was compared with, is in [pipt-routines.md](pipt-routines.md).\n"
    )
    family = None
    for routine in listed:
        if routine["family"] != family:
            family = routine["family"]
            text += f"\n## {family.capitalize()}\n\n| before | after | |\n| --- | --- | --- |\n"
        name = routine["routine"]
        sources, words, _ = CASES[name]
        sources = sources if isinstance(sources, tuple) else (sources,)
        before = " ".join(f"![{source}](pictures/pipt/before-{source}.jpg)" for source in sources)
        given = " ".join([name, *(f"{word}={value}" for word, value in words.items())])
        about = routine["about"].replace("|", "\\|").replace("*", "\\*")
        text += f"| {before} | ![{name}](pictures/pipt/{name}.jpg) | `{given}`<br>{about} |\n"
    text += f"\n## Where the photographs are from\n\nAll are of the wheel of scikit-image {skimage.__version__}, "
    text += "whose documentation of each image (`skimage/data/_fetchers.py`) says:\n\n"
    text += "".join(f"- {credit}\n" for credit in CREDITS)
    (ROOT / "docs" / "pipt-gallery.md").write_text(text)


if __name__ == "__main__":
    main()
