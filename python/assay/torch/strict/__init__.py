# SPDX-License-Identifier: Apache-2.0
"""The hook dumper of ``msit_llm`` under its old names: what scripts written for it call, and the files they read.

    from assay.torch.strict import DumpConfig, register_hook
    register_hook(model, DumpConfig(dump_path="./dump", token_range=[0, 1]))
    model.generate(**inputs, max_new_tokens=2)      # ./dump/msit_dump_<UTC time>/torch_tensors/cpu_<pid>/{0,1}/...

Strict mode: positional arguments only, tensors inside tuples and lists only, the last call of a repeated module or
function wins, one configuration a process. :func:`remove_hooks` and :func:`reset` are ours.
User documentation: docs/commands/register_hook.md; files: docs/formats/torch-tree.md.
"""

from __future__ import annotations

from assay.torch.strict.config import DumpConfig, reset
from assay.torch.strict.determinism import seed_all
from assay.torch.strict.files import (
    TensorBinFile,
    convert_bin_data_to_npy,
    convert_bin_data_to_pt,
    get_bin_data_from_dir,
    read_atb_data,
    read_bin_data,
    read_dump_data,
    save_npy_data,
    save_torch_data,
)
from assay.torch.strict.hooks import register_hook, remove_hooks
from assay.torch.strict.manual import dump_data

__all__ = [
    "DumpConfig",
    "TensorBinFile",
    "convert_bin_data_to_npy",
    "convert_bin_data_to_pt",
    "dump_data",
    "get_bin_data_from_dir",
    "read_atb_data",
    "read_bin_data",
    "read_dump_data",
    "register_hook",
    "remove_hooks",
    "reset",
    "save_npy_data",
    "save_torch_data",
    "seed_all",
]
