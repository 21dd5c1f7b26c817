"""Propagates features from clip to clip, backwards and forwards in turn, with alignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from .sampling import flow_warp

CLIP = 2
"""Frames of a clip."""

BRANCHES = ("backward_1", "forward_1", "backward_2", "forward_2")

Clips: TypeAlias = list[Tensor]
"""Features (n, CLIP, C, H, W) of one clip after the other."""

Guides: TypeAlias = list[Sequence[Tensor]]
"""For each clip but the first two flows (n, CLIP, 2, H, W) to frames of the clip before it.

By the first one the first frame finds the first and the second the second; by the other one the
first finds the second and the second the first.
"""


def clip_flows(flows: Tensor) -> Guides:
    """Return the flows between clips.

    Args:
        flows: (n, t - 1, 2, H, W), from each frame but the first to the one before it.
    """
    within, between, onward = flows[:, 0:-2:2], flows[:, 1:-1:2], flows[:, 2::2]
    first_first = _through(between, within)
    second_second = _through(onward, between)
    second_first = _through(onward, first_first)
    same = torch.stack((first_first, second_second), 2)
    crossed = torch.stack((between, second_first), 2)
    return list(zip(same.unbind(1), crossed.unbind(1), strict=True))


def _through(step: Tensor, rest: Tensor) -> Tensor:
    """Return the flow (n, c, 2, H, W) of a step composed with the flow at its target."""
    moved = flow_warp(rest.flatten(0, 1), step.flatten(0, 1))
    composed: Tensor = step + moved.unflatten(0, step.shape[:2])
    return composed


def propagate(
    shallow: Clips, guides: Mapping[str, Guides], backbone: nn.ModuleDict, align: nn.ModuleDict
) -> list[Clips]:
    """Return the features of the input and of every branch.

    A branch visits the clips in its direction; its input is the features of all branches before it,
    and its own of the previous clip, which ``align`` aligns with the current one. The second branch
    of a direction starts from the flows that the first one corrected.

    Args:
        shallow: Features of the input.
        guides: Flows for the directions ``forward`` and ``backward``, in their order of frames.
        backbone: By branch, takes all inputs, the aligned features last.
        align: By branch, a `GuidedDeformableAttention`.
    """
    seen, guides = [shallow], dict(guides)
    for name in BRANCHES:
        direction = name.partition("_")[0]
        way = [_reverse(clips) for clips in seen] if direction == "backward" else seen
        done, guides[direction] = _branch(way, guides[direction], backbone[name], align[name])
        seen.append(_reverse(done) if direction == "backward" else done)
    return seen


def _branch(
    seen: list[Clips], guides: Guides, backbone: nn.Module, align: nn.Module
) -> tuple[Clips, Guides]:
    latest, done, corrected = seen[-1], Clips(), Guides()
    aligned = torch.zeros_like(latest[0])
    for place, present in enumerate(zip(*seen, strict=True)):
        if place:
            before, guide = done[-1], guides[place - 1]
            aligned, *updated = align(latest[place], latest[place - 1], before, *guide)
            corrected.append(updated)
        done.append(aligned + backbone(torch.cat((*present, aligned), 2)))
    return done, corrected


def _reverse(clips: Clips) -> Clips:
    return [clip.flip(1) for clip in reversed(clips)]
