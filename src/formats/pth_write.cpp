// SPDX-License-Identifier: Apache-2.0
// The five-record form of torch.save, byte for byte as torch writes it:
//   <archive>/data.pkl  <archive>/byteorder  <archive>/data/0  <archive>/version
//   <archive>/.data/serialization_id
#include <algorithm>

#include "formats/crc32.hpp"
#include "formats/pth.hpp"
#include "formats/zip.hpp"

namespace assay::formats {
namespace {

constexpr std::string_view kByteOrder = "little";
constexpr std::string_view kVersion = "3\n";
constexpr size_t kMaxArchiveNameBytes = 4096;

// The storage class of types that had one when torch stopped adding them; "" for those rebuilt by
// _rebuild_tensor_v3 from an untyped storage.
std::string_view storage_class(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return "DoubleStorage";
    case DType::Float32:
      return "FloatStorage";
    case DType::Float16:
      return "HalfStorage";
    case DType::BFloat16:
      return "BFloat16Storage";
    case DType::Int64:
      return "LongStorage";
    case DType::Int32:
      return "IntStorage";
    case DType::Int16:
      return "ShortStorage";
    case DType::Int8:
      return "CharStorage";
    case DType::UInt8:
      return "ByteStorage";
    case DType::Bool:
      return "BoolStorage";
    case DType::Complex128:
      return "ComplexDoubleStorage";
    case DType::Complex64:
      return "ComplexFloatStorage";
    default:
      return "";
  }
}

/// Pickle instructions as Python's C pickler emits them at protocol 2: a memo entry after
/// everything that it might meet again.
class PickleWriter {
 public:
  PickleWriter() { out_ = "\x80\x02"; }

  void global(std::string_view module, std::string_view name) {
    out_ += 'c';
    out_ += module;
    out_ += '\n';
    out_ += name;
    out_ += '\n';
    remember();
  }
  void text(std::string_view value) {
    out_ += 'X';
    append(out_, static_cast<uint32_t>(value.size()));
    out_ += value;
    remember();
  }
  void integer(int64_t value) {
    if (value >= 0 && value <= 0xFF) {
      out_ += 'K';
      append(out_, static_cast<uint8_t>(value));
    } else if (value >= 0 && value <= 0xFFFF) {
      out_ += 'M';
      append(out_, static_cast<uint16_t>(value));
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
      out_ += 'J';
      append(out_, static_cast<int32_t>(value));
    } else {
      long_integer(value);
    }
  }
  void boolean(bool value) { out_ += value ? '\x88' : '\x89'; }
  void tuple(std::span<const int64_t> values) {
    if (values.empty()) return empty_tuple();
    if (values.size() > 3) mark();
    for (const int64_t value : values) integer(value);
    out_ += values.size() > 3 ? 't' : static_cast<char>(0x84 + values.size());  // TUPLE1 is 0x85
    remember();
  }
  void empty_tuple() { out_ += ')'; }
  void mark() { out_ += '('; }
  void tuple_from_mark() {
    out_ += 't';
    remember();
  }
  void tuple_of_three() {
    out_ += '\x87';
    remember();
  }
  void persistent() { out_ += 'Q'; }
  void reduce() {
    out_ += 'R';
    remember();
  }
  // The hooks of a tensor and of a parameter: collections.OrderedDict().
  void empty_ordered_dict() {
    if (ordered_dict_memo_) {
      out_ += 'h';
      append(out_, *ordered_dict_memo_);
    } else {
      ordered_dict_memo_ = static_cast<uint8_t>(next_memo_);
      global("collections", "OrderedDict");
    }
    empty_tuple();
    reduce();
  }
  [[nodiscard]] std::string finish() && {
    out_ += '.';
    return std::move(out_);
  }

 private:
  void remember() {
    out_ += 'q';  // a tensor needs at most 16 entries, so the long form never occurs
    append(out_, static_cast<uint8_t>(next_memo_++));
  }
  // Two's complement, little-endian, as few bytes as keep the sign.
  void long_integer(int64_t value) {
    size_t count = 8;
    while (count > 1 && value >> (8 * (count - 1) - 1) == value >> 63) --count;
    out_ += '\x8a';
    append(out_, static_cast<uint8_t>(count));
    out_.append(reinterpret_cast<const char*>(&value), count);
  }

