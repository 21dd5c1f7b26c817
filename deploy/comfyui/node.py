"""The node that runs a model file in ComfyUI.

ComfyUI's own modules are imported when the node runs: ``comfy.utils`` draws the progress bar, and
``comfy.model_management`` knows whether the user cancelled. An IMAGE is a tensor (B, H, W, C) in
0..1, usually of three channels in float32; arrays become tensors by its own ``new_tensor``.
"""

from __future__ import annotations

import functools
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...runtime.images.image_data import resize_plane
from ...runtime.session import Session
from ...runtime.tasks.restoration.restorer import Restorer, check_output, restorer_for
from ...runtime.tiling.tile_plan import DEFAULT_OVERLAP


class RestoreNode:
    """A node of one model; `node_of` makes a class of it for a file.

    Attributes:
        model: The file.
    """

    CATEGORY: ClassVar[str] = "image/upscaling"
    RETURN_TYPES: ClassVar[tuple[str, ...]] = ("IMAGE",)
    FUNCTION: ClassVar[str] = "restore"
    model: ClassVar[Path]

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802  # ComfyUI's name
        """Return what the node takes, as ComfyUI reads it."""
        return {
            "required": {
                "image": ("IMAGE",),
                "tile": ("INT", {"default": 0, "min": 0, "max": 16384}),
                "overlap": ("INT", {"default": DEFAULT_OVERLAP, "min": 0, "max": 1024}),
                "backend": ("STRING", {"default": "auto"}),
            },
            "optional": {"range": ("STRING", {"default": ""})},
        }

    def restore(
        self, image: Any, tile: int, overlap: int, backend: str, range: str = ""
    ) -> tuple[Any]:
        """Run the model on each image of a batch.

        Args:
            image: (B, H, W, C) in 0..1, of any type with fractions. The fourth channel is alpha,
                which is resized; further ones are left out.
            tile: Side of the tiles in input pixels; 0 chooses by the available memory.
            overlap: Overlap of the tiles in input pixels; without tiles of a size, at most that.
            backend: As ``nystra run --backend`` takes it.
            range: As ``nystra run --range`` takes it; empty: that of the file, or measured.

        Returns:
            (B, H * scale, W * scale, 3) in 0..1, or 4 with alpha, on the device of the input and
            of its type.

        Raises:
            NystraError: The model cannot be run so, or its output cannot be right; ComfyUI shows
                the message.
        """
        bar = import_module("comfy.utils").ProgressBar(1)
        interrupted = import_module("comfy.model_management")
        restorer = _restorer(self.model, backend, range)
        images = image.float().cpu().numpy()
        outputs = []
        for index, channels in enumerate(images):
            pixels = channels[..., :3]

            def step(done: int, total: int, index: int = index) -> None:
                bar.update_absolute(index * total + done, len(images) * total)
                interrupted.throw_exception_if_processing_interrupted()

            interrupted.throw_exception_if_processing_interrupted()
            restored, _ = restorer(pixels, tile, overlap if tile else None, step)
            check_output(restored, pixels, f"image {index + 1}", restorer)
            colors = np.repeat(restored, 3, 2) if restored.shape[2] == 1 else restored
            if channels.shape[2] > 3:
                alpha = resize_plane(channels[..., 3], (colors.shape[0], colors.shape[1]))
                colors = np.dstack((colors, alpha))
            outputs.append(colors)
        return (image.new_tensor(np.clip(np.stack(outputs), 0, 1)),)


def node_of(model: Path) -> type[RestoreNode]:
    """Return the node of a model file."""
    return type("RestoreNode", (RestoreNode,), {"model": model})


@functools.lru_cache(maxsize=4)
def _restorer(model: Path, backend: str, value_range: str) -> Restorer:
    return restorer_for(Session(model, backend, range=value_range or None))
