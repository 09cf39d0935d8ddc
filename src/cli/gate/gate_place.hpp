// SPDX-License-Identifier: Apache-2.0
// The folder of a gate's captures: the user's, or one that goes again.
#pragma once
#include <string>

#include "base/result.hpp"

namespace assay::cli {

/// Removes what the gate made there when it goes, unless keep() was called: a temporary folder, or
/// of the user's folder the captures.
class GatePlace {
 public:
  /// output  the user's folder; empty: a new one below the system's temporary folder
  /// errors  Usage (output holds captures already) | Permission | NoSpace | Io
  [[nodiscard]] static Result<GatePlace> make(const std::string& output);
  GatePlace(GatePlace&& other) noexcept;
  GatePlace& operator=(GatePlace&&) = delete;
  ~GatePlace();

  [[nodiscard]] const std::string& path() const { return path_; }
  void keep() { keep_ = true; }

 private:
  GatePlace(std::string path, bool made) : path_(std::move(path)), made_(made) {}
  std::string path_;
  bool made_;  // the folder itself, not only what is in it
  bool keep_ = false;
};

}  // namespace assay::cli
