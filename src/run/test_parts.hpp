// SPDX-License-Identifier: Apache-2.0
// Parts done in the process that asks for them.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "run/parts.hpp"

namespace assay::run::test {

class PartsHere : public PartRunner {
 public:
  using Work = std::function<Result<std::string>(ByteSpan body)>;
  explicit PartsHere(Work work) : work_(std::move(work)) {}

  Status run(size_t count, const std::function<Request(size_t i)>& request,
             const std::function<void(size_t i, Outcome outcome)>& done) override {
    for (size_t i = count; i-- > 0;) {  // in another order than asked
      const Request asked = request(i);
      bodies.push_back(asked.body);
      files.insert(asked.part.files.begin(), asked.part.files.end());
      crossing += asked.part.crosses_ranks;
      done(i, work_(as_bytes(asked.body)));
    }
    return {};
  }

  std::vector<std::string> bodies;
  std::set<std::string> files;
  size_t crossing = 0;

 private:
  Work work_;
};

/// Half a part is refused, and one with any of its bytes changed does no harm.
inline void expect_trusts_nothing(const std::string& body, const PartsHere::Work& work) {
  ASSERT_TRUE(work(as_bytes(body)));
  for (size_t size = 0; size < body.size(); ++size)
    EXPECT_FALSE(work(as_bytes(body).first(size))) << size;
  for (size_t at = 0; at < body.size(); ++at) {
    std::string changed = body;
    changed[at] = static_cast<char>(changed[at] ^ 0xff);
    (void)work(as_bytes(changed));  // an error or an answer, under the sanitizers, too
  }
}

}  // namespace assay::run::test
