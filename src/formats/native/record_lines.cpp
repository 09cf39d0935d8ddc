// SPDX-License-Identifier: Apache-2.0
// One object a line, keys in this order; what is not known is left out:
//
//   {"n":3,"step":0,"node":"model.norm","type":"RMSNorm","order":7,"role":"output","slot":"","dtype":"float32",
//    "shape":[2,4],"strides":[4,1],"file":"step-000000.safetensors","offset":4096,"bytes":32,"stats":{..},"digest":".."}
#include "formats/native/record_lines.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstring>

#include "base/text.hpp"
#include "tensor/node.hpp"

namespace assay::native {
namespace {

template <typename Out>
void append_integer(Out& out, std::integral auto value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  out += std::string_view(digits, static_cast<size_t>(end - digits));
}

void append_number(RecordText& out, const Key& key, double value) {
  out += key.member();
  if (!std::isfinite(value)) {
    out += json_number(value);
    return;
  }
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  out += std::string_view(digits, static_cast<size_t>(end - digits));
}

// The bits of sixteen float32, eight hexadecimal digits each: exact, and a fraction of the price of
// a decimal number.
void append_sketch(RecordText& out, const stats::Sketch& sketch) {
  constexpr char kDigits[] = "0123456789abcdef";
  char text[8 * stats::kSketchBuckets];
  char* next = text;
  for (const float sum : sketch) {
    const auto bits = std::bit_cast<uint32_t>(sum);
    for (int shift = 28; shift >= 0; shift -= 4) *next++ = kDigits[(bits >> shift) & 15u];
  }
  out += key::kSketch.member();
  out += '"';
  out += std::string_view(text, sizeof(text));
  out += '"';
}

// Bit by bit: a NaN is the same NaN, and 0 is not -0.
[[nodiscard]] bool same_text(const stats::TensorStats& a, const stats::TensorStats& b) {
  constexpr size_t kNumbers = offsetof(stats::TensorStats, sketch);
  static_assert(kNumbers == 8 * sizeof(double), "no padding to compare");
  if (std::memcmp(&a, &b, kNumbers) != 0 || a.sketch.has_value() != b.sketch.has_value())
    return false;
  return !a.sketch || std::memcmp(a.sketch->data(), b.sketch->data(), sizeof(*a.sketch)) == 0;
}

[[nodiscard]] bool needs_escapes(std::string_view text) {
  for (const char c : text) {
    if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f)
      return true;  // bytes from 0x80 on are negative
  }
  return false;
}

void append_place(RecordText& out, const Record& record) {
  if (record.is_view) {
    append_view(out, record.same_as, *record.payload);
    return;
  }
  if (record.payload) append_location(out, *record.payload);
  if (record.same_as >= 0) append_member(out, key::kSameAs, record.same_as);
}

void append_value_identity(RecordText& out, const ValueIdentity& value, const std::string* leaf) {
  append_member(out, key::kValueId, value.id);
  append_member(out, key::kStorage, value.storage);
  if (value.storage_offset != 0) append_member(out, key::kStorageOffset, value.storage_offset);
  if (value.version != 0) append_member(out, key::kVersion, value.version);
  if (value.producer >= 0) append_member(out, key::kFrom, value.producer);
  if (leaf != nullptr) append_member(out, key::kLeaf, *leaf);
}

}  // namespace

uint64_t RecordBatch::size_bytes() const {
  uint64_t bytes = records.size() * sizeof(Record) + dims.size() * sizeof(int64_t) + text.size();
  for (const Prepared& place : prepared) bytes += place.lines->size_bytes();
  return bytes;
}

std::string node_name(const Record& record) {
  std::string name = record.node->name;
  if (record.operation != nullptr) {
    name += kOperatorMark;
    name += *record.operation;
    name += '.';
    append_integer(name, record.operation_index);
  }
  return name;
}

void append_list(RecordText& out, std::span<const int64_t> numbers) {
  out += '[';
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i != 0) out += ',';
    append_integer(out, numbers[i]);
  }
  out += ']';
}

void append_quoted(RecordText& out, std::string_view text) {
  if (needs_escapes(text)) {
    out += json_quote(text);
    return;
  }
  out += '"';
  out += text;
  out += '"';
}

void append_first(RecordText& out, const Key& key, uint64_t number) {
  out += key.first();
  append_integer(out, number);
}

void append_member(RecordText& out, const Key& key, int64_t number) {
  out += key.member();
  append_integer(out, number);
}

void append_member(RecordText& out, const Key& key, std::string_view text) {
  out += key.member();
  append_quoted(out, text);
}

void append_call(RecordText& out, const Record& record) {
  const bool is_operator = record.operation != nullptr;
  append_member(out, key::kNode,
                is_operator ? std::string_view(node_name(record)) : record.node->name);
  append_member(out, key::kType, is_operator ? *record.operation : record.node->type);
  if (record.call != 0) append_member(out, key::kCall, record.call);
  append_member(out, key::kOrder, record.order);
}

