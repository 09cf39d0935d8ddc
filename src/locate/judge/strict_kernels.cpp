// SPDX-License-Identifier: Apache-2.0
// First every storage type is found strict or not. Then each output beyond the limit of a strict
// one is judged: by that limit, by the medians of its peers, or alone where it has too few of them.
#include "locate/judge/strict_kernels.hpp"
#include "run/common_names.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <tuple>

namespace assay::locate {
namespace {

bool was_judged(const OwnError& error) {
  return error.state == OwnError::State::Judged || error.state == OwnError::State::Exact;
}

/// "37", "0.52", "1.2e+04": three digits.
std::string short_number(double value) {
  if (std::isinf(value)) return "infinite";
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::general, value >= 100 && value < 1e6 ? 6 : 3);
  std::string digits(text.data(), end.ptr);
  if (value >= 100 && value < 1e6) digits.resize(std::min(digits.size(), digits.find('.')));
  return digits;
}

/// Outputs that are peers, and lists of their measures.
struct Group {
  std::vector<size_t> members;  // indices into OwnErrors::outputs
  bool sorted = false;
  std::vector<double> z, e, e2, zr;  // sorted; of all members

  void sort(const std::vector<OwnError>& outputs) {
    if (sorted) return;
    sorted = true;
    for (const size_t member : members) {
      z.push_back(outputs[member].z);
      e.push_back(outputs[member].e);
      e2.push_back(outputs[member].e2);
      zr.push_back(outputs[member].zr);
    }
    for (std::vector<double>* list : {&z, &e, &e2, &zr}) std::ranges::sort(*list);
  }
};

/// Median of a sorted list. Precondition: not empty.
double median(const std::vector<double>& sorted) {
  const size_t n = sorted.size();
  return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/// The same without one of its values. Precondition: at least two values, one of them `value`.
double median_without(const std::vector<double>& sorted, double value) {
  const auto skipped =
      static_cast<size_t>(std::ranges::lower_bound(sorted, value) - sorted.begin());
  const size_t n = sorted.size() - 1;
  const auto at = [&](size_t i) { return sorted[i < skipped ? i : i + 1]; };
  return n % 2 == 1 ? at(n / 2) : (at(n / 2 - 1) + at(n / 2)) / 2;
}

struct Medians {
  double z = 0, e = 0, e2 = 0, zr = 0;
};

/// ratio  of an error to what is explained, by the measure that speaks most against the output
struct Judgement {
  bool wrong = false;
  double ratio = 0;
};

Judgement judge_strict(const OwnError& error) {
  const double ratio = std::max(error.z, error.e);
  return {ratio > kOwnErrorLimit, ratio};
}

Judgement judge_by_peers(const OwnError& error, const Medians& peers) {
  const double z = error.z / std::max(1.0, peers.z);
  const double e2 = error.e2 / std::max(1.0, peers.e2);
  const double zr = error.zr / std::max(1.0, peers.zr);
  const bool lone_element = peers.e <= kStrictError && error.e > kLoneElementLimit;
  double ratio = std::max({z, e2, zr});
  if (lone_element) ratio = std::max(ratio, error.e);
  return {z > kPeerLimit || e2 > kPeerLimit || zr > kPeerLimit || lone_element, ratio};
}

Judgement judge_alone(const OwnError& error) {
  return {error.z > kLoneLimit || error.e2 > kLoneLimit || error.zr > kLoneRowLimit,
          std::max({error.z, error.e2, error.zr})};
}

/// Peers: the same place in other layers; where these are few, everything of the same operator and
/// type.
class Peers {
 public:
  Peers(const Program& program, const std::vector<OwnError>& outputs)
      : program_(program), outputs_(outputs) {
    const std::vector<size_t> positions = positions_of(program);
    keys_.resize(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const OwnError& error = outputs[i];
      if (!was_judged(error) || !is_float(error.dtype)) continue;
      const Operator& one = program.operators[error.op];
      keys_[i] = {run::layer_pattern(one.module),
                  one.name,
                  positions[error.op],
                  one.module_call,
                  error.output,
                  error.dtype,
                  one.step};
      places_[keys_[i]].members.push_back(i);
      kinds_[{one.name, error.output, error.dtype}].members.push_back(i);
    }
  }

  [[nodiscard]] std::optional<Medians> medians_of(size_t index) {
    std::vector<const OwnError*> peers;
    const std::string& module = program_.operators[outputs_[index].op].module;
    for (const size_t other : places_.at(keys_[index]).members) {
      if (program_.operators[outputs_[other].op].module != module)
        peers.push_back(&outputs_[other]);
    }
    if (peers.size() >= kFewestPeers) return medians_of_list(peers);
    const OwnError& error = outputs_[index];
    Group& kind = kinds_.at({program_.operators[error.op].name, error.output, error.dtype});
    if (kind.members.size() < kFewestPeers + 1) return std::nullopt;
    kind.sort(outputs_);
    return Medians{median_without(kind.z, error.z), median_without(kind.e, error.e),
                   median_without(kind.e2, error.e2), median_without(kind.zr, error.zr)};
  }

  /// Groups whose median z is above kCoarseMedian.
  [[nodiscard]] std::vector<CoarseGroup> coarse() {
    std::vector<CoarseGroup> found;
    std::map<KindKey, Group> rest;  // of places with too few members
    for (auto& [key, group] : places_) {
      if (group.members.size() < kFewestPeers) {
        std::vector<size_t>& members = rest[{key.name, key.output, key.dtype}].members;
        members.insert(members.end(), group.members.begin(), group.members.end());
        continue;
      }
      std::string pattern = key.module.empty() ? key.name : key.module + " " + key.name;
      pattern += " #" + std::to_string(key.position);
      add_coarse(pattern, key.output, key.dtype, &group, &found);
    }
    for (auto& [key, group] : rest) {
      const auto& [name, output, dtype] = key;
      if (group.members.size() >= kFewestPeers) add_coarse(name, output, dtype, &group, &found);
    }
    return found;
  }

 private:
  struct Key {
    std::string module;  // layer pattern
    std::string name;
    size_t position = 0;
    uint32_t call = 0;
    size_t output = 0;
    DType dtype = DType::Float32;
    int64_t step = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  using KindKey = std::tuple<std::string, size_t, DType>;

  /// By operator: how many of the same name ran before it in its module call.
  static std::vector<size_t> positions_of(const Program& program) {
    std::map<std::tuple<int, int64_t, std::string_view, uint32_t, std::string_view>, size_t> seen;
    std::vector<size_t> positions;
    positions.reserve(program.operators.size());
    for (const Operator& one : program.operators)
      positions.push_back(seen[{one.rank, one.step, one.module, one.module_call, one.name}]++);
    return positions;
  }

  static Medians medians_of_list(const std::vector<const OwnError*>& peers) {
    const auto of = [&](double OwnError::* measure) {
      std::vector<double> values;
      values.reserve(peers.size());
      for (const OwnError* peer : peers) values.push_back(peer->*measure);
      std::ranges::sort(values);
      return median(values);
    };
    return {of(&OwnError::z), of(&OwnError::e), of(&OwnError::e2), of(&OwnError::zr)};
  }

  void add_coarse(std::string pattern, size_t output, DType dtype, Group* group,
                  std::vector<CoarseGroup>* found) const {
    group->sort(outputs_);
    const double z = median(group->z);
    if (!(z > kCoarseMedian)) return;
    pattern += " " + std::string(name(dtype));
    if (output > 0) pattern += " output " + std::to_string(output);
    found->push_back({std::move(pattern), group->members.size(), z, median(group->e2)});
  }

  const Program& program_;
  const std::vector<OwnError>& outputs_;
  std::vector<Key> keys_;  // by output
  std::map<Key, Group> places_;
  std::map<KindKey, Group> kinds_;
};

/// By storage type: whether enough outputs with any error have no more than one rounding.
std::map<DType, bool> strict_types(const std::vector<OwnError>& outputs) {
  std::map<DType, std::pair<size_t, size_t>> counts;  // with one rounding at most | with any error
  for (const OwnError& error : outputs) {
    if (!was_judged(error) || !is_float(error.dtype)) continue;
    auto& [strict, with_error] = counts[error.dtype];
    if (error.state == OwnError::State::Exact) continue;
    ++with_error;
    if (error.e <= kStrictError) ++strict;
  }
  std::map<DType, bool> result;
  for (const auto& [dtype, count] : counts)
    result[dtype] =
        static_cast<double>(count.first) >= kStrictShare * static_cast<double>(count.second);
  return result;
}

Finding finding_of(const Program& program, const OwnError& error, double ratio, bool strict) {
  const Operator& one = program.operators[error.op];
  Finding finding;
  finding.kind = FindingKind::OwnError;
  finding.hard = true;
  finding.confidence = strict ? Confidence::High : Confidence::Medium;
  finding.rank = one.rank;
  finding.step = one.step;
  finding.module = one.module;
  finding.node = one.node;
  finding.op_type = one.name;
  finding.time = one.time;
  finding.mine_operator = error.op;
  if (error.output < one.outputs.size()) {
    finding.slot = one.outputs[error.output].slot;
    finding.mine_record = one.outputs[error.output].record;
  }
  finding.ratio = ratio;
  finding.err_own = error.relative_l2;
  finding.noise_floor = error.floor_l2;
  finding.worst_ulp = error.worst_ulp;
  finding.allowed_ulp = error.allowed_ulp;
  finding.detail = describe_own_error(error);
  return finding;
}

}  // namespace

std::string describe_own_error(const OwnError& error) {
  if (std::isinf(error.z) || std::isinf(error.e))
    return error.reason.empty() ? "values that no rounding explains" : error.reason;
  return "own error " + short_number(error.z) + "x its rounding, largest element " +
         short_number(error.worst_ulp) + " ULP, allowed " + short_number(error.allowed_ulp);
}

void find_wrong_operators(const Program& program, OwnErrors* errors) {
  std::vector<OwnError>& outputs = errors->outputs;
  errors->strict = strict_types(outputs);
  Peers peers(program, outputs);
  std::map<size_t, Finding> findings;  // by operator: its worst output
  for (size_t i = 0; i < outputs.size(); ++i) {
    OwnError& error = outputs[i];
    if (!was_judged(error) || (error.z <= kOwnErrorLimit && error.e <= kOwnErrorLimit)) continue;
    const auto type = errors->strict.find(error.dtype);
    // Integers, and values that no rounding explains, are wrong in any run.
    const bool strict = type == errors->strict.end() || type->second || std::isinf(error.e);
    Judgement judgement = judge_strict(error);
    if (!strict) {
      const std::optional<Medians> medians = peers.medians_of(i);
      judgement = medians ? judge_by_peers(error, *medians) : judge_alone(error);
    }
    error.wrong = judgement.wrong;
    if (!error.wrong) continue;
    Finding finding = finding_of(program, error, judgement.ratio, strict);
    const auto [place, is_new] = findings.try_emplace(error.op, finding);
    if (!is_new && finding.ratio > place->second.ratio) place->second = std::move(finding);
  }
  for (auto& [op, finding] : findings) errors->findings.push_back(std::move(finding));
  std::ranges::stable_sort(errors->findings, comes_before);
  errors->coarse = peers.coarse();
}

}  // namespace assay::locate
