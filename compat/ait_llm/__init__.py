# SPDX-License-Identifier: Apache-2.0
"""Old name of assay.torch.strict, assay.topology, assay.badcase and the comparison of two tensors."""

from assay._compare import compare_data
from assay.badcase import Analyzer, CaseFilter, Synthesizer
from assay.topology import atb_json_to_onnx
from assay.torch.strict import DumpConfig, read_atb_data, register_hook, seed_all

__all__ = [
    "Analyzer",
    "CaseFilter",
    "DumpConfig",
    "Synthesizer",
    "atb_json_to_onnx",
    "compare_data",
    "read_atb_data",
    "register_hook",
    "seed_all",
]
