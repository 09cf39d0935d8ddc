# SPDX-License-Identifier: Apache-2.0
"""dump_data: one tensor of the golden model, paired by hand with a file of the other side."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from assay.torch.strict.log import logger
from assay.torch.strict.paths import check_output_path, dump_stamp


def dump_data(
    token_id: int = -1, data_id: int = -1, golden_data: Any = None, my_path: str = "", output_path: str = "./"
) -> None:
    """Saves `golden_data` and notes in metadata.json that it pairs with the file `my_path`.

    Writes ``{output_path}/msit_dump_<stamp>/{pid}_{device}/golden_tensor/{token_id}/{data_id}_tensor.pth`` and
    ``golden_tensor/metadata.json``: data id -> token id -> [golden path, my path], tokens of one data id merged.
    A missing argument is logged and nothing is written.

    Raises:
        argparse.ArgumentTypeError: `my_path` is not a readable file, or `output_path` cannot be used.
    """
    import torch

    if token_id == -1:
        logger.warning("Please check whether token_id passed in are correct")
        return
    if data_id == -1:
        logger.warning("Please check whether data_id passed in are correct")
        return
    if not isinstance(golden_data, torch.Tensor):
        logger.warning("The golden_data is not a torch tensor!")
        return
    if my_path == "":
        logger.warning("Please check whether my_path passed in are correct")
        return
    if not os.path.isfile(my_path) or not os.access(my_path, os.R_OK):
        raise argparse.ArgumentTypeError(f"my_path: {my_path} is not a readable file.")
    check_output_path(output_path)
    # Recorded paths stay good when compare runs in another folder.
    root = os.path.join(
        os.path.abspath(output_path),
        f"msit_dump_{dump_stamp(output_path)}",
        f"{os.getpid()}_{golden_data.get_device()}",
        "golden_tensor",
    )
    golden_path = os.path.join(root, str(token_id), f"{data_id}_tensor.pth")
    try:
        os.makedirs(os.path.dirname(golden_path), exist_ok=True)
        _save(golden_data, golden_path)
        _merge_metadata(os.path.join(root, "metadata.json"), data_id, token_id, golden_path, os.path.abspath(my_path))
    except OSError as error:
        logger.error("cannot save %s: %s", golden_path, error)


def _save(tensor: Any, path: str) -> None:
    import torch

    temporary = f"{path}.tmp{os.getpid()}"
    torch.save(tensor.detach().cpu().clone(memory_format=torch.contiguous_format), temporary)
    os.replace(temporary, path)


def _merge_metadata(path: str, data_id: int, token_id: int, golden_path: str, my_path: str) -> None:
    metadata: dict[str, dict[str, list[str]]] = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            metadata = json.load(file)
    metadata.setdefault(str(data_id), {})[str(token_id)] = [golden_path, my_path]
    temporary = f"{path}.tmp{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(metadata, file)
    os.replace(temporary, path)
