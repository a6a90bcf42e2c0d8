"""Writes TIFF files of many flavours and what tifffile reads from them.

    oracle.py DIRECTORY [FILES...]

For each page of each file a line of JSON: the file's name, the flavour, the number of the page, and either why
tifffile reads nothing from it, or bands, height, width, type of samples and the file that holds them (band after
band, rows from the top, least significant byte first). Complex numbers are two such lines, one for each part.
What libtiff reads is said beside it, under "libtiff", if it is something else; null, if it finds the file damaged.
Programs that are not installed (tiffcp, gdal_translate) are left out, and said so on the standard error output.
"""

import json
import logging
import pathlib
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import imagecodecs
import numpy
import tifffile

logging.disable(logging.CRITICAL)
# Pages of damaged files may say that they are larger than any memory.
MOST = 1 << 30
PLAIN = {"bool": "u8", "float16": "f32"}


def kind(dtype):
    name = PLAIN.get(dtype.name)
    return name or {"u": "u", "i": "i", "f": "f"}[dtype.kind] + str(8 * dtype.itemsize)


def planes(page):
    pixels = page.asarray().reshape(page.shaped)
    separate, depth, height, width, contig = page.shaped
    if depth != 1:
        raise ValueError("a volume")
    pixels = pixels.transpose(0, 1, 4, 2, 3).reshape(separate * contig, height, width)
    return pixels


def scales(metadata):
    """Of each band that has one, in their order: where its samples begin, and the step between two of them."""
    if not isinstance(metadata, str):
        return []
    said = {}
    for item in ElementTree.fromstring(metadata).iter("Item"):
        if item.get("role") in ("offset", "scale"):
            said[int(item.get("sample")), item.get("role")] = float(item.text)
    return [[said[band, "offset"], said[band, "scale"]] for band, role in sorted(said) if role == "scale"]


def say(directory, path, flavour, number, source=None):
    line = {"file": str(path), "flavour": flavour, "page": 0}
    try:
        with tifffile.TiffFile(source or path) as file:
            line["scales"] = scales(file.gdal_metadata)
            for page in range(max(len(file.pages), 1)):
                say_page(directory, file, line | {"page": page}, number)
    except Exception as error:  # Whatever it is, it is the answer.
        refuse(directory, line, error, number)


def refuse(directory, line, error, number):
    line |= by_libtiff(directory, line, number)
    print(json.dumps(line | {"refused": f"{type(error).__name__}: {error}"[:200]}))


def store(directory, name, values):
    raw = directory / f"{name}.raw"
    type_of = kind(values.dtype)
    wanted = numpy.dtype(f"<{type_of[0]}{int(type_of[1:]) // 8}")
    raw.write_bytes(numpy.ascontiguousarray(values).astype(wanted).tobytes())
    bands, height, width = values.shape
    return {"raw": str(raw), "kind": type_of, "bands": bands, "height": height, "width": width}


def by_libtiff(directory, line, number, than=None):
    """What libtiff reads, if it reads something else. It takes damaged files less lightly than tifffile."""
    try:
        pixels = imagecodecs.tiff_decode(pathlib.Path(line["file"]).read_bytes(), index=line["page"])
        if pixels.ndim == 2:
            pixels = pixels[None]
        elif line.get("planes") is False:
            pixels = numpy.moveaxis(pixels, -1, 0)
        if numpy.array_equal(pixels, than, equal_nan=pixels.dtype.kind == "f"):
            return {"libtiff": "the same"}
        return {"libtiff": store(directory, f"{number}.{line['page']}.libtiff", pixels)}
    except Exception as error:
        is_foreign = "not supported" in str(error) or "can not handle" in str(error)
        return {"libtiff": str(error)[:200] if is_foreign else None}


