// SPDX-License-Identifier: Apache-2.0
#include "formats/cpu_profiling.hpp"

#include <gtest/gtest.h>
