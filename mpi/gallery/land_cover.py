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
        "is here). Smoothed bands, and textures of the near infrared, become one image of features; a random forest of scikit-learn\n"
        "learns from half of the regions ([classify.py](../mpi/gallery/classify.py)) and is judged by the others."
    )
    page.job("features.txt", (
        f"in {SCENE} as scene\ncolours = SquareMedian scene size=5\nwrite colours colours.tif\n"
        f"in {SCENE} as infrared bands=4\n"
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
    page.run("gdal_merge.py -q -separate -co INTERLEAVE=BAND -o features.tif colours.tif texture.tif")
    found = {}
    for features in ["colours.tif", "features.tif"]:
        said = page.run(f"python classify.py {features} labels.tif classes.tif").split()
        found[features] = float(said[1]), float(said[2])
        count = int(said[0])
    if page.place("classes.tif") != place:
        sys.exit(f"The result lies elsewhere: {page.place('classes.tif')}")
    page.say(
        f"Of {count} pixels in regions that were not learned from:\n\n| features | right (%) | mean over classes (%) |\n| --- | --- | --- |\n"
        f"| four bands | {found['colours.tif'][0]:.1f} | {found['colours.tif'][1]:.1f} |\n"
        f"| four bands and four textures | {found['features.tif'][0]:.1f} | {found['features.tif'][1]:.1f} |"
    )
    page.say("`gdalinfo classes.tif` says the same place on the map as of the scene.")
