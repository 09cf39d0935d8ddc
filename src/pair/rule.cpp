// SPDX-License-Identifier: Apache-2.0
#include "pair/rule.hpp"

#include <array>

namespace assay::pair {
namespace {

struct NamedRule {
  Rule rule;
  std::string_view name;
};

constexpr std::array kNames = {
    NamedRule{Rule::None, ""},
    NamedRule{Rule::Explicit, "explicit"},
    NamedRule{Rule::DumpData, "dump_data"},
    NamedRule{Rule::MappingFile, "mapping file"},
    NamedRule{Rule::EqualNames, "equal names"},
    NamedRule{Rule::EqualKeys, "equal keys"},
    NamedRule{Rule::TwoFiles, "two files"},
    NamedRule{Rule::EqualPosition, "equal position"},
    NamedRule{Rule::LayerMatch, "layer_match"},
    NamedRule{Rule::LayerSpecial, "layer_special"},
    NamedRule{Rule::ModuleMatch, "module_match"},
    NamedRule{Rule::Output, "output"},
    NamedRule{Rule::NameFullMatch, "name_full_match"},
    NamedRule{Rule::LayerTypeCount, "layer_type_cnt"},
    NamedRule{Rule::MapCount, "map_count"},
    NamedRule{Rule::Rope, "rope"},
    NamedRule{Rule::EnhancedName, "enhanced_name"},
    NamedRule{Rule::FusedQkv, "qwen"},
    NamedRule{Rule::FusionMetadata, "fusion metadata"},
    NamedRule{Rule::DumpMetadata, "dump metadata"},
    NamedRule{Rule::NameDecomposition, "name decomposition"},
    NamedRule{Rule::FxTensorName, "fx tensor name"},
    NamedRule{Rule::AlignedByShape, "aligned by shape"},
    NamedRule{Rule::OwnInput, "own input"},
    NamedRule{Rule::EngineTable, "ggml table"},
    NamedRule{Rule::PrefixedNames, "names equal up to a prefix"},
    NamedRule{Rule::GgufNames, "names of GGUF"},
    NamedRule{Rule::TiedEmbedding, "tied embedding"},
    NamedRule{Rule::Values, "values"},
    NamedRule{Rule::Pattern, "pattern"},
    NamedRule{Rule::Place, "order and shape"},
};

// The table has a row for each rule, in their order.
static_assert([] {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i].rule != static_cast<Rule>(i)) return false;
  }
  return kNames.back().rule == Rule::Place;
}());

}  // namespace

std::string_view rule_name(Rule rule) { return kNames[static_cast<size_t>(rule)].name; }

}  // namespace assay::pair
