# SPDX-License-Identifier: Apache-2.0
from assay.torch.strict import DumpConfig, register_hook

__all__ = ["DumpConfig", "register_hook"]
