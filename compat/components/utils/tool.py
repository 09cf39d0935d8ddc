# SPDX-License-Identifier: Apache-2.0
"""Old name of the read and save helpers."""

from assay.torch.strict import (
    convert_bin_data_to_npy,
    convert_bin_data_to_pt,
    get_bin_data_from_dir,
    read_bin_data,
    read_dump_data,
    save_npy_data,
    save_torch_data,
)

__all__ = [
    "convert_bin_data_to_npy",
    "convert_bin_data_to_pt",
    "get_bin_data_from_dir",
    "read_bin_data",
    "read_dump_data",
    "save_npy_data",
    "save_torch_data",
]
