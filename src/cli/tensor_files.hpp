// SPDX-License-Identifier: Apache-2.0
// Writing tensors to files of other programs, block by block, whole or not at all.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "stats/tensor_stats.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::cli {

enum class TensorFileFormat : uint8_t { Npy, Pth, Safetensors, Txt, Csv, Bin };
/// "npy", "pth" or "pt", "safetensors", "txt", "csv", "bin"
[[nodiscard]] std::optional<TensorFileFormat> tensor_file_format(std::string_view name);
[[nodiscard]] std::string_view suffix_of(TensorFileFormat format);  // ".npy"

/// Writes one tensor. Npy, Pth and Safetensors keep the element type and its bits (lazy conj and
/// neg bits are applied); Bin is these bits alone. Txt and Csv have one line for each row of the
/// last dimension, values as the shortest digits that read back to the same value; Txt has a line
/// with type and shape in front (cli/convert/text_tensor.hpp reads it). The file appears under its
/// name when it is complete; Ctrl-C under an InterruptGuard leaves none. Memory: one block of a few
/// MB.
///
/// mode      permission bits, subject to the umask
/// errors    Unsupported: the format has no name for the dtype | NoSpace | Permission | NotFound |
///           Io
[[nodiscard]] Status write_tensor_file(const std::string& path, TensorFileFormat format,
                                       const TensorView& view, unsigned mode = 0666);

/// Several tensors into one .safetensors file, in the given order.
[[nodiscard]] Status write_safetensors_file(
    const std::string& path, const std::vector<std::pair<std::string, TensorView>>& tensors,
    unsigned mode = 0666);

/// Pieces one after the other into one file, in the same way.
[[nodiscard]] Status write_pieces_file(const std::string& path, const std::vector<ByteSpan>& pieces,
                                       unsigned mode = 0666);

/// The elements in C order, lazy bits applied. Memory: all of them.
/// errors    Unsupported: packed values with gaps
[[nodiscard]] Result<std::vector<std::byte>> element_bytes(const TensorView& view);

/// The line in front of a Txt file: "# dtype=float32 shape=2,3"; the shape of a scalar is empty.
[[nodiscard]] std::string text_header(DType dtype, const Dims& shape);

/// Every value, the parts of complex ones and packed ones one after the other, as an element of
/// `dtype`: rounded once, to nearest even.
/// errors    Unsupported | TooLarge | Interrupted
[[nodiscard]] Result<std::shared_ptr<std::vector<std::byte>>> values_as(const TensorView& view,
                                                                        DType dtype);

/// The values as another type, rounded to nearest even; the bytes belong to the result. Complex,
/// packed and Bits elements cannot be converted.
/// errors    Unsupported | TooLarge
[[nodiscard]] Result<Tensor> convert_dtype(const TensorView& view, DType dtype);

/// Statistics under an InterruptGuard; after Ctrl-C none, and soon: the caller asks interrupted()
/// and throws them away.
[[nodiscard]] stats::TensorStats statistics_until_interrupted(const TensorView& view);

}  // namespace assay::cli
