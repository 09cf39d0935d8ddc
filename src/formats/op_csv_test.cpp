// SPDX-License-Identifier: Apache-2.0
#include "formats/op_csv.hpp"

#include <gtest/gtest.h>
