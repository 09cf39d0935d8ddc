// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "locate/program/program.hpp"

namespace assay::locate {
namespace {

TEST(Names, CastsAndClonesAreTransparentButNotCopies) {
  EXPECT_TRUE(is_transparent("aten._to_copy.default"));
  EXPECT_TRUE(is_transparent("aten.empty.memory_format"));
  EXPECT_FALSE(is_transparent("aten.empty_like.default"));
  EXPECT_FALSE(is_transparent("aten.copy_.default"));
}

}  // namespace
}  // namespace assay::locate
