"""What a file holds besides its pixels is in the output too, or a note names it."""

import io
import re
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pyvips
import tifffile
from PIL import Image, PngImagePlugin

from image_originals import (
    COLORS,
    HEX_IPTC,
    ICC,
    IPTC,
    KINDS,
    MAKER,
    XMP,
    chunk,
    exif,
    original,
    saved,
)
from nystra.core.errors import NystraError
from nystra.runtime.images.image_data import ImageData
from nystra.runtime.images.image_file import libvips
from nystra.runtime.images.images import (
    Naming,
    decode_image,
    describe_left_out,
    encode_image,
    read_image,
)
from nystra.runtime.video.frame_folder import FolderSink, FrameFolder


def held(content: bytes, kind: str) -> dict[str, object]:
    """Return what Pillow finds in a file."""
    with Image.open(io.BytesIO(content)) as image:
        image.load()
        tags, found = image.getexif(), dict(image.info)
        inner, place = tags.get_ifd(0x8769), tags.get_ifd(0x8825)
        width = image.width
        text = dict(getattr(image, "text", {}))
    resolution = found.get("dpi", (0, 0))
    return {
        "EXIF": tags.get(315) == "A Person"
        and tags.get(33432) == "(c) A Person"
        and inner.get(36867) == "2026:01:02 03:04:05"
        and inner.get(37500) == MAKER
        and (place[1], tuple(place[2])) == ("N", (48.0, 30.0, 15.5)),
        "upright": tags.get(274, 1) == 1 and inner.get(40962) in (None, width),
        "XMP": found.get("xmp") == XMP.replace(b'Orientation="6"', b'Orientation="1"'),
        "profile": found.get("icc_profile") == ICC,
        "dpi": round(float(resolution[0])) == 300 or round(float(tags.get(282, 0))) == 300,
        "IPTC": IPTC in content or text.get("Raw profile type iptc", "").endswith(HEX_IPTC),
        "parameters": text.get("parameters") == "a photo, Steps: 20"
        or b"parameters: a photo, Steps: 20\xff" in content,
        "Title": text.get("Title") == "äöü 写真" or "Title: äöü 写真".encode() in content,
        "Comment": text.get("Comment") == "a comment" or b"\0\x0ba comment\xff" in content,
        **{name.decode(): chunk(name, data) in content for name, data in COLORS.items()},
    }


LEFT_WHEN_READ = {
    "PNG": ("its chunks cHRM, cICP, gAMA were left out",),
    "JPEG": ("its segments COM were left out",),
    "TIFF": ("its tags 306, 315, 33432 were left out",),
    "WebP": (),
}


@pytest.mark.parametrize("output", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_all_is_kept_or_named(source: str, output: str) -> None:
    """XMP, texts and EXIF were dropped without a word."""
    before = original(source)
    image = decode_image(before, "the original")
    assert image.size == (24, 16)
    assert image.notes == LEFT_WHEN_READ[source]
    notes = " ".join([*image.notes, *describe_left_out(image, output)])
    names = {
        "parameters": "text",
        "Title": "text",
        "Comment": "(text|COM)",
        "IPTC": "(IPTC|Photoshop)",
    }
    names |= {"EXIF": "EXIF|306", "dpi": "EXIF"}
    there, here = held(before, source), held(encode_image(image, output), output)
    assert here["upright"]
    for name, value in there.items():
        if value and name != "upright" and not here[name]:
            assert re.search(names.get(name, name), notes), name
    assert here["profile"]
    assert here["XMP"] or output == "PNG"  # which has it as a text


def test_what_is_usual_is_not_named() -> None:
    content = saved(Image.new("RGB", (3, 2)), "PNG")
    same = chunk(b"sRGB", b"\0") + chunk(b"gAMA", struct.pack(">I", 45455))
    usual = decode_image(content[:33] + same + content[33:])
    assert usual.notes == ()
    assert describe_left_out(usual, "JPEG") == []


def test_metadata_too_long_for_a_jpeg_is_named() -> None:
    texts = PngImagePlugin.PngInfo()
    texts.add_text("workflow", "x" * 70_000)
    texts.add_itxt("XML:com.adobe.xmp", "y" * 70_000)
    image = decode_image(saved(Image.new("RGB", (3, 2)), "PNG", pnginfo=texts))
    note = "XMP, the text 'workflow' cannot be kept in a JPEG file"
    assert describe_left_out(image, "JPEG") == [note]
    assert decode_image(encode_image(image, "JPEG")).size == (2, 3)
    assert describe_left_out(image, "PNG") == []


def test_texts_that_libvips_would_garble_are_named() -> None:
    texts = PngImagePlugin.PngInfo()
    texts.add_itxt("Title", "äöü 写真")
    texts.add_text("Author", "M\xfcller")
    image = decode_image(saved(Image.new("RGB", (3, 2)), "PNG", pnginfo=texts))
    notes = " ".join([*image.notes, *describe_left_out(image, "PNG")])
    assert "the text 'Title'" in notes
    assert "'Author'" in notes


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WebP"])
def test_damaged_exif_is_left_out(kind: str) -> None:
    block = exif(1).tobytes()[:90]
    image = decode_image(saved(Image.new("RGB", (6, 4), (9, 9, 9)), KINDS[kind], exif=block))
    assert image.size == (4, 6)
    (note,) = image.notes
    assert note == "its EXIF data is damaged, or its entries share bytes, and was left out"


def test_loops_in_exif_end() -> None:
    """The pointer of the directory inside leads to the directory itself, endlessly."""
    entry = struct.pack("<HHII", 34665, 4, 1, 8)
    block = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 1) + entry + bytes(4)
    stream = io.BytesIO()
    Image.new("RGB", (6, 4)).save(stream, "JPEG", exif=block)
    assert decode_image(stream.getvalue()).size == (4, 6)


