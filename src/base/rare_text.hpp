// SPDX-License-Identifier: Apache-2.0
// A text of eight bytes for members that hardly any object of a type has.
#pragma once
#include <concepts>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>

namespace assay {

/// Reads as a constant std::string; one that is not empty costs an allocation of its own.
class RareText {
 public:
  RareText() = default;
  RareText(std::string text) {
    if (!text.empty()) held_ = std::make_unique<const std::string>(std::move(text));
  }
  RareText(const char* text) : RareText(std::string(text)) {}
  RareText(const RareText& other) : RareText(other.str()) {}
  RareText(RareText&&) noexcept = default;
  RareText& operator=(const RareText& other) {
    if (this != &other) *this = RareText(other.str());
    return *this;
  }
  RareText& operator=(RareText&&) noexcept = default;
  ~RareText() = default;

  [[nodiscard]] const std::string& str() const {
    static const std::string kEmpty;
    return held_ ? *held_ : kEmpty;
  }
  operator const std::string&() const { return str(); }
  operator std::string_view() const { return str(); }
  RareText& operator+=(std::string_view more) { return *this = str() + std::string(more); }
  [[nodiscard]] bool empty() const { return held_ == nullptr; }
  [[nodiscard]] size_t find(std::string_view text) const { return str().find(text); }
  [[nodiscard]] bool starts_with(std::string_view start) const { return str().starts_with(start); }
  [[nodiscard]] bool ends_with(std::string_view end) const { return str().ends_with(end); }

  template <std::convertible_to<std::string_view> Text>
  friend bool operator==(const RareText& a, const Text& b) {
    return a.str() == std::string_view(b);
  }
  friend std::string operator+(const std::string& a, const RareText& b) { return a + b.str(); }
  friend std::string operator+(std::string&& a, const RareText& b) {
    return std::move(a) + b.str();
  }
  friend std::string operator+(const char* a, const RareText& b) { return a + b.str(); }
  friend std::string operator+(const RareText& a, const std::string& b) { return a.str() + b; }
  friend std::string operator+(const RareText& a, const char* b) { return a.str() + b; }
  friend std::ostream& operator<<(std::ostream& out, const RareText& text) {
    return out << text.str();
  }

 private:
  std::unique_ptr<const std::string> held_;  // never an empty one
};

}  // namespace assay
