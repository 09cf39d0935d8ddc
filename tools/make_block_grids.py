#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/tensor/block_types_grids.hpp: the points that the iq types of ggml choose from.

    python tools/make_block_grids.py > src/tensor/block_types_grids.hpp

A point is a list of small digits, and each table has its points in ascending order, first digit lowest. So a table is a
set of numbers in base 3 or 8, kept as one bit a number. The points are read from the tables of the gguf package.
"""

from __future__ import annotations

import gguf
import numpy as np

# Name here, class of gguf.quants, what the points are for.
GRIDS = [
    ("kIq2XxsGrid", "IQ2_XXS"),
    ("kIq2XsGrid", "IQ2_XS"),
    ("kIq2SGrid", "IQ2_S"),
    ("kIq3XxsGrid", "IQ3_XXS"),
    ("kIq3SGrid", "IQ3_S"),
    ("kIq1Grid", "IQ1_S"),
]
HEAD = """\
// SPDX-License-Identifier: Apache-2.0
// Made by tools/make_block_grids.py from the tables of gguf {version}; do not edit.
//
// The points that the iq types of ggml choose from, as sets: bit i of a set says whether the point whose digits make
// the number i, first digit lowest, is one of them. A code counts the points in ascending order.
#pragma once
#include <array>
#include <cstdint>

namespace assay {{

/// The points of a set, in ascending order.
/// digits   of a point;  base   of its number;  values   what each digit stands for
template <uint32_t points, uint32_t digits, uint32_t base, size_t words>
constexpr std::array<std::array<int8_t, digits>, points> grid_points(
    const std::array<uint64_t, words>& set, const std::array<int8_t, base>& values) {{
  std::array<std::array<int8_t, digits>, points> out{{}};
  uint32_t count = 0;
  for (uint32_t number = 0; number < 64 * words; ++number) {{
    if ((set[number / 64] >> (number % 64) & 1) == 0) continue;
    uint32_t rest = number;
    for (int8_t& value : out[count]) {{
      value = values[rest % base];
      rest /= base;
    }}
    ++count;
  }}
  if (count != points) throw "a set has another size";  // only ever at compile time
  return out;
}}
"""


def main() -> None:
    print(HEAD.format(version=__import__("importlib.metadata").metadata.version("gguf")))
    for name, kind in GRIDS:
        table = getattr(gguf.quants, kind)
        table.init_grid()
        values = list(table.grid_map)
        points, digits = table.grid_shape
        base = len(values)
        codes = np.searchsorted(values, table.grid.reshape(points, digits))
        numbers = (codes.astype(np.int64) * base ** np.arange(digits)).sum(axis=1)
        assert (np.diff(numbers) > 0).all(), f"{kind} is not in ascending order"
        words = [0] * -(-(base**digits) // 64)
        for number in numbers.tolist():
            words[number // 64] |= 1 << number % 64
        print(f"inline constexpr auto {name} = grid_points<{points}, {digits}, {base}>(")
        print(f"    std::array<uint64_t, {len(words)}>{{")
        for first in range(0, len(words), 4):
            print("        " + " ".join(f"0x{word:016X}," for word in words[first : first + 4]))
        print(f"    }},\n    std::array<int8_t, {base}>{{{', '.join(map(str, values))}}});\n")
    print("}  // namespace assay")


if __name__ == "__main__":
    main()
