// SPDX-License-Identifier: Apache-2.0
// Outputs at one place of both runs are equal when type, shape and digest are; a digest that a
// record lacks is made from its bytes.
#include "locate/verdict/locate_identical.hpp"
#include "run/load.hpp"
#include "stats/whole_tensor.hpp"

#include <set>

#include "pair/places.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;

bool is_output(const TensorRecord& record) {
  return record.role == Role::Output && pair::is_operand(record);
}

std::optional<stats::Digest> digest_of(const TensorRecord& record) {
  if (record.digest) return record.digest;
  const Result<Tensor> tensor = run::load_tensor(record);
  if (!tensor) return std::nullopt;
  return stats::digest_of(tensor->view);
}

bool is_equal(const TensorRecord& golden, const TensorRecord& mine) {
  TensorRecord g = golden;
  TensorRecord m = mine;
  if (!run::load_header(g) || !run::load_header(m)) return false;
  if (g.dtype != m.dtype || g.shape != m.shape) return false;
  const std::optional<stats::Digest> of_golden = digest_of(g);
  return of_golden && of_golden == digest_of(m);
}

}  // namespace

IdenticalValues find_identical_values(const run::Run& golden, const run::Run& mine) {
  const pair::Places places(golden);
  IdenticalValues result;
  std::set<const TensorRecord*> covered;
  for (const TensorRecord& record : mine.records) {
    if (!is_output(record)) continue;
    const size_t found = places.golden_of(mine, record);
    if (found == pair::kNoPartner || !is_equal(golden.records[found], record)) return {};
    covered.insert(&golden.records[found]);
    ++result.values;
  }
  for (const TensorRecord& record : golden.records) {
    if (!is_output(record) || covered.contains(&record)) continue;
    if (result.uncovered++ == 0)
      result.first_uncovered = record.node + ", step " + std::to_string(record.step);
  }
  return result;
}

}  // namespace assay::locate
