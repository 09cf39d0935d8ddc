// SPDX-License-Identifier: Apache-2.0
#include "run/payload_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace assay::run {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TensorView view_of(const std::vector<float>& values) {
  return *make_view(DType::Float32, Dims{static_cast<int64_t>(values.size())},
                    std::as_bytes(std::span(values)));
}

// 1 ... 256: no two are equal, so that any other order is another tensor.
std::vector<float> ramp() {
  std::vector<float> values(256);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  return values;
}

class Payload {
 public:
  explicit Payload(const std::vector<float>& values, bool is_rough = false) {
    record_.node = "norm";
    record_.step_name = "3";
    record_.bytes.emplace().file = "run/rank0/step-000003.safetensors";
    record_.stats = stats::compute_stats(view_of(values));
    make(is_rough);
  }
  void make(bool is_rough) { check_ = PayloadChecks(found_).add(is_rough); }
  TensorRecord& record() { return record_; }
  std::string problem(const std::vector<float>& values) {
    return check_.problem(record_, view_of(values));
  }
  std::vector<Damage> found() { return found_->list(); }

 private:
  TensorRecord record_;
  std::shared_ptr<FoundDamage> found_ = std::make_shared<FoundDamage>();
  PayloadCheck check_;
};

TEST(PayloadCheck, LetsThePayloadOfTheRecordPass) {
  Payload payload(ramp());
  EXPECT_THAT(payload.problem(ramp()), IsEmpty());
  EXPECT_THAT(payload.found(), IsEmpty());
}

TEST(PayloadCheck, NamesFileTensorAndDifferenceOnce) {
  Payload payload(ramp());
  std::vector<float> changed = ramp();
  changed[255] = 300;
  for (int time = 0; time < 2; ++time)
    EXPECT_EQ(payload.problem(changed),
              "the values of norm output of step 3 are not those of its record (maximum 300.0 "
              "against 256.0)");
  ASSERT_THAT(payload.found(), SizeIs(1));
  EXPECT_EQ(payload.found()[0].file, "run/rank0/step-000003.safetensors");
}

TEST(PayloadCheck, SeesOneValueInside) {
  Payload payload(ramp());
  std::vector<float> changed = ramp();
  changed[100] = 101.01f;  // of a norm of 2369
  EXPECT_THAT(payload.problem(changed), HasSubstr("l2 norm"));
}

TEST(PayloadCheck, SeesAnotherOrder) {
  Payload payload(ramp());
  std::vector<float> changed = ramp();
  std::ranges::reverse(changed);
  EXPECT_THAT(payload.problem(changed), HasSubstr("another order"));
}

TEST(PayloadCheck, SeesAnotherSignOfTheMean) {
  Payload payload({-2, 1, 1, 2});
  EXPECT_THAT(payload.problem({-2, -1, 1, 2}), HasSubstr("mean"));
}

TEST(PayloadCheck, CountsWhatIsNotFinite) {
  Payload payload({1, NAN, 2});
  EXPECT_THAT(payload.problem({1, NAN, 2}), IsEmpty());
  Payload other({1, NAN, 2});
  EXPECT_THAT(other.problem({1, INFINITY, 2}), HasSubstr("finite values"));
  Payload none({NAN, NAN});
  EXPECT_THAT(none.problem({NAN, NAN}), IsEmpty());
}

TEST(PayloadCheck, BearsTheSumsOfADeviceInFloat32) {
  Payload payload(ramp(), true);
  stats::TensorStats rough = *payload.record().stats;
  rough.l2_norm *= 1 + 2e-6;
  rough.mean *= 1 - 2e-6;
  rough.sketch.reset();
  payload.record().stats = rough;
  payload.make(true);
  EXPECT_THAT(payload.problem(ramp()), IsEmpty());
  payload.make(false);
  EXPECT_THAT(payload.problem(ramp()), HasSubstr("l2 norm"));
}

TEST(PayloadCheck, HoldsADigestAgainstTheBytes) {
  Payload payload(ramp());
  payload.record().digest = stats::digest(view_of(ramp()));
  payload.make(false);
  std::vector<float> changed = ramp();
  changed[7] = std::nextafter(changed[7], 9.0f);
  EXPECT_THAT(payload.problem(changed), HasSubstr("digest"));
}

}  // namespace
}  // namespace assay::run
