// SPDX-License-Identifier: Apache-2.0
#include "compare/match/merge_ranks.hpp"

namespace assay::compare {

MergedPair merge_shards(const run::Run&, std::span<const size_t> golden, const run::Run&,
                        std::span<const size_t> mine) {
  MergedPair pair;
  pair.golden.records = {golden.front()};
  pair.mine.records = {mine.front()};
  return pair;
}

}  // namespace assay::compare
