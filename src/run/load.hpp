// SPDX-License-Identifier: Apache-2.0
// From a record to its tensor.
#pragma once
#include "base/result.hpp"
#include "run/record.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::run {

/// Maps the tensor of a record. The result keeps the file mapped.
/// errors  of the format's reader, with path and offset; NotFound when the record has no bytes;
///         Invalid when the values are not those that the record tells of: then the run's
///         found_damage says so, too
[[nodiscard]] Result<Tensor> load_tensor(const TensorRecord& record);
/// The same without a copy of what lies there with strides (run/strided_payload.hpp): for those who
/// read a transpose as one, or only parts of it.
[[nodiscard]] Result<Tensor> load_as_stored(const TensorRecord& record);
/// load_tensor() whatever the record says of the values: for those who hold it against them themselves,
/// or show them all the same.
[[nodiscard]] Result<Tensor> load_unchecked(const TensorRecord& record);

/// Fills dtype, shape, strides from the file's header when the record does not have them yet.
[[nodiscard]] Status load_header(TensorRecord& record);

}  // namespace assay::run
