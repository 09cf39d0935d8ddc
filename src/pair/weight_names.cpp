// SPDX-License-Identifier: Apache-2.0
// The endings that libraries use ("qweight", "_packed", "_scale" ...) tell which records make one
// weight. Weights pair by equal names, then without a prefix that one side has, then a tied head.
#include "pair/weight_names.hpp"

#include <algorithm>

namespace assay::pair {
namespace {

using run::TensorRecord;

bool holds_codes(const TensorRecord& record) {
  if (!record.dtype) return false;
  const DType dtype = *record.dtype;
  const bool eight_bits = info(dtype).element_bits == 8 && info(dtype).element_values == 1;
  return (eight_bits && (is_integer(dtype) || is_float(dtype))) || dtype == DType::Int4 ||
         dtype == DType::UInt4;
}

/// The only weight with one of these endings.
std::optional<size_t> find_ending(const CheckpointSide& side,
                                  std::initializer_list<std::string_view> endings) {
  std::optional<size_t> found;
  for (size_t i = 0; i < side.weights().size(); ++i) {
    const std::string& name = side.weights()[i].name;
    if (std::none_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); })) {
      continue;
    }
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

std::optional<size_t> find_embedding(const CheckpointSide& side) {
  return find_ending(side, {"embed_tokens.weight", "word_embeddings.weight", "wte.weight"});
}

}  // namespace

CheckpointSide::CheckpointSide(const run::Run& run, bool as_stored, std::optional<CodeNames> own)
    : run_(run), own_(std::move(own)) {
  for (size_t i = 0; i < run.records.size(); ++i) records_.emplace(run.records[i].node, i);
  for (size_t i = 0; i < run.records.size(); ++i) {
    Weight plain;
    plain.name = run.records[i].node;
    plain.record = i;
    weights_.push_back(as_stored ? std::move(plain) : weight_of(i));
  }
  for (size_t i = 0; i < weights_.size(); ++i) {
    names_.emplace(weights_[i].name, i);
    const Weight& weight = weights_[i];
    for (const auto& part :
         {weight.scale, weight.zero, weight.group_index, weight.unpacked_shape}) {
      if (part) weights_[*part].owner = i;
    }
  }
}

void CheckpointSide::set_parts(size_t weight, size_t scale, size_t zero) {
  weights_[weight].coding = Coding::Codes;
  weights_[weight].scale = scale;
  weights_[weight].zero = zero;
}

std::optional<size_t> CheckpointSide::find(std::string_view name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? std::nullopt : std::optional(found->second);
}

std::string CheckpointSide::property(const std::string& name) const {
  const auto found = run_.properties.find(name);
  return found == run_.properties.end() ? std::string() : found->second;
}

std::optional<size_t> CheckpointSide::find_any(std::string_view base,
                                               std::initializer_list<const char*> endings) const {
  for (const char* ending : endings) {
    const auto found = records_.find(std::string(base) + ending);
    if (found != records_.end()) return found->second;
  }
  return std::nullopt;
}

std::optional<Weight> CheckpointSide::own_weight_of(size_t index) const {
  const std::string_view name = run_.records[index].node.str();
  if (!own_ || !name.ends_with('.' + own_->codes)) return std::nullopt;
  const std::string module(name.substr(0, name.size() - own_->codes.size()));
  Weight out;
  out.name = module + own_->weight;
  out.record = index;
  out.coding = own_->coding;
  out.scale = find_any(module, {own_->scale.c_str()});
  if (!own_->zero.empty()) out.zero = find_any(module, {own_->zero.c_str()});
  return out.scale ? std::optional(std::move(out)) : std::nullopt;
}

Weight CheckpointSide::weight_of(size_t index) const {
  if (std::optional<Weight> own = own_weight_of(index)) return *std::move(own);
  Weight out;
  out.record = index;
  out.name = run_.records[index].node;
  const std::string_view name = out.name;
  const auto base = [&](std::string_view ending) {
    return name.substr(0, name.size() - ending.size());
  };
  if (name.ends_with("qweight")) {
    out.scale = find_any(base("qweight"), {"scales"});
    if (!out.scale) return out;
    out.coding = Coding::QWeight;
    out.zero = find_any(base("qweight"), {"qzeros"});
    out.group_index = find_any(base("qweight"), {"g_idx"});
    out.name = std::string(base("qweight")) + "weight";
  } else if (name.ends_with("_packed")) {
    const std::string_view stem = base("_packed");
    out.scale = find_any(stem, {"_scale"});
    if (!out.scale) return out;
    out.coding = Coding::CompressedTensors;
    out.zero = find_any(stem, {"_zero_point"});
    out.group_index = find_any(stem, {"_g_idx"});
    out.unpacked_shape = find_any(stem, {"_shape"});
    out.name = std::string(stem);
  } else if (holds_codes(run_.records[index])) {
    out.scale = find_any(name, {"_scale", "_scale_inv"});
    if (!out.scale && (name.ends_with("weight") || name.ends_with("CB"))) {
      // bitsandbytes keeps the largest absolute value of each row, which is code 127.
      out.scale = find_any(base(name.ends_with("CB") ? "CB" : "weight"), {"SCB"});
      out.scale_factor = 1.0 / 127;
    }
    if (!out.scale) {
      out.scale_factor = 1;
      return out;
    }
    if (name.ends_with("CB")) out.name = std::string(base("CB")) + "weight";
    out.coding = Coding::Codes;
    out.zero = find_any(name, {"_offset", "_zero_point"});
  }
  return out;
}

