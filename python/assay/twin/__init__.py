# SPDX-License-Identifier: Apache-2.0
"""Twins: small random checkpoints of an architecture, shaped so that faults show as in trained models.

    import assay
    assay.twin("Meta-Llama-3-8B/config.json", "tiny")       # the same as assay.twin.make
    logits = assay.twin.run(assay.twin.load("tiny"), "tiny")

Making and running need torch, transformers and safetensors; `prompts()` and `read()` need neither.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Union

if TYPE_CHECKING:
    import torch

__all__ = ["load", "make", "prompts", "read", "run"]

PathLike = Union[str, "os.PathLike[str]"]


def make(
    source: PathLike,
    output: PathLike,
    *,
    layers: int = 4,
    width: int = 128,
    seed: int = 0,
    same_size: bool = False,
    float16_limit: bool = True,
    gguf_type: Optional[str] = "f32",
) -> Path:
    """Writes a twin of a model; returns its folder.

    Args:
        source: a config.json, a folder with one, or a GGUF file; nothing is downloaded.
        output: the folder, which must not exist.
        layers: about so many; more where there are more kinds of layers.
        width: about so wide.
        seed: of weights and tokens. The same seed gives the same bytes with the same versions.
        same_size: keep all sizes; for models that are small already.
        float16_limit: one activation comes near 65504.
        gguf_type: "f32", "f16", "q8_0", or None for no GGUF file.

    Raises:
        ValueError, OSError: the source cannot be read, is unknown or cannot be made smaller; nothing is left behind.
    """
    from assay.twin import making

    making.make(making.Request(Path(source), Path(output), layers, width, seed, same_size, float16_limit, gguf_type))
    return Path(output)


def read(folder: PathLike) -> dict[str, Any]:
    """What twin.json says (docs/formats/twin.md), after the weights were held against their digest."""
    from assay.twin import files

    return files.read(Path(folder))


def load(folder: PathLike, *, dtype: str = "float32", attention: Optional[str] = None) -> torch.nn.Module:
    """The model, in eval mode.

    Args:
        dtype: "float32", "bfloat16" or "float16".
        attention: "eager" or "sdpa"; what transformers chooses, when None.
    """
    import torch
    from transformers import AutoModelForCausalLM

    read(folder)
    chosen = {} if attention is None else {"attn_implementation": attention}
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, dtype=getattr(torch, dtype), **chosen
    )
    loaded: torch.nn.Module = model.eval()
    return loaded


def run(model: Any, folder: PathLike) -> dict[str, torch.Tensor]:
    """Runs all prompts of a twin through a model, each from a fresh cache, with one call of the model a step.

    Args:
        model: any module with the convention of transformers: `input_ids`, `attention_mask`, `position_ids`,
            `past_key_values`, `use_cache`; what its forward does not take is not given.
        folder: of the twin.

    Returns:
        The logits of each prompt by its name, [1, tokens, vocabulary]; those at padding mean nothing.
    """
    from assay.twin import prompt_set

    return {one["name"]: prompt_set.run(model, prompt_set.Prompt(**one)) for one in read(folder)["prompts"]}


def prompts(folder: PathLike) -> list[dict[str, Any]]:
    """The prompts as plain values, for programs that are not PyTorch's.

    Returns:
        `{"name": "padded", "tokens": [...], "decoded": 2, "first": 0, "padding": 5}` for each: padding, the prompt and
        at the end the tokens that are given one by one; `first` is the position of the first token behind the padding.
    """
    return list(read(folder)["prompts"])


@contextmanager
def quiet() -> Iterator[None]:
    """transformers says nothing and draws no bars."""
    import transformers

    log: Any = transformers.logging
    level = log.get_verbosity()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        log.enable_progress_bar()


class _Package(types.ModuleType):
    """`assay.twin(...)` is `assay.twin.make(...)`."""

    def __call__(self, *args: Any, **named: Any) -> Path:
        return make(*args, **named)


sys.modules[__name__].__class__ = _Package
