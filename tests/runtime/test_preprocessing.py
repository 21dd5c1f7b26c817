"""The preparation of images: the record and its metadata, the numbers, and the graph."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from torch.nn.functional import interpolate

from classifier_models import COLORS, TOY, save_classifier
from nystra.core.errors import NystraError
from nystra.core.ports.port import Port
from nystra.core.ports.preprocessing import (
    Preprocessing,
    Resize,
    read_preprocessing,
    write_preprocessing,
)
from nystra.export.graph.preprocessing import prepend_preprocessing
from nystra.export.load.with_preprocessing import Preparation
from nystra.runtime import Session
from nystra.runtime.images.resampling import resample
from nystra.runtime.tasks.classification.classifier import middle, prepare

WHERE = "the metadata entry nystra.preprocessing"

PILLOW = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
SIZES = [((16, 16), (16, 16)), ((40, 27), (16, 16)), ((9, 30), (21, 13)), ((1, 5), (4, 3))]


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height).random((height, width, 3), np.float32)


def test_what_is_written_is_read() -> None:
    for preprocessing in (
        Preprocessing(),
        TOY,
        TOY.within_graph(),
        Preprocessing(Resize((5, 6), antialias=False)),
    ):
        assert read_preprocessing(write_preprocessing(preprocessing), WHERE) == preprocessing
    assert write_preprocessing(Preprocessing()) == "{}"
    assert TOY.within_graph().remaining == Preprocessing(labels=COLORS)
    assert TOY.remaining is TOY


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", r"nystra.preprocessing is \[1\], expected an object of resize, crop"),
        ('{"resise": 1}', "'resise'.; expected are resize, crop, mean, std, labels, in_graph"),
        (
            '{"resize": {"filter": "bicubic"}}',
            "resize: missing keys .*; expected are sides, filter, antialias",
        ),
        ('{"resize": {"sides": [0]}}', r"resize.sides, is \[0\], expected one or two whole"),
        ('{"resize": {"sides": [8, 8, 8]}}', "expected one or two whole numbers"),
        ('{"resize": {"sides": [1e9]}}', "expected one or two whole numbers from 1 to 4096"),
        ('{"resize": {"sides": [8], "filter": "box"}}', "'box', expected bilinear or bicubic"),
        ('{"resize": {"sides": [8], "antialias": 1}}', "antialias, is 1, expected true or false"),
        ('{"crop": [8, 8]}', "the crop .* needs a size"),
        ('{"resize": {"sides": [8]}, "crop": [9, 8]}', "is larger than the size to resize"),
        ('{"resize": {"sides": [8]}, "crop": [8]}', r"crop, is \[8\], expected height and width"),
        ('{"mean": [0.5]}', "expected equally many numbers"),
        ('{"mean": [0.5], "std": [0]}', "each std above 0"),
        ('{"mean": [true], "std": [1]}', r"mean, is \[True\], expected at most 64 numbers"),
        ('{"labels": [""]}', "labels, is '', expected a string of 1 to 512 characters"),
        ('{"labels": "cat"}', "labels, is 'cat', expected a list"),
        (f'{{"labels": ["{"a" * 513}"]}}', "expected a string of 1 to 512 characters"),
        (" " * (5 << 20), "has 5242880 characters: it is damaged"),
    ],
)
def test_metadata_that_is_refused(text: str, message: str) -> None:
    with pytest.raises(NystraError, match=message):
        read_preprocessing(text, WHERE)


def test_damaged_metadata_is_read_or_refused() -> None:
    text = write_preprocessing(TOY.within_graph())
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(400):
        place, length = random.integers(len(text)), random.integers(4)
        put = random.choice(["", "0", "-", "9e9", "null", "[]", "{}", '"', ",", "true"])
        try:
            read_preprocessing(text[:place] + str(put) + text[place + length :], WHERE)
        except NystraError:
            refused += 1
    assert 200 < refused < 400


@pytest.mark.parametrize("name", PILLOW)
@pytest.mark.parametrize(("old", "new"), SIZES)
def test_resizing_is_pillows_or_pytorchs(
    old: tuple[int, int], new: tuple[int, int], name: str
) -> None:
    pixels = noise(*old)
    planes = [
        np.asarray(Image.fromarray(pixels[:, :, k]).resize(new[::-1], PILLOW[name]))
        for k in range(3)
    ]
    made = resample(pixels, Resize(new, name))
    np.testing.assert_allclose(made, np.stack(planes, 2), atol=2e-6)
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    expected = interpolate(tensor, new, mode=name)[0].permute(1, 2, 0).numpy()
    plain = resample(pixels, Resize(new, name, antialias=False))
    np.testing.assert_allclose(plain, expected, atol=2e-6)
    part = resample(pixels, Resize(new, name), slice(1, 3), slice(0, 2))
    np.testing.assert_array_equal(part, made[1:3, :2])


def test_an_image_is_prepared_as_torchvision_does() -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2", reason="torchvision is not installed")
    steps = v2.Compose(
        [
            v2.Resize(12, v2.InterpolationMode.BICUBIC, antialias=True),
            v2.CenterCrop(8),
            v2.Normalize(TOY.mean, TOY.std),
        ]
    )
    for size in ((20, 31), (31, 20), (12, 12), (8, 13), (13, 15)):
        pixels = noise(*size)
        expected = steps(torch.from_numpy(pixels).permute(2, 0, 1))[None].numpy()
        np.testing.assert_allclose(prepare(pixels, TOY, 3), expected, atol=1e-5)


def test_the_middle_goes_to_even_places_and_channels_fit() -> None:
    places = [middle(side, 8).start for side in range(8, 14)]
    assert places == [0, 0, 1, 2, 2, 2]
    gray = noise(4, 4)[:, :, :1]
    assert prepare(gray, Preprocessing(), 3).shape == (1, 3, 4, 4)
    white = prepare(np.ones((4, 4, 3), np.float32), Preprocessing(), 1)
    np.testing.assert_allclose(white, np.ones((1, 1, 4, 4)), atol=1e-6)
    with pytest.raises(NystraError, match="would become 4096000x4096: expected a less elongated"):
        prepare(np.zeros((1, 1000, 3), np.float32), Preprocessing(Resize((4096,))), 3)
    strip = Preprocessing(Resize((256,)), (224, 224))
    assert prepare(np.zeros((1, 1 << 20, 1), np.float32), strip, 1).shape == (1, 1, 224, 224)


RULES = [
    TOY,
    Preprocessing(Resize((12,), "bicubic")),
    Preprocessing(Resize((12, 15))),
    Preprocessing(Resize((12,)), (7, 9)),
    Preprocessing(Resize((10, 14), antialias=False), (9, 8)),
    Preprocessing(Resize((9, 8), "bicubic", antialias=False), mean=(0.5,) * 3, std=(2.0,) * 3),
    Preprocessing(mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0)),
]


@pytest.mark.parametrize("rule", RULES)
def test_the_graph_prepares_as_the_runtime_and_pytorch_do(
    tmp_path: Path, rule: Preprocessing
) -> None:
    model = onnx.load(save_classifier(tmp_path / "m.onnx", None, rule.size or ("h", "w")))
    model.graph.output[0].CopyFrom(
        onnx.helper.make_tensor_value_info("shown", onnx.TensorProto.FLOAT, ["b", 3, "y", "x"])
    )
    del model.graph.node[:]
    model.graph.node.append(onnx.helper.make_node("Identity", ["input"], ["shown"]))
    del model.metadata_props[:]
    prepend_preprocessing(model, rule, Port("input", "image", lengths={"channels": 3}))
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, tmp_path / "prepares.onnx")
    session = Session(tmp_path / "prepares.onnx", threads=1)
    assert session.inputs[0].shape == ("batch", 3, "height", "width")
    for size in ((20, 31), (31, 20), (5, 13), (12, 12), (100, 151)):
        pixels = noise(*size)
        image = pixels.transpose(2, 0, 1)[None]
        (made,) = session.run({"input": np.repeat(image, 2, 0)}).values()
        np.testing.assert_allclose(made[:1], prepare(pixels, rule, 3), atol=1e-5)
        tensor = Preparation(rule).prepare(torch.from_numpy(image))
        np.testing.assert_allclose(made[1:], tensor.numpy(), atol=1e-5)
