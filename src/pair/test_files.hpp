// SPDX-License-Identifier: Apache-2.0
// Runs of small raw files for tests.
#pragma once
#include <string>
#include <vector>

#include "run/run.hpp"
#include "run/test_folder.hpp"
#include "tensor/convert.hpp"

namespace assay::pair::test {

// Records of raw files in a folder: what a reader of any layout makes of a tensor.
class Files {
 public:
  template <typename T>
  size_t add(DType dtype, const Dims& shape, const std::vector<T>& values,
             const std::string& memory_format = "") {
    return add_bytes(dtype, shape, std::as_bytes(std::span(values)), memory_format);
  }
  size_t add_bytes(DType dtype, const Dims& shape, ByteSpan bytes,
                   const std::string& memory_format = "") {
    const size_t index = run.records.size();
    const std::string name = std::to_string(index) + ".raw";
    folder.put(name, as_text(bytes));
    run::TensorRecord record;
    record.rank = static_cast<int>(index);
    record.order = index;
    record.dtype = dtype;
    record.shape = shape;
    record.memory_format = memory_format;
    record.bytes = run::ByteLocation{folder / name, "", 0, bytes.size(), true};
    run.records.push_back(record);
    return index;
  }
  run::test::TestFolder folder;
  run::Run run;
};

inline std::vector<double> values_of(const Tensor& tensor) {
  std::vector<double> out(static_cast<size_t>(tensor.view.element_count()) *
                          static_cast<size_t>(values_per_element(tensor.view.dtype)));
  read_values(tensor.view, 0, tensor.view.element_count(), out);
  return out;
}

}  // namespace assay::pair::test
