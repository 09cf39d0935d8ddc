// SPDX-License-Identifier: Apache-2.0
#include "writer/record_batch.hpp"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "base/text.hpp"

namespace assay::writer {
namespace {

constexpr std::string_view kRoleNames[] = {"input", "output", "weight", "buffer"};

// Out is std::string or RecordText.
template <typename Out, typename Integer>
void append_integer(Out& out, Integer value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  out += std::string_view(digits, static_cast<size_t>(end - digits));
}

void append_number(RecordText& out, double value) {
  if (!std::isfinite(value)) {
    out += json_number(value);
    return;
  }
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  out += std::string_view(digits, static_cast<size_t>(end - digits));
}

template <typename Out, typename Integer>
void append_key(Out& out, std::string_view key, Integer value) {
  out += key;
  append_integer(out, value);
}

template <typename Out>
void append_list(Out& out, std::string_view key, std::span<const int64_t> values) {
  out += key;
  out += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i != 0) out += ',';
    append_integer(out, values[i]);
  }
  out += ']';
}

// The bits of sixteen float32, eight hexadecimal digits each: exact, and a fraction of the price of a decimal number.
void append_sketch(RecordText& out, const stats::Sketch& sketch) {
  constexpr char kDigits[] = "0123456789abcdef";
  char text[8 * stats::kSketchBuckets];
  char* next = text;
  for (const float sum : sketch) {
    const auto bits = std::bit_cast<uint32_t>(sum);
    for (int shift = 28; shift >= 0; shift -= 4) *next++ = kDigits[(bits >> shift) & 15u];
  }
  out += R"(,"sketch":")";
  out += std::string_view(text, sizeof(text));
  out += '"';
}

void append_stats(RecordText& out, const stats::TensorStats& stats) {
  append_key(out, R"(,"stats":{"count":)", stats.count);
  if (stats.nan_count != 0) append_key(out, R"(,"nan":)", stats.nan_count);
  if (stats.positive_inf_count != 0) append_key(out, R"(,"pos_inf":)", stats.positive_inf_count);
  if (stats.negative_inf_count != 0) append_key(out, R"(,"neg_inf":)", stats.negative_inf_count);
  out += R"(,"min":)";
  append_number(out, stats.min);
  out += R"(,"max":)";
  append_number(out, stats.max);
  out += R"(,"mean":)";
  append_number(out, stats.mean);
  out += R"(,"l2":)";
  append_number(out, stats.l2_norm);
  if (stats.sketch) append_sketch(out, *stats.sketch);
  out += '}';
}

// Bit by bit: a NaN is the same NaN, and 0 is not -0.
[[nodiscard]] bool same_text(const stats::TensorStats& a, const stats::TensorStats& b) {
  constexpr size_t kNumbers = offsetof(stats::TensorStats, sketch);
  static_assert(kNumbers == 8 * sizeof(double), "no padding to compare");
  if (std::memcmp(&a, &b, kNumbers) != 0 || a.sketch.has_value() != b.sketch.has_value())
    return false;
  return !a.sketch || std::memcmp(a.sketch->data(), b.sketch->data(), sizeof(*a.sketch)) == 0;
}

[[nodiscard]] std::span<const int64_t> shape_of(const RecordBatch& batch, const Record& record) {
  return {batch.dims.data() + record.first_dim, static_cast<size_t>(record.ndim)};
}

[[nodiscard]] std::span<const int64_t> strides_of(const RecordBatch& batch, const Record& record) {
  if (!record.has_strides) return {};
  return {batch.dims.data() + record.first_dim + record.ndim, static_cast<size_t>(record.ndim)};
}

[[nodiscard]] bool needs_escapes(std::string_view text) {
  for (const char c : text) {
    if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f)
      return true;  // bytes from 0x80 on are negative
  }
  return false;
}

void append_string(RecordText& out, std::string_view key, std::string_view text) {
  out += key;
  if (needs_escapes(text)) {
    out += json_quote(text);
    return;
  }
  out += '"';
  out += text;
  out += '"';
}

// The operator of a record as part of its node: "model.norm::aten.mul.Tensor.1".
[[nodiscard]] std::string node_name(const Record& record) {
  std::string name = record.node->name;
  if (record.operation != nullptr) {
    name += "::";
    name += *record.operation;
    name += '.';
    append_integer(name, record.operation_index);
  }
  return name;
}

void append_node(RecordText& out, const Record& record) {
  if (record.operation == nullptr) {
    append_string(out, R"(,"node":)", record.node->name);
    append_string(out, R"(,"type":)", record.node->type);
  } else {
    append_string(out, R"(,"node":)", node_name(record));
    append_string(out, R"(,"type":)", *record.operation);
  }
}