def say_page(directory, file, line, number):
    try:
        page = file.pages[line["page"]]
        line["codec"] = str(getattr(page.compression, "name", page.compression))
        line["planes"] = page.planarconfig == 2
        if page.nbytes > MOST:
            raise ValueError(f"{page.nbytes} bytes are too many to compare")
        pixels = planes(page)
        if pixels.size == 0:
            raise ValueError("an image without pixels")
        line |= by_libtiff(directory, line, number, pixels)
        parts = [("whole", pixels)]
        if pixels.dtype.kind == "c":
            parts = [("real", pixels.real), ("imaginary", pixels.imag)]
        for part, values in parts:
            stored = store(directory, f"{number}.{line['page']}.{part}", values)
            print(json.dumps(line | {"part": part} | stored))
    except Exception as error:
        refuse(directory, line, error, number)


def pictures():
    rng = numpy.random.default_rng(7)
    height, width = 75, 101
    y, x = numpy.mgrid[0:height, 0:width]
    smooth = (x * 2 + y + rng.integers(0, 9, (height, width))) % 256
    return rng, height, width, smooth.astype("u1")


def typed(grey, name):
    if name.startswith("complex"):
        return (grey.astype(name) - 1j * grey[::-1].astype(name) / 3).astype(name)
    if name.startswith("float"):
        return (grey.astype("f8") / 7 - 5).astype(name)
    return (grey.astype("i8") * (255 if name.endswith("8") is False else 1) - (60 if name[0] == "i" else 0)).astype(name)


def by_tifffile(directory):
    rng, height, width, grey = pictures()
    rgb = numpy.stack([grey, grey[::-1], grey[:, ::-1]], axis=-1)
    five = numpy.stack([grey.astype("u2") * (i + 1) for i in range(5)], axis=-1)
    out = []

    def write(flavour, pixels, **options):
        path = directory / (flavour.replace(" ", "_").replace("/", "-") + ".tif")
        try:
            tifffile.imwrite(path, pixels, **options)
            out.append((path, flavour))
        except Exception as error:
            print(f"tifffile does not write {flavour}: {error}", file=sys.stderr)

    for name in ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16",
                 "float32", "float64", "complex64", "complex128"]:
        for order in "<>":
            write(f"{name} {'little' if order == '<' else 'big'} strips", typed(grey, name), byteorder=order)
        if name.startswith("complex"):
            continue
        write(f"{name} BigTIFF big-endian tiles", typed(grey, name), bigtiff=True, byteorder=">", tile=(32, 48))
        predictor = 3 if name.startswith("float") else 2
        for order in "<>":
            for compression in ["zlib", "lzw", "zstd"]:
                for tile in [None, (32, 32)]:
                    write(f"{name} {order} {compression} predictor {predictor} tile {tile is not None}".replace("<", "le").replace(">", "be"),
                          typed(grey, name), compression=compression, predictor=predictor, byteorder=order,
                          tile=tile, rowsperstrip=None if tile else 16)
    for compression in ["packbits", "lzw", "zlib", "zstd", "lzma", "lerc", "jpeg2000", "jpegxl", "png", "webp", "jpegxr"]:
        write(f"{compression} rgb tiles", rgb, compression=compression, tile=(32, 32), photometric="rgb")
        write(f"{compression} rgb strips", rgb, compression=compression, photometric="rgb", rowsperstrip=16)
    write("webp lossy", rgb, compression="webp", compressionargs={"level": 80}, photometric="rgb")
    write("webp lossless alpha", numpy.dstack([rgb, grey]), compression="webp", compressionargs={"lossless": True}, photometric="rgb", extrasamples=["unassalpha"], tile=(32, 32))
    for sub in [(1, 1), (2, 1), (2, 2)]:
        write(f"jpeg ycbcr {sub[0]}x{sub[1]}", rgb, compression="jpeg", photometric="rgb", subsampling=sub, tile=(32, 32))
        write(f"jpeg ycbcr {sub[0]}x{sub[1]} strips", rgb, compression="jpeg", photometric="rgb", subsampling=sub, rowsperstrip=32)
    write("jpeg grey", grey, compression="jpeg", tile=(32, 32))
    write("jpeg rgb raw", rgb, compression="jpeg", photometric="rgb", tile=(32, 32), compressionargs={"outcolorspace": "rgb"})
    write("jpeg 12 bit", grey.astype("u2") * 16, compression="jpeg", tile=(32, 32), compressionargs={"bitspersample": 12})
    for bits in [1, 2, 4, 6, 10, 12, 14, 24]:
        dtype = "u1" if bits <= 8 else "u2" if bits <= 16 else "u4"
        top = grey.astype("u8") * 0x10101 >> (24 - bits) & ((1 << bits) - 1)
        if bits == 1:
            write("bilevel", grey > 99)
            write("bilevel packbits", grey > 99, compression="packbits")
            write("bilevel ccitt g4", grey > 99, compression="ccitt_t6")
        else:
            write(f"{bits} bits", top.astype(dtype), bitspersample=bits)
            write(f"{bits} bits big-endian", top.astype(dtype), bitspersample=bits, byteorder=">")
            write(f"{bits} bits lzw rgb", numpy.dstack([top] * 3).astype(dtype), bitspersample=bits, compression="lzw", photometric="rgb")
    write("planar rgb", numpy.moveaxis(rgb, -1, 0).copy(), planarconfig="separate", photometric="rgb")
    write("planar rgb lzw tiles", numpy.moveaxis(rgb, -1, 0).copy(), planarconfig="separate", photometric="rgb", compression="lzw", tile=(32, 32))
    write("planar 5 u16 zstd", numpy.moveaxis(five, -1, 0).copy(), planarconfig="separate", photometric="minisblack", compression="zstd")
    write("five u16 contig", five, photometric="minisblack", planarconfig="contig")
    write("five u16 deflate predictor 2", five, photometric="minisblack", planarconfig="contig", compression="zlib", predictor=2, tile=(32, 32))
    write("five f32 predictor 3", five.astype("f4") / 3, photometric="minisblack", planarconfig="contig", compression="zlib", predictor=3, tile=(32, 32))
    write("rgb and two more", numpy.dstack([rgb, grey, grey]), photometric="rgb", extrasamples=["unspecified"] * 2)
    write("palette", grey, photometric="palette", colormap=rng.integers(0, 65535, (3, 256)).astype("u2"))
    write("miniswhite", grey, photometric="miniswhite")
    write("cmyk 8", numpy.dstack([rgb, grey]), photometric="separated")
    write("cmyk 16", numpy.dstack([rgb, grey]).astype("u2") * 200, photometric="separated")
    write("cielab", rgb, photometric="cielab")
    write("ycbcr uncompressed 1x1", rgb, photometric="ycbcr", extratags=[(530, 3, 2, (1, 1), True)])
    write("one strip", grey, rowsperstrip=height)
    write("big strips", numpy.tile(typed(grey, "float64"), (100, 10)), rowsperstrip=3000)
    write("one big strip", numpy.tile(typed(grey, "float64"), (100, 10)), rowsperstrip=7500)
    return out


