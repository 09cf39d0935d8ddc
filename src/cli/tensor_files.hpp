// SPDX-License-Identifier: Apache-2.0
// Writing tensors to files of other programs, block by block, whole or not at all.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::cli {

enum class TensorFileFormat : uint8_t { Npy, Pth, Safetensors, Txt, Csv };
/// "npy", "pth" or "pt", "safetensors", "txt", "csv"
[[nodiscard]] std::optional<TensorFileFormat> tensor_file_format(std::string_view name);
[[nodiscard]] std::string_view suffix_of(TensorFileFormat format);  // ".npy"

/// Writes one tensor. Npy, Pth and Safetensors keep the element type and its bits (lazy conj and neg bits are
/// applied); Txt and Csv have one line for each row of the last dimension, values as the shortest digits that read
/// back to the same value. The file appears under its name when it is complete. Memory: one block of a few MB.
///
/// errors    Unsupported: the format has no name for the dtype | NoSpace | Permission | NotFound | Io
[[nodiscard]] Status write_tensor_file(const std::string& path, TensorFileFormat format,
                                       const TensorView& view);

/// Several tensors into one .safetensors file, in the given order.
[[nodiscard]] Status write_safetensors_file(
    const std::string& path, const std::vector<std::pair<std::string, TensorView>>& tensors);

/// The values as another type, rounded to nearest even; the bytes belong to the result. Complex, packed and Bits
/// elements cannot be converted.
/// errors    Unsupported
[[nodiscard]] Result<Tensor> convert_dtype(const TensorView& view, DType dtype);

}  // namespace assay::cli