def test_tags_of_tiff_that_are_not_kept_are_named(tmp_path: Path) -> None:
    """Geographic ones are wrong for other pixels."""
    values = np.zeros((4, 6, 3), np.uint8)
    tags = [(33550, 12, 3, (1.0, 1.0, 0.0), True), (270, 2, 0, "a description", True)]
    tifffile.imwrite(tmp_path / "p.tif", values, photometric="rgb", extratags=tags, metadata=None)
    image = read_image(tmp_path / "p.tif")
    assert image.notes == ("its tags 33550 were left out",)
    with Image.open(io.BytesIO(encode_image(image, "TIFF"))) as back:
        assert back.tag_v2[270] == "a description"
    assert describe_left_out(image, "PNG") == ["description cannot be kept in a PNG file"]


def test_cmyk_is_converted_with_a_word() -> None:
    for kind in ("JPEG", "TIFF"):
        stream = io.BytesIO()
        Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(stream, kind)
        image = decode_image(stream.getvalue())
        assert image.notes == ("its CMYK colors were converted to sRGB",)
        red, green, blue = image.pixels[4, 4] * 255
        assert red > 180
        assert max(green, blue) < 80


def test_floating_point_tiff() -> None:
    values = np.random.default_rng(0).random((5, 7, 4), dtype=np.float32)
    for channels in (1, 3, 4):
        stream = io.BytesIO()
        extra = {"extrasamples": ["unassalpha"]} if channels == 4 else {}
        kind = "rgb" if channels > 1 else "minisblack"
        part = values[:, :, :channels] if channels > 1 else values[:, :, 0]
        tifffile.imwrite(stream, part, photometric=kind, metadata=None, **extra)
        image = decode_image(stream.getvalue())
        assert image.bits == 32
        np.testing.assert_array_equal(image.pixels, values[:, :, : min(channels, 3)])
        back = decode_image(encode_image(image, "TIFF"))
        np.testing.assert_array_equal(back.pixels, image.pixels)
        assert decode_image(encode_image(image, "PNG")).bits == 16
    for wrong in (values * 300, np.full_like(values, np.nan)):
        stream = io.BytesIO()
        tifffile.imwrite(stream, wrong[:, :, :3], photometric="rgb", metadata=None)
        with pytest.raises(NystraError, match=r"floating-point numbers from .* expected 0 to 1"):
            decode_image(stream.getvalue(), "p.tif")


def test_frames_of_a_folder_name_what_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for index in range(2):
        (tmp_path / "in" / f"{index}.png").write_bytes(original("PNG"))
    source = FrameFolder(tmp_path / "in")
    sink = FolderSink(tmp_path / "out", source, Naming("webp"))
    for index, (_, image) in enumerate(source.frames()):
        sink.write(index, image)
    assert "the text 'parameters'" in " ".join(sink.warnings)
    assert held((tmp_path / "out/1.webp").read_bytes(), "WebP")["EXIF"]


def test_an_old_libvips_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    libvips.cache_clear()
    monkeypatch.setattr(pyvips, "at_least_libvips", lambda major, minor: False)
    message = r"uses libvips 8\.\d+, expected 8.16 or newer: pip install 'pyvips\[binary\]'"
    image = ImageData(np.zeros((2, 2, 3), np.float32))
    for work in (lambda: decode_image(original("PNG")), lambda: encode_image(image, "PNG")):
        with pytest.raises(NystraError, match=message):
            work()


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


