"""What a file holds besides its pixels is in the output too, or a note names it."""

import io
import re
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pyvips
import tifffile
from PIL import Image, ImageCms, PngImagePlugin, TiffImagePlugin

from nystra.core.errors import NystraError
from nystra.runtime.images.image_data import ImageData
from nystra.runtime.images.image_file import libvips
from nystra.runtime.images.images import Naming, decode_image, encode_image, left_out, read_image
from nystra.runtime.video.folder_sink import FolderSink
from nystra.runtime.video.folder_source import FrameFolder

ICC = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf tiff:Orientation="6"/>\xc3\xa4</x:xmpmeta>'
IPTC = b"8BIM\x04\x04\0\0\0\0\0\x0a\x1c\x02\x78\0\5hello"
HEX_IPTC = f"\niptc\n{len(IPTC):8}\n{IPTC.hex()}\n"
MAKER = bytes(range(40))
COLORS = {
    b"cICP": bytes((9, 16, 0, 1)),
    b"gAMA": struct.pack(">I", 100_000),
    b"cHRM": struct.pack(">8I", 31270, 32900, 70800, 29200, 17000, 79700, 13100, 4600),
}
KINDS = {"PNG": "PNG", "JPEG": "JPEG", "TIFF": "TIFF", "WebP": "WEBP"}


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def exif(orientation: int = 6) -> Image.Exif:
    data = Image.Exif()
    data[274], data[306], data[315] = orientation, "2026:01:02 03:04:05", "A Person"
    data[282] = data[283] = TiffImagePlugin.IFDRational(300)
    data[296], data[33432] = 2, "(c) A Person"
    data.get_ifd(0x8769).update({36867: "2026:01:02 03:04:05", 37500: MAKER, 40962: 24})
    data.get_ifd(0x8825).update({1: "N", 2: (48.0, 30.0, 15.5)})
    return data


def original(kind: str) -> bytes:
    """Return a file of a kind, 24x16, with all that Pillow writes into it."""
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 24, 3), np.uint8))
    stream = io.BytesIO()
    texts = PngImagePlugin.PngInfo()
    texts.add_text("parameters", "a photo, Steps: 20")
    texts.add_itxt("Title", "äöü 写真")
    texts.add_text("Comment", "a comment", zip=True)
    texts.add_itxt("XML:com.adobe.xmp", XMP.decode())
    options = {
        "PNG": {"pnginfo": texts, "dpi": (300, 300)},
        "JPEG": {"xmp": XMP, "comment": "a comment", "dpi": (300, 300)},
        "TIFF": {},
        "WebP": {"xmp": XMP, "lossless": True},
    }[kind]
    tags = exif()
    if kind == "TIFF":
        tags[700], tags[34377] = XMP, IPTC
    image.save(stream, KINDS[kind], exif=tags, icc_profile=ICC, **options)
    content = stream.getvalue()
    if kind == "PNG":
        content = content[:33] + b"".join(map(chunk, COLORS, COLORS.values())) + content[33:]
    if kind == "JPEG":
        body = b"Photoshop 3.0\0" + IPTC
        content = content[:2] + b"\xff\xed" + struct.pack(">H", len(body) + 2) + body + content[2:]
    return content


