// SPDX-License-Identifier: Apache-2.0
// Bytes: lines of text, then the payload at the offset that the header states.
//
//   $Version=1.0          always the first line        dims=2,3
//   $Object.Count=1       0 without a payload          $Object.data=0,12   offset behind $End=1, bytes
//   $Object.Length=12                                  $End=1
//   format=2              2: ND                        00 3c 00 c0 ..      little-endian, in the order of `format`
//   dtype=1               1: float16
#include "formats/atb_bin.hpp"

#include <algorithm>
#include <set>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "tensor/layouts.hpp"

namespace assay::formats {
namespace {

constexpr std::string_view kMagic = "$Version=";
constexpr size_t kMaxRank = 64;

void append_line(std::string& text, std::string_view name, std::string_view value) {
  text.append(name).append("=").append(value).append("\n");
}

// ---- reading ------------------------------------------------------------------------------------

/// "1,4096" -> [1, 4096]; "" -> [].
Result<Dims> parse_dims(std::string_view text, uint64_t offset) {
  Dims dims;
  if (text.empty()) return dims;
  for (const std::string_view part : split(text, ',')) {
    const std::optional<int64_t> size = parse_number<int64_t>(part);
    if (!size) return fail(Errc::Invalid, "dims has a part that is no size", offset);
    if (*size < 0)
      return fail(Errc::Invalid, "dims has the negative size " + std::to_string(*size), offset);
    if (dims.size() == kMaxRank) return fail(Errc::TooLarge, "more than 64 dimensions", offset);
    dims.push_back(*size);
  }
  return dims;
}

/// "65504.000000", "-2", "nan", "(1.5,-2)", "N/A".
std::optional<AtbNumber> parse_statistic(std::string_view text) {
  const auto real = [](std::string_view part) { return parse_number<double>(part); };
  if (const std::optional<double> value = real(text)) return AtbNumber{*value, 0};
  if (!text.starts_with('(') || !text.ends_with(')')) return std::nullopt;
  const std::vector<std::string_view> parts = split(text.substr(1, text.size() - 2), ',');
  if (parts.size() != 2 || !real(parts[0]) || !real(parts[1])) return std::nullopt;
  return AtbNumber{*real(parts[0]), *real(parts[1])};
}

struct Line {
  std::string_view name;
  std::string_view value;
  uint64_t offset = 0;  // of the name
};

/// Where one object's bytes are, counted from the start of the payload.
struct ObjectPlace {
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  uint64_t line_offset = 0;
};

/// Names of a header. Files have a dozen lines, for which a tree is slower than looking at all.
class Names {
 public:
  Names() { few_.reserve(kFew); }
  /// False when the name was there.
  bool insert(std::string_view name) {
    if (!many_.empty() || few_.size() == kFew) {
      if (many_.empty()) many_.insert(few_.begin(), few_.end());
      return many_.insert(name).second;
    }
    if (contains(name)) return false;
    few_.push_back(name);
    return true;
  }
  [[nodiscard]] bool contains(std::string_view name) const {
    return many_.empty() ? std::ranges::find(few_, name) != few_.end() : many_.contains(name);
  }

 private:
  static constexpr size_t kFew = 32;
  std::vector<std::string_view> few_;
  std::set<std::string_view> many_;  // all of them, once there are more
};

/// Reads line by line up to the first $End; then decides what the payload is.
class RecordParser {
 public:
  explicit RecordParser(ByteSpan file) : file_(file), text_(as_text(file)) {}

  Result<AtbBin> run() {
    if (!text_.starts_with(kMagic.substr(0, std::max<size_t>(1, text_.size())))) {
      return fail(Errc::BadMagic, "does not begin with $Version=, as every ATB tensor file does",
                  0);
    }
    while (!ended_) {
      ASSAY_TRY(const std::optional<Line> line, next_line());
      if (!line) break;
      ASSAY_TRY_STATUS(take(*line));
    }
    ASSAY_TRY_STATUS(finish());
    return std::move(record_);
  }

