# SPDX-License-Identifier: Apache-2.0
"""Each test compiles as in a new process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from assay.torch.graph import _files as files


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    """Nothing is compiled yet, and the next step is the first."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    files._reset_steps()
    yield
    torch._dynamo.reset()
    files._reset_steps()
