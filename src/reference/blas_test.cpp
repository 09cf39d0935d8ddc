// SPDX-License-Identifier: Apache-2.0
#include "reference/blas.hpp"

#include <cblas.h>
#include <gtest/gtest.h>

#include <barrier>
#include <thread>
#include <vector>

namespace assay::reference {
namespace {

TEST(Blas, ProductsOfSeveralThreadsDoNotTouchEachOther) {
  // Each thread multiplies a matrix of its own number with ones: every element is 48 times it.
  constexpr int kThreads = 4, kProducts = 40'000;
  constexpr blasint kRows = 6, kColumns = 40, kInner = 48;
  prepare_blas();
  std::barrier together(kThreads);
  std::vector<int> wrong(kThreads, 0);
  {
    std::vector<std::jthread> threads;
    for (int number = 0; number < kThreads; ++number) {
      threads.emplace_back([&together, &wrong, number] {
        const std::vector<double> x(kRows * kInner, number + 1.0), w(kColumns * kInner, 1.0);
        const std::vector<double> expected(kRows * kColumns, kInner * (number + 1.0));
        std::vector<double> out(kRows * kColumns);
        together.arrive_and_wait();
        for (int i = 0; i < kProducts; ++i) {
          cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, kRows, kColumns, kInner, 1.0,
                      x.data(), kInner, w.data(), kInner, 0.0, out.data(), kColumns);
          wrong[static_cast<size_t>(number)] += out != expected;
        }
      });
    }
  }
  EXPECT_EQ(wrong, std::vector<int>(kThreads, 0));
}

}  // namespace
}  // namespace assay::reference
