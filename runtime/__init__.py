"""Run, measure and check exported models: numpy and one backend, never PyTorch.

The face is lazy: a name is looked up in its module when it is first used, so that
``import nystra.runtime`` loads neither onnxruntime nor an image library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .checking.metrics import psnr, ssim
    from .checking.validation import validate_against_references
    from .fastest import Fastest, choose_fastest
    from .images.images import read_picture, write_picture
    from .images.picture import Picture
    from .machine.clock import interleaved
    from .model.manifest import Manifest
    from .model.model_facts import ModelFacts
    from .model.model_ports import TensorInfo
    from .model.references import read_references, write_references
    from .session import Session
    from .session_spec import SessionSpec
    from .tasks.classification.classifier import Classifier, classifier_for
    from .tasks.classification.options import ClassOptions
    from .tasks.classification.quality import Accuracy, measure_accuracy
    from .tasks.classification.run import classify_pictures
    from .tasks.restoration.options import RunOptions
    from .tasks.restoration.quality import validate_quality
    from .tasks.restoration.run import run_pictures
    from .tasks.video.options import VideoOptions
    from .tasks.video.run import run_video
    from .tiling.run_tiled import run_tiled
    from .tiling.stitching import Stitcher
    from .tiling.tile_plan import TilePlan, plan_tiles

__all__ = [
    "Accuracy",
    "ClassOptions",
    "Classifier",
    "Fastest",
    "Manifest",
    "ModelFacts",
    "Picture",
    "RunOptions",
    "Session",
    "SessionSpec",
    "Stitcher",
    "TensorInfo",
    "TilePlan",
    "VideoOptions",
    "choose_fastest",
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
    "Accuracy": "tasks.classification.quality",
    "ClassOptions": "tasks.classification.options",
    "Classifier": "tasks.classification.classifier",
    "Fastest": "fastest",
    "Manifest": "model.manifest",
    "ModelFacts": "model.model_facts",
    "Picture": "images.picture",
    "RunOptions": "tasks.restoration.options",
    "Session": "session",
    "SessionSpec": "session_spec",
    "Stitcher": "tiling.stitching",
    "TensorInfo": "model.model_ports",
    "TilePlan": "tiling.tile_plan",
    "VideoOptions": "tasks.video.options",
    "choose_fastest": "fastest",
    "classifier_for": "tasks.classification.classifier",
    "classify_pictures": "tasks.classification.run",
    "interleaved": "machine.clock",
    "measure_accuracy": "tasks.classification.quality",
    "plan_tiles": "tiling.tile_plan",
    "psnr": "checking.metrics",
    "read_picture": "images.images",
    "read_references": "model.references",
    "run_pictures": "tasks.restoration.run",
    "run_tiled": "tiling.run_tiled",
    "run_video": "tasks.video.run",
    "ssim": "checking.metrics",
    "validate_against_references": "checking.validation",
    "validate_quality": "tasks.restoration.quality",
    "write_picture": "images.images",
    "write_references": "model.references",
}

__getattr__, __dir__ = lazy_names(__name__, _HOME)
