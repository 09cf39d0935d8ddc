// SPDX-License-Identifier: Apache-2.0
// The tree is built from the events of a SAX parser; modules that are open stand on a vector, and
// of what is under unknown keys only the depth is counted.
#include "topology/model_tree.hpp"

#include <nlohmann/json.hpp>
#include <utility>

namespace assay::topology {
namespace {

/// Builds the tree while the parser walks the text, so that neither depth nor size of a hostile
/// file costs more than the limits allow.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::optional<Error> error;
  ModuleNode root;
  bool finished = false;

  bool null() override { return scalar(); }
  bool boolean(bool) override { return scalar(); }
  bool number_integer(number_integer_t value) override {
    if (skip_depth_ == 0 && key_ == Key::ExecOrder && !open_.empty())
      open_.back().exec_order = value;
    return scalar();
  }
  bool number_unsigned(number_unsigned_t value) override {
    return number_integer(value > INT64_MAX ? INT64_MAX : static_cast<number_integer_t>(value));
  }
  bool number_float(number_float_t, const string_t&) override { return scalar(); }
  bool binary(binary_t&) override { return scalar(); }
  bool string(string_t& value) override {
    if (skip_depth_ == 0 && !open_.empty()) {
      if (key_ == Key::Name) open_.back().name = std::move(value);
      if (key_ == Key::Type) open_.back().type = std::move(value);
      if (key_ == Key::Source) open_.back().source = std::move(value);
    }
    if (in_parameter()) {
      if (parameter_key_ == "name") parameter_name_ = std::move(value);
      if (parameter_key_ == "dtype") parameter_type_ = std::move(value);
    }
    return scalar();
  }
  bool key(string_t& name) override {
    if (in_parameter()) parameter_key_ = name;
    if (skip_depth_ > 0) return true;
    key_ = name == "name"         ? Key::Name
           : name == "type"       ? Key::Type
           : name == "source"     ? Key::Source
           : name == "children"   ? Key::Children
           : name == "exec_order" ? Key::ExecOrder
           : name == "parameters" ? Key::Parameters
                                  : Key::Other;
    return true;
  }
  bool start_object(size_t) override {
    const bool is_node = skip_depth_ == 0 && (open_.empty() || in_children_);
    if (!is_node) return skip();
    if (open_.size() >= kMaxTreeDepth) return refuse("modules are nested deeper than 256");
    if (++node_count_ > kMaxTreeNodes) return refuse("more than 4194304 modules");
    open_.emplace_back();
    in_children_ = false;
    key_ = Key::Other;
    return true;
  }
  bool end_object() override {
    if (in_parameter() && !parameter_name_.empty() && !parameter_type_.empty()) {
      open_.back().parameter_types.emplace(std::exchange(parameter_name_, {}),
                                           std::exchange(parameter_type_, {}));
    }
    if (skip_depth_ > 0) return leave();
    ModuleNode node = std::move(open_.back());
    open_.pop_back();
    if (open_.empty()) {
      root = std::move(node);
      finished = true;
    } else {
      open_.back().children.push_back(std::move(node));
      in_children_ = true;
    }
    key_ = Key::Other;
    return true;
  }
  bool start_array(size_t) override {
    if (skip_depth_ == 0 && !open_.empty() && !in_children_ && key_ == Key::Children) {
      in_children_ = true;
      return true;
    }
    if (skip_depth_ == 0 && !open_.empty() && key_ == Key::Parameters) in_parameters_ = true;
    return skip();
  }
  bool end_array() override {
    if (skip_depth_ == 1) in_parameters_ = false;
    if (skip_depth_ > 0) return leave();
    in_children_ = false;
    key_ = Key::Other;
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    if (!error) error = Error{Errc::Invalid, {}, position, "is not valid JSON, or it was cut off"};
    return false;
  }

 private:
  enum class Key : uint8_t { Other, Name, Type, Source, Children, ExecOrder, Parameters };

  /// Directly inside an object of the list "parameters", which is skipped like all we do not know.
  [[nodiscard]] bool in_parameter() const { return in_parameters_ && skip_depth_ == 2; }

  bool scalar() {
    if (skip_depth_ == 0) key_ = Key::Other;
    return true;
  }
  /// An object or array under a key we do not know. A million of them inside each other is only a
  /// number here.
  bool skip() {
    ++skip_depth_;
    return true;
  }
  bool leave() {
    if (--skip_depth_ == 0) key_ = Key::Other;
    return true;
  }
  bool refuse(const char* message) {
    error = Error{Errc::TooLarge, {}, std::nullopt, message};
    return false;
  }

  std::vector<ModuleNode> open_;
  bool in_children_ = false;
  Key key_ = Key::Other;
  size_t skip_depth_ = 0;
  size_t node_count_ = 0;
  bool in_parameters_ = false;
  std::string parameter_key_;
  std::string parameter_name_;
  std::string parameter_type_;
};

}  // namespace

Result<ModuleNode> read_model_tree(std::string_view text) {
  TreeBuilder builder;
  const bool parsed = nlohmann::json::sax_parse(text.begin(), text.end(), &builder,
                                                nlohmann::json::input_format_t::json,
                                                /*strict=*/false);
  if (builder.error) return fail(*std::move(builder.error));
  if (!parsed || !builder.finished)
    return fail(Errc::Invalid, "the first JSON value is no object with a module tree", 0);
  return std::move(builder.root);
}

std::map<std::string_view, std::string_view> module_sources(const ModuleNode& root) {
  std::map<std::string_view, std::string_view> sources;
  std::vector<const ModuleNode*> pending{&root};
  while (!pending.empty()) {
    const ModuleNode& node = *pending.back();
    pending.pop_back();
    if (!node.source.empty()) sources.emplace(node.name, node.source);
    for (const ModuleNode& child : node.children) pending.push_back(&child);
  }
  return sources;
}

}  // namespace assay::topology
