"""Lazy files, and kernels."""

import pathlib
import pickle
import subprocess

import numpy as np
import pipt
import pytest
import tifffile

HEADER = pathlib.Path(__file__).parents[2]


@pytest.fixture
def scene(tmp_path):
    array = np.random.default_rng(2).integers(0, 1000, (300, 410)).astype("u2")
    path = tmp_path / "scene.tif"
    tifffile.imwrite(path, array)
    return path, array


def test_windows_chains_and_files_are_equal_to_arrays(scene, tmp_path):
    path, array = scene
    lazy = pipt.open(path)
    assert (lazy.shape, lazy.dtype, lazy.ndim) == ((300, 410), np.uint16, 2)
    chain = lazy.square_median(size=5).apply("CoOccurEntropy", window=5, levels=16)
    whole = pipt.co_occur_entropy(pipt.median(array, size=5), window=5, levels=16)
    assert np.array_equal(np.asarray(chain), whole, equal_nan=True)
    for row, column, height, width in chain.windows(128, 200):
        part = chain.read(row, column, height, width)
        assert np.array_equal(part, whole[row : row + height, column : column + width], equal_nan=True)
    for key in [(slice(10, 90, 3), slice(200, 20, -7)), 5, (..., 3), (slice(4, 4), 0), (-1, -1), (slice(None), slice(0, 9))]:
        assert np.array_equal(chain[key], whole[key], equal_nan=True)
    written = chain.write(tmp_path / "out.tif")
    assert written["pixels"] == array.size
    assert np.array_equal(tifffile.imread(tmp_path / "out.tif"), whole, equal_nan=True)
    with pytest.raises(OSError, match="there already"):
        chain.write(tmp_path / "out.tif")
    with pytest.raises(ValueError):
        chain.read(0, 0, 301, 1)


def test_dask_and_xarray_read_what_is_looked_at_alone(scene):
    import dask.array
    import xarray

    reads = []

    class Watched(pipt.Image):
        def read(self, *window):
            reads.append(window)
            return super().read(*window)

    lazy = pipt.open(scene[0], threads=1).square_median(size=5)
    copy = pickle.loads(pickle.dumps(lazy))
    watched = Watched(lazy._steps, 1)
    data = xarray.DataArray(dask.array.from_array(watched, chunks=128), dims=("y", "x"))
    assert reads == []
    whole = np.asarray(copy)
    part = data[130:150, 260:300].compute()
    assert np.array_equal(part.values, whole[130:150, 260:300])
    assert len(reads) == 1 and reads[0][2] * reads[0][3] <= 128 * 128
    assert np.array_equal(data.values, whole)


def test_kernels_of_numpy_numba_and_c_are_equal_to_the_routine(scene, tmp_path):
    numba = pytest.importorskip("numba")
    from numba import types

    path, array = scene
    floats = array.astype("f8")

    def mean(window):
        rows, columns = window.shape[0] - 2, window.shape[1] - 2
        return sum(window[y : y + rows, x : x + columns] for y in range(3) for x in range(3)) / 9

    kind = types.int32(
        *[types.CPointer(one) for one in (types.float64, types.uint8, types.float64, types.uint8, types.int64, types.float64)]
    )

    @numba.cfunc(kind)
    def compiled(samples, there, out, out_there, shape, parameters):
        width, height = shape[1], shape[2]
        for y in range(height):
            for x in range(width):
                total = 0.0
                for j in range(3):
                    for i in range(3):
                        total += samples[(y + j) * (width + 2) + x + i]
                out[y * width + x] = total / 9
        return 0

    source = tmp_path / "mean.c"
    source.write_text(
        '#include "pipt-kernel.h"\nstatic int32_t run(const void *from, const uint8_t *t, void *to, uint8_t *o,'
        "const int64_t *s, const double *p){const double *a=from;double *b=to;int64_t w=s[PIPT_WIDTH];"
        "for(int64_t y=0;y<s[PIPT_HEIGHT];y++)for(int64_t x=0;x<w;x++){double m=0;for(int j=0;j<3;j++)"
        "for(int i=0;i<3;i++)m+=a[(y+j)*(w+2)+x+i];b[y*w+x]=m/9;}return 0;}\n"
        "const struct pipt_kernel mean3={PIPT_KERNEL_VERSION,1,1,1,PIPT_F64,PIPT_ANY,run};\n"
    )
    library = tmp_path / "mean.so"
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{HEADER}", "-o", library, source], check=True)
    pipt.register("mean-numpy", mean, halo=1, takes="f8")
    pipt.register("mean-numba", compiled, halo=1, takes="f8")
    pipt.register("mean-c", f"{library}:mean3")
    for edge in ["reflect", "mirror", "replicate"]:
        wanted = pipt.square_mean(floats, size=3, edge=edge)
        for name in ["mean-numpy", "mean-numba", "mean-c"]:
            for threads in [1, 3]:
                found = pipt.user(array, kernel=name, edge=edge, threads=threads)
                assert np.allclose(found, wanted, rtol=1e-12), name
    job = f"in {path} as a\nb = User a kernel=mean-numpy\nwrite b {tmp_path}/b.tif\n"
    pipt.run(job)
    assert np.allclose(tifffile.imread(tmp_path / "b.tif"), pipt.square_mean(floats, size=3), rtol=1e-12)


def test_what_a_kernel_raises_comes_out(scene):
    def bad(window):
        raise ZeroDivisionError("mine")

    pipt.register("bad", bad)
    with pytest.raises(ZeroDivisionError, match="mine"):
        pipt.user(scene[1], kernel="bad")
    pipt.register("wrong", lambda window: window[:1], halo=0)
    with pytest.raises(ValueError, match="is wanted"):
        pipt.user(scene[1], kernel="wrong")
    pipt.register("other", lambda window: window * 1.5, halo=0)
    with pytest.raises(TypeError, match="dtype='float64'"):
        pipt.user(scene[1], kernel="other")
