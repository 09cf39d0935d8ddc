// SPDX-License-Identifier: Apache-2.0
// Exchanges between ranks that move data or add it up.   docs/opcheck/movement.md
#include <algorithm>
#include <numeric>

#include "opcheck/operations/movement/evaluate.hpp"
#include "opcheck/operations/ranks.hpp"
#include "reference/movement/assemble.hpp"
#include "reference/products/all_reduce.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

using movement::integers_of;
using movement::kMove;
using reference::RankReduction;

/// With input 0 of each.
struct Group : Ranks {
  std::vector<Tensor> x;
};

/// input_count  inputs that every rank has
Result<Group> read_group(const Case& one, size_t input_count) {
  ASSAY_TRY(Ranks ranks, ranks_of(one));
  Group group{std::move(ranks), {}};
  for (size_t i = 0; i < group.peers.size(); ++i) {
    const Operands& operands = *group.peers[i].operands;
    if (operands.input_count() != input_count)
      return fail(Errc::Invalid, "rank ", i, " has ", operands.input_count(), " inputs, ",
                  input_count, " expected");
    Result<Tensor> x = operands.input(0);
    if (!x) {
      x.error().message = "rank " + std::to_string(i) + ": " + x.error().message;
      return fail(std::move(x).error());
    }
    group.x.push_back(*std::move(x));
  }
  return group;
}

/// One entry a rank: in the parameter, or in an input of operations that have it there.
Result<std::vector<int64_t>> counts_of(const Case::Peer& peer, std::string_view name,
                                       std::optional<size_t> input, int64_t ranks) {
  ASSAY_TRY(std::vector<int64_t> counts, peer.parameters.integers(name));
  if (counts.empty() && input) {
    ASSAY_TRY(const Tensor tensor, peer.operands->input(*input));
    ASSAY_TRY(counts, integers_of(tensor, name));
  }
  if (static_cast<int64_t>(counts.size()) != ranks)
    return fail(Errc::Invalid, name, " is ", counts, " for ", ranks, " ranks");
  return counts;
}

/// Pieces that an output received, each at its place. Where they leave gaps the gaps are not
/// judged.
Result<Expectation> expect_pieces(const Case& one, std::vector<Tensor> pieces,
                                  const std::vector<int64_t>& places) {
  ASSAY_TRY(const Tensor output, one.operands->output(0));
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return places[a] < places[b]; });
  std::vector<Tensor> golden;
  std::vector<Tensor> mine;
  int64_t end = 0;
  bool has_gaps = false;
  for (const size_t i : order) {
    const int64_t count = pieces[i].view.element_count();
    if (count == 0) continue;
    if (places[i] < end)
      return fail(Errc::Invalid, "the piece of rank ", i, " at ", places[i],
                  " overlaps the one before it");
    ASSAY_TRY(Tensor part, reference::flat_part(output, places[i], count));
    mine.push_back(std::move(part));
    has_gaps |= places[i] != end;
    end = places[i] + count;
    golden.push_back(std::move(pieces[i]));
  }
  has_gaps |= end != output.view.element_count();
  if (golden.empty()) return fail(Errc::Unsupported, "no rank sent anything");
  Expectation expected =
      expectation(0, kMove, [golden = std::move(golden)] { return reference::concat(golden, 0); });
  if (has_gaps) {
    ASSAY_TRY(expected.mine, reference::concat(mine, 0));
    expected.partial = true;
    expected.note = "received part only";
  }
  return expected;
}

/// What AllToAllV sends: from the parameters, or from inputs 1 to 4.
Result<Evaluation> evaluate_exchange(const Case& one, bool counts_are_inputs) {
  ASSAY_TRY(const Group group,
            read_group(one, counts_are_inputs ? one.operands->input_count() : 1));
  if (counts_are_inputs && one.operands->input_count() < 5)
    return fail(Errc::Invalid, one.operands->input_count(),
                " inputs in the dump, at least 5 expected");
  const auto input = [&](size_t index) {
    return counts_are_inputs ? std::optional<size_t>(index) : std::nullopt;
  };
  const auto self = static_cast<size_t>(group.own);
  ASSAY_TRY(const std::vector<int64_t> received,
            counts_of(group.peers[self], "recvCounts", input(3), group.size()));
  ASSAY_TRY(const std::vector<int64_t> places,
            counts_of(group.peers[self], "rdispls", input(4), group.size()));
  std::vector<Tensor> pieces;
  for (size_t i = 0; i < group.peers.size(); ++i) {
    ASSAY_TRY(const std::vector<int64_t> sent,
              counts_of(group.peers[i], "sendCounts", input(1), group.size()));
    ASSAY_TRY(const std::vector<int64_t> from,
              counts_of(group.peers[i], "sdispls", input(2), group.size()));
    if (sent[self] != received[i])
      return fail(Errc::Invalid, "rank ", i, " sends ", sent[self], " elements, rank ", group.own,
                  " expects ", received[i]);
    ASSAY_TRY(Tensor piece, reference::flat_part(group.x[i], from[self], sent[self]));
    pieces.push_back(std::move(piece));
  }

  ASSAY_TRY(Expectation expected, expect_pieces(one, std::move(pieces), places));
  return evaluation(std::to_string(group.size()) + " ranks", std::move(expected));
}

struct Reduction {
  std::string name;
  RankReduction kind = RankReduction::Sum;
};

