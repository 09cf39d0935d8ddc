// SPDX-License-Identifier: Apache-2.0
// The parameters rank and rankSize say which execution this is and how many there are; the dump
// must hold all of them.
#include "opcheck/operations/ranks.hpp"

#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

// More cards than any cluster has: a broken number, not a reason to look for that many folders.
constexpr int64_t kMaxRanks = int64_t{1} << 16;

}  // namespace

Result<Ranks> ranks_of(const Case& one) {
  ASSAY_TRY(const int64_t size, one.parameters.integer("rankSize", 0));
  if (size < 1 || size > kMaxRanks)
    return fail(Errc::Invalid, sentence("parameter rankSize is ", size));
  Ranks ranks;
  ASSAY_TRY(ranks.own, one.parameters.integer("rank", 0));
  if (ranks.own < 0 || ranks.own >= size)
    return fail(Errc::Invalid, "rank ", ranks.own, " of ", size, " ranks");
  if (!one.peers) return fail(Errc::NotFound, "the other ranks are not in this dump");
  ASSAY_TRY(ranks.peers, one.peers(size));
  if (ranks.size() != size)
    return fail(Errc::NotFound, ranks.size(), " of ", size, " ranks are in the dump");
  return ranks;
}

}  // namespace assay::opcheck