 private:
  /// Nothing at the end of the file.
  Result<std::optional<Line>> next_line() {
    if (at_ == text_.size()) return std::optional<Line>();
    if (++lines_ > kMaxAtbHeaderLines)
      return fail(Errc::TooLarge, "a header of more than 8000 lines", at_);
    const std::string_view rest = text_.substr(at_, kMaxAtbHeaderBytes - at_);
    const size_t line_end = rest.find('\n');
    if (line_end == std::string_view::npos) {
      if (rest.size() == text_.size() - at_)
        return fail(Errc::Truncated, "the file ends inside a header line", text_.size());
      return fail(Errc::TooLarge, "a header of more than 1 MiB", at_);
    }
    const std::string_view line = rest.substr(0, line_end);
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || equals == 0 ||
        line.find('=', equals + 1) != std::string_view::npos)
      return fail(Errc::Invalid, "a header line is not of the form name=value", at_);
    if (const size_t zero = line.find('\0'); zero != std::string_view::npos)
      return fail(Errc::Invalid, "a header line holds a zero byte", at_ + zero);
    Line result{line.substr(0, equals), line.substr(equals + 1), at_};
    at_ += line_end + 1;
    return std::optional<Line>(result);
  }

  Status take(const Line& line) {
    if (!names_.insert(line.name))
      return fail(Errc::Invalid, "the header has " + std::string(line.name) + " twice",
                  line.offset);
    if (line.name.starts_with('$')) return take_structure(line);
    record_.attributes.push_back({line.name, line.value});
    if (line.name == "format") return number_into(line, &record_.format);
    if (line.name == "dtype") return number_into(line, &record_.dtype);
    if (line.name == "dims") {
      ASSAY_TRY(record_.dims, parse_dims(line.value, line.offset));
    }
    return {};
  }

  Status take_structure(const Line& line) {
    constexpr std::string_view kObject = "$Object.";
    ended_ = line.name == "$End";
    if (line.name == "$Object.Count") {
      ASSAY_TRY(object_count_, count_of(line));
    } else if (line.name == "$Object.Length") {
      ASSAY_TRY_STATUS(count_of(line));
    } else if (line.name.starts_with(kObject) && !object_) {
      const std::vector<std::string_view> parts = split(line.value, ',');
      const auto offset = parse_number<uint64_t>(parts[0]);
      const auto size = parts.size() == 2 ? parse_number<uint64_t>(parts[1]) : std::nullopt;
      if (!offset || !size)
        return fail(Errc::Invalid, std::string(line.name) + " is not offset,length", line.offset);
      object_ = ObjectPlace{*offset, *size, line.offset};
    }
    return {};
  }

  static Result<uint64_t> count_of(const Line& line) {
    const auto value = parse_number<uint64_t>(line.value);
    if (value) return *value;
    return fail(Errc::Invalid, std::string(line.name) + " is no count", line.offset);
  }

  static Status number_into(const Line& line, int64_t* number) {
    const auto value = parse_number<int64_t>(line.value);
    if (!value) return fail(Errc::Invalid, std::string(line.name) + " is no number", line.offset);
    *number = *value;
    return {};
  }

  Status finish() {
    for (const std::string_view name : {"dtype", "dims"}) {
      if (!names_.contains(name))
        return fail(ended_ ? Errc::Invalid : Errc::Truncated,
                    "the header has no " + std::string(name), at_);
    }
    record_.statistics = statistics();
    if (const auto data = record_.attribute("data")) record_.reference = *data;
    record_.ended = ended_;
    record_.record_bytes = at_;
    const bool has_object =
        object_count_ ? *object_count_ > 0 : object_.has_value() || at_ < file_.size();
    if (!has_object) {
      if (ended_ || record_.statistics) return {};
      return fail(Errc::Truncated, "the header has no $End line", at_);
    }
    if (!ended_) return fail(Errc::Truncated, "the header has no $End line", at_);
    return place_payload();
  }

