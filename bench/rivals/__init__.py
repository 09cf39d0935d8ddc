# SPDX-License-Identifier: Apache-2.0
"""Other ways to do the same work, as a person without this tool would write them or as they are published."""
