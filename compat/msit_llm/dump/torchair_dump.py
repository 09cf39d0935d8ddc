# SPDX-License-Identifier: Apache-2.0
"""Old name of assay.torch.graph.torchair_dump."""

from assay.torch.graph.torchair_dump import (
    get_fx_dump_config,
    get_ge_dump_config,
    set_fx_dump_config,
    set_ge_dump_config,
)

__all__ = ["get_fx_dump_config", "get_ge_dump_config", "set_fx_dump_config", "set_ge_dump_config"]
