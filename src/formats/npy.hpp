// SPDX-License-Identifier: Apache-2.0
// Reading and writing NumPy .npy files, format versions 1.0 to 3.0, and reading .npz.
// Layout with offsets: docs/formats/npy.md
#pragma once
#include <string>
#include <vector>

#include "base/mapped_file.hpp"
#include "base/result.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::formats {

/// Longest header we parse; NumPy's own limit for untrusted files is 10000.
inline constexpr uint64_t kMaxNpyHeaderBytes = 1 << 20;

/// Parses one .npy file held in memory.
///
/// file      the whole file; any size, never trusted
/// returns   a C- or Fortran-ordered view (shape [] for 0-d). It borrows `file`, except that
///           big-endian data is converted into a copy that the result owns. Two-byte void elements
///           (what ml_dtypes writes for bfloat16) are read as bfloat16, one-byte ones (its float8
///           types, which the file does not tell apart) as bits8.
/// errors    BadMagic | Truncated (offset of the missing byte) | Invalid (header) | TooLarge |
///           Unsupported: version, objects (a pickle, never loaded), text, dates, structures, long
///           double
/// source    numpy/numpy: numpy/lib/_format_impl.py
[[nodiscard]] Result<Tensor> read_npy(ByteSpan file);
/// The same; the tensor keeps the mapping alive.
[[nodiscard]] Result<Tensor> read_npy_file(const MappedFile& file);

struct NpzEntry {
  std::string name;  // without ".npy"
  Tensor tensor;
};
/// All arrays of an .npz in file order; stored arrays are borrowed, deflated ones owned.
/// errors    those of read_zip and read_npy
[[nodiscard]] Result<std::vector<NpzEntry>> read_npz(ByteSpan file);
/// The same; every tensor keeps the mapping alive.
[[nodiscard]] Result<std::vector<NpzEntry>> read_npz_file(const MappedFile& file);

/// True when write_npy has a spelling for the type: all NumPy types, bfloat16 ("<V2") and one-byte
/// floats and bits
/// ("<V1") as ml_dtypes writes them. Not: complex32, packed 4-bit integers, quantised types, 16
/// bits without meaning.
[[nodiscard]] bool npy_supports(DType dtype);

/// Magic, version, length and header text, padded with spaces so that the data starts at a multiple
/// of 64. Version 1.0, or 2.0 when the header is longer than 65535 bytes. The data follows in C
/// order.
/// errors    Unsupported (dtype) | TooLarge
[[nodiscard]] Result<std::string> npy_header(DType dtype, const Dims& shape);

/// errors    as npy_header | Usage (view not contiguous or lazy: gather it first)
[[nodiscard]] Result<std::string> write_npy(const TensorView& view);

}  // namespace assay::formats
