// SPDX-License-Identifier: Apache-2.0
#include "formats/atb_bin.hpp"

#include <gtest/gtest.h>
