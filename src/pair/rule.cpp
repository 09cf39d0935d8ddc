// SPDX-License-Identifier: Apache-2.0
// A table in the order of the enumeration; names with underscores are the original's.
#include "pair/rule.hpp"

#include <iterator>

namespace assay::pair {

std::string_view rule_name(Rule rule) {
  constexpr std::string_view kNames[] = {"",
                                         "explicit",
                                         "dump_data",
                                         "mapping file",
                                         "equal names",
                                         "equal keys",
                                         "two files",
                                         "equal position",
                                         "layer_match",
                                         "layer_special",
                                         "module_match",
                                         "output",
                                         "name_full_match",
                                         "layer_type_cnt",
                                         "map_count",
                                         "rope",
                                         "enhanced_name",
                                         "qwen",
                                         "fusion metadata",
                                         "dump metadata",
                                         "name decomposition",
                                         "fx tensor name",
                                         "aligned by shape",
                                         "own input",
                                         "engine table",
                                         "names equal up to a prefix",
                                         "names of GGUF",
                                         "tied embedding",
                                         "values",
                                         "pattern",
                                         "order and shape"};
  static_assert(std::size(kNames) == static_cast<size_t>(Rule::Place) + 1);
  return kNames[static_cast<size_t>(rule)];
}

}  // namespace assay::pair
