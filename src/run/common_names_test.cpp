// SPDX-License-Identifier: Apache-2.0
#include "run/common_names.hpp"

#include <gtest/gtest.h>

namespace assay::run {
namespace {

TEST(LayerPattern, HasStarsInPlaceOfNumbers) {
  EXPECT_EQ(layer_pattern("model.layers.12.mlp.experts.3.up"), "model.layers.*.mlp.experts.*.up");
  EXPECT_EQ(layer_pattern(""), "");
  EXPECT_EQ(layer_pattern("model.layer1.norm"), "model.layer1.norm");
}

}  // namespace
}  // namespace assay::run