Result<Reduction> read_reduction(const Case& one, bool with_product) {
  ASSAY_TRY(std::string name, one.parameters.text("reduceType", "sum"));
  const auto kind = reference::rank_reduction_from_name(name);
  if (kind && (with_product || kind != RankReduction::Product))
    return Reduction{std::move(name), *kind};
  return fail(Errc::Unsupported, "reduceType \"", name, "\" is not known");
}

Evaluation expect_reduced(const Group& group, const Reduction& reduction, int64_t first,
                          int64_t count) {
  const bool rounds =
      reduction.kind == RankReduction::Sum || reduction.kind == RankReduction::Product;
  Accuracy accuracy = kMove;
  if (rounds)
    accuracy = {is_float(group.x[0].view.dtype) ? Precision::Float : Precision::Integer,
                group.size()};
  return evaluation(reduction.name + ", " + std::to_string(group.size()) + " ranks",
                    expectation(0, accuracy, [x = group.x, kind = reduction.kind, first, count] {
                      return reference::reduce_part(x, kind, first, count);
                    }));
}

}  // namespace

Result<Evaluation> evaluate_broadcast(const Case& one) {
  ASSAY_TRY(const Group group, read_group(one, 1));
  ASSAY_TRY(const int64_t root, one.parameters.integer("rankRoot", 0));
  if (root < 0 || root >= group.size())
    return fail(Errc::Invalid, "rankRoot ", root, " of ", group.size(), " ranks");
  return evaluation(std::to_string(group.size()) + " ranks",
                    expectation_of(0, kMove, group.x[static_cast<size_t>(root)]));
}

Result<Evaluation> evaluate_all_gather(const Case& one) {
  ASSAY_TRY(const Group group, read_group(one, 1));
  return evaluation(std::to_string(group.size()) + " ranks",
                    expectation(0, kMove, [x = group.x] { return reference::stack(x); }));
}

Result<Evaluation> evaluate_all_gather_v(const Case& one) {
  if (one.operands->input_count() < 4)
    return fail(Errc::Invalid, one.operands->input_count(),
                " inputs in the dump, x, sendCount, recvCounts, rdispls expected");
  ASSAY_TRY(const Group group, read_group(one, one.operands->input_count()));
  const Case::Peer& self = group.peers[static_cast<size_t>(group.own)];
  ASSAY_TRY(const std::vector<int64_t> received, counts_of(self, "recvCounts", 2, group.size()));
  ASSAY_TRY(const std::vector<int64_t> places, counts_of(self, "rdispls", 3, group.size()));
  std::vector<Tensor> pieces;
  for (size_t i = 0; i < group.x.size(); ++i) {
    ASSAY_TRY(Tensor piece, reference::flat_part(group.x[i], 0, received[i]));
    pieces.push_back(std::move(piece));
  }

  ASSAY_TRY(Expectation expected, expect_pieces(one, std::move(pieces), places));
  return evaluation(std::to_string(group.size()) + " ranks", std::move(expected));
}

Result<Evaluation> evaluate_reduce_scatter(const Case& one) {
  ASSAY_TRY(const Reduction reduction, read_reduction(one, true));
  ASSAY_TRY(const Group group, read_group(one, 1));
  const TensorView& x = group.x[0].view;
  if (x.shape.empty() || x.shape[0] % group.size() != 0)
    return fail(Errc::Invalid, group.size(), " ranks do not divide x of shape ", x.shape);
  const int64_t part = x.element_count() / group.size();
  return expect_reduced(group, reduction, group.own * part, part);
}

Result<Evaluation> evaluate_reduce_scatter_v(const Case& one) {
  ASSAY_TRY(const Reduction reduction, read_reduction(one, false));
  const size_t inputs = one.operands->input_count();
  ASSAY_TRY(const Group group, read_group(one, inputs));
  const auto self = static_cast<size_t>(group.own);
  const auto input = [&](size_t index) {
    return index < inputs ? std::optional<size_t>(index) : std::nullopt;
  };
  ASSAY_TRY(const std::vector<int64_t> sent,
            counts_of(group.peers[self], "sendCounts", input(1), group.size()));
  ASSAY_TRY(const std::vector<int64_t> from,
            counts_of(group.peers[self], "sdispls", input(2), group.size()));
  return expect_reduced(group, reduction, from[self], sent[self]);
}

Result<Evaluation> evaluate_all_to_all(const Case& one) {
  ASSAY_TRY(const Group group, read_group(one, 1));
  const Dims& shape = group.x[0].view.shape;
  // Not written by the library's own dump; then the shape of the output tells.
  bool looks_transposed = false;
  if (shape.size() == 2 && group.size() > 1) {
    ASSAY_TRY(const Tensor output, one.operands->output(0));
    looks_transposed = output.view.shape.size() == 2 && output.view.shape != shape &&
                       output.view.shape[0] / group.size() == shape[0];
  }
  ASSAY_TRY(const bool transposed, one.parameters.boolean("transpose", looks_transposed));
  return evaluation(std::to_string(group.size()) + (transposed ? " ranks, by columns" : " ranks"),
                    expectation(0, kMove, [x = group.x, rank = group.own, transposed] {
                      return reference::all_to_all(x, rank, transposed);
                    }));
}

Result<Evaluation> evaluate_all_to_all_v(const Case& one) {
  return evaluate_exchange(one, one.op_type == "AllToAllVV2Operation");
}

}  // namespace assay::opcheck
