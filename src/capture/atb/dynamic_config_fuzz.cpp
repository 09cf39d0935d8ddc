// SPDX-License-Identifier: Apache-2.0
// Any configuration file: read, or refused with a sentence; what it selects can be asked for
// everything.
#include "capture/common/dynamic_config.hpp"

#include <cstdlib>

#include "capture/atb/selection.hpp"

using namespace assay::capture;
using namespace assay::capture::atb;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = parse_dynamic_config(text);
  if (!config) {
    if (config.error().message.empty()) std::abort();
    return 0;
  }
  Settings environment;
  environment.config_path = "/config.json";
  environment.types = kTensor;
  const Settings settings = with_config(environment, *config);
  const int64_t ids[] = {2, 0, -1};
  // The file's own text as a folder, beside a usual one.
  for (const std::string_view directory :
       {std::string_view("0_1/0/2_Layer/0_Linear/1_MatMulKernel"), text}) {
    const bool wanted = in_directory(settings, directory);
    if (wanted && (!settings.enabled || !device_matches(settings, directory))) std::abort();
    (void)wants_part(settings, directory);
    (void)wants_time(settings, directory);
    (void)row_matches(settings, 0, directory);
  }
  if (in_range(settings, 5) && !settings.enabled) std::abort();
  if (!needs_save(settings, ids, text)) std::abort();  // the folder decides
  (void)gates_of(settings);
  return 0;
}
