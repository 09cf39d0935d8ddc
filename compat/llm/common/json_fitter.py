# SPDX-License-Identifier: Apache-2.0
"""Old name of assay.topology.atb_json_to_onnx."""

from assay.topology import atb_json_to_onnx

__all__ = ["atb_json_to_onnx"]
