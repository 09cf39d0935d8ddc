// SPDX-License-Identifier: Apache-2.0
// The first line names type and shape; each word behind it is one value. Types narrower than
// float32 are read as float32 and converted back.
#include "cli/convert/text_tensor.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "cli/output.hpp"
#include "cli/tensor_files.hpp"
#include "tensor/convert.hpp"

namespace assay::cli {
namespace {

constexpr std::string_view kMark = "# dtype=";
constexpr std::string_view kShapeMark = " shape=";
constexpr size_t kMaxHeaderBytes = 4096;
constexpr size_t kMaxRank = 64;

struct TextHeader {
  DType dtype = DType::Float32;
  Dims shape;
  size_t size_bytes = 0;  // with its line end
};

/// A piece of the file inside a sentence.
std::string shown(std::string_view piece) {
  constexpr size_t kMaxBytes = 80;
  return "'" + printable(repair_utf8(piece.substr(0, kMaxBytes))) + "'";
}

Result<TextHeader> read_header(std::string_view text) {
  if (!text.starts_with(kMark))
    return fail(Errc::BadMagic, "does not begin with '# dtype=', as text that reads back does", 0);
  const size_t end = std::min(text.substr(0, kMaxHeaderBytes).find('\n'), text.size());
  const size_t shape = text.substr(0, end).find(kShapeMark);
  if (shape == std::string_view::npos)
    return fail(Errc::Invalid, "the first line has no ' shape='", kMark.size());
  TextHeader header;
  header.size_bytes = std::min(end + 1, text.size());
  const std::string_view dtype = text.substr(kMark.size(), shape - kMark.size());
  const auto known = dtype_from_name(dtype);
  if (!known) return fail(Errc::Invalid, "unknown type " + shown(dtype), kMark.size());
  header.dtype = *known;
  std::string_view sizes = text.substr(shape + kShapeMark.size(), end - shape - kShapeMark.size());
  if (sizes.ends_with('\r')) sizes.remove_suffix(1);
  if (sizes.empty()) return header;
  for (const std::string_view part : split(sizes, ',')) {
    const auto size = parse_number<int64_t>(part);
    if (!size || *size < 0 || header.shape.size() == kMaxRank)
      return fail(Errc::Invalid, shown(sizes) + " is no shape", shape + kShapeMark.size());
    header.shape.push_back(*size);
  }
  return header;
}

/// The words of a text with their places.
class WordReader {
 public:
  WordReader(std::string_view text, size_t start) : text_(text), at_(start) {}

  /// Empty at the end.
  std::string_view next() {
    constexpr std::string_view kBlank = " \t\r\n";
    at_ = std::min(text_.find_first_not_of(kBlank, at_ + word_.size()), text_.size());
    const size_t end = std::min(text_.find_first_of(kBlank, at_), text_.size());
    word_ = text_.substr(at_, end - at_);
    return word_;
  }
  [[nodiscard]] size_t offset() const { return at_; }

 private:
  std::string_view text_;
  size_t at_;
  std::string_view word_;
};

/// Puts the value of a word at the end of the bytes; false when it is no value.
using Append = bool (*)(std::string_view word, std::vector<std::byte>* out);

template <typename Number>
void put(Number value, std::vector<std::byte>* out) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out->insert(out->end(), bytes, bytes + sizeof(value));
}

template <typename Number>
bool append_number(std::string_view word, std::vector<std::byte>* out) {
  const auto value = parse_number<Number>(word);
  if (value) put(*value, out);
  return value.has_value();
}

bool append_bool(std::string_view word, std::vector<std::byte>* out) {
  const bool is_true = word == "True" || word == "1";
  if (is_true || word == "False" || word == "0") put(static_cast<uint8_t>(is_true), out);
  return is_true || word == "False" || word == "0";
}

/// "1.5-2j": the imaginary part begins at the last sign that belongs to no exponent.
template <typename Number>
bool append_complex(std::string_view word, std::vector<std::byte>* out) {
  if (!word.ends_with('j')) return false;
  word.remove_suffix(1);
  size_t sign = word.size();
  while (--sign > 0 && sign < word.size()) {
    if ((word[sign] == '+' || word[sign] == '-') && word[sign - 1] != 'e') break;
  }
  if (sign == 0 || sign >= word.size()) return false;
  const auto real = parse_number<Number>(word.substr(0, sign));
  const auto imaginary = parse_number<Number>(word.substr(word[sign] == '+' ? sign + 1 : sign));
  if (!real || !imaginary) return false;
  put(*real, out);
  put(*imaginary, out);
  return true;
}

/// How the words of a type are read, and as which type: halves are read as float32, which holds
/// them exactly.
struct Reading {
  Append append;
  DType read_as;
};

std::optional<Reading> reading_of(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return Reading{append_number<double>, dtype};
    case DType::Complex128:
      return Reading{append_complex<double>, dtype};
    case DType::Complex64:
      return Reading{append_complex<float>, dtype};
    case DType::Int64:
      return Reading{append_number<int64_t>, dtype};
    case DType::UInt64:
      return Reading{append_number<uint64_t>, dtype};
    case DType::Int32:
    case DType::QInt32:
      return Reading{append_number<int32_t>, dtype};
    case DType::UInt32:
      return Reading{append_number<uint32_t>, dtype};
    case DType::Int16:
      return Reading{append_number<int16_t>, dtype};
    case DType::UInt16:
      return Reading{append_number<uint16_t>, dtype};
    case DType::Int8:
    case DType::QInt8:
      return Reading{append_number<int8_t>, dtype};
    case DType::UInt8:
    case DType::QUInt8:
      return Reading{append_number<uint8_t>, dtype};
    case DType::Bool:
      return Reading{append_bool, dtype};
    default:
      break;
  }
  if (is_float(dtype) && values_per_element(dtype) == 1)
    return Reading{append_number<float>, DType::Float32};
  return std::nullopt;
}

