# SPDX-License-Identifier: Apache-2.0
"""Capture what every operator of an LLM inference produced, compare it with a golden run, name the first wrong one.

    import assay
    with assay.capture(model, "golden", steps=[0, 1]):
        model.generate(**inputs, max_new_tokens=2)
    result = assay.compare("golden", "mine")
    print(assay.locate("golden", "mine").sentence)

Importing this package loads neither torch nor the native modules; each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from assay.errors import Error, FileError, FormatError

if TYPE_CHECKING:
    from assay import invariance, twin
    from assay._check import OpcheckReport, opcheck
    from assay._compare import Comparison, compare
    from assay._fingerprint import Fingerprint, fingerprint
    from assay._locate import Finding, Verdict, locate
    from assay._repeat import Repetition, repeat
    from assay._run import Record, Run, Selection, digest, open, read_tensor, stats
    from assay._same import Different, assert_same
    from assay.topology import atb_json_to_onnx, graph_diff
    from assay.torch.capture import Capture, capture

__version__ = "0.1.0"

# name -> module that defines it, or is it
_LAZY = {
    "Capture": "assay.torch.capture",
    "Comparison": "assay._compare",
    "Different": "assay._same",
    "Finding": "assay._locate",
    "Fingerprint": "assay._fingerprint",
    "OpcheckReport": "assay._check",
    "Record": "assay._run",
    "Repetition": "assay._repeat",
    "Run": "assay._run",
    "Selection": "assay._selection",
    "Verdict": "assay._locate",
    "assert_same": "assay._same",
    "atb_json_to_onnx": "assay.topology",
    "capture": "assay.torch.capture",
    "compare": "assay._compare",
    "digest": "assay._run",
    "fingerprint": "assay._fingerprint",
    "graph_diff": "assay.topology",
    "invariance": "assay.invariance",
    "locate": "assay._locate",
    "opcheck": "assay._check",
    "open": "assay._run",
    "read_tensor": "assay._run",
    "repeat": "assay._repeat",
    "stats": "assay._run",
    "twin": "assay.twin",
}

__all__ = [
    "Capture",
    "Comparison",
    "Different",
    "Error",
    "FileError",
    "Finding",
    "Fingerprint",
    "FormatError",
    "OpcheckReport",
    "Record",
    "Repetition",
    "Run",
    "Selection",
    "Verdict",
    "__version__",
    "assert_same",
    "atb_json_to_onnx",
    "capture",
    "compare",
    "digest",
    "fingerprint",
    "graph_diff",
    "invariance",
    "locate",
    "opcheck",
    "open",
    "read_tensor",
    "repeat",
    "stats",
    "twin",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    loaded = importlib.import_module(module)
    value = loaded if loaded.__name__ == f"{__name__}.{name}" else getattr(loaded, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
