// SPDX-License-Identifier: Apache-2.0
#include "topology/atb_json.hpp"

#include <gtest/gtest.h>
