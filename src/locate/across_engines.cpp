// SPDX-License-Identifier: Apache-2.0
#include "locate/across_engines.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "compare/match/ggml_names.hpp"
#include "reference/ggml/operators.hpp"
#include "reference/wide.hpp"

namespace assay::locate {
namespace {

using run::TensorRecord;

std::string number(double value) {
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

bool are_equal(double a, double b) {
  return std::abs(a - b) <= 1e-5 * std::max(std::abs(a), std::abs(b));
}

/// "Qcur-3::ggml.rope.0" -> {"Qcur-3", "rope"}
std::pair<std::string_view, std::string_view> name_and_type(std::string_view node) {
  const size_t mark = node.rfind("::ggml.");
  if (mark == std::string_view::npos) return {node, {}};
  std::string_view type = node.substr(mark + 7);
  return {node.substr(0, mark), type.substr(0, type.rfind('.'))};
}

/// "kq-3" -> 3
std::string layer_of(std::string_view name) {
  const size_t dash = name.rfind('-');
  if (dash == std::string_view::npos) return {};
  const std::string_view rest = name.substr(dash + 1);
  return std::string(rest.substr(0, rest.find_first_not_of("0123456789")));
}

/// The module in which Hugging Face does what a node does that is no module's output.
std::string inner_module(std::string_view name, std::string_view occurrence) {
  const std::string layer = layer_of(name);
  if (layer.empty()) return name == "norm" ? "model.norm" : "";
  const std::string path = "model.layers." + layer;
  if (name.starts_with("norm-"))
    return path + (occurrence == "0" ? ".input_layernorm" : ".post_attention_layernorm");
  for (const std::string_view attention : {"kq", "Qcur", "Kcur", "Vcur", "cache_"}) {
    if (name.find(attention) != std::string_view::npos) return path + ".self_attn";
  }
  return path;
}

}  // namespace

size_t AcrossEngines::record_of(const Finding& finding) const {
  const GgmlPlace* place = modules_.place_of(finding.mine_record);
  if (place != nullptr && place->record != kNone) return place->record;
  if (place == nullptr) return finding.mine_record;
  // A weight takes part where its module's output is made.
  for (const ModuleCall& call : mine_.calls) {
    if (call.module != finding.module) continue;
    for (const Use& use : call.outputs) {
      const GgmlPlace* made = modules_.place_of(use.record);
      if (made != nullptr && made->record != kNone) return made->record;
    }
  }
  return kNone;
}

const Operator* AcrossEngines::find_operator(int64_t step, std::string_view name,
                                             std::string_view type) const {
  const auto found = std::ranges::find_if(mine_.operators, [&](const Operator& one) {
    return one.step == step && name_and_type(one.node) == std::pair(name, type);
  });
  return found == mine_.operators.end() ? nullptr : &*found;
}

void AcrossEngines::complete(Finding* finding) const {
  if (finding->kind == FindingKind::OwnError) {
    complete_own_error(finding);
    return;
  }
  const size_t record = record_of(*finding);
  if (record >= mine_.run->records.size()) return;
  const TensorRecord& captured = mine_.run->records[record];
  const auto [name, type] = name_and_type(captured.node);
  finding->golden_node = finding->node;
  finding->node = captured.node;
  finding->op_type = "ggml " + std::string(type) + " " + std::string(name);
  finding->step = captured.step;
  finding->time = captured.order;
  if (finding->module.ends_with("_rope"))
    finding->module = finding->module.substr(0, finding->module.rfind('.'));
  if (finding->kind == FindingKind::Gap) explain(finding);
}

void AcrossEngines::complete_own_error(Finding* finding) const {
  const auto [name, type] = name_and_type(finding->node);
  if (type.empty()) return;
  const size_t dot = finding->node.rfind('.');
  const auto modules = compare::module_tensors_of(name, type);
  finding->module =
      modules.empty() ? inner_module(name, finding->node.substr(dot + 1)) : modules.front().module;
  finding->op_type = "ggml " + std::string(type) + " " + std::string(name);
}

void AcrossEngines::explain(Finding* finding) const {
  const std::string layer = layer_of(name_and_type(finding->node).first);
  const auto say = [&](const Operator& one, std::string_view what, double mine, double golden) {
    const auto [name, type] = name_and_type(one.node);
    finding->node = one.node;
    finding->op_type = "ggml " + std::string(type) + " " + std::string(name);
    finding->hypothesis =
        std::string(what) + " " + number(mine) + " where golden has " + number(golden);
  };
  // Epsilon: the scalar that golden's norm adds to the mean of squares, or its argument.
  if (finding->module.ends_with("norm")) {
    const std::string_view occurrence = finding->module.ends_with("input_layernorm") ? "0" : "1";
    for (const Operator& one : mine_.operators) {
      if (one.name != "ggml.rms_norm" || one.step != finding->step) continue;
      const auto name = name_and_type(one.node).first;
      const bool is_it = layer.empty() ? name == "norm"
                                       : name == "norm-" + layer && one.node.ends_with(occurrence);
      const auto mine = number_of(one, "eps");
      if (!is_it || !mine) continue;
      for (const Operator& theirs : golden_.operators) {
        if (theirs.module != finding->module) continue;
        auto golden = number_of(theirs, "eps");
        if (!golden && theirs.name.starts_with("aten.add.")) golden = number_of(theirs, "other");
        if (!golden) continue;
        if (!are_equal(*golden, *mine)) say(one, "epsilon", *mine, *golden);
        return;
      }
    }
  }
  // Rotary embedding: base = inv_freq[1] ^ (-d / 2).
  for (const std::string_view which : {"Qcur-", "Kcur-"}) {
    const Operator* rope = finding->node.find("ggml.rope") == std::string::npos
                               ? nullptr
                               : find_operator(finding->step, std::string(which) + layer, "rope");
    if (rope == nullptr) continue;
    const auto base = number_of(*rope, "freq_base");
    const auto dims = number_of(*rope, "n_dims");
    for (const auto& [leaf, record] : golden_.leaves) {
      if (!base || !dims || !leaf.ends_with("inv_freq")) continue;
      const Result<Tensor> tensor = run::load_tensor(golden_.run->records[record]);
      if (!tensor || tensor->view.element_count() < 2) continue;
      const Result<reference::Wide> values = reference::widen(tensor->view);
      if (!values) continue;
      const double golden = std::pow(values->values[1], -*dims / 2);
      if (std::abs(golden - *base) > 1e-3 * *base) {
        say(*rope, "base of the rotary embedding", *base, golden);
        return;
      }
    }
  }
  // Attention: the scale of the scores.
  for (const auto& [name, type] : {std::pair("kq_soft_max-" + layer, std::string("soft_max")),
                                   std::pair("kqv_out-" + layer, std::string("flash_attn_ext"))}) {
    const Operator* attention = find_operator(finding->step, name, type);
    if (attention == nullptr || finding->module.find("self_attn") == std::string::npos) continue;
    const auto mine = number_of(*attention, "scale");
    if (!mine) continue;
    for (const Operator& theirs : golden_.operators) {
      if (theirs.module.empty() || finding->module.rfind(theirs.module, 0) != 0 ||
          !theirs.module.ends_with("self_attn"))
        continue;
      auto golden = number_of(theirs, "scale");
      if (!golden && theirs.name == "aten.mul.Tensor") golden = number_of(theirs, "other");
      if (!golden || *golden == 1) continue;
      if (!are_equal(*golden, *mine)) say(*attention, "scale of attention", *mine, *golden);
      return;
    }
  }
}

void put_on_sides(const GgmlModules& modules, bool turned, Verdict* verdict) {
  const auto captured = [&](size_t record) {
    const GgmlPlace* place = modules.place_of(record);
    return place == nullptr ? record : turned ? place->golden : place->record;
  };
  for (std::vector<Finding>* list :
       {&verdict->candidates, &verdict->suspicions, &verdict->golden_findings}) {
    for (Finding& finding : *list) {
      const GgmlPlace* place = modules.place_of(finding.mine_record);
      if (place == nullptr) continue;
      finding.mine_record = turned ? place->golden : place->record;
      if (turned) finding.golden_record = place->record;
    }
  }
  std::map<size_t, Verdict::RecordJudgement> records;
  for (const auto& [record, judgement] : verdict->records) {
    const bool made = modules.place_of(record) != nullptr;
    const size_t at = captured(record);
    if (at == kNone || (turned && !made)) continue;
    // What golden's program says of a value comes before what its own operator does.
    if (made || !records.contains(at)) records.insert_or_assign(at, judgement);
  }
  verdict->records = std::move(records);
  if (turned) {
    verdict->notes.insert(
        verdict->notes.begin(),
        "golden is the ggml run, which knows no modules: mine's program was "
        "replayed on golden's values, and what is said of \"mine\" above is golden's");
    std::swap(verdict->golden_level, verdict->mine_level);
  }
}

}  // namespace assay::locate
