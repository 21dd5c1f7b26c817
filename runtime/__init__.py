"""Run, measure and check exported models: numpy and one backend, never PyTorch.

The face is lazy: a name is looked up in its module when it is first used, so that
``import nystra.runtime`` loads neither onnxruntime nor an image library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..plugins.lazy_names import lazy_names

if TYPE_CHECKING:
    from .checking.accuracy import Accuracy, measure_accuracy
    from .checking.metrics import psnr, ssim
    from .checking.quality import validate_quality
    from .checking.validation import validate_against_references
    from .classifying.classifier import Classifier, classifier_for
    from .classifying.job import classify_pictures
    from .classifying.options import ClassOptions
    from .model.manifest import Manifest
    from .model.model_facts import ModelFacts
    from .model.model_ports import TensorInfo
    from .model.references import read_references, write_references
    from .pictures.images import read_picture, write_picture
    from .pictures.picture import Picture
    from .restoring.job import run_pictures
    from .restoring.options import RunOptions
    from .restoring.stitching import Stitcher
    from .restoring.tile_plan import TilePlan, plan_tiles
    from .restoring.tiling import run_tiled
    from .session import Session
    from .timing.interleaved import interleaved
    from .video.job import run_video
    from .video.options import VideoOptions

__all__ = [
    "Accuracy",
    "ClassOptions",
    "Classifier",
    "Manifest",
    "ModelFacts",
    "Picture",
    "RunOptions",
    "Session",
    "Stitcher",
    "TensorInfo",
    "TilePlan",
    "VideoOptions",
    "classifier_for",
    "classify_pictures",
    "interleaved",
    "measure_accuracy",
    "plan_tiles",
    "psnr",
    "read_picture",
    "read_references",
    "run_pictures",
    "run_tiled",
    "run_video",
    "ssim",
    "validate_against_references",
    "validate_quality",
    "write_picture",
    "write_references",
]

_HOME = {
    "Accuracy": "checking.accuracy",
    "ClassOptions": "classifying.options",
    "Classifier": "classifying.classifier",
    "Manifest": "model.manifest",
    "ModelFacts": "model.model_facts",
    "Picture": "pictures.picture",
    "RunOptions": "restoring.options",
    "Session": "session",
    "Stitcher": "restoring.stitching",
    "TensorInfo": "model.model_ports",
    "TilePlan": "restoring.tile_plan",
    "VideoOptions": "video.options",
    "classifier_for": "classifying.classifier",
    "classify_pictures": "classifying.job",
    "interleaved": "timing.interleaved",
    "measure_accuracy": "checking.accuracy",
    "plan_tiles": "restoring.tile_plan",
    "psnr": "checking.metrics",
    "read_picture": "pictures.images",
    "read_references": "model.references",
    "run_pictures": "restoring.job",
    "run_tiled": "restoring.tiling",
    "run_video": "video.job",
    "ssim": "checking.metrics",
    "validate_against_references": "checking.validation",
    "validate_quality": "checking.quality",
    "write_picture": "pictures.images",
    "write_references": "model.references",
}

__getattr__, __dir__ = lazy_names(__name__, _HOME)
