// SPDX-License-Identifier: Apache-2.0
// A finding gets the name and the time of its node. For a gap the parameters of ggml's operators
// are held against golden's, and the first that differs explains it.
//   docs/design/ggml-pairs.md, "The verdict"
#include "engines/ggml/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>

#include "reference/wide.hpp"
#include "run/load.hpp"

namespace assay::engines::ggml {
namespace {

using locate::EnginePlace;
using locate::Finding;
using locate::FindingKind;
using locate::kNone;
using locate::ModuleCall;
using locate::Operator;
using locate::Use;
using run::TensorRecord;

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::optional<double> number_of(const Operator& one, std::string_view name) {
  const auto found = one.attributes.find(name);
  if (found == one.attributes.end()) return std::nullopt;
  if (const auto* real = std::get_if<double>(&found->second.value)) return *real;
  if (const auto* whole = std::get_if<int64_t>(&found->second.value))
    return static_cast<double>(*whole);
  return std::nullopt;
}

std::string op_type_of(const CapturedNode& node) {
  return "ggml " + std::string(node.op) + " " + std::string(node.name);
}

/// "kq-3" -> 3
std::string layer_of(std::string_view name) {
  const size_t dash = name.rfind('-');
  if (dash == std::string_view::npos) return {};
  const std::string_view rest = name.substr(dash + 1);
  return std::string(rest.substr(0, rest.find_first_not_of("0123456789")));
}

/// For a node that is no module's output: the module in which Hugging Face does the same.
std::string inner_module(const CapturedNode& node) {
  const std::string layer = layer_of(node.name);
  if (layer.empty()) return node.name == "norm" ? "model.norm" : "";
  const std::string path = "model.layers." + layer;
  if (node.name.starts_with("norm-"))
    return path + (node.number == 0 ? ".input_layernorm" : ".post_attention_layernorm");
  for (const std::string_view attention : {"kq", "Qcur", "Kcur", "Vcur", "cache_"}) {
    if (node.name.find(attention) != std::string_view::npos) return path + ".self_attn";
  }
  if (node.name.starts_with("ffn_moe_")) return path + ".mlp";
  return path;
}

}  // namespace

size_t Parameters::record_of(const Finding& finding) const {
  const EnginePlace* place = modules_.place_of(finding.mine_record);
  if (place != nullptr && place->record != kNone) return place->record;
  if (place == nullptr) return finding.mine_record;
  // A weight takes part where its module's output is made.
  for (const ModuleCall& call : mine_.calls) {
    if (call.module != finding.module) continue;
    for (const Use& use : call.outputs) {
      const EnginePlace* made = modules_.place_of(use.record);
      if (made != nullptr && made->record != kNone) return made->record;
    }
  }
  return kNone;
}

const Operator* Parameters::find_operator(int64_t step, std::string_view op, std::string_view name,
                                          int64_t number) const {
  for (const Operator& one : mine_.operators) {
    if (one.step != step) continue;
    const auto node = parse_node(one.node);
    if (node && node->op == op && node->name == name && node->number == number) return &one;
  }
  return nullptr;
}

void Parameters::complete(Finding* finding) const {
  if (finding->kind == FindingKind::OwnError) {
    complete_own_error(finding);
    return;
  }
  const size_t record = record_of(*finding);
  if (record >= mine_.run->records.size()) return;
  const TensorRecord& captured = mine_.run->records[record];
  finding->golden_node = finding->node;
  finding->node = captured.node;
  if (const auto node = parse_node(captured.node)) finding->op_type = op_type_of(*node);
  finding->step = captured.step;
  finding->time = captured.order;
  if (finding->module.ends_with("_rope"))
    finding->module = finding->module.substr(0, finding->module.rfind('.'));
  if (finding->kind != FindingKind::Gap) return;
  for (const auto& difference :
       {epsilon(*finding), rotary_base(*finding), scale(*finding), used_experts(*finding)}) {
    if (!difference) continue;
    if (const auto node = parse_node(difference->mine->node)) finding->op_type = op_type_of(*node);
    finding->node = difference->mine->node;
    finding->hypothesis = difference->text;
    return;
  }
}

void Parameters::complete_own_error(Finding* finding) const {
  const auto node = parse_node(finding->node);
  if (!node) return;
  const auto modules = module_tensors_of(node->name, node->op);
  finding->module = modules.empty() ? inner_module(*node) : modules.front().module;
  finding->op_type = op_type_of(*node);
}

std::optional<Parameters::Difference> Parameters::differ(const Operator& one, std::string_view what,
                                                         double mine, double golden,
                                                         double tolerance) {
  if (std::abs(mine - golden) <= tolerance * std::max(std::abs(mine), std::abs(golden)))
    return std::nullopt;
  return Difference{&one, std::string(what) + " " + number_text(mine) + " where golden has " +
                              number_text(golden)};
}

/// Golden's is the argument of a norm in one operator, or the number that is added to the mean of
/// squares in several.
std::optional<Parameters::Difference> Parameters::epsilon(const Finding& finding) const {
  const auto node = parse_node(finding.node);
  if (!node || !finding.module.ends_with("norm")) return std::nullopt;
  const std::string layer = layer_of(node->name);
  const Operator* norm = layer.empty()
                             ? find_operator(finding.step, "rms_norm", "norm", 0)
                             : find_operator(finding.step, "rms_norm", "norm-" + layer,
                                             finding.module.ends_with("input_layernorm") ? 0 : 1);
  const auto mine = norm == nullptr ? std::nullopt : number_of(*norm, "eps");
  if (!mine) return std::nullopt;
  for (const Operator& theirs : golden_.operators) {
    if (theirs.module != finding.module) continue;
    auto golden = number_of(theirs, "eps");
    if (!golden && theirs.name.starts_with("aten.add.")) golden = number_of(theirs, "other");
    if (golden) return differ(*norm, "epsilon", *mine, *golden, 1e-5);
  }
  return std::nullopt;
}

/// base = inv_freq[1] ^ (-d / 2), d the channels that are turned.
std::optional<Parameters::Difference> Parameters::rotary_base(const Finding& finding) const {
  const auto node = parse_node(finding.node);
  if (!node || node->op != "rope") return std::nullopt;
  const Operator* rope = find_operator(finding.step, "rope", node->name, node->number);
  if (rope == nullptr) return std::nullopt;
  const auto base = number_of(*rope, "freq_base");
  const auto channels = number_of(*rope, "n_dims");
  for (const auto& [leaf, record] : golden_.leaves) {
    if (!base || !channels || !leaf.ends_with("inv_freq")) continue;
    const Result<Tensor> tensor = run::load_tensor(golden_.run->records[record]);
    if (!tensor || tensor->view.element_count() < 2) continue;
    const Result<reference::Wide> frequencies = reference::widen(tensor->view);
    if (!frequencies) continue;
    const std::span<const double> values(frequencies->values);
    const double golden = std::pow(values[1] / values[0], -*channels / 2);
    // The power of a float32 has fewer digits.
    constexpr double kTolerance = 1e-3;
    if (auto other = differ(*rope, "base of the rotary embedding", *base, golden, kTolerance))
      return other;
    if (std::ranges::find(rope->inputs, "src2", &Use::slot) != rope->inputs.end())
      return std::nullopt;
    const auto scale = number_of(*rope, "freq_scale");
    if (auto other = differ(*rope, "scale of the rotary embedding's angles", scale.value_or(1),
                            values[0], kTolerance))
      return other;
    // Llama 3.1 and later divide long waves.
    const double last = std::pow(golden, -2 * (static_cast<double>(values.size()) - 1) / *channels);
    return differ(*rope, "divisor of the longest wave of the rotary embedding", 1,
                  last * values[0] / values.back(), kTolerance);
  }
  return std::nullopt;
}

std::optional<Parameters::Difference> Parameters::scale(const Finding& finding) const {
  const auto node = parse_node(finding.node);
  if (!node || !finding.module.ends_with("self_attn")) return std::nullopt;
  const std::string layer = layer_of(node->name);
  const Operator* attention = find_operator(finding.step, "soft_max", "kq_soft_max-" + layer, 0);
  const auto mine = attention == nullptr ? std::nullopt : number_of(*attention, "scale");
  if (!mine) return std::nullopt;
  for (const Operator& theirs : golden_.operators) {
    if (theirs.module != finding.module) continue;
    auto golden = number_of(theirs, "scale");
    if (!golden && theirs.name == "aten.mul.Tensor") golden = number_of(theirs, "other");
    if (golden) return differ(*attention, "scale of attention", *mine, *golden, 1e-5);
  }
  return std::nullopt;
}

int64_t Parameters::result_count(const Operator* one) const {
  if (one == nullptr || one->outputs.empty()) return 0;
  const size_t record = one->outputs.front().record;
  if (record >= mine_.run->records.size() || !mine_.run->records[record].shape) return 0;
  return element_count(*mine_.run->records[record].shape).value_or(0);
}

std::optional<Parameters::Difference> Parameters::used_experts(const Finding& finding) const {
  const auto node = parse_node(finding.node);
  if (!node || !node->name.starts_with("ffn_moe_")) return std::nullopt;
  const std::string layer = layer_of(node->name);
  // A row of logits for each token, and a weight for each expert that it uses.
  const Operator* chosen = find_operator(finding.step, "get_rows", "ffn_moe_weights-" + layer, 0);
  const Operator* logits = find_operator(finding.step, "mul_mat", "ffn_moe_logits-" + layer, 0);
  if (result_count(logits) == 0) return std::nullopt;
  const InternedDims shape = mine_.run->records[logits->outputs.front().record].shape;
  if (!shape || shape->empty() || (*shape)[shape->size() - 1] == 0) return std::nullopt;
  const int64_t tokens = result_count(logits) / (*shape)[shape->size() - 1];
  const int64_t used = tokens == 0 ? 0 : result_count(chosen) / tokens;
  const std::string router = finding.module.substr(0, finding.module.rfind(".mlp") + 4) + ".gate";
  for (const Operator& theirs : golden_.operators) {
    if (used == 0 || theirs.module != router || theirs.name != "aten.topk.default") continue;
    if (const auto golden = number_of(theirs, "k"))
      return differ(*chosen, "experts of a token", static_cast<double>(used), *golden, 0);
  }
  return std::nullopt;
}

}  // namespace assay::engines::ggml
