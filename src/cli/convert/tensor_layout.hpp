// SPDX-License-Identifier: Apache-2.0
// Tensors of dump files in the memory format that the user asks for.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "formats/cann_dump.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::cli {

struct Layout {
  int32_t format = 0;  // as in CannTensor
  Dims shape;          // in that format; empty: what the dump says
};

/// "NCHW" -> 0; nothing for unknown names.
[[nodiscard]] std::optional<int32_t> cann_format_from_name(std::string_view name);

/// The format that the shape allows: NCHW, NHWC and HWCN need four dimensions, other shapes under
/// these names are ND.
[[nodiscard]] int32_t real_format(const formats::CannTensor& tensor);

/// The tensor in `layout`; one that is there already, or is ND and so has no named axes, is
/// returned as it is stored. Plain layouts only change the order of axes; tiled ones (FRACTAL_NZ,
/// FRACTAL_Z, NC1HWC0, C1HWNC0, NDC1HWC0, FRACTAL_Z_3D, FRACTAL_ZZ) are put together and cut to the
/// shape: the one given, else that of the framework.
///
/// errors    Unsupported: no way from one format to the other, grouped weights | Invalid: the shape
///           does not fit what is stored, or none is known | Truncated, TooLarge as cann_tensor()
[[nodiscard]] Result<Tensor> tensor_in_layout(const formats::CannTensor& tensor,
                                              const Layout& layout);

}  // namespace assay::cli