// What an operator line has behind `order`.
void append_operator(RecordText& out, const Record& record, std::string_view arguments) {
  out += R"(,"kind":"operator")";
  append_string(out, R"(,"module":)", record.node->name);
  out += R"(,"args":)";
  out += arguments;
  if (record.writes != nullptr) {
    out += R"(,"writes":)";
    out += *record.writes;
  }
  out += "}\n";
}

// What a tensor's line has from its role to the place of its bytes.
void append_tensor(RecordText& out, const Record& record, std::span<const int64_t> shape,
                   std::span<const int64_t> strides) {
  out += R"(,"role":")";
  out += kRoleNames[static_cast<size_t>(record.role)];
  out += '"';
  append_string(out, R"(,"slot":)", *record.slot);
  if (record.kind == RecordKind::Value) out += R"(,"kind":"value")";
  if (record.kind == RecordKind::Skipped) out += R"(,"kind":"skipped")";
  if (record.dtype_name != nullptr) append_string(out, R"(,"dtype":)", record.dtype_name);
  if (record.has_shape) append_list(out, R"(,"shape":)", shape);
  if (record.has_shape && strides.size() == shape.size())
    append_list(out, R"(,"strides":)", strides);
  if (record.device != nullptr) append_string(out, R"(,"device":)", record.device);
  if (record.more != nullptr) {
    out += ',';
    out += *record.more;
  }
}

void append_value_identity(RecordText& out, const ValueIdentity& value) {
  append_key(out, R"(,"vid":)", value.id);
  append_key(out, R"(,"storage":)", value.storage);
  if (value.storage_offset != 0) append_key(out, R"(,"storage_offset":)", value.storage_offset);
  if (value.version != 0) append_key(out, R"(,"version":)", value.version);
  if (value.producer >= 0) append_key(out, R"(,"from":)", value.producer);
  if (value.leaf != nullptr) append_string(out, R"(,"leaf":)", *value.leaf);
}

}  // namespace

uint64_t RecordBatch::size_bytes() const {
  uint64_t bytes = records.size() * sizeof(Record) + dims.size() * sizeof(int64_t) + text.size();
  for (const Prepared& place : prepared) bytes += place.lines->size_bytes();
  return bytes;
}

void append_statistics_text(RecordText& out, const stats::TensorStats& stats) {
  append_stats(out, stats);
}

std::string call_text(const Record& record) {
  RecordText out;
  append_node(out, record);
  append_key(out, R"(,"order":)", record.order);
  return std::string(out.text());
}

std::string operator_text(const Record& record, std::string_view arguments) {
  RecordText out;
  append_operator(out, record, arguments);
  return std::string(out.text());
}

std::string tensor_text(const Record& record, std::span<const int64_t> shape,
                        std::span<const int64_t> strides) {
  RecordText out;
  append_tensor(out, record, shape, strides);
  return std::string(out.text());
}

void RecordBatch::set_dims(Record& record, std::span<const int64_t> shape,
                           std::span<const int64_t> strides) {
  record.has_shape = true;
  record.ndim = static_cast<int32_t>(shape.size());
  record.first_dim = static_cast<uint32_t>(dims.size());
  dims.insert(dims.end(), shape.begin(), shape.end());
  record.has_strides = strides.size() == shape.size();
  if (record.has_strides) dims.insert(dims.end(), strides.begin(), strides.end());
}

void RecordBatch::set_text(Record& record, std::string_view content) {
  record.text_begin = static_cast<uint32_t>(text.size());
  record.text_size = static_cast<uint32_t>(content.size());
  text += content;
}

void RecordText::grow(size_t size) {
  const size_t used = text().size();
  const size_t capacity = std::max<size_t>(64 << 10, 2 * (used + size));
  auto bytes = std::make_unique_for_overwrite<char[]>(capacity);
  if (used != 0) std::memcpy(bytes.get(), bytes_.get(), used);
  bytes_ = std::move(bytes);
  next_ = bytes_.get() + used;
  end_ = bytes_.get() + capacity;
}

void RecordLines::begin(const RecordBatch& batch) {
  batch_ = &batch;
  lines_.clear();
  stats_places_.assign(batch.records.size(), {});
}

// The keys that all lines of one call share, once for each call.
void RecordLines::append_call(const Record& record) {
  const Call call{record.step,  record.node, record.operation, record.operation_index, record.call,
                  record.order, true};
  if (call == call_) {
    lines_ += call_text_.text();
    return;
  }
  call_ = call;
  call_text_.clear();
  append_key(call_text_, R"(,"step":)", record.step);
  append_node(call_text_, record);
  if (record.call != 0) append_key(call_text_, R"(,"call":)", record.call);
  append_key(call_text_, R"(,"order":)", record.order);
  lines_ += call_text_.text();
}