def held(content: bytes, kind: str) -> dict[str, object]:
    """Return what Pillow finds in a file."""
    with Image.open(io.BytesIO(content)) as image:
        image.load()
        tags, found = image.getexif(), dict(image.info)
        inner, place = tags.get_ifd(0x8769), tags.get_ifd(0x8825)
        text = dict(getattr(image, "text", {}))
    resolution = found.get("dpi", (0, 0))
    return {
        "EXIF": tags.get(315) == "A Person"
        and tags.get(33432) == "(c) A Person"
        and inner.get(36867) == "2026:01:02 03:04:05"
        and inner.get(37500) == MAKER
        and (place[1], tuple(place[2])) == ("N", (48.0, 30.0, 15.5)),
        "upright": tags.get(274, 1) == 1 and 40962 not in inner,
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


@pytest.mark.parametrize("output", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_all_is_kept_or_named(source: str, output: str) -> None:
    """XMP, texts, comments, color chunks and all EXIF of TIFF were dropped without a word."""
    before = original(source)
    image = decode_image(before, "the original")
    assert image.size == (24, 16)
    assert image.notes == ()
    notes = " ".join(left_out(image, output))
    there, here = held(before, source), held(encode_image(image, output), output)
    assert here["upright"]
    for name, value in there.items():
        if name == "XMP":
            assert here["XMP"]
        elif value and name != "upright":
            assert here[name] or name in notes or (name in ("gAMA", "cHRM") and image.icc)
        if here[name]:
            assert name not in notes
    if source == output:
        assert notes == ""


def test_color_chunks_that_a_format_cannot_hold_are_named() -> None:
    content = original("PNG")
    image = decode_image(content)
    bare = ImageData(image.pixels, metadata=image.metadata)
    for kind in ("JPEG", "TIFF", "WebP"):
        (note,) = left_out(bare, kind)
        assert note.startswith("cICP, gAMA, cHRM")
        assert note.endswith(f"cannot be kept in a {kind} file")
    plain = Image.new("RGB", (3, 2))
    stream = io.BytesIO()
    plain.save(stream, "PNG")
    same = chunk(b"sRGB", b"\0") + chunk(b"gAMA", struct.pack(">I", 45455))
    content = stream.getvalue()
    usual = decode_image(content[:33] + same + content[33:])
    assert left_out(usual, "JPEG") == []
    assert same in encode_image(usual, "PNG")


def test_metadata_too_long_for_a_jpeg_is_named() -> None:
    texts = PngImagePlugin.PngInfo()
    texts.add_text("workflow", "x" * 70_000)
    texts.add_itxt("XML:com.adobe.xmp", "y" * 70_000)
    stream = io.BytesIO()
    Image.new("RGB", (3, 2)).save(stream, "PNG", pnginfo=texts)
    image = decode_image(stream.getvalue())
    assert left_out(image, "JPEG") == [
        "XMP of 70000 bytes, the text 'workflow' cannot be kept in a JPEG file"
    ]
    assert decode_image(encode_image(image, "JPEG")).size == (2, 3)
    assert left_out(image, "PNG") == []


def test_exif_as_older_programs_write_it_into_png() -> None:
    block = exif().tobytes()
    texts = PngImagePlugin.PngInfo()
    digits = block.hex()
    texts.add_text("Raw profile type exif", f"\nexif\n{len(block):8}\n{digits}\n", zip=True)
    stream = io.BytesIO()
    Image.new("RGB", (6, 4)).save(stream, "PNG", pnginfo=texts)
    image = decode_image(stream.getvalue())
    assert image.size == (6, 4)  # upright
    assert held(encode_image(image, "PNG"), "PNG")["EXIF"]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WebP"])
def test_damaged_exif_leaves_the_pixels(kind: str) -> None:
    block = exif().tobytes()[:90]
    stream = io.BytesIO()
    Image.new("RGB", (6, 4), (9, 9, 9)).save(stream, KINDS[kind], exif=block)
    image = decode_image(stream.getvalue())
    assert image.size == (4, 6)
    assert image.notes == ("its EXIF data is damaged and was left out",)


def test_loops_in_exif_end() -> None:
    """The pointer of the directory inside leads to the directory itself, endlessly."""
    entry = struct.pack("<HHII", 34665, 4, 1, 8)
    block = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 1) + entry + bytes(4)
    stream = io.BytesIO()
    Image.new("RGB", (6, 4)).save(stream, "JPEG", exif=block)
    assert decode_image(stream.getvalue()).size == (4, 6)


def test_private_tags_of_tiff_are_named(tmp_path: Path) -> None:
    """Geographic ones are wrong for other pixels."""
    values = np.zeros((4, 6, 3), np.uint8)
    tags = [(33550, 12, 3, (1.0, 1.0, 0.0), True), (270, 2, 0, "a description", True)]
    tifffile.imwrite(tmp_path / "p.tif", values, photometric="rgb", extratags=tags, metadata=None)
    image = read_image(tmp_path / "p.tif")
    assert image.notes == ("its private tags 33550 were left out",)
    with Image.open(io.BytesIO(encode_image(image, "TIFF"))) as back:
        assert back.tag_v2[270] == "a description"


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
    for frame in source.frames():
        sink.write(frame, frame.load())
    (note,) = sink.warnings
    assert "the text 'parameters'" in note
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


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("kind", "part", "note"),
    [
        ("PNG", chunk(b"tIME", bytes(7)) + chunk(b"bKGD", bytes(6)), "its chunks bKGD, tIME were"),
        ("PNG", chunk(b"caBX", bytes(9)), "its chunks caBX were left out"),
        ("PNG", chunk(b"iCCP", b"x\0\0" + bytes(9)), "its color profile is damaged"),
        ("PNG", chunk(b"pHYs", struct.pack(">IIB", 2, 1, 0)), r"not square \(2:1\)"),
        ("JPEG", segment(0xEB, b"JP\0\1" + bytes(20)), "its segments APP11 were left out"),
        ("JPEG", segment(0xE1, b"http://ns/\0") + segment(0xE3, b"Meta"), "APP1, APP3 were left"),
        ("JPEG", segment(0xE0, b"JFIF\0\1\1\0\0\1\0\2\0\0"), r"not square \(2:1\)"),
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


def test_profiles_in_texts_as_older_programs_write_them_into_png() -> None:
    """They became comments of digits in a JPEG."""
    content = saved(Image.new("RGB", (4, 3)), "PNG")
    for name, data in ((b"xmp", b"<x/>"), (b"iptc", IPTC)):
        text = b"\n%s\n%8d\n%s\n" % (name, len(data), data.hex().encode())
        part = chunk(b"zTXt", b"Raw profile type " + name + b"\0\0" + zlib.compress(text))
        content = content[:33] + part + content[33:]
    metadata = decode_image(content).metadata
    assert (metadata.xmp, metadata.iptc, metadata.texts) == (b"<x/>", IPTC, ())


def test_bits_that_a_format_cannot_hold_are_named() -> None:
    image = ImageData(np.full((2, 2, 3), 0.3, np.float32), bits=16)
    assert left_out(image, "JPEG") == ["its 16 bits a channel became 8 bits, as JPEG has"]
    assert left_out(replace(image, bits=32), "PNG")[0].startswith("its floating point a channel")
    assert left_out(image, "PNG") == left_out(replace(image, bits=32), "TIFF") == []


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


def test_texts_of_gif_colors_of_avif_and_the_profile_of_bmp() -> None:
    """libvips reads none of them; an AVIF of HDR was taken for sRGB."""
    small = Image.new("RGB", (16, 8), (200, 100, 50))
    gif = decode_image(saved(small.quantize(4), "GIF", comment=b"a comment"))
    assert gif.metadata.texts == (("Comment", "a comment"),)
    content = saved(small, "AVIF")
    assert decode_image(content).metadata.colors == ()
    place = content.index(b"colrnclx") + 8
    hdr = decode_image(content[:place] + struct.pack(">HH", 9, 16) + content[place + 4 :])
    assert hdr.metadata.colors == (("cICP", bytes((9, 16, 0, 1))),)
    assert left_out(hdr, "JPEG") == ["cICP cannot be kept in a JPEG file"]
    head = struct.pack("<IiiHHIIiiII", 124, 16, 8, 1, 24, 0, 0, 0, 0, 0, 0) + bytes(16) + b"DEBM"
    head += bytes(48) + struct.pack("<IIII", 4, 124 + 16 * 8 * 3, len(ICC), 0)
    bmp = b"BM" + struct.pack("<IHHI", 0, 0, 0, 138) + head + bytes(16 * 8 * 3) + ICC
    assert decode_image(bmp).icc == ICC


def test_ycbcr_and_lab_of_tiff() -> None:
    """Plain YCbCr was taken for RGB, and CIELAB was called damaged."""
    rows, columns = np.mgrid[:16, :24]
    colors = np.stack([columns * 9, rows * 15, (rows + columns) * 5], -1).astype(np.uint8)
    content = saved(Image.fromarray(colors).convert("YCbCr"), "TIFF", compression="tiff_lzw")
    np.testing.assert_allclose(decode_image(content).pixels, colors / 255, atol=3 / 255)
    with pytest.raises(NystraError, match=r"p\.tif holds CIELAB, expected gray or RGB"):
        decode_image(saved(Image.new("LAB", (4, 3)), "TIFF"), "p.tif")
