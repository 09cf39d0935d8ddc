// SPDX-License-Identifier: Apache-2.0
#include "cli/tools/tools.hpp"

namespace assay::cli {

const std::vector<std::string>& tool_names() {
  static const std::vector<std::string> names;
  return names;
}

int tool_main(std::string_view, const std::string&, const std::vector<std::string>&) { return 2; }

}  // namespace assay::cli
