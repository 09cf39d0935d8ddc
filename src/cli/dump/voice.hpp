// SPDX-License-Identifier: Apache-2.0
// How a command speaks: under the old names as the original's log, under ours in plain lines on
// stderr.
#pragma once
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "cli/dump/dump_request.hpp"
#include "vendor/msit/log.hpp"

namespace assay::cli {

class Voice {
 public:
  Voice(DumpName name, std::string_view log_level)
      : old_(name != DumpName::Assay),
        log_(vendor::msit::level_of(log_level)),
        level_(vendor::msit::level_of(log_level)) {}

  /// What a person wants to know at the end.
  void info(const std::string& message) const;
  /// Said only under the old names, whose readers may look for it.
  void old_info(const std::string& message) const;
  void old_warning(const std::string& message) const;
  void warning(const std::string& message) const;
  void error(const Error& error) const;

 private:
  bool old_;
  vendor::msit::Log log_;
  vendor::msit::Level level_;
};

}  // namespace assay::cli
