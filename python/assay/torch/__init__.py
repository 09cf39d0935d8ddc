# SPDX-License-Identifier: Apache-2.0
"""Capture inside a PyTorch process. Importing this package does not import torch."""
