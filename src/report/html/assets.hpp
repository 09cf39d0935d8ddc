// SPDX-License-Identifier: Apache-2.0
// What every page has in it. assets.cpp is written by CMake (assets.cmake).
#pragma once
#include <array>
#include <string_view>

namespace assay::report::html {

extern const std::string_view kStyle;
/// Ready to stand inside <script> as they are.
extern const std::array<std::string_view, 12> kLibraries;
extern const std::string_view kModules;
extern const std::string_view kLicences;

}  // namespace assay::report::html
