// SPDX-License-Identifier: Apache-2.0
// The native command `assay`: all of it is in libassay.so (cmake/offline_library.cmake).
#include "cli/assay_main.hpp"

int main(int argc, char** argv) { return assay::cli::assay_main(argc, argv); }