  std::string out_;
  unsigned next_memo_ = 0;
  std::optional<uint8_t> ordered_dict_memo_;
};

std::string tensor_pickle(DType dtype, const Dims& shape, uint64_t element_count,
                          uint64_t payload_size, std::optional<bool> parameter) {
  const std::string_view typed = storage_class(dtype);
  PickleWriter pickle;
  if (parameter) pickle.global("torch._utils", "_rebuild_parameter");
  pickle.global("torch._utils", typed.empty() ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  pickle.mark();
  pickle.mark();
  pickle.text("storage");
  pickle.global(typed.empty() ? "torch.storage" : "torch",
                typed.empty() ? "UntypedStorage" : typed);
  pickle.text("0");
  pickle.text("cpu");
  pickle.integer(static_cast<int64_t>(typed.empty() ? payload_size : element_count));
  pickle.tuple_from_mark();
  pickle.persistent();
  pickle.integer(0);  // storage offset
  pickle.tuple(shape.span());
  pickle.tuple(contiguous_strides(shape).span());
  pickle.boolean(false);  // requires_grad
  pickle.empty_ordered_dict();
  if (typed.empty()) pickle.global("torch", name(dtype));
  pickle.tuple_from_mark();
  pickle.reduce();
  if (parameter) {
    pickle.boolean(*parameter);
    pickle.empty_ordered_dict();
    pickle.tuple_of_three();
    pickle.reduce();
  }
  return std::move(pickle).finish();
}

TorchRecord append_record(std::string record_name, std::string_view content, uint64_t base,
                          std::string* out) {
  TorchRecord record;
  record.name = std::move(record_name);
  record.crc = crc32(as_bytes(content));
  append_torch_record_header(base + out->size(), content.size(), &record, out);
  *out += content;
  append_torch_record_trailer(record, out);
  return record;
}

// The three records of the prologue; the third has only its header, its data follows in the file.
std::vector<TorchRecord> append_first_records(const std::string& archive, std::string_view pickle,
                                              uint64_t payload_size, std::string* out) {
  std::vector<TorchRecord> records;
  records.push_back(append_record(archive + "/data.pkl", pickle, 0, out));
  records.push_back(append_record(archive + "/byteorder", kByteOrder, 0, out));
  TorchRecord payload;
  payload.name = archive + "/data/0";
  append_torch_record_header(out->size(), payload_size, &payload, out);
  records.push_back(std::move(payload));
  return records;
}

std::string twenty_digits(uint64_t value) {
  const std::string digits = std::to_string(value);
  return std::string(20 - digits.size(), '0') + digits;
}

// FNV-1a, 64 bit. torch hashes the names with std::hash; nobody reads the digits, they only tell
// files apart.
uint64_t name_hash(const std::vector<TorchRecord>& records) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const TorchRecord& record : records) {
    for (const char c : record.name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  return hash;
}
std::string serialization_id(const std::vector<TorchRecord>& records) {
  uint64_t checksums = 0;
  for (const TorchRecord& record : records) checksums = checksums * 31 + record.crc;
  return twenty_digits(name_hash(records)) + twenty_digits(checksums);
}

}  // namespace

std::string pth_archive_name(std::string_view path) {
  const size_t slash = path.rfind('/');
  std::string_view base = slash == std::string_view::npos ? path : path.substr(slash + 1);
  base = base.substr(0, std::min(base.size(), base.rfind('.')));
  const bool ascii =
      std::all_of(base.begin(), base.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  return base.empty() || !ascii ? "archive" : std::string(base);
}

bool pth_supports(DType dtype) {
  switch (dtype) {
    case DType::Int4:
    case DType::UInt4:
    case DType::QInt8:
    case DType::QUInt8:
    case DType::QInt32:
    case DType::QUInt4x2:
    case DType::QUInt2x4:
    case DType::HiFloat8:
      return false;
    default:
      return true;
  }
}

Result<PthPrologue> pth_prologue(DType dtype, const Dims& shape, const PthWriteOptions& options) {
  if (!pth_supports(dtype))
    return fail(Errc::Unsupported,
                "torch has no plain tensors of type " + std::string(name(dtype)));
  const std::string& archive = options.archive_name;
  if (archive.empty() || archive.size() > kMaxArchiveNameBytes ||
      archive.find('/') != std::string::npos) {
    return fail(Errc::Usage, "'" + archive + "' cannot name the directory inside a .pth");
  }
  const auto count = element_count(shape);
  const auto size = count ? storage_bytes(dtype, static_cast<uint64_t>(*count)) : std::nullopt;
  if (!size || *size > static_cast<uint64_t>(INT64_MAX)) {
    return fail(Errc::TooLarge, "shape " + list_text(shape.span()) + " is too large");
  }
  const std::string pickle =
      tensor_pickle(dtype, shape, static_cast<uint64_t>(*count), *size, options.parameter);
  PthPrologue prologue;
  prologue.payload_size = *size;
  prologue.archive_name = archive;
  prologue.pickle_crc = crc32(as_bytes(pickle));
  prologue.pickle_size = pickle.size();
  (void)append_first_records(archive, pickle, *size, &prologue.header);
  return prologue;
}

std::string pth_epilogue(const PthPrologue& prologue, uint32_t payload_crc) {
  // The first records lie where the prologue put them; only their places are needed again.
  std::string scratch;
  std::vector<TorchRecord> records =
      append_first_records(prologue.archive_name, std::string(prologue.pickle_size, '\0'),
                           prologue.payload_size, &scratch);
  records[0].crc = prologue.pickle_crc;
  records[2].crc = payload_crc;
  std::string out;
  append_torch_record_trailer(records[2], &out);
  const uint64_t base = records[2].data_offset + prologue.payload_size;
  records.push_back(append_record(prologue.archive_name + "/version", kVersion, base, &out));
  records.push_back(append_record(prologue.archive_name + "/.data/serialization_id",
                                  serialization_id(records), base, &out));
  append_torch_directory(records, base + out.size(), &out);
  return out;
}

Result<uint64_t> pth_size_bytes(DType dtype, const Dims& shape, const PthWriteOptions& options) {
  ASSAY_TRY(const PthPrologue prologue, pth_prologue(dtype, shape, options));
  return prologue.header.size() + prologue.payload_size + pth_epilogue(prologue, 0).size();
}

Result<std::string> write_pth(const TensorView& view, const PthWriteOptions& options) {
  if (!view.is_contiguous() || view.conjugate || view.negative) {
    return fail(Errc::Usage,
                "only contiguous tensors without lazy bits can be written: gather it first");
  }
  ASSAY_TRY(PthPrologue prologue, pth_prologue(view.dtype, view.shape, options));
  const ByteSpan payload = view.contiguous_bytes();
  const std::string epilogue = pth_epilogue(prologue, crc32(payload));
  std::string out = std::move(prologue.header);
  out.reserve(out.size() + payload.size() + epilogue.size());
  out += as_text(payload);
  out += epilogue;
  return out;
}

}  // namespace assay::formats
