// SPDX-License-Identifier: Apache-2.0
// What parts of all kinds are made of, as bytes. Both ends are of one version; what differs between
// versions differs in the mark that a part begins with.
#pragma once
#include <concepts>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/byte_archive.hpp"
#include "run/run.hpp"
#include "tensor/dims.hpp"

namespace assay {

inline void transfer(ByteWriter& archive, const Dims& dims) {
  archive(std::vector<int64_t>(dims.begin(), dims.end()));
}
inline void transfer(ArchiveReader& archive, Dims& dims) {
  std::vector<int64_t> values;
  archive(values);
  dims = Dims(values);
}

}  // namespace assay

namespace assay::run {

/// The mark that a part or an answer begins with; empty: it is none.
[[nodiscard]] std::string mark_of(ByteSpan bytes);

/// In reading, `is_in_range` says whether what was read is a value of its type.
inline void check_range(ArchiveReader& archive, bool is_in_range) {
  if (!is_in_range) archive.fail_now();
}
inline void check_range(ByteWriter&, bool) {}

template <typename Archive, typename Any>
  requires std::same_as<std::remove_const_t<Any>, Damage>
void transfer(Archive& archive, Any& damage) {
  archive(damage.file, damage.what);
}

template <typename Archive, typename Any>
  requires std::same_as<std::remove_const_t<Any>, OperationRecord>
void transfer(Archive& archive, Any& one) {
  archive(one.rank, one.step_name, one.step, one.node, one.op_type, one.parameters, one.module,
          one.module_call, one.order, one.writes);
}

/// A value that an algorithm of the user found.
using FoundValue = std::variant<std::monostate, double, int64_t, std::string>;
void write_value(ByteWriter& archive, const FoundValue& value);
void read_value(ArchiveReader& archive, FoundValue* value);

/// Those records of a run that a part names, and their new places.
class SomeRecords {
 public:
  explicit SomeRecords(const Run& run) : run_(run) {}

  size_t place_of(size_t record);
  void write(ByteWriter& out) const;

 private:
  const Run& run_;
  std::vector<TensorRecord> records_;
  std::unordered_map<size_t, size_t> places_;
};

/// The run of these records only, as SomeRecords wrote it.
void read_run(ArchiveReader& archive, Run* run);

}  // namespace assay::run
