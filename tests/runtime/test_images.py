"""Reading and writing images: every format, depth and kind of metadata."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageCms

from image_files import png_header
from nystra.core.errors import NystraError
from nystra.runtime.images.image_data import ImageData, quantize, resize_plane
from nystra.runtime.images.images import decode_image, read_image, write_image

ICC = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
LOSSLESS = [
    (suffix, bits)
    for suffix in (".png", ".tif", ".webp")
    for bits in (8, 16)
    if (suffix, bits) != (".webp", 16)
]


def sample(channels: int, bits: int, *, alpha: bool = False) -> ImageData:
    """Return an image whose values are whole numbers of its depth."""
    random = np.random.default_rng(channels + bits)
    peak = (1 << bits) - 1
    values = random.integers(0, peak + 1, (7, 9, channels + 1)).astype(np.float32) / peak
    plane = np.ascontiguousarray(values[:, :, -1]) if alpha else None
    icc = ICC if channels == 3 else None
    return ImageData(np.ascontiguousarray(values[:, :, :-1]), plane, bits, icc, (300.0, 150.0))


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("suffix", "bits"), LOSSLESS)
def test_round_trip(tmp_path: Path, suffix: str, bits: int, channels: int, alpha: bool) -> None:
    image = sample(channels, bits, alpha=alpha)
    path = tmp_path / f"p{suffix}"
    write_image(path, image)
    back = read_image(path)
    expected = image.pixels
    if suffix == ".webp" and channels == 1:
        expected = np.repeat(expected, 3, axis=2)
    np.testing.assert_array_equal(back.pixels, expected)
    assert back.bits == bits
    assert back.icc == image.icc
    if suffix != ".webp":
        assert back.dpi == pytest.approx((300.0, 150.0), abs=0.05)
    if alpha:
        assert back.alpha is not None
        np.testing.assert_array_equal(back.alpha, image.alpha)
    else:
        assert back.alpha is None
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_other_readers_agree(tmp_path: Path) -> None:
    restored = sample(3, 16)
    write_image(tmp_path / "p.tif", restored)
    np.testing.assert_array_equal(
        tifffile.imread(tmp_path / "p.tif"), quantize(restored.pixels, 16)
    )
    write_image(tmp_path / "p.png", restored)
    with Image.open(tmp_path / "p.png") as image:  # Pillow reads the upper halves
        high = quantize(restored.pixels, 16) >> 8
        np.testing.assert_array_equal(np.asarray(image), high)
        assert image.info["icc_profile"] == ICC


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg(tmp_path: Path, channels: int) -> None:
    smooth = np.linspace(0, 1, 64 * 48, dtype=np.float32).reshape(48, 64, 1)
    pixels = np.repeat(smooth, channels, axis=2)
    icc = ICC if channels == 3 else None
    write_image(tmp_path / "p.jpg", ImageData(pixels, bits=16, icc=icc, dpi=(96, 96)))
    back = read_image(tmp_path / "p.jpg")
    assert back.pixels.shape == pixels.shape
    assert np.abs(back.pixels - pixels).max() < 0.02
    assert (back.icc, back.bits) == (icc, 8)
    assert back.dpi == pytest.approx((96, 96), abs=0.05)
    with Image.open(tmp_path / "p.jpg") as image:
        assert all(layer[1:3] == (1, 1) for layer in image.layer)  # 4:4:4


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tif", ".webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied(tmp_path: Path, suffix: str, orientation: int) -> None:
    from PIL import ImageOps

    flat = np.zeros((16, 24, 3), np.uint8)
    flat[:8, :8] = (250, 20, 20)
    flat[8:, 16:] = (20, 20, 250)
    image = Image.fromarray(flat)
    exif = Image.Exif()
    exif[274] = orientation
    exif[271] = "maker"
    options = {"lossless": True} if suffix == ".webp" else {}
    image.save(tmp_path / f"p{suffix}", exif=exif, dpi=(100, 200), **options)
    with Image.open(tmp_path / f"p{suffix}") as stored:
        turned = ImageOps.exif_transpose(stored) or stored
        expected = np.asarray(turned.convert("RGB")) / 255
    back = read_image(tmp_path / f"p{suffix}")
    np.testing.assert_allclose(back.pixels, expected, atol=1e-6)
    if suffix in (".jpg", ".png"):
        assert back.dpi == pytest.approx((100, 200) if orientation < 5 else (200, 100), abs=0.1)
    write_image(tmp_path / f"again{suffix}", back)
    with Image.open(tmp_path / f"again{suffix}") as stored:
        assert stored.size == back.size[::-1]
        assert stored.getexif().get(274, 1) == 1
        if suffix != ".tif":
            assert stored.getexif()[271] == "maker"


def test_orientation_of_16_bit_tiff(tmp_path: Path) -> None:
    values = np.arange(4 * 6 * 3, dtype=np.uint16).reshape(4, 6, 3) * 800
    tifffile.imwrite(
        tmp_path / "p.tif", values, photometric="rgb", extratags=[(274, 3, 1, 6, True)]
    )
    back = read_image(tmp_path / "p.tif")
    np.testing.assert_array_equal(quantize(back.pixels, 16), np.rot90(values, -1))


def test_odd_kinds_become_gray_or_rgb(tmp_path: Path) -> None:
    base = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) * 4)
    base.convert("1").save(tmp_path / "bilevel.png")
    assert read_image(tmp_path / "bilevel.png").gray
    color = Image.merge("RGB", [base, base.rotate(90), base.rotate(180)])
    palette = color.quantize(16)
    palette.save(tmp_path / "palette.png", transparency=3)
    back = read_image(tmp_path / "palette.png")
    assert back.pixels.shape == (8, 8, 3)
    assert back.alpha is not None
    assert set(np.unique(back.alpha)) <= {0.0, 1.0}
    color.convert("CMYK").save(tmp_path / "cmyk.jpg", icc_profile=ICC)
    back = read_image(tmp_path / "cmyk.jpg")
    assert (back.pixels.shape, back.icc) == ((8, 8, 3), None)
    base.save(tmp_path / "named_wrong.jpg", format="PNG")
    assert read_image(tmp_path / "named_wrong.jpg").gray
    color.save(tmp_path / "lzw.tif", compression="tiff_lzw")
    assert read_image(tmp_path / "lzw.tif").pixels.shape == (8, 8, 3)


def test_transparent_value_of_16_bit_gray(tmp_path: Path) -> None:
    import png

    rows = [[0, 500, 65535], [500, 1, 2]]
    with (tmp_path / "p.png").open("wb") as stream:
        png.Writer(3, 2, greyscale=True, bitdepth=16, transparent=500).write(stream, rows)
    back = read_image(tmp_path / "p.png")
    np.testing.assert_array_equal(quantize(back.pixels[:, :, 0], 16), rows)
    np.testing.assert_array_equal(back.alpha, [[1, 0, 1], [0, 1, 1]])


def test_premultiplied_and_planar_tiff(tmp_path: Path) -> None:
    values = np.full((5, 6, 4), 20000, np.uint16)
    values[:, :, 3] = 40000
    tifffile.imwrite(
        tmp_path / "p.tif",
        values,
        photometric="rgb",
        extrasamples=["assocalpha"],
        planarconfig="contig",
    )
    back = read_image(tmp_path / "p.tif")
    np.testing.assert_allclose(back.pixels, 0.5, atol=1e-5)
    planar = np.moveaxis(values[:, :, :3] // np.array([1, 2, 3], np.uint16), 2, 0)
    tifffile.imwrite(tmp_path / "q.tif", planar, photometric="rgb", planarconfig="separate")
    back = read_image(tmp_path / "q.tif")
    np.testing.assert_array_equal(quantize(back.pixels, 16), np.moveaxis(planar, 0, 2))


def test_what_is_no_image(tmp_path: Path) -> None:
    write_image(tmp_path / "good.png", sample(3, 8))
    write_image(tmp_path / "deep.png", sample(3, 16))
    noise = np.random.default_rng(0).random((64, 64, 3), dtype=np.float32)
    write_image(tmp_path / "deep.tif", ImageData(noise, bits=16))
    write_image(tmp_path / "good.jpg", ImageData(noise))
    write_image(tmp_path / "good.webp", ImageData(noise))

    def half(name: str) -> bytes:
        content = (tmp_path / name).read_bytes()
        return content[: len(content) * 6 // 10]

    cases = {
        "empty.png": (b"", "is empty"),
        "text.png": (b"this is text" * 20, "not an image"),
        "cut.png": (half("good.png"), "damaged or truncated"),
        "cut16.png": (half("deep.png"), "truncated|damaged"),
        "cut.jpg": (half("good.jpg"), "damaged or truncated"),
        "cut.webp": (half("good.webp"), "damaged|not an image"),
        "cut.tif": (half("deep.tif"), "damaged|truncated|not an image"),
        "zero.png": (png_header(0, 5), "no pixels|not an image|damaged"),
        "bomb.png": (png_header(100_000, 100_000), "more than 500000000 pixels"),
        "bomb16.png": (png_header(100_000, 100_000, 16), "more than 500000000 pixels"),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(NystraError, match=message) as caught:
            read_image(tmp_path / name)
        assert name in str(caught.value)
    with pytest.raises(NystraError, match="cannot read"):
        read_image(tmp_path / "absent.png")
    with pytest.raises(NystraError, match="is a folder"):
        read_image(tmp_path)


def test_several_images_in_a_file(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), (i, 0, 0)) for i in (0, 200)]
    for name in ("a.png", "a.webp", "a.gif", "a.avif"):
        options = {} if name == "a.avif" else {"lossless": True}
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], **options)
        back = read_image(tmp_path / name)
        assert back.notes == ("it is animated: only its first frame was read",), name
        np.testing.assert_allclose(back.pixels, 0, atol=0.02)
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])
    with pytest.raises(NystraError, match="2 pages, expected a single image: write each page to"):
        read_image(tmp_path / "a.tif")


def test_the_command_for_a_tiff_of_many_pages_runs(tmp_path: Path) -> None:
    """The message names a command that works with what is installed, for any name of a file."""
    stack = np.random.default_rng(0).integers(0, 1 << 16, (5, 8, 9)).astype(np.uint16)
    path = tmp_path / 'it\'s a "stack" $(x).tif'
    tifffile.imwrite(path, stack, photometric="minisblack")
    with pytest.raises(NystraError, match="has 5 pages") as caught:
        read_image(path)
    command = str(caught.value).partition("run the folder: ")[2]
    bin_folder = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-ec", command], cwd=tmp_path, env=environment, check=True)
    pages = sorted((tmp_path / "pages").iterdir())
    assert [page.name for page in pages] == [f"{number:04}.tif" for number in range(5)]
    for page, values in zip(pages, stack, strict=True):
        np.testing.assert_array_equal(tifffile.imread(page), values)
        assert read_image(page).bits == 16
    with pytest.raises(NystraError, match=r"name = .*IN\.tif"):
        decode_image(path.read_bytes())


def test_limit_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_image(tmp_path / "p.png", sample(3, 8))
    monkeypatch.setenv("NYSTRA_MAX_PIXELS", "62")
    with pytest.raises(NystraError, match="9x7, more than 62 pixels"):
        read_image(tmp_path / "p.png")
    monkeypatch.setenv("NYSTRA_MAX_PIXELS", "63")
    read_image(tmp_path / "p.png")
    monkeypatch.setenv("NYSTRA_MAX_PIXELS", "many")
    with pytest.raises(NystraError, match="NYSTRA_MAX_PIXELS"):
        read_image(tmp_path / "p.png")


def test_pillows_own_limit_does_not_bite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    write_image(tmp_path / "p.png", sample(3, 8))
    assert read_image(tmp_path / "p.png").size == (7, 9)
    assert Image.MAX_IMAGE_PIXELS == 10


def test_what_cannot_be_written(tmp_path: Path) -> None:
    image = sample(3, 8, alpha=True)
    (tmp_path / "there.png").write_bytes(b"before")
    wide = ImageData(np.zeros((1, 16_384, 3), np.float32))
    bad = ImageData(np.full((2, 2, 3), np.nan, np.float32))
    cases = {
        "p.jpg": (image, "JPEG has no alpha"),
        "p.gif": (image, "suffix '.gif'"),
        "p": (image, "suffix"),
        "there.png": (image, "add `overwrite`"),
        "there.png/p.png": (image, "cannot create the folder"),
        "p.webp": (wide, "at most 16383"),
        "nan.png": (bad, "NaN"),
    }
    for name, (what, message) in cases.items():
        with pytest.raises(NystraError, match=message):
            write_image(tmp_path / name, what)
    assert [item.name for item in tmp_path.iterdir()] == ["there.png"]
    assert (tmp_path / "there.png").read_bytes() == b"before"
    write_image(tmp_path / "there.png", image, overwrite=True)
    assert read_image(tmp_path / "there.png").size == (7, 9)


def test_unwritable_folder(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if os.access(locked, os.W_OK):
        pytest.skip("this user may write everywhere")
    with pytest.raises(NystraError, match="not writable"):
        write_image(locked / "p.png", sample(3, 8))


def test_quantize_rounds_and_clips() -> None:
    values = np.array([-1.0, 0.0, 0.4999 / 255, 0.5001 / 255, 1.0, 2.0], np.float32)
    np.testing.assert_array_equal(quantize(values, 8), [0, 0, 0, 1, 255, 255])
    whole = np.arange(65536) / np.float32(65535)
    np.testing.assert_array_equal(quantize(whole.astype(np.float32), 16), np.arange(65536))


def test_resized_alpha() -> None:
    plane = np.ones((5, 6), np.float32)
    np.testing.assert_allclose(resize_plane(plane, (10, 12)), 1.0, atol=1e-6)
    plane[:, :3] = 0
    large = resize_plane(plane, (10, 12))
    assert large.shape == (10, 12)
    assert large.min() == 0.0
    assert large.max() == 1.0
