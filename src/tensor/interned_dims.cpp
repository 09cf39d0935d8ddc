// SPDX-License-Identifier: Apache-2.0
// Each list of sizes is kept once in a table of the process; a handle is its number there.
#include "tensor/interned_dims.hpp"

#include "base/intern_table.hpp"

namespace assay {
namespace {

struct DimsHash {
  size_t operator()(const Dims& dims) const {
    uint64_t hash = dims.size();
    for (const int64_t size : dims)
      hash = (hash ^ static_cast<uint64_t>(size)) * 0x9E3779B97F4A7C15u + (hash >> 29);
    return hash ^ (hash >> 32);
  }
};

using Table = InternTable<Dims, DimsHash>;

// Never destroyed: objects that live until the process ends may hold handles.
Table& table() {
  static auto* const kTable = new Table;
  return *kTable;
}

// Handle 0 means none here, but the empty list (a scalar's shape) in the table: here that list has
// this one.
constexpr uint32_t kScalar = UINT32_MAX;

}  // namespace

uint32_t InternedDims::add(const Dims& dims) { return dims.empty() ? kScalar : table().add(dims); }
const Dims& InternedDims::get() const { return table().at(handle_ == kScalar ? 0 : handle_); }

}  // namespace assay
