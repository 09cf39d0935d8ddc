// SPDX-License-Identifier: Apache-2.0
#include "compare/match/torchair.hpp"
