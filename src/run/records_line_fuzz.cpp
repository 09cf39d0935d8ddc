// SPDX-License-Identifier: Apache-2.0
// Any bytes as a line of records.jsonl: no crash, and what is accepted is consistent.
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <tuple>

#include "run/records_line.hpp"
#include "run/strided_payload.hpp"

namespace {

/// Whether the two readers of a line understand the same.
bool is_same(const assay::run::RecordsLine& a, const assay::run::RecordsLine& b) {
  if (a.number != b.number || a.same_as != b.same_as || a.like != b.like ||
      a.is_view != b.is_view || a.run_id != b.run_id || a.device != b.device ||
      a.is_tensor != b.is_tensor || a.operation.has_value() != b.operation.has_value())
    return false;
  if (a.operation)
    return a.operation->parameters == b.operation->parameters &&
           a.operation->module == b.operation->module && a.operation->writes == b.operation->writes;
  const auto fields = [](const assay::run::TensorRecord& record) {
    return std::tuple(record.step, record.order, record.call, record.role, record.step_name,
                      record.node, record.op_type, record.slot, record.dtype, record.shape.handle(),
                      record.strides.handle(), record.value, record.problem, record.value_id,
                      record.storage_id, record.storage_offset, record.storage_version,
                      record.producer, record.leaf, record.memory_format, record.not_captured,
                      record.digest);
  };
  if (fields(a.record) != fields(b.record)) return false;
  if (a.record.bytes.has_value() != b.record.bytes.has_value()) return false;
  if (a.record.bytes && (a.record.bytes->file != b.record.bytes->file ||
                         a.record.bytes->offset != b.record.bytes->offset ||
                         a.record.bytes->size_bytes != b.record.bytes->size_bytes))
    return false;
  if (a.record.stats.has_value() != b.record.stats.has_value()) return false;
  if (!a.record.stats) return true;
  const auto bits = [](const assay::run::RecordStats& stats) {
    const assay::stats::TensorStats all = *stats;
    return std::tuple(all.count, all.nan_count, all.positive_inf_count, all.negative_inf_count,
                      std::bit_cast<uint64_t>(all.min), std::bit_cast<uint64_t>(all.max),
                      std::bit_cast<uint64_t>(all.mean), std::bit_cast<uint64_t>(all.l2_norm),
                      all.sketch);
  };
  return bits(a.record.stats) == bits(b.record.stats);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  auto parsed = assay::run::parse_records_line(line);
  const auto by_any = assay::run::parse_any_records_line(line);
  if (parsed.has_value() != by_any.has_value()) std::abort();
  if (parsed && !is_same(*parsed, *by_any)) std::abort();
  if (!parsed) return 0;
  if (parsed->operation && !parsed->operation->parameters.empty()) {
    // The arguments of an operator are an object of JSON again.
    const std::string_view text = parsed->operation->parameters;
    if (text.front() != '{' || text.back() != '}') std::abort();
  }
  if (parsed->like) {
    assay::run::TensorRecord earlier;
    earlier.dtype = assay::DType::Float32;
    earlier.shape = assay::Dims{2, 3};
    earlier.strides = assay::Dims{1, 2};
    if (!assay::run::complete_line(earlier, &*parsed)) std::abort();
  }
  const assay::run::TensorRecord& record = parsed->record;
  if (record.value_id < -1 || record.producer < -1 || record.storage_offset < 0) std::abort();
  if (record.bytes) {
    // A place in a file comes with a type and shape whose size is the stated one.
    if (!record.dtype || !record.shape || record.bytes->file.find('/') != std::string::npos)
      std::abort();
    const auto count = assay::element_count(*record.shape);
    const auto needed = count ? assay::storage_bytes(*record.dtype, static_cast<uint64_t>(*count))
                              : std::optional<uint64_t>();
    // The elements of a view may have gaps.
    if (!needed || *needed > record.bytes->size_bytes ||
        (*needed < record.bytes->size_bytes && !assay::run::is_strided(record)))
      std::abort();
  }
  return 0;
}
