// SPDX-License-Identifier: Apache-2.0
// Reads tensors back from the text that write_tensor_file() makes of them.
#pragma once
#include "base/bytes.hpp"
#include "base/result.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::cli {

/// True when the file begins with a line such as "# dtype=float32 shape=2,3".
[[nodiscard]] bool has_text_header(ByteSpan file);

/// The values between blanks and line ends, in C order; their bytes belong to the result. Every
/// value of a float type comes back as it was but for the bits of a NaN.
///
/// file      the whole file, never trusted
/// errors    BadMagic: no such line | Invalid: not a value of the type (with offset), more values
///           than the shape has | Truncated: fewer | TooLarge | Unsupported: types whose elements
///           hold several values
[[nodiscard]] Result<Tensor> read_text_tensor(ByteSpan file);

}  // namespace assay::cli