def patched(directory, made):
    """Files with a tag changed, which the programs do not write."""
    by_name = {flavour: path for path, flavour, *_ in made}
    out = []
    source = by_name.get("bilevel")
    if source:
        path = directory / "fillorder2.tif"
        with tifffile.TiffFile(source) as file:
            at, size = file.pages[0].dataoffsets, file.pages[0].databytecounts
        data = bytearray(source.read_bytes())
        for begin, length in zip(at, size):
            for i in range(begin, begin + length):
                data[i] = int(f"{data[i]:08b}"[::-1], 2)
        with tifffile.TiffFile(source) as file:
            tag = file.pages[0].tags["Software"]
            entry = tag.offset
        # The name of the software becomes FillOrder; tags are not sorted then, and need not be for a reader.
        data[entry:entry + 12] = bytes([10, 1, 3, 0, 1, 0, 0, 0, 2, 0, 0, 0])
        path.write_bytes(data)
        out.append((path, "fill order 2"))
    for flavour in ["uint16 big strips", "lzw rgb strips", "zlib rgb strips", "packbits rgb strips"]:
        if flavour in by_name:
            path = directory / f"no_counts_{flavour.replace(' ', '_')}.tif"
            data = bytearray(by_name[flavour].read_bytes())
            with tifffile.TiffFile(by_name[flavour]) as file:
                entry = file.pages[0].tags["StripByteCounts"].offset
                order = file.byteorder
            # A number that nobody knows.
            data[entry:entry + 2] = (65279).to_bytes(2, "little" if order == "<" else "big")
            path.write_bytes(data)
            # tifffile takes wrong lengths for some of these: what it read before is what must come.
            out.append((path, f"no StripByteCounts, {flavour}", by_name[flavour]))
    return out


