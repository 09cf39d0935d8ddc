// SPDX-License-Identifier: Apache-2.0
// Every use of a value is noted with its maker, and every write with the versions of its storage.
// An assembly takes writers from the newest back, until all wanted elements are covered, and below
// them what the storage held when it was first seen.
#include "locate/program/storage_state.hpp"

#include <algorithm>
#include <optional>

#include "reference/wide.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

/// Elements of a value, and between its first and last element in the storage: 2 GiB as fp64.
/// Larger ones are refused with a reason instead of being put together.
constexpr int64_t kMaxRange = int64_t{1} << 28;

Layout layout_of(const run::TensorRecord& record) {
  Layout layout;
  layout.offset = record.storage_offset;
  if (record.shape) layout.shape = *record.shape;
  layout.strides = record.strides && record.strides->size() == layout.shape.size()
                       ? *record.strides
                       : contiguous_strides(layout.shape);
  return layout;
}

uint64_t storage_key(const run::TensorRecord& record) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(record.rank)) << 40U) ^
         static_cast<uint64_t>(record.storage_id);
}

/// First and last element of a layout in its storage, both inclusive; nothing for an empty one, on
/// overflow, or when there are too many elements (expanded dimensions count).
struct Range {
  int64_t first = 0, last = 0;
};
std::optional<Range> range_of(const Layout& layout) {
  if (element_count(layout.shape).value_or(kMaxRange + 1) > kMaxRange) return std::nullopt;
  Range range{layout.offset, layout.offset};
  for (size_t i = 0; i < layout.shape.size(); ++i) {
    if (layout.shape[i] <= 0) return std::nullopt;
    int64_t reach = 0;
    if (__builtin_mul_overflow(layout.shape[i] - 1, layout.strides[i], &reach)) return std::nullopt;
    int64_t& end = reach < 0 ? range.first : range.last;
    if (__builtin_add_overflow(end, reach, &end)) return std::nullopt;
  }
  if (range.first < 0) return std::nullopt;
  return range;
}

/// Calls body(place in storage, flat index) for every element in C order.
template <typename Body>
void for_each_place(const Layout& layout, const Body& body) {
  const int64_t count = element_count(layout.shape).value_or(0);
  Dims at = layout.shape;
  std::fill_n(at.data(), at.size(), 0);
  int64_t place = layout.offset;
  for (int64_t i = 0; i < count; ++i) {
    body(place, i);
    for (size_t axis = at.size(); axis-- > 0;) {
      place += layout.strides[axis];
      if (++at[axis] < layout.shape[axis]) break;
      place -= layout.strides[axis] * layout.shape[axis];
      at[axis] = 0;
    }
  }
}

/// Which elements of a range have been covered so far.
class Cover {
 public:
  explicit Cover(const Layout& layout, Range range)
      : range_(range), wanted_(static_cast<size_t>(range.last - range.first + 1), false) {
    for_each_place(layout, [&](int64_t place, int64_t) {
      const auto at = static_cast<size_t>(place - range_.first);
      if (!wanted_[at]) ++missing_;
      wanted_[at] = true;
    });
  }
  /// Takes away what the layout covers; true when that was anything.
  bool take(const Layout& layout) {
    const std::optional<Range> reach = range_of(layout);
    if (!reach || reach->last < range_.first || reach->first > range_.last) return false;
    const int64_t before = missing_;
    for_each_place(layout, [&](int64_t place, int64_t) {
      if (place < range_.first || place > range_.last) return;
      const auto at = static_cast<size_t>(place - range_.first);
      if (wanted_[at]) {
        wanted_[at] = false;
        --missing_;
      }
    });
    return missing_ != before;
  }
  [[nodiscard]] bool complete() const { return missing_ == 0; }

 private:
  Range range_;
  std::vector<bool> wanted_;
  int64_t missing_ = 0;
};

}  // namespace

StorageState::StorageState(const Program& program) : program_(program) {
  for (size_t op = 0; op < program.operators.size(); ++op) {
    const Operator& one = program.operators[op];
    for (size_t i = 0; i < one.inputs.size(); ++i) add(one.inputs[i], false, op, i);
    for (size_t i = 0; i < one.outputs.size(); ++i) add(one.outputs[i], true, op, i);
  }
  for (const ModuleCall& call : program.calls) {
    for (const Use& use : call.inputs) add(use, false, kNone, 0);
    for (const Use& use : call.outputs) add(use, false, kNone, 0);
  }
  for (auto& [key, storage] : storages_) {
    std::ranges::stable_sort(storage.writers, {}, &Writer::to_version);
    std::ranges::stable_sort(storage.captured, {},
                             [this](ValueId value) { return values_.at(value).time; });
  }
}

