"""Compare a denoising file with the noisy image and two simple filters: PSNR over RGB.

    nystra-export uformer_denoise25_w16 --attn full -o full.onnx
    python -m studies.quality.denoising full.onnx --truth Set5/HR

The noise is Gaussian, clipped and rounded to 8 bit, seeded by the index of an image in its folder.
*blur* is a Gaussian blur of that radius, *DCT* the mean over all shifts of 8x8 blocks without their
coefficients below 3 sigma, in a decorrelated color space.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from nystra.runtime import Session
from studies.training.denoising import with_noise

Pixels = NDArray[np.float64]

_BLOCK = 8
_RADII = (0.6, 0.8, 1.0, 1.2)


def dct_matrix() -> Pixels:
    """Return the orthonormal DCT-II of 8 values, (frequency, place)."""
    place = np.arange(_BLOCK)
    matrix = np.cos(np.pi * place[:, None] * (place + 0.5) / _BLOCK) * np.sqrt(2 / _BLOCK)
    matrix[0] /= np.sqrt(2)
    return matrix


def filter_dct(noisy: Pixels, sigma: float) -> Pixels:
    """Return an image (H, W, 3), 0..255, without its small DCT coefficients."""
    matrix = dct_matrix()
    colors = np.linalg.qr(np.array([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]]).T)[0]
    height, width, _ = noisy.shape
    pads = [(_BLOCK, _BLOCK + -side % _BLOCK) for side in (height, width)]
    padded = np.pad(noisy @ colors, (*pads, (0, 0)), mode="symmetric")
    total = np.zeros_like(padded)
    for y in range(_BLOCK):
        for x in range(_BLOCK):
            rows, columns = padded.shape[0] - _BLOCK, padded.shape[1] - _BLOCK
            cut = padded[y : y + rows, x : x + columns]
            blocks = cut.reshape(rows // _BLOCK, _BLOCK, columns // _BLOCK, _BLOCK, 3)
            waves = np.einsum("fy,aybxc,gx->afbgc", matrix, blocks, matrix, optimize=True)
            flat = waves[:, 0, :, 0].copy()
            waves[np.abs(waves) < 3 * sigma] = 0
            waves[:, 0, :, 0] = flat
            back = np.einsum("fy,afbgc,gx->aybxc", matrix, waves, matrix, optimize=True)
            total[y : y + rows, x : x + columns] += back.reshape(cut.shape)
    inside = total[_BLOCK : _BLOCK + height, _BLOCK : _BLOCK + width] / _BLOCK**2
    return inside @ colors.T


def psnr(got: Pixels, truth: Pixels) -> float:
    """Return the PSNR in dB over all channels of images 0..255, the first one in 8 bit."""
    error = np.clip(np.rint(got), 0, 255) - truth
    return float(10 * np.log10(255.0**2 / np.mean(error**2)))


def restore(session: Session, noisy: Pixels) -> Pixels:
    """Return the output of a file for an image (H, W, 3), 0..255."""
    image = (noisy / 255.0).astype(np.float32).transpose(2, 0, 1)[None]
    return session(image)[0].transpose(1, 2, 0).astype(np.float64) * 255.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one row per denoiser."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--sigma", type=float, default=25.0)
    options = parser.parse_args(arguments)
    sessions = {path.stem: Session(path) for path in options.models}
    rows: dict[str, list[float]] = {}
    files = sorted(options.truth.glob("*.png"))
    for number, file in enumerate(files):
        with Image.open(file) as image:
            truth = np.asarray(image.convert("RGB"), np.float32)
        noisy = with_noise(truth, options.sigma, (number,)).astype(np.float64)
        restored = {"noisy": noisy, "DCT": filter_dct(noisy, options.sigma)}
        shown = Image.fromarray(noisy.astype(np.uint8))
        for radius in _RADII:
            blurred = shown.filter(ImageFilter.GaussianBlur(radius))
            restored[f"blur {radius}"] = np.asarray(blurred, np.float64)
        restored |= {name: restore(session, noisy) for name, session in sessions.items()}
        for name, pixels in restored.items():
            rows.setdefault(name, []).append(psnr(pixels, truth.astype(np.float64)))
    print(f"{len(files)} images of {options.truth}, sigma {options.sigma:g}")
    for name, figures in rows.items():
        print(f"{name:24} {np.mean(figures):6.2f} dB mean {min(figures):6.2f} dB lowest")


if __name__ == "__main__":
    main()