@pytest.mark.parametrize(
    ("kind", "part", "note"),
    [
        ("PNG", chunk(b"tIME", bytes(7)) + chunk(b"bKGD", bytes(6)), "its chunks bKGD, tIME were"),
        ("PNG", chunk(b"caBX", bytes(9)), "its chunks caBX were left out"),
        ("PNG", chunk(b"iCCP", b"x\0\0" + bytes(9)), "its color profile is damaged"),
        ("PNG", chunk(b"pHYs", struct.pack(">IIB", 2, 1, 0)), "its chunks pHYs were left out"),
        ("JPEG", segment(0xEB, b"JP\0\1" + bytes(20)), "its segments APP11 were left out"),
        ("JPEG", segment(0xE1, b"http://ns/\0") + segment(0xE3, b"Meta"), "APP1, APP3 were left"),
    ],
)
def test_unknown_parts_are_named(kind: str, part: bytes, note: str) -> None:
    """They were dropped without a word: content credentials, backgrounds, aspect ratios."""
    content, place = saved(Image.new("RGB", (4, 3)), kind), 33 if kind == "PNG" else 20
    image = decode_image(content[:place] + part + content[place:])
    assert len(image.notes) == 1
    assert re.search(note, image.notes[0])


def test_the_video_of_a_motion_photo_is_named() -> None:
    content = saved(Image.new("RGB", (4, 3)), "JPEG")
    image = decode_image(content + bytes(40) + b"\0\0\0\x18ftypmp42" + bytes(100))
    assert image.notes == ("the video behind its pixels, as in motion photos, was left out",)


def test_bits_that_a_format_cannot_hold_are_named() -> None:
    image = ImageData(np.full((2, 2, 3), 0.3, np.float32), bits=16)
    assert describe_left_out(image, "JPEG") == ["its 16 bits a channel became 8 bits, as JPEG has"]
    assert describe_left_out(replace(image, bits=32), "PNG")[0].startswith(
        "its floating point a channel"
    )
    assert (
        describe_left_out(image, "PNG") == describe_left_out(replace(image, bits=32), "TIFF") == []
    )


@pytest.mark.parametrize("output", ["JPEG", "PNG", "WebP"])
def test_exif_keeps_its_order_of_bytes(output: str) -> None:
    """Comments in UTF-16 and notes of makers are in the order of their file, and were garbled."""
    words = "prompt 写真".encode("utf-16-be")
    comment = b"UNICODE\0" + words
    inner = struct.pack(">HHHII", 1, 37510, 7, len(comment), 26 + 18) + bytes(4)
    block = b"MM\0*" + struct.pack(">IHHHIII", 8, 1, 34665, 4, 1, 26, 0) + inner + comment
    content = saved(Image.new("RGB", (4, 3)), "JPEG", exif=b"Exif\0\0" + block, dpi=(72, 72))
    written = encode_image(decode_image(content), output)
    with Image.open(io.BytesIO(written)) as image:
        data = image.info["exif"].removeprefix(b"Exif\0\0")
        assert data.startswith(b"MM\0*")
        assert image.getexif().get_ifd(34665)[37510] == comment


def test_what_libvips_does_not_keep_of_gif_avif_and_bmp_is_named() -> None:
    """An AVIF of HDR was taken for sRGB."""
    small = Image.new("RGB", (16, 8), (200, 100, 50))
    gif = decode_image(saved(small.quantize(4), "GIF", comment=b"a comment"))
    assert gif.notes == ("its comment was left out",)
    content = saved(small, "AVIF")
    assert decode_image(content).notes == ()
    place = content.index(b"colrnclx") + 8
    hdr = decode_image(content[:place] + struct.pack(">HH", 9, 16) + content[place + 4 :])
    assert hdr.notes == ("what says that its colors are not those of sRGB was left out",)
    head = struct.pack("<IiiHHIIiiII", 124, 16, 8, 1, 24, 0, 0, 0, 0, 0, 0) + bytes(16) + b"DEBM"
    head += bytes(48) + struct.pack("<IIII", 4, 124 + 16 * 8 * 3, len(ICC), 0)
    bmp = b"BM" + struct.pack("<IHHI", 0, 0, 0, 138) + head + bytes(16 * 8 * 3) + ICC
    (note,) = decode_image(bmp).notes
    assert note.startswith("its color profile is damaged, or of other colors")


def test_ycbcr_and_lab_of_tiff() -> None:
    """Plain YCbCr was taken for RGB."""
    content = saved(Image.new("YCbCr", (4, 3)), "TIFF", compression="tiff_lzw")
    with pytest.raises(
        NystraError, match=r"p\.tif holds colors of kind 6 of TIFF, expected gray or RGB"
    ):
        decode_image(content, "p.tif")
    with pytest.raises(NystraError, match="holds colors of kind 8 of TIFF, expected gray or RGB"):
        decode_image(saved(Image.new("LAB", (4, 3)), "TIFF"), "p.tif")
