// SPDX-License-Identifier: Apache-2.0
// | 93 "NUMPY" | u8 major, u8 minor | u16 length, from version 2 on u32 | header | elements |
//
//   header   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } blanks \n     ends at a multiple of 64
#include "formats/npy.hpp"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>

#include "formats/zip.hpp"

namespace assay::formats {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr uint64_t kAlignment = 64;
constexpr uint64_t kShortPrefix = 10;  // magic, version, u16 header length
constexpr uint64_t kLongPrefix = 12;   // the same with u32
constexpr size_t kGrowthDigits = 21;   // digits of 2^64 - 1, and one more

// ---- the header: a Python dict literal ----------------------------------------------------------

struct Header {
  std::string descr;
  bool fortran_order = false;
  Dims shape;
};

/// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }: just this dict, in any order
/// of keys.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, uint64_t file_offset)
      : text_(text), file_offset_(file_offset) {}

  Result<Header> run() {
    ASSAY_TRY_STATUS(expect('{'));
    while (!accept('}')) {
      ASSAY_TRY(const std::string key, string());
      ASSAY_TRY_STATUS(expect(':'));
      ASSAY_TRY_STATUS(value_of(key));
      if (!accept(',')) {
        ASSAY_TRY_STATUS(expect('}'));
        break;
      }
    }
    skip_blanks();
    if (at_ != text_.size()) return wrong("text after the header's dict");
    if (!has_descr_ || !has_order_ || !has_shape_)
      return wrong("the header lacks descr, fortran_order or shape");
    return std::move(header_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> wrong(std::string what) const {
    return fail(Errc::Invalid, std::move(what), file_offset_ + at_);
  }
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t'))
      ++at_;
  }
  bool accept(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Status expect(char c) {
    if (accept(c)) return {};
    return wrong(std::string("expected '") + c + "' in the header");
  }
  bool accept_word(std::string_view word) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  Result<std::string> string() {
    skip_blanks();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"'))
      return wrong("expected a quoted word");
    const size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return wrong("a quote that never closes");
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }
  Result<int64_t> integer() {
    skip_blanks();
    int64_t value = 0;
    const auto [end, code] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (code != std::errc{} || value < 0) return wrong("expected a size");
    at_ = static_cast<size_t>(end - text_.data());
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote long integers so
    return value;
  }
  Status value_of(const std::string& key) {
    if (key == "descr") {
      if (has_descr_) return wrong("descr stands twice");
      has_descr_ = true;
      skip_blanks();
      if (at_ < text_.size() && (text_[at_] == '[' || text_[at_] == '(')) {
        return fail(Errc::Unsupported,
                    "an array of structures (a structured dtype) is not supported",
                    file_offset_ + at_);
      }
      ASSAY_TRY(header_.descr, string());
      return {};
    }
    if (key == "fortran_order") {
      if (has_order_) return wrong("fortran_order stands twice");
      has_order_ = true;
      header_.fortran_order = accept_word("True");
      if (header_.fortran_order || accept_word("False")) return {};
      return wrong("fortran_order is neither True nor False");
    }
    if (key == "shape") {
      if (has_shape_) return wrong("shape stands twice");
      has_shape_ = true;
      return shape();
    }
    return wrong("unknown header key '" + key + "'");
  }
  Status shape() {
    ASSAY_TRY_STATUS(expect('('));
    while (!accept(')')) {
      ASSAY_TRY(const int64_t size, integer());
      header_.shape.push_back(size);
      if (!accept(',')) return expect(')');
    }
    return {};
  }

  std::string_view text_;
  uint64_t file_offset_;
  size_t at_ = 0;
  Header header_;
  bool has_descr_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
};

// ---- element types ------------------------------------------------------------------------------

struct Spelling {
  std::string_view code;  // kind and bytes
  DType dtype;
};
// The first spelling of a type is the one we write.
constexpr Spelling kSpellings[] = {
    {"f8", DType::Float64},        {"f4", DType::Float32},        {"f2", DType::Float16},
    {"c16", DType::Complex128},    {"c8", DType::Complex64},      {"i8", DType::Int64},
    {"i4", DType::Int32},          {"i2", DType::Int16},          {"i1", DType::Int8},
    {"u8", DType::UInt64},         {"u4", DType::UInt32},         {"u2", DType::UInt16},
    {"u1", DType::UInt8},          {"b1", DType::Bool},           {"V2", DType::BFloat16},
    {"V1", DType::Bits8},          {"V1", DType::Float8E4M3FN},   {"V1", DType::Float8E5M2},
    {"V1", DType::Float8E4M3FNUZ}, {"V1", DType::Float8E5M2FNUZ}, {"V1", DType::Float8E8M0FNU},
    {"V1", DType::Float4E2M1FNx2}, {"V1", DType::HiFloat8},
};

struct ElementType {
  DType dtype = DType::Float32;
  bool big_endian = false;
};

Result<ElementType> element_type(const std::string& descr, uint64_t file_offset) {
  std::string_view code = descr;
  char order = '=';
  if (!code.empty() && std::string_view("<>|=").find(code[0]) != std::string_view::npos) {
    order = code[0];
    code.remove_prefix(1);
  }
  for (const Spelling& spelling : kSpellings) {
    // A void type's bytes are not swapped by NumPy, so the mark means nothing.
    if (spelling.code == code) return ElementType{spelling.dtype, order == '>' && code[0] != 'V'};
  }
  // Some writers put the name of an extension type.
  if (const auto named = dtype_from_name(descr); named && npy_supports(*named))
    return ElementType{*named, false};
  if (code.starts_with("O")) {
    return fail(Errc::Unsupported,
                "an array of Python objects: its data is a pickle, which is never loaded",
                file_offset);
  }
  return fail(Errc::Unsupported, "dtype '" + descr + "' is not supported", file_offset);
}

const Spelling* spelling_of(DType dtype) {
  const auto* found =
      std::find_if(std::begin(kSpellings), std::end(kSpellings),
                   [dtype](const Spelling& spelling) { return spelling.dtype == dtype; });
  return found == std::end(kSpellings) ? nullptr : found;
}

// ---- views --------------------------------------------------------------------------------------

struct Prefix {
  uint64_t header_offset = 0;
  uint64_t header_size = 0;
};

Result<Prefix> read_prefix(ByteSpan file) {
  ByteReader reader(file);
  if (!as_text(file).starts_with(
          kMagic.substr(0, std::min(kMagic.size(), std::max<size_t>(file.size(), 1))))) {
    return fail(Errc::BadMagic, "not an .npy file: it does not begin with 93 'NUMPY'", 0);
  }
  ASSAY_TRY_STATUS(reader.skip(kMagic.size()));
  ASSAY_TRY(const auto major, reader.read<uint8_t>());
  ASSAY_TRY_STATUS(reader.skip(1));  // minor
  if (major < 1 || major > 3) {
    return fail(Errc::Unsupported,
                ".npy format version " + std::to_string(major) + " is not supported",
                kMagic.size());
  }
  Prefix prefix;
  if (major == 1) {
    ASSAY_TRY(prefix.header_size, reader.read<uint16_t>());
  } else {
    ASSAY_TRY(prefix.header_size, reader.read<uint32_t>());
  }
  prefix.header_offset = reader.offset();
  if (prefix.header_size > kMaxNpyHeaderBytes) {
    return fail(Errc::TooLarge, "a header of " + std::to_string(prefix.header_size) + " bytes",
                kMagic.size() + 2);
  }
  return prefix;
}

Dims fortran_strides(const Dims& shape) {
  Dims reversed;
  for (size_t i = shape.size(); i-- > 0;) reversed.push_back(shape[i]);
  const Dims strides = contiguous_strides(reversed);
  Dims result;
  for (size_t i = shape.size(); i-- > 0;) result.push_back(strides[i]);
  return result;
}

std::shared_ptr<std::string> swapped_copy(ByteSpan data, uint64_t unit) {
  auto copy = std::make_shared<std::string>(as_text(data));
  for (auto at = copy->begin(); copy->end() - at >= static_cast<std::ptrdiff_t>(unit);
       at += static_cast<std::ptrdiff_t>(unit)) {
    std::reverse(at, at + static_cast<std::ptrdiff_t>(unit));
  }
  return copy;
}

}  // namespace

Result<Tensor> read_npy(ByteSpan file) {
  ASSAY_TRY(const Prefix prefix, read_prefix(file));
  ByteReader reader(file, prefix.header_offset);
  ASSAY_TRY(const ByteSpan header_bytes, reader.read_bytes(prefix.header_size));
  ASSAY_TRY(const Header header, HeaderParser(as_text(header_bytes), prefix.header_offset).run());
  ASSAY_TRY(const ElementType type, element_type(header.descr, prefix.header_offset));
  const auto count = element_count(header.shape);
  const auto size = count ? storage_bytes(type.dtype, static_cast<uint64_t>(*count)) : std::nullopt;
  if (!size)
    return fail(Errc::TooLarge, "shape " + list_text(header.shape.span()) + " is too large",
                prefix.header_offset);
  if (*size > reader.remaining()) {
    return fail(Errc::Truncated,
                "shape " + tuple_text(header.shape.span()) + " of " +
                    std::string(name(type.dtype)) + " needs " + std::to_string(*size) +
                    " bytes, the file ends after " + std::to_string(reader.remaining()),
                file.size());
  }
  ASSAY_TRY(ByteSpan data, reader.read_bytes(*size));
  Tensor tensor;
  if (type.big_endian) {
    const uint64_t unit = info(type.dtype).element_bits / (is_complex(type.dtype) ? 16u : 8u);
    auto copy = swapped_copy(data, unit);
    data = as_bytes(*copy);
    tensor.owner = std::move(copy);
  }
  const Dims strides =
      header.fortran_order ? fortran_strides(header.shape) : contiguous_strides(header.shape);
  ASSAY_TRY(tensor.view, make_view(type.dtype, header.shape, strides, data));
  return tensor;
}

Result<Tensor> read_npy_file(const MappedFile& file) {
  auto tensor = in_file(file.path(), read_npy(file.bytes()));
  if (tensor && tensor->owner == nullptr) tensor->owner = std::make_shared<const MappedFile>(file);
  return tensor;
}

Result<std::vector<NpzEntry>> read_npz(ByteSpan file) {
  ASSAY_TRY(const ZipArchive archive, read_zip(file));
  constexpr std::string_view kSuffix = ".npy";
  std::vector<NpzEntry> arrays;
  for (const ZipEntry& entry : archive.entries) {
    ASSAY_TRY(const SharedBytes content, read_zip_entry(archive, entry));
    std::string_view array_name = entry.name;
    if (array_name.ends_with(kSuffix)) array_name.remove_suffix(kSuffix.size());
    ASSAY_TRY(Tensor tensor, in_file(entry.name, read_npy(content.bytes)));
    if (tensor.owner == nullptr) tensor.owner = content.owner;
    arrays.push_back({std::string(array_name), std::move(tensor)});
  }
  return arrays;
}

Result<std::vector<NpzEntry>> read_npz_file(const MappedFile& file) {
  auto arrays = in_file(file.path(), read_npz(file.bytes()));
  if (!arrays) return arrays;
  const auto mapping = std::make_shared<const MappedFile>(file);
  for (NpzEntry& array : *arrays) {
    if (array.tensor.owner == nullptr) array.tensor.owner = mapping;
  }
  return arrays;
}

bool npy_supports(DType dtype) { return spelling_of(dtype) != nullptr; }

Result<std::string> npy_header(DType dtype, const Dims& shape) {
  const Spelling* spelling = spelling_of(dtype);
  if (spelling == nullptr)
    return fail(Errc::Unsupported, "NumPy has no type for " + std::string(name(dtype)));
  if (!element_count(shape))
    return fail(Errc::TooLarge, "shape " + list_text(shape.span()) + " is too large");
  // NumPy marks one-byte types as having no byte order, except the void types of ml_dtypes.
  const std::string mark = info(dtype).element_bits > 8 || spelling->code[0] == 'V' ? "<" : "|";
  std::string text = "{'descr': '" + mark + std::string(spelling->code) +
                     "', 'fortran_order': False, 'shape': " + tuple_text(shape.span()) + ", }";
  // NumPy leaves room for the first size to grow, and at least one blank before the line feed.
  if (!shape.empty()) text.append(kGrowthDigits - std::to_string(shape[0]).size(), ' ');
  const auto total_with = [&text](uint64_t prefix) {
    return ((prefix + text.size() + 1) / kAlignment + 1) * kAlignment;
  };
  const bool short_form = total_with(kShortPrefix) - kShortPrefix <= 0xFFFF;
  const uint64_t prefix = short_form ? kShortPrefix : kLongPrefix;
  const uint64_t total = total_with(prefix);
  std::string out(kMagic);
  append(out, static_cast<uint8_t>(short_form ? 1 : 2));
  append(out, uint8_t{0});
  if (short_form) {
    append(out, static_cast<uint16_t>(total - prefix));
  } else {
    append(out, static_cast<uint32_t>(total - prefix));
  }
  out += text;
  out.append(total - 1 - out.size(), ' ');
  out += '\n';
  return out;
}

Result<std::string> write_npy(const TensorView& view) {
  if (!view.is_contiguous() || view.conjugate || view.negative) {
    return fail(Errc::Usage,
                "only contiguous tensors without lazy bits can be written: gather it first");
  }
  ASSAY_TRY(std::string out, npy_header(view.dtype, view.shape));
  out += as_text(view.contiguous_bytes());
  return out;
}

}  // namespace assay::formats
