# SPDX-License-Identifier: Apache-2.0
"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell starts what it runs in the background (`make test &`) with Ctrl-C ignored, and commands inherit that: those
# that tests interrupt would go on.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
