// SPDX-License-Identifier: Apache-2.0
// One list of columns serves packing and unpacking: integers of a record, and texts and shapes as
// numbers in tables. Packing goes column by column; unpacking finds all columns first, then fills
// them into one block of records after the other.
#include "run/packed_records.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

#include "run/payload_check.hpp"

namespace assay::run {
namespace {

constexpr size_t kSketchAlignment = 64;
constexpr size_t kBlock = 512;  // records whose columns are filled in together

/// Which parts a record has, and its members that are yes or no.
enum Flag : uint16_t {
  kHasBytes = 1,
  kIsRaw = 2,
  kHasStats = 4,
  kHasDigest = 8,
  kHasSketch = 16,
  kHasNonFinite = 32,
  kHasDtype = 64,
  kNotCaptured = 128,
  kIsRough = 256,  // the check of its payload
};

// ---- columns: one list, for writing and reading ----

/// A member of a record as an integer.
struct Column {
  int64_t (*get)(const TensorRecord& record);
  void (*set)(TensorRecord& record, int64_t value);
};
struct TextColumn {
  InternedText (*get)(const TensorRecord& record);
  void (*set)(TensorRecord& record, InternedText text);
  bool is_file = false;
};
struct DimsColumn {
  InternedDims TensorRecord::* member;
};

template <auto Member>
constexpr Column column() {
  using Type = std::remove_cvref_t<decltype(std::declval<TensorRecord>().*Member)>;
  return {[](const TensorRecord& record) { return static_cast<int64_t>(record.*Member); },
          [](TensorRecord& record, int64_t value) { record.*Member = static_cast<Type>(value); }};
}
template <auto Member>
constexpr Column place_column() {
  using Type = std::remove_cvref_t<decltype(std::declval<ByteLocation>().*Member)>;
  return {[](const TensorRecord& record) {
            return record.bytes ? static_cast<int64_t>((*record.bytes).*Member) : 0;
          },
          [](TensorRecord& record, int64_t value) {
            if (record.bytes) (*record.bytes).*Member = static_cast<Type>(value);
          }};
}
template <auto Member>
constexpr TextColumn text_column(bool is_file = false) {
  return {[](const TensorRecord& record) { return record.*Member; },
          [](TensorRecord& record, InternedText text) { record.*Member = text; }, is_file};
}
template <auto Member>
constexpr TextColumn place_text_column(bool is_file) {
  return {[](const TensorRecord& record) {
            return record.bytes ? (*record.bytes).*Member : InternedText();
          },
          [](TensorRecord& record, InternedText text) {
            if (record.bytes) (*record.bytes).*Member = text;
          },
          is_file};
}

using R = TensorRecord;
using B = ByteLocation;
constexpr std::array kColumns = {column<&R::rank>(),           column<&R::call>(),
                                 column<&R::graph>(),          column<&R::role>(),
                                 column<&R::kind>(),           column<&R::moment>(),
                                 column<&R::step>(),           column<&R::order>(),
                                 place_column<&B::offset>(),   place_column<&B::size_bytes>(),
                                 column<&R::value_id>(),       column<&R::storage_id>(),
                                 column<&R::storage_offset>(), column<&R::storage_version>(),
                                 column<&R::producer>()};
constexpr std::array kTextColumns = {text_column<&R::step_name>(),
                                     text_column<&R::node>(),
                                     text_column<&R::op_type>(),
                                     text_column<&R::slot>(),
                                     text_column<&R::leaf>(),
                                     text_column<&R::memory_format>(),
                                     text_column<&R::value>(),
                                     text_column<&R::problem>(),
                                     text_column<&R::stats_file>(true),
                                     place_text_column<&B::file>(true),
                                     place_text_column<&B::member>(false)};
constexpr std::array kDimsColumns = {DimsColumn{&R::shape}, DimsColumn{&R::strides}};

/// Each count by itself: they come from a file and may be so large that their sum overflows.
bool counts_non_finite(const stats::TensorStats& stats) {
  return stats.nan_count != 0 || stats.positive_inf_count != 0 || stats.negative_inf_count != 0;
}

int64_t flags_of(const TensorRecord& record) {
  unsigned flags = 0;
  if (record.bytes) flags |= kHasBytes;
  if (record.bytes && record.bytes->raw) flags |= kIsRaw;
  if (record.stats) {
    flags |= kHasStats;
    if (record.stats.sketch() != nullptr) flags |= kHasSketch;
    if (counts_non_finite(*record.stats.without_sketch())) flags |= kHasNonFinite;
  }
  if (record.digest) flags |= kHasDigest;
  if (record.dtype) flags |= kHasDtype;
  if (record.not_captured) flags |= kNotCaptured;
  if (record.check && record.check.is_rough()) flags |= kIsRough;
  return flags;
}

// ---- writing ----

template <typename Unsigned>
void append_differences(const std::vector<int64_t>& values, int64_t smallest, std::string& out) {
  const size_t begin = out.size();
  out.resize(begin + values.size() * sizeof(Unsigned));
  char* at = out.data() + begin;
  for (const int64_t value : values) {
    const auto difference =
        static_cast<Unsigned>(static_cast<uint64_t>(value) - static_cast<uint64_t>(smallest));
    std::memcpy(at, &difference, sizeof(Unsigned));
    at += sizeof(Unsigned);
  }
}

void append_column(const std::vector<int64_t>& values, std::string& out) {
  int64_t smallest = 0;
  uint64_t range = 0;
  if (!values.empty()) {
    const auto [low, high] = std::ranges::minmax(values);
    smallest = low;
    range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  }
  const uint8_t bytes = range == 0            ? 0
                        : range <= 0xff       ? 1
                        : range <= 0xffff     ? 2
                        : range <= 0xffffffff ? 4
                                              : 8;
  append(out, bytes);
  append(out, smallest);
  switch (bytes) {
    case 1:
      return append_differences<uint8_t>(values, smallest, out);
    case 2:
      return append_differences<uint16_t>(values, smallest, out);
    case 4:
      return append_differences<uint32_t>(values, smallest, out);
    case 8:
      return append_differences<uint64_t>(values, smallest, out);
    default:
      return;
  }
}

/// Numbers of the different handles, in the order in which they are met.
class Numbering {
 public:
  uint32_t of(uint32_t handle) {
    if (handle == last_) return last_number_;
    last_ = handle;
    last_number_ =
        numbers_.try_emplace(handle, static_cast<uint32_t>(numbers_.size())).first->second;
    return last_number_;
  }