void append_operator(RecordText& out, const Record& record, std::string_view arguments) {
  append_member(out, key::kKind, kind_name(RecordKind::Operator));
  if (record.operation != nullptr) append_member(out, key::kModule, record.node->name);
  out += key::kArguments.member();
  out += arguments;
  if (record.writes != nullptr) {
    out += key::kWrites.member();
    out += *record.writes;
  }
  out += "}\n";
}

void append_tensor(RecordText& out, const Record& record, std::span<const int64_t> shape,
                   std::span<const int64_t> strides) {
  append_member(out, key::kRole, role_name(record.role));
  append_member(out, key::kSlot, *record.slot);
  if (record.kind != RecordKind::Tensor) append_member(out, key::kKind, kind_name(record.kind));
  if (record.dtype_name != nullptr) append_member(out, key::kDtype, record.dtype_name);
  if (record.has_shape) {
    out += key::kShape.member();
    append_list(out, shape);
    if (strides.size() == shape.size()) {
      out += key::kStrides.member();
      append_list(out, strides);
    }
  }
  if (record.device != nullptr) append_member(out, key::kDevice, record.device);
  if (record.more != nullptr) {
    out += ',';
    out += *record.more;
  }
}

void append_location(RecordText& out, const PayloadLocation& payload) {
  append_member(out, key::kFile, *payload.file);
  append_member(out, key::kOffset, payload.offset);
  append_member(out, key::kBytes, payload.size_bytes);
}

void append_view(RecordText& out, int64_t of, const PayloadLocation& payload) {
  out += key::kView.member();
  out += '{';
  append_first(out, key::kViewOf, static_cast<uint64_t>(of));
  append_location(out, payload);
  out += '}';
}

