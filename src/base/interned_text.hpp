// SPDX-License-Identifier: Apache-2.0
// Text of which millions of objects hold few different ones: names of nodes, types, files.
#pragma once
#include <compare>
#include <concepts>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>

namespace assay {

/// A handle of four bytes to a text that the process keeps once, until it ends. Reads as a
/// constant std::string; equal texts are equal handles.
class InternedText {
 public:
  InternedText() = default;
  InternedText(std::string_view text) : handle_(add(text)) {}
  InternedText(const std::string& text) : InternedText(std::string_view(text)) {}
  InternedText(const char* text) : InternedText(std::string_view(text)) {}

  [[nodiscard]] const std::string& str() const;
  operator const std::string&() const { return str(); }
  operator std::string_view() const { return str(); }

  [[nodiscard]] bool empty() const { return handle_ == 0; }
  void clear() { handle_ = 0; }
  InternedText& operator+=(std::string_view more) {
    return *this = InternedText(str() + std::string(more));
  }
  [[nodiscard]] size_t size() const { return str().size(); }
  [[nodiscard]] const char* c_str() const { return str().c_str(); }
  [[nodiscard]] char operator[](size_t i) const { return str()[i]; }
  [[nodiscard]] char front() const { return str().front(); }
  [[nodiscard]] char back() const { return str().back(); }
  [[nodiscard]] auto begin() const { return str().begin(); }
  [[nodiscard]] auto end() const { return str().end(); }
  template <typename... Arguments>
  [[nodiscard]] size_t find(Arguments... what) const {
    return str().find(what...);
  }
  template <typename... Arguments>
  [[nodiscard]] size_t rfind(Arguments... what) const {
    return str().rfind(what...);
  }
  template <typename... Arguments>
  [[nodiscard]] size_t find_first_not_of(Arguments... what) const {
    return str().find_first_not_of(what...);
  }
  template <typename... Arguments>
  [[nodiscard]] size_t find_last_of(Arguments... what) const {
    return str().find_last_of(what...);
  }
  [[nodiscard]] std::string substr(size_t first, size_t count = std::string::npos) const {
    return str().substr(first, count);
  }
  [[nodiscard]] bool starts_with(std::string_view start) const { return str().starts_with(start); }
  [[nodiscard]] bool ends_with(std::string_view end) const { return str().ends_with(end); }

  /// Equal exactly where the texts are; what it is does not depend on them.
  [[nodiscard]] uint32_t handle() const { return handle_; }

  friend bool operator==(InternedText a, InternedText b) { return a.handle_ == b.handle_; }
  friend std::strong_ordering operator<=>(InternedText a, InternedText b) {
    if (a.handle_ == b.handle_) return std::strong_ordering::equal;
    return std::string_view(a) <=> std::string_view(b);
  }
  // Whatever else is a text is compared as one, without being kept.
  template <typename Text>
    requires(std::convertible_to<const Text&, std::string_view> &&
             !std::same_as<Text, InternedText>)
  friend bool operator==(InternedText a, const Text& b) {
    return std::string_view(a) == std::string_view(b);
  }
  template <typename Text>
    requires(std::convertible_to<const Text&, std::string_view> &&
             !std::same_as<Text, InternedText>)
  friend std::strong_ordering operator<=>(InternedText a, const Text& b) {
    return std::string_view(a) <=> std::string_view(b);
  }
  friend std::string operator+(InternedText a, InternedText b) { return a.str() + b.str(); }
  friend std::string operator+(InternedText a, const std::string& b) { return a.str() + b; }
  friend std::string operator+(InternedText a, const char* b) { return a.str() + b; }
  friend std::string operator+(InternedText a, char b) { return a.str() + b; }
  friend std::string operator+(const std::string& a, InternedText b) { return a + b.str(); }
  friend std::string operator+(std::string&& a, InternedText b) { return std::move(a) + b.str(); }
  friend std::string operator+(const char* a, InternedText b) { return a + b.str(); }
  friend std::string operator+(char a, InternedText b) { return a + b.str(); }
  friend std::ostream& operator<<(std::ostream& out, InternedText text) {
    return out << text.str();
  }

 private:
  [[nodiscard]] static uint32_t add(std::string_view text);

  uint32_t handle_ = 0;
};

}  // namespace assay

template <>
struct std::hash<assay::InternedText> {
  size_t operator()(assay::InternedText text) const { return std::hash<uint32_t>()(text.handle()); }
};