// Every second tensor is one whose statistics an earlier line has: a shortest decimal number costs 60 ns, its copy nothing.
void RecordLines::append_statistics(size_t index) {
  const Record& record = batch_->records[index];
  const size_t begin = lines_.text().size();
  if (!append_earlier_statistics(record)) append_stats(lines_, *record.stats);
  const size_t size = lines_.text().size() - begin;
  stats_places_[index] = {begin, size};
  // Weights are read once a run and shared from then on.
  if (record.same_as < 0 || static_cast<uint64_t>(record.same_as) >= batch_->records[0].number)
    return;
  if (earlier_.size() >= kMostEarlierStatistics) earlier_.clear();
  earlier_.try_emplace(record.same_as,
                       EarlierStatistics{*record.stats, std::string(lines_.text().substr(begin))});
}

bool RecordLines::append_earlier_statistics(const Record& record) {
  if (record.same_as < 0) return false;
  const uint64_t first = batch_->records[0].number;
  const auto number = static_cast<uint64_t>(record.same_as);
  if (number < first) {
    const auto known = earlier_.find(record.same_as);
    if (known == earlier_.end() || !same_text(known->second.stats, *record.stats)) return false;
    lines_ += known->second.text;
    return true;
  }
  const size_t index = number - first;
  if (index >= stats_places_.size() || stats_places_[index].size == 0) return false;
  const Record& source = batch_->records[index];
  if (source.number != number || !same_text(*source.stats, *record.stats)) return false;
  lines_.append_copy(stats_places_[index].begin, stats_places_[index].size);
  return true;
}

void RecordLines::append(size_t index) {
  const RecordBatch& batch = *batch_;
  const Record& record = batch.records[index];
  RecordText& out = lines_;
  append_key(out, R"({"n":)", record.number);
  append_call(record);
  const std::string_view text =
      std::string_view(batch.text).substr(record.text_begin, record.text_size);
  if (record.kind == RecordKind::Operator) {
    append_operator(out, record, text);
    return;
  }
  append_tensor(out, record, shape_of(batch, record), strides_of(batch, record));
  if (record.payload) {
    append_string(out, R"(,"file":)", *record.payload->file);
    append_key(out, R"(,"offset":)", record.payload->offset);
    append_key(out, R"(,"bytes":)", record.payload->size_bytes);
  }
  if (record.same_as >= 0) append_key(out, R"(,"same_as":)", record.same_as);
  if (record.stats) append_statistics(index);
  if (record.digest) append_string(out, R"(,"digest":)", stats::digest_text(*record.digest));
  if (record.value.id >= 0) append_value_identity(out, record.value);
  if (record.kind == RecordKind::Value) {
    out += R"(,"value":)";
    out += text;
  }
  if (record.kind == RecordKind::Skipped) append_string(out, R"(,"reason":)", text);
  out += "}\n";
}

std::string payload_name(const Record& record) {
  std::string name;
  append_integer(name, record.number);
  name += ':';
  name += node_name(record);
  name += '.';
  name += kRoleNames[static_cast<size_t>(record.role)];
  name += '.';
  name += *record.slot;
  return name;
}

void append_header_entry(std::string& out, const RecordBatch& batch, const Record& record,
                         uint64_t data_offset) {
  out += json_quote(payload_name(record));
  const std::string_view known = info(record.dtype).safetensors;
  const uint64_t size_bytes = record.payload->size_bytes;
  if (known.empty() || record.raw_bytes) {
    append_key(out, R"(:{"dtype":"U8","shape":[)", size_bytes);
    out += ']';
  } else {
    out += R"(:{"dtype":")";
    out += known;
    out += '"';
    append_list(out, R"(,"shape":)", shape_of(batch, record));
  }
  append_key(out, R"(,"data_offsets":[)", data_offset);
  append_key(out, ",", data_offset + size_bytes);
  out += "]}";
}

uint64_t header_entry_bound(const Record& record) {
  // Quotes, keys, the longest dtype and role names, the record's number and two offsets of 15
  // digits.
  constexpr uint64_t kFixed = 150, kPadEntry = 110, kDigits = 20;
  const auto quoted_size = [](std::string_view text) {
    uint64_t size = 0;
    for (const char c : text) size += (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) ? 1u : 6u;
    return size;
  };
  const uint64_t operation_size =
      record.operation != nullptr ? quoted_size(*record.operation) + kDigits : 0;
  return kFixed + kPadEntry + quoted_size(record.node->name) + operation_size +
         quoted_size(*record.slot) + kDigits * static_cast<uint64_t>(record.ndim);
}

}  // namespace assay::writer
