// SPDX-License-Identifier: Apache-2.0
// Where the values of a program come from, also of those that no operator returned: a tensor whose
// storage was
// written through another view has the bytes that the writers left.
//   docs/formats/native.md, operator level
#pragma once
#include <unordered_map>
#include <vector>

#include "locate/program/program.hpp"

namespace assay::locate {

/// Where a tensor lies in its storage, in elements.
struct Layout {
  int64_t offset = 0;
  Dims shape;
  Dims strides;
};

/// One tensor that lies in a storage.
struct Part {
  ValueId value = kNoValue;
  Layout layout;
};

/// A value that is read out of what earlier ones left in its storage.
struct Assembly {
  Layout layout;            // of the value itself
  std::vector<Part> parts;  // oldest first: later ones lie on top
};

/// Index over the values of a program. Immutable once built, so threads may share it.
class StorageState {
 public:
  explicit StorageState(const Program& program);

  struct Origin {
    size_t op = kNone;  // index into Program::operators
    size_t output = 0;
    friend bool operator==(const Origin&, const Origin&) = default;
  };
  /// Who made the value: of several operators (a view made once more is the same value) the last in
  /// front of operator `before`. Operators that return what they were given made nothing. kNone: no
  /// operator did.
  [[nodiscard]] Origin origin(ValueId value, size_t before = kNone) const;
  /// True when the operator's output is a value that it made.
  [[nodiscard]] bool is_made(ValueId value, Origin origin) const;
  /// A record with the bytes of the value as captured, as input or output; kNone when there is
  /// none.
  [[nodiscard]] size_t record(ValueId value) const;
  /// Name of the parameter or buffer that the value is; "" for none.
  [[nodiscard]] const std::string& leaf(ValueId value) const;

  /// True for a value that no operator returned but that lies in a storage that operators wrote
  /// before it was used.
  [[nodiscard]] bool is_assembled(ValueId value) const;
  /// What the value is made of: the newest writers that together cover it, or down to the first
  /// captured value of the storage.
  /// errors  NotFound ("its storage was written outside the capture") | TooLarge | Unsupported
  ///         (views of another element type)
  [[nodiscard]] Result<Assembly> assembly(ValueId value) const;

 private:
  struct Known {
    std::vector<Origin> makers;   // in order
    size_t record = kNone;        // with bytes
    size_t first_record = kNone;  // any
    uint64_t time = 0;            // first seen
    std::string leaf;
  };
  /// A value that an operator put into a storage: a fresh one or written through a view.
  struct Writer {
    ValueId value = kNoValue;
    size_t record = kNone;
    int64_t from_version = 0;  // of the storage before
    int64_t to_version = 0;
  };
  struct Storage {
    std::vector<Writer> writers;    // by to_version, then time
    std::vector<ValueId> captured;  // values without producer, by time
  };
  void add(const Use& use, bool output, size_t op, size_t index);

  const Program& program_;
  std::unordered_map<ValueId, Known> values_;
  std::unordered_map<uint64_t, Storage> storages_;  // by rank and storage id
};

/// The tensor that an assembly describes, from its parts' tensors, in the order of Assembly::parts.
/// Reals come back as Float64 (a single type of all parts is kept), integers and truth values in
/// their own type.
/// errors  Invalid (a part's shape is not its layout's; nothing was ever written to some element) |
///         Unsupported
[[nodiscard]] Result<Tensor> assemble(const Assembly& assembly, const std::vector<Tensor>& parts);

}  // namespace assay::locate
