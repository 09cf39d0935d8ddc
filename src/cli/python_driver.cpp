// SPDX-License-Identifier: Apache-2.0
// Makes a short program for `python -c` that imports the module, says which extra to install when a
// package is missing, and calls its main().
#include "cli/python_driver.hpp"

#include <algorithm>

#include "base/python_program.hpp"

namespace assay::cli {

Words python_driver(std::string_view imports, std::string_view extra, std::string_view next) {
  // "" is the working directory, which has no say in what is imported.
  std::string text =
      "import sys\n"
      "if sys.path[0] == \"\":\n"
      "    del sys.path[0]\n"
      "try:\n";
  for (size_t begin = 0; begin < imports.size();) {
    const size_t end = std::min(imports.find('\n', begin), imports.size());
    text += "    " + std::string(imports.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  text +=
      "except ModuleNotFoundError as why:\n"
      "    print(f\"error: {sys.executable} has no package {why.name}; pip install 'assay-llm[" +
      std::string(extra) +
      "]', \"\n"
      "          \"or name another Python in ASSAY_PYTHON\", file=sys.stderr)\n";
  if (!next.empty()) text += "    print(\"next: " + std::string(next) + "\", file=sys.stderr)\n";
  text +=
      "    sys.exit(2)\n"
      "sys.exit(main(sys.argv[1:]))\n";
  return {python_program(), "-c", text};
}

}  // namespace assay::cli
