# SPDX-License-Identifier: Apache-2.0
"""The configuration of a model, from a file or folder on this machine. Nothing is downloaded."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any


def read(source: Path) -> Any:
    """The configuration of transformers.

    Args:
        source: a `config.json`, a folder with one, or a GGUF file.

    Raises:
        ValueError, OSError: with one sentence that names the file.
    """
    if not source.exists():
        raise FileNotFoundError(f"{source} is not there; a config.json, a folder with one or a GGUF file is needed")
    path = source / "config.json" if source.is_dir() else source
    if not path.exists():
        raise FileNotFoundError(f"{source} has no config.json")
    config = _of_gguf(path) if _is_gguf(path) else _of_json(path)
    _check_kind(path, config)
    for part in (config, config.get_text_config(decoder=True)):
        if hasattr(part, "quantization_config"):  # of the checkpoint's weights, which are not read
            del part.quantization_config
    return config


def _is_gguf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def _of_json(path: Path) -> Any:
    from transformers import CONFIG_MAPPING

    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as why:
        raise ValueError(f"{path} is not JSON: {why}") from None
    kind = values.get("model_type") if isinstance(values, dict) else None
    if not isinstance(kind, str):
        raise ValueError(f"{path} has no model_type, so it is no configuration of transformers")
    if kind not in CONFIG_MAPPING:
        near = difflib.get_close_matches(kind, list(CONFIG_MAPPING.keys()), 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{path}: transformers does not know the architecture {kind}{meant}")
    return _made(path, lambda: CONFIG_MAPPING[kind].from_json_file(path))


def _of_gguf(path: Path) -> Any:
    from transformers import AutoConfig

    return _made(path, lambda: AutoConfig.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True))


def _made(path: Path, make: Any) -> Any:
    """Whatever transformers has against the values becomes one sentence."""
    try:
        return make()
    except Exception as why:
        raise ValueError(f"{path}: transformers does not accept it: {one_line(why)}") from why


def _check_kind(path: Path, config: Any) -> None:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"{path}: {config.model_type} has an encoder and a decoder; only decoders have twins")
    text = config.get_text_config(decoder=True)
    if type(text) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ValueError(f"{path}: transformers has no {text.model_type} that continues a text by itself")


def one_line(why: BaseException) -> str:
    """The message of an error in one line."""
    return " ".join(str(why).split()) or type(why).__name__