def by_programs(directory, made):
    by_name = {flavour: path for path, flavour, *_ in made}
    out = []

    def run(flavour, source, *command):
        if source not in by_name:
            return
        path = directory / (flavour.replace(" ", "_") + ".tif")
        if shutil.which(command[0]) is None:
            print(f"{command[0]} is not installed: no {flavour}", file=sys.stderr)
            return
        done = subprocess.run([*command, str(by_name[source]), str(path)], capture_output=True, text=True)
        if done.returncode == 0:
            out.append((path, flavour))
        else:
            print(f"{flavour}: {done.stderr[:200]}", file=sys.stderr)

    for codec in ["g3:1d", "g3:2d", "g3:1d:fill", "g3:2d:fill", "g4", "lzw", "zip", "packbits", "none"]:
        run(f"tiffcp bilevel {codec.replace(':', ' ')}", "bilevel", "tiffcp", "-c", codec)
    run("tiffcp lsb2msb lzw", "uint16 little strips", "tiffcp", "-f", "lsb2msb", "-c", "lzw")
    run("tiffcp lsb2msb g4", "bilevel", "tiffcp", "-f", "lsb2msb", "-c", "g4")
    run("tiffcp jpeg tiles", "planar rgb", "tiffcp", "-p", "contig", "-t", "-w", "32", "-l", "32", "-c", "jpeg")
    run("tiffcp ccitt rle", "bilevel", "tiffcp", "-c", "none")
    for codec in ["LZW", "DEFLATE", "ZSTD", "LZMA", "PACKBITS", "WEBP", "JPEG", "LERC", "LERC_ZSTD", "JXL", "CCITTRLE", "CCITTFAX3", "CCITTFAX4"]:
        bits = ["-co", "NBITS=1"] if codec.startswith("CCITT") else []
        source = "bilevel" if bits else "rgb and two more" if codec in {"LZW", "LZMA"} else "planar rgb"
        run(f"gdal {codec}", source, "gdal_translate", "-q", "-co", f"COMPRESS={codec}", "-co", "TILED=YES", "-co", "BLOCKXSIZE=32", "-co", "BLOCKYSIZE=32", *bits)
    for kind_of in ["CInt16", "CInt32", "CFloat32", "CFloat64", "Int16", "Float64"]:
        run(f"gdal {kind_of}", "uint8 little strips", "gdal_translate", "-q", "-ot", kind_of)
    run("gdal sparse", "uint8 little strips", "gdal_translate", "-q", "-co", "SPARSE_OK=TRUE", "-co", "TILED=YES", "-co", "BLOCKXSIZE=16", "-co", "BLOCKYSIZE=16", "-scale", "0", "255", "0", "1", "-a_nodata", "0")
    run("gdal planar", "rgb and two more", "gdal_translate", "-q", "-co", "INTERLEAVE=BAND", "-co", "COMPRESS=ZSTD", "-co", "PREDICTOR=2")
    run("gdal float16", "float32 little strips", "gdal_translate", "-q", "-co", "NBITS=16")
    run("gdal float24", "float32 little strips", "gdal_translate", "-q", "-co", "NBITS=24")
    for bits in [3, 5, 7, 9, 11, 12, 13, 17, 24, 29]:
        of = "Byte" if bits < 8 else "UInt16" if bits < 16 else "UInt32"
        run(f"gdal {bits} bits", "uint8 little strips", "gdal_translate", "-q", "-ot", of, "-co", f"NBITS={bits}")
    return out


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) > 2:
        made = [(pathlib.Path(path), pathlib.Path(path).name) for path in sys.argv[2:]]
    else:
        made = by_tifffile(directory)
        made += patched(directory, made)
        made += by_programs(directory, made)
    for number, (path, flavour, *source) in enumerate(made):
        say(directory, path, flavour, number, *source)


main()