void StorageState::add(const Use& use, bool output, size_t op, size_t index) {
  if (use.value == kNoValue || use.record >= program_.run->records.size()) return;
  const run::TensorRecord& record = program_.run->records[use.record];
  const auto [found, fresh] = values_.try_emplace(use.value);
  Known& known = found->second;
  if (fresh) {
    known.time = use.time;
    known.first_record = use.record;
  }
  if (known.record == kNone && record.bytes) known.record = use.record;
  if (known.leaf.empty()) known.leaf = use.leaf;
  if (output) {
    const std::vector<Use>& read = program_.operators[op].inputs;
    if (std::ranges::find(read, use.value, &Use::value) == read.end())
      known.makers.push_back({op, index});
  }
  if (record.storage_id < 0) return;
  Storage& storage = storages_[storage_key(record)];
  if (!output || !fresh) {
    if (fresh) storage.captured.push_back(use.value);
    return;
  }
  // A view of an input changes nothing; everything else put its bytes there.
  int64_t before = record.storage_version;
  bool view = false;
  for (const Use& input : program_.operators[op].inputs) {
    if (input.record >= program_.run->records.size()) continue;
    const run::TensorRecord& read = program_.run->records[input.record];
    if (read.rank != record.rank || read.storage_id != record.storage_id) continue;
    if (read.storage_version == record.storage_version) view = true;
    before = std::min(before, read.storage_version);
  }
  if (!view) storage.writers.push_back({use.value, use.record, before, record.storage_version});
}

StorageState::Origin StorageState::origin(ValueId value, size_t before) const {
  const auto found = values_.find(value);
  if (found == values_.end()) return {};
  const std::vector<Origin>& makers = found->second.makers;
  const auto behind = std::ranges::lower_bound(makers, before, {}, &Origin::op);
  return behind == makers.begin() ? Origin{} : *std::prev(behind);
}

bool StorageState::is_made(ValueId value, Origin origin) const {
  const auto found = values_.find(value);
  return found != values_.end() &&
         std::ranges::find(found->second.makers, origin) != found->second.makers.end();
}

size_t StorageState::record(ValueId value) const {
  const auto found = values_.find(value);
  return found == values_.end() ? kNone : found->second.record;
}

const std::string& StorageState::leaf(ValueId value) const {
  static const std::string kNothing;
  const auto found = values_.find(value);
  return found == values_.end() ? kNothing : found->second.leaf;
}

bool StorageState::is_assembled(ValueId value) const {
  const auto found = values_.find(value);
  if (found == values_.end() || !found->second.makers.empty() || !found->second.leaf.empty() ||
      found->second.first_record == kNone)
    return false;
  const run::TensorRecord& record = program_.run->records[found->second.first_record];
  if (record.storage_id < 0) return false;
  const Storage& storage = storages_.at(storage_key(record));
  return std::ranges::any_of(storage.writers, [&](const Writer& writer) {
    return writer.to_version <= record.storage_version &&
           values_.at(writer.value).time < found->second.time;
  });
}