 private:
  std::unordered_map<uint32_t, uint32_t> numbers_ = {{0, 0}};
  uint32_t last_ = 0;
  uint32_t last_number_ = 0;
};

class Packer {
 public:
  Packer(std::span<const TensorRecord> records, const PackOptions& options,
         const std::function<void(std::string_view bytes)>& put)
      : records_(records), options_(options), put_(put) {}

  void pack() {
    append(buffer_, static_cast<uint64_t>(records_.size()));
    for (const TextColumn& column : kTextColumns) {
      add_column([&](const TensorRecord& record) {
        InternedText text = column.get(record);
        if (column.is_file && options_.file) text = packed_file(text);
        const uint32_t number = texts_.of(text.handle());
        if (number == all_texts_.size()) all_texts_.push_back(text);
        return static_cast<int64_t>(number);
      });
    }
    for (const DimsColumn& column : kDimsColumns) {
      add_column([&](const TensorRecord& record) {
        const InternedDims dims = record.*column.member;
        const uint32_t number = shapes_.of(dims.handle());
        if (number == all_shapes_.size()) all_shapes_.push_back(dims);
        return static_cast<int64_t>(number);
      });
    }
    for (const Column& column : kColumns) add_column(column.get);
    add_column(flags_of);
    add_column([](const TensorRecord& record) {
      return record.dtype ? static_cast<int64_t>(*record.dtype) : 0;
    });
    add_column([](const TensorRecord& record) {
      return record.stats ? record.stats.without_sketch()->count : 0;
    });
    std::optional<PackedChecks> own;
    if (options_.checks == nullptr) own.emplace(records_);
    const PackedChecks& checks = own ? *own : *options_.checks;
    add_column([&](const TensorRecord& record) { return checks.number_of(record); });
    add_tables();
    add_numbers();
    flush();
  }

 private:
  static constexpr size_t kPieceBytes = size_t{1} << 20;

  void flush() {
    put_(buffer_);
    written_ += buffer_.size();
    buffer_.clear();
  }
  InternedText packed_file(InternedText file) {
    if (file != last_file_) {
      last_file_ = file;
      last_packed_file_ = options_.file(file);
    }
    return last_packed_file_;
  }
  void flush_when_long() {
    if (buffer_.size() >= kPieceBytes) flush();
  }

  template <typename Get>
  void add_column(const Get& get) {
    values_.clear();
    for (const TensorRecord& record : records_) values_.push_back(get(record));
    append_column(values_, buffer_);
    flush_when_long();
  }

