# SPDX-License-Identifier: Apache-2.0
"""Operators of transformer inference in float64, as ``assay opcheck`` recomputes them.

    from assay import reference
    y = reference.rms_norm(x, gamma, eps=1e-5)

Arguments are NumPy arrays or torch tensors of any element type; values are widened to float64 before anything is
computed. Results are new NumPy arrays: float64, or int64 where the result is integers. The formulas stand in
docs/opcheck.md.
"""

from assay.reference._aten import *
from assay.reference._ggml import *
from assay.reference.attention import *
from assay.reference.elementwise import *
from assay.reference.movement import *
from assay.reference.norms import *
from assay.reference.products import *
from assay.reference.selection import *