Result<Assembly> StorageState::assembly(ValueId value) const {
  const auto found = values_.find(value);
  if (found == values_.end() || found->second.first_record == kNone)
    return fail(Errc::NotFound, "a value that was not captured");
  const Known& known = found->second;
  const std::vector<run::TensorRecord>& records = program_.run->records;
  const run::TensorRecord& record = records[known.first_record];
  Assembly assembly{layout_of(record), {}};
  if (element_count(assembly.layout.shape) == 0) return assembly;
  const std::optional<Range> range = range_of(assembly.layout);
  if (!range || range->last - range->first >= kMaxRange)
    return fail(Errc::TooLarge, "a view of shape " + list_text(assembly.layout.shape.span()) +
                                    " lies over too large a part of its storage");
  const auto same_type = [&](const run::TensorRecord& other) {
    return other.dtype && record.dtype &&
           info(*other.dtype).element_bits == info(*record.dtype).element_bits;
  };

  const Storage& storage = storages_.at(storage_key(record));
  Cover cover(assembly.layout, *range);
  int64_t version = record.storage_version;  // everything above it is known
  for (auto writer = storage.writers.rbegin(); writer != storage.writers.rend(); ++writer) {
    if (cover.complete()) break;
    if (writer->to_version > version || values_.at(writer->value).time >= known.time) continue;
    if (writer->to_version < version) break;  // somebody wrote in between whom nobody saw
    const run::TensorRecord& written = records[writer->record];
    if (!same_type(written))
      return fail(Errc::Unsupported, "its storage is used with elements of different sizes");
    const Layout layout = layout_of(written);
    if (cover.take(layout)) assembly.parts.push_back({writer->value, layout});
    version = writer->from_version;
  }
  // Below the writers lies what the storage held when it was first seen.
  for (const ValueId base : storage.captured) {
    if (cover.complete()) break;
    const Known& under = values_.at(base);
    const run::TensorRecord& held = records[under.first_record];
    if (base == value || under.time >= known.time || held.storage_version != version) continue;
    if (!same_type(held))
      return fail(Errc::Unsupported, "its storage is used with elements of different sizes");
    const Layout layout = layout_of(held);
    if (cover.take(layout)) assembly.parts.push_back({base, layout});
  }
  if (!cover.complete()) return fail(Errc::NotFound, "its storage was written outside the capture");
  std::ranges::reverse(assembly.parts);
  return assembly;
}

Result<Tensor> assemble(const Assembly& assembly, const std::vector<Tensor>& parts) {
  const int64_t count = element_count(assembly.layout.shape).value_or(0);
  if (parts.size() != assembly.parts.size())
    return fail(Errc::Invalid, "an assembly of " + std::to_string(assembly.parts.size()) +
                                   " parts from " + std::to_string(parts.size()));
  bool real = false;
  std::optional<DType> type;
  bool mixed = false;
  for (const Tensor& part : parts) {
    real = real || is_float(part.view.dtype);
    mixed = mixed || (type && *type != part.view.dtype);
    type = part.view.dtype;
  }
  if (count == 0) {
    ASSAY_TRY(TensorView empty,
              make_view(type.value_or(DType::Float64), assembly.layout.shape, ByteSpan()));
    return Tensor{empty, nullptr};
  }
  const std::optional<Range> range = range_of(assembly.layout);
  if (!range || !type || range->last - range->first >= kMaxRange)
    return fail(Errc::TooLarge, "a view lies over too large a part of its storage");

  // Integers of up to 64 bits and reals both travel as 64-bit words.
  const auto assemble_as = [&](auto zero, const auto& read) -> Result<Tensor> {
    using T = decltype(zero);
    const auto length = static_cast<size_t>(range->last - range->first + 1);
    std::vector<T> storage(length, zero);
    std::vector<bool> known(length, false);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!(parts[i].view.shape == assembly.parts[i].layout.shape))
        return fail(Errc::Invalid, "a part of shape " + list_text(parts[i].view.shape.span()) +
                                       " where " +
                                       list_text(assembly.parts[i].layout.shape.span()) + " lay");
      ASSAY_TRY(const auto values, read(parts[i].view));
      for_each_place(assembly.parts[i].layout, [&](int64_t place, int64_t at) {
        if (place < range->first || place > range->last) return;
        storage[static_cast<size_t>(place - range->first)] = values.values[static_cast<size_t>(at)];
        known[static_cast<size_t>(place - range->first)] = true;
      });
    }
    reference::Array<T> result(assembly.layout.shape);
    bool complete = true;
    for_each_place(assembly.layout, [&](int64_t place, int64_t at) {
      const auto from = static_cast<size_t>(place - range->first);
      complete = complete && known[from];
      result.values[static_cast<size_t>(at)] = storage[from];
    });
    if (!complete) return fail(Errc::Invalid, "nothing is known of a part of a storage");
    return reference::to_tensor(std::move(result));
  };
  Result<Tensor> whole =
      real ? assemble_as(0.0, reference::widen) : assemble_as(int64_t{0}, reference::whole);
  if (!whole || mixed || *type == DType::Int64 || *type == DType::Float64) return whole;
  return reference::narrow(whole->view, *type);
}

}  // namespace assay::locate
