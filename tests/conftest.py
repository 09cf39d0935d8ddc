# SPDX-License-Identifier: Apache-2.0
"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell starts what it runs in the background (`make test &`) with Ctrl-C ignored, `nohup` with SIGHUP, and commands
# inherit that: those that tests interrupt would go on.
for _number, _handler in {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}.items():
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)
