// SPDX-License-Identifier: Apache-2.0
// A pickle stream as a tree of symbols. Nothing is imported, called or built: a class is its name,
// a call is the name with its arguments. Whoever walks the tree decides what a symbol means, so
// what nobody looks at is never judged.
#pragma once
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

namespace assay::formats::pickle {

using ValueId = uint32_t;

enum class Kind : uint8_t {
  None,
  Bool,    // integer is 0 or 1
  Int,     // integer
  BigInt,  // text: the two's complement bytes, little-endian
  Float,   // real
  String,  // text
  Bytes,   // text
  Tuple,   // items
  List,    // items
  Set,     // items
  Dict,    // items: key, value, key, value ...
  Global,  // text is the module, name the class or function
  Call,    // callable, arguments (a Tuple as a rule); items: what SETITEM or APPEND added to the
           // result
  Persistent,  // arguments: the persistent id
};

struct Value {
  Kind kind = Kind::None;
  ValueId callable = 0;
  ValueId arguments = 0;
  uint64_t offset = 0;  // of the instruction in the stream
  int64_t integer = 0;
  double real = 0;
  std::string_view text;  // borrowed from the stream
  std::string_view name;
  std::vector<ValueId> items;
};

struct Pickle {
  std::vector<Value> values;  // a ValueId is an index; cycles and shared values are possible
  ValueId root = 0;
  uint64_t size_bytes = 0;  // of the stream up to and with its STOP
};

/// Reads the first pickle of `stream`, protocols 2 to 5, which must outlive the result.
///
/// max_values   most values that may be built
/// errors       Truncated | Invalid (unknown instruction, empty stack, unknown memo) | TooLarge |
/// Unsupported
///              (protocol); offsets count from the start of `stream` plus `base_offset`
/// source       python/cpython: Lib/pickletools.py (the instructions' arguments and effects)
[[nodiscard]] Result<Pickle> read_pickle(ByteSpan stream, size_t max_values,
                                         uint64_t base_offset = 0);

}  // namespace assay::formats::pickle