  void add_tables() {
    append(buffer_, static_cast<uint32_t>(all_texts_.size()));
    for (const InternedText text : all_texts_) append(buffer_, static_cast<uint32_t>(text.size()));
    for (const InternedText text : all_texts_) {
      buffer_ += text.str();
      flush_when_long();
    }
    append(buffer_, static_cast<uint32_t>(all_shapes_.size() - 1));
    for (size_t i = 1; i < all_shapes_.size(); ++i) {
      append(buffer_, static_cast<uint32_t>(all_shapes_[i]->size()));
      for (const int64_t size : *all_shapes_[i]) append(buffer_, size);
    }
  }

  void add_numbers() {
    for_each_numbers([&](const stats::TensorStats& stats) {
      for (const double number : {stats.min, stats.max, stats.mean, stats.l2_norm})
        append(buffer_, number);
    });
    for_each_numbers([&](const stats::TensorStats& stats) {
      if (!counts_non_finite(stats)) return;
      for (const int64_t count :
           {stats.nan_count, stats.positive_inf_count, stats.negative_inf_count})
        append(buffer_, count);
    });
    for (const TensorRecord& record : records_) {
      if (!record.digest) continue;
      append(buffer_, *record.digest);
      flush_when_long();
    }
    const uint64_t end = written_ + buffer_.size();
    buffer_.append(align_up(end, kSketchAlignment) - end, '\0');
    for (const TensorRecord& record : records_) {
      if (record.stats.sketch() != nullptr) append(buffer_, *record.stats.sketch());
      flush_when_long();
    }
  }

  /// body(the statistics of a record that has some, without their sketch)
  template <typename Body>
  void for_each_numbers(const Body& body) {
    for (const TensorRecord& record : records_) {
      if (!record.stats) continue;
      body(*record.stats.without_sketch());
      flush_when_long();
    }
  }

  std::span<const TensorRecord> records_;
  const PackOptions& options_;
  const std::function<void(std::string_view)>& put_;
  InternedText last_file_;
  InternedText last_packed_file_;
  Numbering texts_;
  Numbering shapes_;
  std::vector<InternedText> all_texts_ = {InternedText()};
  std::vector<InternedDims> all_shapes_ = {InternedDims()};
  std::string buffer_;
  uint64_t written_ = 0;
  std::vector<int64_t> values_;
};

// ---- reading ----

struct StoredColumn {
  uint8_t width = 0;
  int64_t smallest = 0;
  ByteSpan values;

  [[nodiscard]] int64_t at(size_t i) const {
    uint64_t difference = 0;
    std::memcpy(&difference, values.data() + i * width, width);
    return static_cast<int64_t>(static_cast<uint64_t>(smallest) + difference);
  }
};

Result<StoredColumn> read_column(ByteReader& reader, uint64_t count) {
  StoredColumn column;
  ASSAY_TRY(column.width, reader.read<uint8_t>());
  ASSAY_TRY(column.smallest, reader.read<int64_t>());
  if (column.width > 8 || (column.width & (column.width - 1)) != 0)
    return fail(Errc::Invalid, "a column has values of an impossible size", reader.offset());
  uint64_t bytes = 0;
  if (mul_overflows<uint64_t>(count, column.width, &bytes))
    return fail(Errc::Invalid, "a column is too long", reader.offset());
  ASSAY_TRY(column.values, reader.read_bytes(bytes));
  return column;
}

Error no_such(const char* what) {
  return {Errc::Invalid, {}, std::nullopt, std::string("a record names no ") + what};
}

class Unpacker {
 public:
  Unpacker(ByteSpan packed, const UnpackOptions& options, std::vector<TensorRecord>* out)
      : reader_(packed), packed_(packed), options_(options), out_(out), first_(out->size()) {}

  Status unpack() {
    ASSAY_TRY(count_, reader_.read<uint64_t>());
    // No two records have the same order, so that column has at least a byte for each: a count of
    // more records than bytes is damage.
    if (count_ > packed_.size()) return fail(Errc::Invalid, "names more records than it has", 0);
    for (StoredColumn& column : texts_) {
      ASSAY_TRY(column, read_column(reader_, count_));
    }
    for (StoredColumn& column : dims_) {
      ASSAY_TRY(column, read_column(reader_, count_));
    }
    for (StoredColumn& column : integers_) {
      ASSAY_TRY(column, read_column(reader_, count_));
    }
    for (StoredColumn* column : {&flags_, &dtypes_, &value_counts_, &check_numbers_}) {
      ASSAY_TRY(*column, read_column(reader_, count_));
    }
    ASSAY_TRY_STATUS(read_tables());
    ASSAY_TRY_STATUS(find_numbers());
    out_->resize(first_ + count_);
    for (size_t begin = 0; begin < count_; begin += kBlock) {
      if (Status filled = fill(begin, std::min<size_t>(count_, begin + kBlock)); !filled) {
        out_->resize(first_);
        return filled;
      }
    }
    return {};
  }

