// SPDX-License-Identifier: Apache-2.0
// What the tests of this folder share: golden files, values as numbers, generators of tensors.
#pragma once
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tensor/convert.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::formats {

/// The content of tests/data/<name>. A missing file fails the test that asks for it.
inline std::string golden_file(const std::string& name) {
  std::ifstream file(std::string(ASSAY_TEST_DATA) + "/" + name, std::ios::binary);
  if (!file) ADD_FAILURE() << "no golden file " << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<double> values_of(const TensorView& view) {
  std::vector<double> values(
      static_cast<size_t>(view.element_count() * values_per_element(view.dtype)));
  read_values(view, 0, view.element_count(), values);
  return values;
}

inline std::vector<std::byte> to_bytes(std::string_view text) {
  const ByteSpan bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

struct RandomTensor {
  std::string bytes;
  TensorView view;  // borrows bytes
};

/// A C-contiguous tensor of any whole-byte type that `supports` accepts, of up to four dimensions,
/// some of size 0.
template <typename Supports>
std::unique_ptr<RandomTensor> random_tensor(Supports supports) {
  auto tensor = std::make_unique<RandomTensor>();
  // RapidCheck narrows ranges while a run is young; small ranges should be used whole from the
  // start.
  const auto below = [](int limit) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(0, limit));
  };
  DType dtype;
  do {
    dtype = static_cast<DType>(below(kDTypeCount));
  } while (!supports(dtype));
  std::vector<int64_t> sizes(static_cast<size_t>(below(5)));
  for (int64_t& size : sizes) size = below(8) == 0 ? 0 : 1 + below(4);
  const Dims shape{std::span<const int64_t>(sizes)};
  const auto count = static_cast<uint64_t>(element_count(shape).value());
  const uint64_t size = storage_bytes(dtype, count).value();
  tensor->bytes = *rc::gen::container<std::string>(size, rc::gen::arbitrary<char>());
  tensor->view = make_view(dtype, shape, as_bytes(tensor->bytes)).value();
  return tensor;
}

}  // namespace assay::formats