bool are_stored_alike(const CheckpointSide& golden_side, const Weight& golden,
                      const CheckpointSide& mine_side, const Weight& mine) {
  if (golden.coding != mine.coding) return false;
  if (golden.coding == Coding::Plain) return true;
  const TensorRecord& g = golden_side.record_of(golden);
  const TensorRecord& m = mine_side.record_of(mine);
  return g.dtype == m.dtype && g.shape && m.shape && *g.shape == *m.shape;
}

// ---- pairs ----

WeightPairing::WeightPairing(const CheckpointSide& golden, const CheckpointSide& mine)
    : golden_(golden), mine_(mine) {
  partner_.resize(golden.weights().size());
  golden_of_.resize(mine.weights().size());
  for (size_t i = 0; i < golden.weights().size(); ++i) {
    if (const auto found = mine.find(golden.weights()[i].name))
      pair(i, *found, Rule::EqualNames, {});
  }
  match_by_prefix();
  match_tied_head();
}

std::vector<WeightPair> WeightPairing::pairs() const {
  std::vector<WeightPair> out;
  for (const auto& partner : partner_) {
    // Scales of two weights that were unpacked differ as they may.
    if (!partner || (is_used_up_golden(partner->golden) && is_used_up_mine(partner->mine)))
      continue;
    out.push_back(*partner);
  }
  if (extra_) out.push_back(*extra_);
  return out;
}

bool WeightPairing::is_used_up_golden(size_t i) const {
  const auto owner = golden_.weights()[i].owner;
  if (!owner) return false;
  const auto& partner = partner_[*owner];
  return !partner || !are_stored_alike(golden_, golden_.weights()[*owner], mine_,
                                       mine_.weights()[partner->mine]);
}

bool WeightPairing::is_used_up_mine(size_t i) const {
  const auto owner = mine_.weights()[i].owner;
  if (!owner) return false;
  const auto golden = golden_of_[*owner];
  return !golden ||
         !are_stored_alike(golden_, golden_.weights()[*golden], mine_, mine_.weights()[*owner]);
}

void WeightPairing::pair(size_t golden, size_t mine, Rule rule, std::string note) {
  if (partner_[golden] || golden_of_[mine]) return;
  partner_[golden] = WeightPair{golden, mine, rule, std::move(note)};
  golden_of_[mine] = golden;
}

// The prefixes in front of dots that, taken from the free names of one side, give a free name of
// the other, and how often.
std::map<std::string, size_t> WeightPairing::count_prefixes(bool from_golden) const {
  const CheckpointSide& from = from_golden ? golden_ : mine_;
  const CheckpointSide& to = from_golden ? mine_ : golden_;
  std::map<std::string, size_t> counts;
  for (size_t i = 0; i < from.weights().size(); ++i) {
    if (from_golden ? is_matched_golden(i) : is_matched_mine(i)) continue;
    const std::string& name = from.weights()[i].name;
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      const auto found = to.find(std::string_view(name).substr(dot + 1));
      if (!found) continue;
      if (from_golden ? is_matched_mine(*found) : is_matched_golden(*found)) continue;
      ++counts[name.substr(0, dot + 1)];
    }
  }
  return counts;
}

void WeightPairing::match_by_prefix() {
  const std::map<std::string, size_t> of_golden = count_prefixes(true);
  const std::map<std::string, size_t> of_mine = count_prefixes(false);
  std::string prefix;
  bool golden_has_it = false;
  size_t best = 0;
  bool is_ambiguous = false;
  for (const bool from_golden : {true, false}) {
    for (const auto& [candidate, count] : from_golden ? of_golden : of_mine) {
      if (count < best) continue;
      is_ambiguous = count == best;
      if (count > best) {
        best = count;
        prefix = candidate;
        golden_has_it = from_golden;
      }
    }
  }
  if (best == 0 || is_ambiguous) return;
  for (size_t i = 0; i < golden_.weights().size(); ++i) {
    const std::string& name = golden_.weights()[i].name;
    if (golden_has_it && !name.starts_with(prefix)) continue;
    const auto found = golden_has_it ? mine_.find(std::string_view(name).substr(prefix.size()))
                                     : mine_.find(prefix + name);
    if (found) pair(i, *found, Rule::PrefixedNames, "my name: " + mine_.weights()[*found].name);
  }
}

// A checkpoint with tied embeddings leaves one of the two out.
void WeightPairing::match_tied_head() {
  const auto golden_head = find_ending(golden_, {"lm_head.weight"});
  const auto mine_head = find_ending(mine_, {"lm_head.weight"});
  const auto tied = [](const CheckpointSide& side) {
    return side.property("tie_word_embeddings") != "false";
  };
  if (golden_head && !mine_head && tied(mine_)) {
    const auto embedding = find_embedding(mine_);
    if (embedding && !is_matched_golden(*golden_head)) {
      // The embedding is in two pairs then.
      partner_[*golden_head] =
          WeightPair{*golden_head, *embedding, Rule::TiedEmbedding,
                     "my lm_head is taken for tied to " + mine_.weights()[*embedding].name};
    }
  }
  if (mine_head && !golden_head && tied(golden_) && !golden_of_[*mine_head]) {
    if (const auto embedding = find_embedding(golden_)) {
      golden_of_[*mine_head] = *embedding;
      extra_ =
          WeightPair{*embedding, *mine_head, Rule::TiedEmbedding,
                     "golden lm_head is taken for tied to " + golden_.weights()[*embedding].name};
    }
  }
}

}  // namespace assay::pair