 private:
  Status read_tables() {
    ASSAY_TRY(const uint32_t texts, reader_.read<uint32_t>());
    ASSAY_TRY(const ByteSpan sizes, reader_.read_bytes(uint64_t{texts} * sizeof(uint32_t)));
    for (uint32_t i = 0; i < texts; ++i) {
      ASSAY_TRY(const ByteSpan text,
                reader_.read_bytes(load<uint32_t>(sizes.data() + i * sizeof(uint32_t))));
      all_texts_.emplace_back(as_text(text));
    }
    all_files_.resize(all_texts_.size());
    is_file_known_.resize(all_texts_.size());
    ASSAY_TRY(const uint32_t shapes, reader_.read<uint32_t>());
    for (uint32_t i = 0; i < shapes; ++i) {
      ASSAY_TRY(const uint32_t axes, reader_.read<uint32_t>());
      ASSAY_TRY(const ByteSpan sizes_of_axes, reader_.read_bytes(uint64_t{axes} * sizeof(int64_t)));
      Dims dims;
      for (uint32_t axis = 0; axis < axes; ++axis)
        dims.push_back(load<int64_t>(sizes_of_axes.data() + axis * sizeof(int64_t)));
      all_shapes_.emplace_back(dims);
    }
    return {};
  }

  [[nodiscard]] bool has(size_t i, Flag flag) const { return (flags_.at(i) & flag) != 0; }

  /// Finds where numbers, digests and sketches begin, by counting the records that have some.
  Status find_numbers() {
    std::array<uint64_t, 4> counts{};
    constexpr std::array kFlags = {kHasStats, kHasNonFinite, kHasDigest, kHasSketch};
    for (size_t i = 0; i < count_; ++i)
      for (size_t kind = 0; kind < kFlags.size(); ++kind) counts[kind] += has(i, kFlags[kind]);
    ASSAY_TRY(numbers_, reader_.read_bytes(counts[0] * 4 * sizeof(double)));
    ASSAY_TRY(non_finite_, reader_.read_bytes(counts[1] * 3 * sizeof(int64_t)));
    ASSAY_TRY(digests_, reader_.read_bytes(counts[2] * sizeof(stats::Digest)));
    ASSAY_TRY_STATUS(reader_.skip(align_up(reader_.offset(), kSketchAlignment) - reader_.offset()));
    ASSAY_TRY(sketches_, reader_.read_bytes(counts[3] * sizeof(stats::Sketch)));
    if (reader_.remaining() != 0)
      return fail(Errc::Invalid, "there is more than the records", reader_.offset());
    return {};
  }

  Status fill(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (has(i, kHasBytes)) record(i).bytes.emplace().raw = has(i, kIsRaw);
    }
    for (size_t c = 0; c < kTextColumns.size(); ++c) {
      for (size_t i = begin; i < end; ++i) {
        const auto number = static_cast<uint64_t>(texts_[c].at(i));
        if (number >= all_texts_.size()) return fail(no_such("text"));
        if (number == 0) continue;
        kTextColumns[c].set(record(i), kTextColumns[c].is_file ? file(number) : all_texts_[number]);
      }
    }
    for (size_t c = 0; c < kDimsColumns.size(); ++c) {
      for (size_t i = begin; i < end; ++i) {
        const auto number = static_cast<uint64_t>(dims_[c].at(i));
        if (number >= all_shapes_.size()) return fail(no_such("shape"));
        record(i).*kDimsColumns[c].member = all_shapes_[number];
      }
    }
    for (size_t c = 0; c < kColumns.size(); ++c)
      for (size_t i = begin; i < end; ++i) kColumns[c].set(record(i), integers_[c].at(i));
    for (size_t i = begin; i < end; ++i) ASSAY_TRY_STATUS(fill_rest(i));
    return {};
  }

  Status fill_rest(size_t i) {
    TensorRecord& one = record(i);
    if (static_cast<size_t>(one.role) >= kRoleNames.size() || one.kind > RecordKind::Exception ||
        one.moment > Moment::After)
      return fail(no_such("role or kind that there is"));
    one.not_captured = has(i, kNotCaptured);
    if (has(i, kHasDtype)) {
      const int64_t dtype = dtypes_.at(i);
      if (dtype < 0 || dtype >= kDTypeCount) return fail(no_such("element type"));
      one.dtype = static_cast<DType>(dtype);
    }
    if (has(i, kHasStats)) ASSAY_TRY_STATUS(fill_stats(i, &one));
    if (has(i, kHasDigest)) {
      one.digest = load<stats::Digest>(digests_.data());
      digests_ = digests_.subspan(sizeof(stats::Digest));
    }
    if (const int64_t number = check_numbers_.at(i); number >= 0) {
      const auto place = static_cast<uint64_t>(number);
      if (place > options_.checks->size()) return fail(no_such("check"));
      if (!one.bytes || !(one.stats || one.digest)) return fail(no_such("values to check"));
      one.check = place == options_.checks->size() ? options_.checks->add(has(i, kIsRough))
                                                   : options_.checks->at(place);
    }
    return {};
  }

