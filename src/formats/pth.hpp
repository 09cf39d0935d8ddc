// SPDX-License-Identifier: Apache-2.0
// Reading and writing the files of torch.save.   Layout with offsets: docs/formats/pth.md
//
// A .pth is a zip whose data.pkl is a pickle that describes tensors and whose data/<key> are their
// raw storages; older files are one stream of pickles. We interpret the few pickle instructions
// that torch writes and execute nothing.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.hpp"
#include "base/result.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::formats {

// Limits against hostile files. Each is far above what torch writes for the largest checkpoints.
inline constexpr uint64_t kMaxPickleBytes = uint64_t{1} << 28;
inline constexpr size_t kMaxPickleValues = size_t{1} << 21;  // values built while interpreting
inline constexpr size_t kMaxPthVisited = size_t{1} << 20;    // values met while flattening
// A value that stands in several places counts each time, but the sum stays within this many times
// the values built: otherwise a list of lists of lists of one list has more leaves than any memory.
inline constexpr size_t kMaxPthSharing = 16;
inline constexpr uint64_t kMaxPthTextBytes = uint64_t{1} << 28;  // paths and texts of all entries
inline constexpr int kMaxPthDepth = 128;   // nesting of lists, tuples and dicts
inline constexpr size_t kMaxPthRank = 64;  // torch's own
inline constexpr size_t kMaxPthPathBytes = 4096;

/// One leaf of the saved object.
struct PthEntry {
  enum class Kind : uint8_t { Tensor, Value };
  /// Where the leaf stands: "" when the file holds just it, otherwise "0", "1.0", "key.sub" for
  /// nested tuples, lists and dicts. Keys with dots are not escaped, so a path need not be unique.
  std::string path;
  Kind kind = Kind::Tensor;
  /// Kind::Tensor: bytes borrowed from the file, or owned when they were deflated or byte-swapped.
  /// Strides, offset, conj and neg bits are as saved; the storage may be far larger than the tensor
  /// (a saved slice of a big one).
  Tensor tensor;
  bool requires_grad = false;
  bool parameter = false;         // saved as torch.nn.Parameter
  std::string location;           // "cpu", "cuda:0", "npu:3": where the tensor lived
  std::optional<int> npu_format;  // ACL format of tensors saved on an NPU: 2 ND, 29 FRACTAL_NZ ...
  /// Kind::Value: Python's type name ("int", "float", "str", "bool", "NoneType", "bytes", "dtype",
  /// "device") and the value as Python's str() prints it; bytes as hexadecimal digits.
  std::string type;
  std::string text;
};

/// True for the beginning of a stream of pickles as torch wrote before 1.6, in any pickle protocol
/// from 2 on.
[[nodiscard]] bool is_legacy_pth(ByteSpan file);

/// Leaves of the saved object in file order. Tensors borrow `file`: it must outlive them.
///
/// file      the whole file; never trusted
/// errors    BadMagic | Truncated | Invalid (with the byte offset in the pickle or in the file) |
///           TooLarge | Unsupported: TorchScript, tar files before torch 0.4, "tensor kind ..." (quantised,
///           sparse, nested, meta, subclasses without data), and every class we do not know. What
///           stands inside the attributes of a parameter or of a tensor subclass is skipped without
///           looking at it.
/// source    pytorch/pytorch: torch/serialization.py, torch/_utils.py,
///           torch/_weights_only_unpickler.py
[[nodiscard]] Result<std::vector<PthEntry>> read_pth(ByteSpan file);
/// The same; every tensor keeps the mapping alive through its owner.
[[nodiscard]] Result<std::vector<PthEntry>> read_pth_file(const MappedFile& file);

// ---- writing ------------------------------------------------------------------------------------

struct PthWriteOptions {
  /// Name of the directory inside the zip: torch takes the file's base name without its last
  /// extension.
  std::string archive_name = "archive";
  /// Saves a torch.nn.Parameter with this requires_grad instead of a plain tensor.
  std::optional<bool> parameter = std::nullopt;
};

/// The archive_name torch uses for a file it opens itself: "dir/input_0.pth" -> "input_0";
/// "archive" when that would be empty or is not ASCII.
[[nodiscard]] std::string pth_archive_name(std::string_view path);

/// True when torch.load(weights_only=True) can rebuild a tensor of this type: all but the packed
/// 4-bit integers, hifloat8 and the quantised types.
[[nodiscard]] bool pth_supports(DType dtype);

/// A .pth in three parts, so that a payload of any size goes from the tensor's memory to the disk
/// untouched: `header`, then exactly `payload_size` bytes (the elements in C order, little-endian),
/// then pth_epilogue().
///
///   ASSAY_TRY(const auto prologue, pth_prologue(DType::Float32, {2, 3}, {.archive_name = "input_0"}));
///   writev(header, payload, pth_epilogue(prologue, crc32(payload)));
struct PthPrologue {
  std::string header;  // records data.pkl and byteorder, and the local header of data/0
  uint64_t payload_size = 0;
  // For pth_epilogue():
  std::string archive_name;
  uint32_t pickle_crc = 0;
  uint64_t pickle_size = 0;
};

/// errors  Unsupported (dtype, see pth_supports) | TooLarge | Usage (empty archive name or one with
/// '/')
[[nodiscard]] Result<PthPrologue> pth_prologue(DType dtype, const Dims& shape,
                                               const PthWriteOptions& options = {});
/// Data descriptor, records version and .data/serialization_id, directory. `payload_crc` is crc32()
/// of the payload.
[[nodiscard]] std::string pth_epilogue(const PthPrologue& prologue, uint32_t payload_crc);

/// Size of the finished file.
[[nodiscard]] Result<uint64_t> pth_size_bytes(DType dtype, const Dims& shape,
                                              const PthWriteOptions& options = {});

/// A whole file in memory, from a contiguous view without lazy bits.
/// errors  as pth_prologue | Usage (view not contiguous or lazy: gather it first)
[[nodiscard]] Result<std::string> write_pth(const TensorView& view,
                                            const PthWriteOptions& options = {});

}  // namespace assay::formats
