"""Run by a Python that has VapourSynth: ``SCRIPT IN OUT``; IN is images in .npy, or a video."""

import runpy
import sys

import numpy as np
import vapoursynth as vs

core = vs.core


def clip_of(images):
    """Return a clip of images (B, C, H, W)."""
    count, channels, height, width = images.shape
    kind = vs.RGBS if channels == 3 else vs.GRAYS
    clip = core.std.BlankClip(format=kind, width=width, height=height, length=count)

    def fill(n, f):
        frame = f.copy()
        for plane in range(channels):
            np.asarray(frame[plane])[:] = images[n, plane]
        return frame

    return core.std.ModifyFrame(clip, clip, fill)


def planes(clip, count):
    """Return the first planes of every frame, (B, C, H, W)."""
    return np.stack(
        [np.stack([np.asarray(frame[p]) for p in range(count)]) for frame in clip.frames()]
    )


script, given, out = sys.argv[1:]
if given.endswith(".npy"):
    images = np.load(given)
    made = runpy.run_path(script)["restore"](clip_of(images))
    np.save(out, planes(made, images.shape[1]))
else:
    runpy.run_path(script, {"source": given})
    np.save(out, planes(vs.get_output(0).clip, 1)[:, 0])
    np.save(f"{out}.source.npy", planes(core.bs.VideoSource(given), 1)[:, 0])