  Status fill_stats(size_t i, TensorRecord* one) {
    stats::TensorStats stats;
    stats.count = value_counts_.at(i);
    stats.min = next_number();
    stats.max = next_number();
    stats.mean = next_number();
    stats.l2_norm = next_number();
    if (has(i, kHasNonFinite)) {
      const auto counts = load<std::array<int64_t, 3>>(non_finite_.data());
      stats.nan_count = counts[0];
      stats.positive_inf_count = counts[1];
      stats.negative_inf_count = counts[2];
      non_finite_ = non_finite_.subspan(sizeof(counts));
    }
    if (std::min(
            {stats.count, stats.nan_count, stats.positive_inf_count, stats.negative_inf_count}) < 0)
      return fail(no_such("number of values"));
    if (!has(i, kHasSketch)) {
      one->stats = stats;
      return {};
    }
    const void* const sketch = sketches_.data();
    sketches_ = sketches_.subspan(sizeof(stats::Sketch));
    if (options_.borrow_sketches) {
      one->stats = RecordStats::with_sketch_at(static_cast<const stats::Sketch*>(sketch), stats);
    } else {
      stats.sketch = load<stats::Sketch>(sketch);
      one->stats = stats;
    }
    return {};
  }

  double next_number() {
    const auto number = load<double>(numbers_.data());
    numbers_ = numbers_.subspan(sizeof(double));
    return number;
  }

  InternedText file(uint64_t number) {
    if (!options_.file) return all_texts_[number];
    if (!is_file_known_[number]) {
      all_files_[number] = options_.file(all_texts_[number]);
      is_file_known_[number] = true;
    }
    return all_files_[number];
  }

  TensorRecord& record(size_t i) { return (*out_)[first_ + i]; }

  ByteReader reader_;
  ByteSpan packed_;
  const UnpackOptions& options_;
  std::vector<TensorRecord>* out_;
  size_t first_;
  uint64_t count_ = 0;
  std::vector<InternedText> all_texts_;
  std::vector<InternedText> all_files_;
  std::vector<bool> is_file_known_;
  std::vector<InternedDims> all_shapes_ = {InternedDims()};
  std::array<StoredColumn, kTextColumns.size()> texts_;
  std::array<StoredColumn, kDimsColumns.size()> dims_;
  std::array<StoredColumn, kColumns.size()> integers_;
  StoredColumn flags_, dtypes_, value_counts_, check_numbers_;
  ByteSpan numbers_, non_finite_, digests_, sketches_;
};

}  // namespace

PackedChecks::PackedChecks(std::span<const TensorRecord> records) {
  for (const TensorRecord& record : records)
    if (record.check) all_.push_back(record.check);
  std::ranges::sort(all_);
  const auto rest = std::ranges::unique(all_);
  all_.erase(rest.begin(), rest.end());
  constexpr uint32_t kNone = UINT32_MAX;
  numbers_.assign(all_.size(), kNone);
  uint32_t next = 0;
  for (const TensorRecord& record : records) {
    if (!record.check) continue;
    uint32_t& number = numbers_[place_of(record)];
    if (number == kNone) number = next++;
  }
}

int64_t PackedChecks::number_of(const TensorRecord& record) const {
  return record.check ? int64_t{numbers_[place_of(record)]} : -1;
}

size_t PackedChecks::place_of(const TensorRecord& record) const {
  return static_cast<size_t>(std::ranges::lower_bound(all_, record.check) - all_.begin());
}

void pack_records(std::span<const TensorRecord> records, const PackOptions& options,
                  const std::function<void(std::string_view bytes)>& put) {
  Packer(records, options, put).pack();
}

std::string pack_records(std::span<const TensorRecord> records, const PackOptions& options) {
  std::string out;
  pack_records(records, options, [&](std::string_view bytes) { out += bytes; });
  return out;
}

Status unpack_records(ByteSpan packed, const UnpackOptions& options,
                      std::vector<TensorRecord>* out) {
  return Unpacker(packed, options, out).unpack();
}

}  // namespace assay::run
