// SPDX-License-Identifier: Apache-2.0
#include "locate/locate_identical.hpp"
#include "run/whole_tensor.hpp"

#include <map>
#include <set>
#include <tuple>

namespace assay::locate {
namespace {

using run::TensorRecord;
using Place = std::tuple<int, int64_t, std::string_view, uint32_t, uint32_t, std::string_view>;

bool is_output(const TensorRecord& record) {
  return record.role == run::Role::Output && record.kind == run::RecordKind::Operand &&
         record.value.empty();
}

Place place_key_of(const TensorRecord& record) {
  return {record.rank, record.step, record.node, record.call, record.graph, record.slot};
}

std::optional<stats::Digest> digest_of(const TensorRecord& record) {
  if (record.digest) return record.digest;
  const Result<Tensor> tensor = run::load_tensor(record);
  if (!tensor) return std::nullopt;
  return run::digest_of(tensor->view);
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
  std::map<Place, const TensorRecord*> partners;
  for (const TensorRecord& record : golden.records)
    if (is_output(record)) partners.emplace(place_key_of(record), &record);
  IdenticalValues result;
  std::set<const TensorRecord*> covered;
  for (const TensorRecord& record : mine.records) {
    if (!is_output(record)) continue;
    const auto partner = partners.find(place_key_of(record));
    if (partner == partners.end() || !is_equal(*partner->second, record)) return {};
    covered.insert(partner->second);
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