  Status place_payload() {
    const uint64_t available = file_.size() - at_;
    const ObjectPlace place = object_.value_or(ObjectPlace{0, available, at_});
    uint64_t end = 0;
    if (add_overflows(place.offset, place.size_bytes, &end) || end > available) {
      return fail(Errc::Truncated,
                  "the header says bytes " + std::to_string(place.offset) + " to " +
                      std::to_string(place.offset) + " + " + std::to_string(place.size_bytes) +
                      " of the payload, which has " + std::to_string(available),
                  place.line_offset);
    }
    record_.payload = file_.subspan(at_ + place.offset, place.size_bytes);
    record_.payload_offset = at_ + place.offset;
    record_.record_bytes = at_ + end;
    return {};
  }

  std::optional<AtbStatistics> statistics() const {
    const auto number = [this](std::string_view name) {
      const auto text = record_.attribute(name);
      return text ? parse_statistic(*text) : std::nullopt;
    };
    const auto count = [this](std::string_view name) {
      const auto text = record_.attribute(name);
      return text ? parse_number<int64_t>(*text) : std::nullopt;
    };
    constexpr std::string_view kNames[] = {"max", "min", "mean", "l2norm"};
    if (std::none_of(std::begin(kNames), std::end(kNames),
                     [this](std::string_view name) { return names_.contains(name); }))
      return std::nullopt;
    return AtbStatistics{number("max"),    number("min"),      number("mean"),
                         number("l2norm"), count("nan_count"), count("inf_count")};
  }

  ByteSpan file_;
  std::string_view text_;
  uint64_t at_ = 0;  // after the last line read
  size_t lines_ = 0;
  bool ended_ = false;
  Names names_;
  std::optional<uint64_t> object_count_;
  std::optional<ObjectPlace> object_;
  AtbBin record_;
};

std::optional<uint64_t> bytes_of(DType dtype, const Dims& shape) {
  const auto count = element_count(shape);
  return count ? storage_bytes(dtype, static_cast<uint64_t>(*count)) : std::nullopt;
}

}  // namespace

std::optional<std::string_view> AtbBin::attribute(std::string_view name) const {
  for (const AtbAttribute& attribute : attributes) {
    if (attribute.name == name) return attribute.value;
  }
  return std::nullopt;
}

Result<AtbBin> read_atb_bin(ByteSpan file) { return RecordParser(file).run(); }

Result<TensorView> atb_bin_view(const AtbBin& record) {
  if (!record.payload) {
    return fail(Errc::NotFound, !record.reference.empty()
                                    ? "holds no data, it refers to " + std::string(record.reference)
                                : record.statistics ? std::string("holds statistics, no data")
                                                    : std::string("holds a description, no data"));
  }
  const std::optional<DType> dtype = dtype_from_atb(record.dtype);
  if (!dtype) {
    const std::string_view word = atb_dtype_text(record.dtype);
    return fail(Errc::Unsupported, "ATB element type " + std::to_string(record.dtype) +
                                       (word.empty() ? "" : " (" + std::string(word) + ")") +
                                       " is not supported");
  }
  if (record.format == kAtbFormatFractalNz) {
    const auto stored = fractal_nz_shape(record.dims, fractal_columns(*dtype));
    if (stored && bytes_of(*dtype, *stored) == record.payload->size() &&
        bytes_of(*dtype, record.dims) != record.payload->size())
      return make_view(*dtype, *stored, *record.payload);
  }
  auto view = make_view(*dtype, record.dims, *record.payload);
  if (!view && view.error().code == Errc::Truncated)
    view.error().offset = record.payload_offset + record.payload->size();
  return view;
}

std::string atb_bin_header(std::span<const AtbAttribute> attributes,
                           std::optional<uint64_t> payload_bytes) {
  const std::string length = std::to_string(payload_bytes.value_or(0));
  std::string text;
  append_line(text, "$Version", "1.0");
  append_line(text, "$Object.Count", payload_bytes ? "1" : "0");
  append_line(text, "$Object.Length", length);
  for (const AtbAttribute& attribute : attributes)
    append_line(text, attribute.name, attribute.value);
  if (payload_bytes) append_line(text, "$Object.data", "0," + length);
  append_line(text, "$End", "1");
  return text;
}

}  // namespace assay::formats
