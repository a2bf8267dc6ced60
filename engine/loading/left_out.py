"""Warn of tensors in a file that are left out: of heads that the engine does not run, of images, or unknown ones.

A tensor that the encoder or the decoder itself could need is never left out: it is an error of the weights.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..base.errors import listed
from ..families.fields import class_name
from ..families.heads import TASK_OF_CLASS
from ..families.names import Names
from ..model.config import ModelConfig
from ..weights.parameters import expected_shapes

LOG = logging.getLogger("engine")

TASK_OF_ENDING = TASK_OF_CLASS | {"ForAudioClassification": "classify", "ForMultipleChoice": "choose",
                                   "ForNextSentencePrediction": "next"}
"""The task of each kind of model that has a head, by the end of the name of its class."""
_OF_HEADS = re.compile(r"(?:\w+\.)?(?:\w*head|\w*classif\w*|score|qa_outputs|cls|regress\w*|lm_\w+|projector|"
                       r"\w*predictions)(?:\.|$)")
"""Matches the beginning of a tensor's name if it is a head's, in a file whose other tensors have no prefix."""
_OF_IMAGES = re.compile(r"(?:model\.)?(?:vision_\w+|visual_\w+|multi_modal_projector)\.")
"""Matches the beginning of a tensor's name if it reads the images of a model of texts and images."""


def drop_extra(place: object, names: Names, config: ModelConfig, weights: dict[str, Any],
               files: Collection[str]) -> None:
    """Remove from `weights` the tensors of a head that the family does not know, with a warning that names them.

    place: the beginning of the warning. weights: by canonical names; a tensor that the family does not know has its
    name in the file. files: the names of all tensors in the file. In a file of a model with a head, the tensors of the
    model itself have a prefix, such as "bert.", and the head's have none.
    """
    stated = (names.prefix,) if isinstance(names.prefix, str) else names.prefix
    prefixes = tuple(prefix for prefix in stated if prefix)
    is_prefixed = bool(prefixes) and any(name.startswith(prefixes) for name in files)
    expected = expected_shapes(config)
    unknown = [name for name in weights if name not in expected and name in files]
    extra = [name for name in unknown if not name.startswith(prefixes or "\0")      # "\0" is the beginning of no name
             and (is_prefixed or _OF_HEADS.match(name))]
    for name in extra:
        del weights[name]
    if extra:
        LOG.warning("%s: the weights have tensors of a head that the engine does not know, and that are left out: %s",
                    place, listed(extra))


def warn_of_head(place: object, values: Mapping[str, Any], tasks: Collection[str], unread: Iterable[str]) -> None:
    """Warn of a head that config.json names and that the files have, but that does not run.

    tasks: of the heads that were read. unread: the names of tensors of heads, and of tensors that the family leaves
    out.
    """
    name = class_name(values)
    task = next((task for end, task in TASK_OF_ENDING.items() if name.endswith(end)), None)
    left_out = [tensor for tensor in unread if _OF_HEADS.match(tensor)]
    if task is not None and task not in tasks and left_out:
        LOG.warning("%s: config.json names %s, and the engine does not run its head: %s are left out; encode and "
                    "forward give the vectors of the encoder", place, name, listed(left_out))


def is_of_images(tensor: str) -> bool:
    """Return whether a tensor of a model of texts and images reads images, by its name."""
    return _OF_IMAGES.match(tensor) is not None


def warn_of_images(place: object, unread: Iterable[str]) -> None:
    """Warn if tensors that read images are among those left out, `unread`: the model then reads texts alone."""
    if left_out := [*filter(is_of_images, unread)]:
        LOG.warning("%s: the model reads texts and images, and the engine runs its text alone: %s tensors of images "
                    "are left out, %s", place, f"{len(left_out):,}", listed(left_out))
