// SPDX-License-Identifier: Apache-2.0
// Names that a file system refuses because they are too long, as CANN's converter of dumps
// (msaccucmp) replaces them.
#pragma once
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace assay::vendor::cann {

/// Names of this many bytes and more are replaced; the file system's own limit is 255.
inline constexpr size_t kLongNameBytes = 255;

/// UUID of version 3 (MD5) of a name in the name space of DNS: 32 hex digits without dashes.
/// source    RFC 9562 section 5.3
[[nodiscard]] std::string dns_uuid3(std::string_view name);

/// Invariant: a line "{new},{old}" stands in `mapping.csv` of a folder before a file of that new
/// name does.
class LongNames {
 public:
  /// mode    of the mapping files, subject to the umask
  explicit LongNames(unsigned mode) : mode_(mode) {}

  /// `name`, or for long ones dns_uuid3(name) and `suffix` (".npy"), noted in folder/mapping.csv.
  /// Safe from several threads.
  /// errors    of writing the mapping file
  [[nodiscard]] Result<std::string> fit(const std::string& folder, const std::string& name,
                                        std::string_view suffix);

 private:
  const unsigned mode_;
  std::mutex mutex_;
  std::map<std::string, std::set<std::string>> written_;  // lines, by folder
};

}  // namespace assay::vendor::cann
