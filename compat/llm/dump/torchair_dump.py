# SPDX-License-Identifier: Apache-2.0
from assay_msit.later import not_yet

__getattr__ = not_yet(__name__)
