// SPDX-License-Identifier: Apache-2.0
#include "compare/match/merge_ranks.hpp"
