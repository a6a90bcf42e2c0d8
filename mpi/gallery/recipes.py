"""`recipes.py PIPT [SCENES]`: does what `docs/pipt-recipes.md` says, checks it, and writes the page with the numbers that came out.

SCENES is the directory `Data/Input/Classification` of the sources of Orfeo ToolBox, whose recipe also needs the tools of
GDAL (of the package gdal-bin); without it that recipe is left as it was. The page is made of the texts and commands
below; each command is run as it stands there, in one directory.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy
import tifffile
from PIL import Image

import sources

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Page:
    def __init__(self, program, folder):
        self.folder, self.lines = folder, []
        self.path = f"{pathlib.Path(program).resolve().parent}{os.pathsep}{os.environ['PATH']}"

    def say(self, text):
        self.lines += [text, ""]

    def job(self, name, text):
        """A batch file, and its run."""
        (self.folder / name).write_text(text)
        self.lines += [f"`{name}`:", "", "```", text.rstrip(), "```", ""]
        return self.run(f"pipt run {name}")

    def run(self, command):
        self.lines += ["```", command, "```", ""]
        given = {**os.environ, "PATH": self.path}
        done = subprocess.run(command, shell=True, cwd=self.folder, env=given, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{command}: {done.stderr}")
        return done.stdout

    def place(self, name):
        """Left, lower, right and upper end on the map, as GDAL says them."""
        said = subprocess.run(["gdalinfo", "-json", name], cwd=self.folder, capture_output=True, text=True, check=True)
        corners = json.loads(said.stdout)["cornerCoordinates"]
        return [*corners["lowerLeft"], *corners["upperRight"]]

    def table(self, name):
        return [line.split(",") for line in (self.folder / name).read_text().splitlines()]

    def image(self, name):
        return tifffile.imread(self.folder / name)


def check(is_so, what):
    if not is_so:
        sys.exit(f"Not so: {what}")


LAND_COVER = "## Land cover by colour and texture"
FILTERS = [
    ("SquareMean", "size=3"), ("GaussianSmooth", "sigma=1"), ("SquareMedian", "size=3"), ("SquareMedian", "size=5"),
    ("ATrimmedSqMean", "size=5 trim=0.2"), ("SigmaFilter", "size=7 within=50"), ("AdaptiveWiener", "size=5"),
]


def denoising(page):
    page.say("## Which filter for which noise")
    page.say(
        "Noise of a known kind is added to a clean photograph (512 x 512, *camera* of scikit-image), filters take it off, and\n"
        "`Stats` with two images says how near each comes: the peak signal-to-noise ratio in decibels, more is better. One\n"
        "batch file does all of it; nothing is written but tables."
    )
    tifffile.imwrite(page.folder / "camera.tif", sources.grey("camera.png"), photometric="minisblack")
    noises = [("gaussian", "AddGaussian", "deviation=20"), ("salt and pepper", "AddSaltPepper", "probability=0.1"),
              ("speckle", "AddSpeckle", "deviation=0.2")]
    text, found = "in camera.tif as clean\n", {}
    for number, (_, routine, words) in enumerate(noises):
        text += f"noisy{number} = {routine} clean {words} seed=1\n"
        text += f"t{number} = Stats noisy{number} clean write-table=noisy{number}.csv\n"
        for place, (name, given) in enumerate(FILTERS):
            text += f"f{number}{place} = {name} noisy{number} {given}\n"
            text += f"t{number}{place} = Stats f{number}{place} clean write-table=filtered{number}{place}.csv\n"
    page.job("denoise.txt", text)
    page.say("| | " + " | ".join(noise for noise, _, _ in noises) + " |\n| --- |" + " --- |" * len(noises))
    page.lines.pop()
    psnr = lambda name: float(page.table(name)[1][-1])
    page.lines.append("| noisy | " + " | ".join(f"{psnr(f'noisy{n}.csv'):.1f}" for n in range(3)) + " |")
    for place, (name, given) in enumerate(FILTERS):
        found[name, given] = [psnr(f"filtered{number}{place}.csv") for number in range(3)]
        page.lines.append(f"| `{name} {given}` | " + " | ".join(f"{each:.1f}" for each in found[name, given]) + " |")
    page.lines.append("")
    noisy = page.folder / "own.tif"
    best = [max(found, key=lambda key, n=n: found[key][n]) for n in range(3)]
    check("Median" in best[1][0], "a median is best against salt and pepper")
    check(all(max(found[key][n] for key in found) > psnr(f"noisy{n}.csv") + 3 for n in range(3)), "filters help")
    noisy.unlink(missing_ok=True)
    page.say(
        "Best against " + ", ".join(f"{noise}: `{name} {given}`" for (noise, _, _), (name, given) in zip(noises, best)) + "."
    )


def microscopy(page):
    page.say("## Vessels of a retina")
    page.say(
        "Vessels are dark and narrow. `Close` with a window wider than they are fills them in, which leaves the background;\n"
        "what the image lacks of it are the vessels. A median takes single pixels off before, a threshold comes last, and `Canny`\n"
        "draws the borders. The same steps count cells or nuclei: `Open` instead of `Close` for what is bright."
    )
    tifffile.imwrite(page.folder / "retina.tif", sources.green("retina.jpg"), photometric="minisblack")
    page.job("vessels.txt", (
        "in retina.tif\ncalm = SquareMedian retina size=5\nbackground = Close calm size=25\n"
        "dark = Subtract background calm\nvessels = Threshold dark least=12\nlines = Canny dark sigma=2 low=15 high=40\n"
        "write vessels vessels.tif compress=deflate\nwrite lines lines.tif compress=deflate\n"
        "count = Stats vessels write-table=vessels.csv\n"
    ))
    names, row = page.table("vessels.csv")[:2]
    mean = float(row[names.index("mean")])
    vessels, retina = page.image("vessels.tif"), page.image("retina.tif")
    check(abs(mean - vessels.mean()) < 1e-9, "the table's mean is that of the image")
    inside = retina > 20
    share = vessels[inside].mean()
    check(0.03 < share < 0.3, f"vessels are a part of the retina: {share}")
    darker = retina[inside & (vessels == 0)].mean() - retina[inside & (vessels == 1)].mean()
    page.say(
        f"Marked are {100 * share:.1f} % of the pixels of the retina; in the green channel they are {darker:.0f} levels darker in the mean than\n"
        "the others."
    )
    side = slice(480, 880), slice(200, 600)
    both = numpy.concatenate([retina[side], 255 * vessels[side]], axis=1)
    to = ROOT / "docs" / "pictures" / "pipt" / "recipe-vessels.jpg"
    Image.fromarray(both).resize((400, 200), Image.Resampling.BOX).save(to, quality=82)
    page.say("![A part of the retina, and its vessels](pictures/pipt/recipe-vessels.jpg)")


def main():
    with tempfile.TemporaryDirectory() as folder:
        page = Page(sys.argv[1], pathlib.Path(folder))
        page.say("# Recipes")
        page.say(
            "Written by `make pipt-gallery`, which runs every command that is shown, checks what is said of its results, and puts\n"
            "in the numbers. The photographs are those of [pipt-gallery.md](pipt-gallery.md)."
        )
        denoising(page)
        microscopy(page)
        if len(sys.argv) > 2:
            import land_cover

            land_cover.write(page, sys.argv[2])
        to = ROOT / "docs" / "pipt-recipes.md"
        text = "\n".join(page.lines).rstrip() + "\n"
        before = to.read_text() if to.exists() else ""
        if len(sys.argv) == 2 and LAND_COVER in before:
            text += "\n" + before[before.index(LAND_COVER) :]
        to.write_text(text)


if __name__ == "__main__":
    main()
