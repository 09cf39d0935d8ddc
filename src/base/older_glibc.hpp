// SPDX-License-Identifier: Apache-2.0
// The one function of older_glibc.cpp that the C library does not declare.
#pragma once
#include <pthread.h>
#include <time.h>

/// pthread_cond_clockwait() for a glibc before 2.30, where waiting by the monotonic clock needs an
/// attribute of the condition: what is left of the time is waited for on the clock of the day, and
/// who turns that back waits longer.
extern "C" int assay_wait_by_clock_of_day(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                          clockid_t clock, const struct timespec* until);
