"""The recipe of land cover: on a scene of the sources of Orfeo ToolBox, which `recipes.py` is given a directory of."""

import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
SCENE, LABELS = "QB_1_ortho.tif", "VectorData_QB1_utm31n.sqlite"


def write(page, directory):
    for name in [SCENE, LABELS]:
        shutil.copy(pathlib.Path(directory) / name, page.folder)
    shutil.copy(HERE / "classify.py", page.folder)
    page.path = f"{pathlib.Path(sys.executable).parent}:{page.path}"
    page.say("## Land cover by colour and texture")
    page.say(
        "A scene of QuickBird with four bands and regions of four classes that somebody has drawn, both of the sources of Orfeo\n"
        "ToolBox (`apt-get source --download-only otb`, `Data/Input/Classification`; the scene is EarthWatch's, so no picture of it\n"
        "is here). The near infrared, smoothed, and its textures become one image of features; a random forest of scikit-learn\n"
        "learns from half of the regions, in squares of 8 pixels as on a chessboard ([classify.py](../mpi/gallery/classify.py)), and is\n"
        "judged by the other half. The squares touch each other, so the shares are those of a scene that is known in part, not of\n"
        "another one."
    )
    page.job("features.txt", (
        f"in {SCENE} as scene\ncolours = SquareMedian scene size=5\nwrite colours colours.tif\n"
        f"in {SCENE} as infrared bands=4\ncalm = SquareMedian infrared size=5\nwrite calm infrared.tif\n"
        "texture = CoOccur infrared window=9 levels=16 range=quantiles features=entropy,contrast,correlation,homogeneity\n"
        "write texture texture.tif\n"
    ))
    page.say("The labels onto the scene's grid, and both images in one; the tags of place are kept all along:")
    place = page.place(SCENE)
    corners = " ".join(str(number) for number in place)
    page.run(
        'gdal_rasterize -q -dialect sqlite -sql "select CAST(class AS integer) AS class, geometry from vectordata_qb1" \\\n'
        f"    -a class -ot Byte -init 0 -te {corners} -ts 512 512 {LABELS} labels.tif"
    )
    page.run("gdal_merge.py -q -separate -co INTERLEAVE=BAND -o features.tif infrared.tif texture.tif")
    found = {}
    for features in ["infrared.tif", "features.tif", "colours.tif"]:
        said = page.run(f"python classify.py {features} labels.tif classes.tif").split()
        found[features] = float(said[1]), float(said[2])
        count = int(said[0])
    if not all(share > 50 for shares in found.values() for share in shares):
        sys.exit(f"The classes are not found: {found}")
    if page.place("classes.tif") != place:
        sys.exit(f"The result lies elsewhere: {page.place('classes.tif')}")
    page.say(
        f"Of {count} pixels that were not learned from:\n\n| features | right (%) | mean over classes (%) |\n| --- | --- | --- |\n"
        + "\n".join(
            f"| {name} | {found[file][0]:.1f} | {found[file][1]:.1f} |" for name, file in [
                ("the near infrared alone", "infrared.tif"), ("and its four textures", "features.tif"),
                ("all four bands, no texture", "colours.tif"),
            ]
        )
    )
    if found["features.tif"][1] <= found["infrared.tif"][1]:
        sys.exit(f"Textures do not help: {found}")
    page.say("`gdalinfo classes.tif` says the same place on the map as of the scene.")
