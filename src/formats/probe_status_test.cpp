// SPDX-License-Identifier: Apache-2.0
#include "formats/probe_status.hpp"

#include <gtest/gtest.h>
