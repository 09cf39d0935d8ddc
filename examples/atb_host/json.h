// SPDX-License-Identifier: Apache-2.0
// Parameters and topologies as JSON text: keys sorted, no blanks, numbers as nlohmann::json prints them. Just enough
// for this program: no escapes are needed, since all names are letters, digits and underscores.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace atb_host {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json>;

  Json() = default;  // null
  template <typename T>
    requires std::is_arithmetic_v<T>
  Json(T value) {  // NOLINT(google-explicit-constructor): {"key", 1} is how parameters read best
    if constexpr (std::is_same_v<T, bool>) {
      value_ = value;
    } else if constexpr (std::is_integral_v<T>) {
      value_ = static_cast<int64_t>(value);
    } else {
      value_ = static_cast<double>(value);
    }
  }
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  std::string dump() const;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

/// One element a number.
template <typename T>
Json json_array(const std::vector<T>& values) {
  return Json::Array(values.begin(), values.end());
}

}  // namespace atb_host
