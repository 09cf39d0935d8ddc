// SPDX-License-Identifier: Apache-2.0
// Large pairs run one after another, each with all threads; then the small ones side by side with
// one thread each.
#include "compare/pair_loop.hpp"

#include <mutex>

#include "base/interruption.hpp"
#include "base/thread_pool.hpp"

namespace assay::compare {

Comparison begin_comparison(const run::Run& golden, const run::Run& mine,
                            const CompareOptions& options) {
  Comparison out;
  out.golden_path = golden.path;
  out.mine_path = mine.path;
  out.golden_layout = golden.layout;
  out.mine_layout = mine.layout;
  out.golden_records = golden.records.size();
  out.mine_records = mine.records.size();
  out.parallel = mine.parallel;
  out.judged = !options.limits.empty();
  for (const auto& algorithm : options.algorithms) out.algorithms.push_back(algorithm->name());
  return out;
}

Status for_each_pair(size_t count, const CompareOptions& options,
                     const std::function<uint64_t(size_t i)>& bytes_of,
                     const std::function<void(size_t i, int threads)>& work) {
  constexpr uint64_t kLargePair = uint64_t{8} << 20;  // worth several threads of its own
  const unsigned jobs = resolve_job_count(options.jobs);
  std::mutex mutex;
  size_t done = 0;
  const auto run_one = [&](size_t i, unsigned threads) {
    try {
      const InterruptScope scope(options.interrupted);
      throw_if_interrupted();
      work(i, static_cast<int>(threads));
    } catch (const Interrupted&) {  // no report is made of what is there
      return;
    }
    if (!options.progress) return;
    const std::lock_guard lock(mutex);
    options.progress(++done, count);
  };
  std::vector<bool> is_large(count);  // there may be millions
  for (size_t i = 0; i < count; ++i) {
    is_large[i] = bytes_of(i) > kLargePair;
    if (is_large[i]) run_one(i, jobs);
  }
  parallel_for(count, jobs, [&](size_t i) {
    if (!is_large[i]) run_one(i, 1);
  });
  if (options.interrupted != nullptr && *options.interrupted)
    return fail(Errc::Interrupted, "interrupted");
  return {};
}

}  // namespace assay::compare
