// SPDX-License-Identifier: Apache-2.0
// The tree of modules, from their dotted names.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "run/run.hpp"

namespace assay::run::sources {

/// Modules in the order in which they were added; a module stands below the longest other path that
/// begins its own.
class ModuleTree {
 public:
  /// name  dotted path; an empty one, and one that is known already, changes nothing
  void add(const std::string& name, const std::string& type);

  /// Nothing when there is no module. The root has no name.
  [[nodiscard]] std::optional<TopologyNode> build() const;

 private:
  using Children = std::map<std::string, std::vector<std::string>>;  // by the parent's name
  [[nodiscard]] std::string parent_of(std::string name) const;
  void add_children(const Children& children, TopologyNode* node, size_t depth) const;

  std::map<std::string, std::string> types_;
  std::vector<std::string> order_;
};

}  // namespace assay::run::sources
