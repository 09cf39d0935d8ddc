# Headers that nearly every file reads, compiled once for the builds with sanitizers: a sixth of their processors' time.
# Not for what is shipped: its objects come out of the compiler's cache in any folder (tools/reproduce.sh), those that begin
# with precompiled headers only in the same one. For g++ and its tests it saves nothing.
set(ASSAY_PRECOMPILED <algorithm> <array> <atomic> <charconv> <cmath> <cstdint> <filesystem> <functional> <limits> <map> <memory>
                      <mutex> <optional> <random> <set> <span> <string> <string_view> <tuple> <unordered_map> <variant> <vector>
                      <tl/expected.hpp> <nlohmann/json.hpp>)
set(ASSAY_PRECOMPILED_TEST ${ASSAY_PRECOMPILED} <fstream> <sstream> <gtest/gtest.h> <gmock/gmock.h> <rapidcheck.h> <rapidcheck/gtest.h>)

# assay_precompile(HEADERS target ...): the files of each begin with these headers, compiled by the first target that has its options.
function(assay_precompile headers)
  foreach(target ${ARGN})
    get_target_property(options ${target} COMPILE_OPTIONS)
    list(FILTER options INCLUDE REGEX "^-(fsanitize|O)")
    string(MAKE_C_IDENTIFIER "${headers} ${options}" first)
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # the same bytes each time, for the compiler's cache
      target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
    endif()
    if(DEFINED ${first})
      target_precompile_headers(${target} REUSE_FROM ${${first}})
    else()
      target_precompile_headers(${target} PRIVATE ${${headers}})
      set(${first} ${target})
    endif()
  endforeach()
endfunction()
