// SPDX-License-Identifier: Apache-2.0
// How the pairs of a comparison share threads and memory.
#pragma once
#include <functional>

#include "compare/compare.hpp"

namespace assay::compare {

/// A comparison of two sides, without rows.
[[nodiscard]] Comparison begin_comparison(const run::Run& golden, const run::Run& mine,
                                          const CompareOptions& options);

/// Calls work(i, threads) for each of `count` pairs: those whose tensors are large one by one with
/// all threads on each, so that only one of them is resident, then the others side by side. Neither
/// the order nor the number of threads may change what `work` does.
///
/// bytes_of   what a pair will probably read
/// errors     Interrupted; `work` may end with the exception of throw_if_interrupted()
[[nodiscard]] Status for_each_pair(size_t count, const CompareOptions& options,
                                   const std::function<uint64_t(size_t i)>& bytes_of,
                                   const std::function<void(size_t i, int threads)>& work);

}  // namespace assay::compare
