# SPDX-License-Identifier: Apache-2.0
from assay.torch.strict import dump_data

__all__ = ["dump_data"]