void append_statistics(RecordText& out, const stats::TensorStats& stats) {
  out += key::kStats.member();
  out += '{';
  append_first(out, key::kCount, static_cast<uint64_t>(stats.count));
  if (stats.nan_count != 0) append_member(out, key::kNan, stats.nan_count);
  if (stats.positive_inf_count != 0)
    append_member(out, key::kPositiveInf, stats.positive_inf_count);
  if (stats.negative_inf_count != 0)
    append_member(out, key::kNegativeInf, stats.negative_inf_count);
  append_number(out, key::kMin, stats.min);
  append_number(out, key::kMax, stats.max);
  append_number(out, key::kMean, stats.mean);
  append_number(out, key::kL2, stats.l2_norm);
  if (stats.sketch) append_sketch(out, *stats.sketch);
  out += '}';
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

std::span<const int64_t> RecordBatch::shape_of(const Record& record) const {
  return {dims.data() + record.first_dim, static_cast<size_t>(record.ndim)};
}

std::span<const int64_t> RecordBatch::dims_of(const Record& record) const {
  if (!record.has_shape) return {};
  const auto count = static_cast<size_t>(record.ndim) * (record.has_strides ? 2 : 1);
  return {dims.data() + record.first_dim, count};
}

std::string_view RecordBatch::text_of(const Record& record) const {
  return std::string_view(text).substr(record.text_begin, record.text_size);
}

std::span<const int64_t> RecordBatch::strides_of(const Record& record) const {
  if (!record.has_strides) return {};
  return {dims.data() + record.first_dim + record.ndim, static_cast<size_t>(record.ndim)};
}

// ---- lines that stand for others ----------------------------------------------------------------

EarlierLines::Place EarlierLines::place_of(const Record& record) {
  return {record.node, record.operation, record.slot, record.operation_index,
          record.call, record.role,      record.kind};
}

bool EarlierLines::Line::says(const RecordBatch& batch, const Record& record) const {
  if (order != record.order || dtype_name != record.dtype_name || writes != record.writes ||
      leaf != record.value.leaf || more != record.more || has_shape != record.has_shape ||
      has_strides != record.has_strides || ndim != record.ndim)
    return false;
  if (has_shape && !std::ranges::equal(dims, batch.dims_of(record))) return false;
  return text == batch.text_of(record);
}

void EarlierLines::Line::take(const RecordBatch& batch, const Record& record) {
  place = place_of(record);
  has_shape = record.has_shape;
  has_strides = record.has_strides;
  ndim = record.ndim;
  number = record.number;
  step = record.step;
  order = record.order;
  dtype_name = record.dtype_name;
  writes = record.writes;
  leaf = record.value.leaf;
  more = record.more;
  const std::span<const int64_t> sizes = batch.dims_of(record);
  dims.assign(sizes.begin(), sizes.end());
  text = batch.text_of(record);
}

size_t EarlierLines::Place::hash() const {
  size_t hash = 0;
  const auto mix = [&hash](uint64_t part) { hash = (hash ^ part) * 0x9E3779B97F4A7C15ull; };
  mix(reinterpret_cast<uintptr_t>(node));
  mix(reinterpret_cast<uintptr_t>(operation));
  mix(reinterpret_cast<uintptr_t>(slot));
  mix(static_cast<uint64_t>(operation_index) << 32 | call);
  mix(static_cast<uint64_t>(role) << 8 | static_cast<uint64_t>(kind));
  return hash >> 32;
}

void EarlierLines::grow() {
  slots_.assign(2 * slots_.size(), 0);
  const size_t mask = slots_.size() - 1;
  for (size_t i = 0; i < lines_.size(); ++i) {
    size_t at = lines_[i].place.hash() & mask;
    while (slots_[at] != 0) at = (at + 1) & mask;
    slots_[at] = static_cast<uint32_t>(i + 1);
  }
}

// nullptr: there is none, and no room for it.
EarlierLines::Line* EarlierLines::line_at(const Place& place) {
  if (next_ < lines_.size() && lines_[next_].place == place) return &lines_[next_++];
  const size_t mask = slots_.size() - 1;
  size_t at = place.hash() & mask;
  for (; slots_[at] != 0; at = (at + 1) & mask) {
    if (lines_[slots_[at] - 1].place != place) continue;
    next_ = slots_[at];
    return &lines_[next_ - 1];
  }
  if (lines_.size() >= kMostLines) return nullptr;
  lines_.emplace_back();
  slots_[at] = static_cast<uint32_t>(lines_.size());
  next_ = lines_.size();
  return &lines_.back();
}

std::optional<uint64_t> EarlierLines::find(const RecordBatch& batch, const Record& record) {
  const bool is_plain = record.kind == RecordKind::Tensor || record.kind == RecordKind::Operator;
  const bool has_more = record.more != nullptr && !record.more_repeats;
  if (!is_plain || has_more || record.step < 0 || record.text_size > kMostTextBytes)
    return std::nullopt;
  Line* line = line_at(place_of(record));
  if (line == nullptr) return std::nullopt;
  const bool is_new = line->place.node == nullptr;
  if (!is_new && line->step != record.step && line->says(batch, record)) return line->number;
  line->take(batch, record);
  if (is_new && 2 * lines_.size() > slots_.size()) grow();
  return std::nullopt;
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
void RecordLines::add_call(const Record& record) {
  const Call call{record.step,  record.node, record.operation, record.operation_index, record.call,
                  record.order, true};
  if (call == call_) {
    lines_ += call_text_.text();
    return;
  }
  call_ = call;
  call_text_.clear();
  append_member(call_text_, key::kStep, record.step);
  append_call(call_text_, record);
  lines_ += call_text_.text();
}

// Every second tensor is one whose statistics an earlier line has: a shortest decimal number costs
// 60 ns, its copy nothing.
void RecordLines::add_statistics(size_t index) {
  const Record& record = batch_->records[index];
  const size_t begin = lines_.text().size();
  if (!add_earlier_statistics(record)) append_statistics(lines_, *record.stats);
  const size_t size = lines_.text().size() - begin;
  stats_places_[index] = {begin, size};
  // Weights are read once a run and shared from then on.
  if (record.same_as < 0 || static_cast<uint64_t>(record.same_as) >= batch_->records[0].number)
    return;
  if (earlier_.size() >= kMostEarlierStatistics) earlier_.clear();
  earlier_.try_emplace(record.same_as,
                       EarlierStatistics{*record.stats, std::string(lines_.text().substr(begin))});
}

bool RecordLines::add_earlier_statistics(const Record& record) {
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

// What is another in each step.
void RecordLines::append_like(size_t index, uint64_t like) {
  const Record& record = batch_->records[index];
  RecordText& out = lines_;
  append_member(out, key::kStep, record.step);
  append_member(out, key::kLike, static_cast<int64_t>(like));
  if (record.kind == RecordKind::Operator) {
    out += "}\n";
    return;
  }
  if (record.device != nullptr) append_member(out, key::kDevice, record.device);
  if (record.repeats) {
    append_member(out, key::kSameAs, record.same_as);
  } else {
    append_place(out, record);
    if (record.stats) add_statistics(index);
    if (record.digest) append_member(out, key::kDigest, stats::digest_text(*record.digest));
  }
  if (record.value.id >= 0) append_value_identity(out, record.value, nullptr);
  out += "}\n";
}

void RecordLines::append(size_t index) {
  const RecordBatch& batch = *batch_;
  const Record& record = batch.records[index];
  RecordText& out = lines_;
  out += '{';
  append_first(out, key::kNumber, record.number);
  if (const std::optional<uint64_t> like = earlier_lines_.find(batch, record)) {
    append_like(index, *like);
    return;
  }
  add_call(record);
  const std::string_view text = batch.text_of(record);
  if (record.kind == RecordKind::Operator) {
    append_operator(out, record, text);
    return;
  }
  append_tensor(out, record, batch.shape_of(record), batch.strides_of(record));
  append_place(out, record);
  if (record.stats) add_statistics(index);
  if (record.digest) append_member(out, key::kDigest, stats::digest_text(*record.digest));
  if (record.value.id >= 0) append_value_identity(out, record.value, record.value.leaf);
  if (record.kind == RecordKind::Value) {
    out += key::kValue.member();
    out += text;
  }
  if (record.kind == RecordKind::Skipped) append_member(out, key::kReason, text);
  out += "}\n";
}

}  // namespace assay::native