/// The byte of each value of a float type of one byte: the one that reads as that value.
Result<Tensor> to_one_byte_float(const TensorView& values, DType dtype) {
  std::array<std::byte, 256> codes;
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i);
  ASSAY_TRY(const TensorView all, make_view(dtype, Dims{256}, codes));
  std::array<double, 256> meanings;
  read_values(all, 0, 256, meanings);
  auto bytes =
      std::make_shared<std::vector<std::byte>>(static_cast<size_t>(values.element_count()));
  for (size_t i = 0; i < bytes->size(); ++i) {
    const auto value = static_cast<double>(load<float>(values.storage.data() + i * sizeof(float)));
    const auto found = std::find_if(meanings.begin(), meanings.end(), [value](double meaning) {
      return std::isnan(value) ? std::isnan(meaning)
                               : meaning == value && std::signbit(meaning) == std::signbit(value);
    });
    if (found == meanings.end())
      return fail(Errc::Invalid,
                  python_repr(value) + " is no value of " + std::string(name(dtype)));
    (*bytes)[i] = static_cast<std::byte>(found - meanings.begin());
  }
  ASSAY_TRY(const TensorView view, make_view(dtype, values.shape, *bytes));
  return Tensor{view, bytes};
}

}  // namespace

bool has_text_header(ByteSpan file) { return as_text(file).starts_with(kMark); }

Result<Tensor> read_text_tensor(ByteSpan file) {
  const std::string_view text = as_text(file);
  ASSAY_TRY(const TextHeader header, read_header(text));
  const auto reading = reading_of(header.dtype);
  if (!reading)
    return fail(Errc::Unsupported, std::string(name(header.dtype)) + " cannot be read from text");
  const auto count = element_count(header.shape);
  // A value takes a digit and a blank at least.
  if (!count || static_cast<uint64_t>(*count) > text.size())
    return fail(Errc::Truncated, "the shape " + list_text(header.shape.span()) +
                                     " needs more values than there are");
  auto bytes = std::make_shared<std::vector<std::byte>>();
  WordReader words(text, header.size_bytes);
  for (int64_t i = 0; i < *count; ++i) {
    const std::string_view word = words.next();
    if (word.empty())
      return fail(Errc::Truncated, "the shape needs " + std::to_string(*count) +
                                       " values, there are " + std::to_string(i));
    if (!reading->append(word, bytes.get()))
      return fail(Errc::Invalid, shown(word) + " is no value of " + std::string(name(header.dtype)),
                  words.offset());
  }
  if (!words.next().empty())
    return fail(Errc::Invalid,
                "there are more values than the " + std::to_string(*count) + " of the shape",
                words.offset());
  ASSAY_TRY(const TensorView view, make_view(reading->read_as, header.shape, *bytes));
  if (reading->read_as == header.dtype || header.dtype == DType::Float32)
    return Tensor{view, bytes};
  if (info(header.dtype).element_bits == 8) return to_one_byte_float(view, header.dtype);
  return convert_dtype(view, header.dtype);
}

}  // namespace assay::cli
