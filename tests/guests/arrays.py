"""Linear algebra, transforms and random numbers of numpy, and files mapped into memory."""
import hashlib
import sys

import numpy as np

rounds = int(sys.argv[1])
random = np.random.default_rng(7)
matrix = random.standard_normal((220, 220))
for number in range(1, rounds + 1):
    other = random.integers(0, 100, (220, 220))
    product = matrix @ other
    solution = np.linalg.solve(matrix + 300 * np.eye(220), other[:, 0])
    spectrum = np.fft.fft(product.ravel())
    order = np.argsort(product, axis=None, kind="stable")
    exact = (other @ other.T) % 65537
    np.save("kept.npy", exact)
    mapped = np.load("kept.npy", mmap_mode="r")
    same = bool((mapped == exact).all())
    print(number, f"{np.abs(solution).max():.9f}", f"{np.abs(spectrum).mean():.6f}", same,
          hashlib.sha256(order.tobytes() + exact.tobytes()).hexdigest()[:16], flush=True)
    del mapped
