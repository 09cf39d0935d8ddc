# SPDX-License-Identifier: Apache-2.0
"""Old name of assay.torch.strict, assay.topology and assay.badcase."""

from assay.badcase import Analyzer, CaseFilter, Synthesizer
from assay.topology import atb_json_to_onnx
from assay.torch.strict import DumpConfig, read_atb_data, register_hook, seed_all
from assay_msit.later import not_yet

__all__ = [
    "Analyzer",
    "CaseFilter",
    "DumpConfig",
    "Synthesizer",
    "atb_json_to_onnx",
    "read_atb_data",
    "register_hook",
    "seed_all",
]

__getattr__ = not_yet(__name__, ("compare_data",))
