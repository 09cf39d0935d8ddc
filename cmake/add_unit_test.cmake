# The tests of what starts threads, by their module. The thread sanitizer's build has no others: nowhere else can there be a
# data race, and to compile the rest would take most of its time.
set(ASSAY_TESTS_OF_THREADS
  base/base_test.cpp base/intern_table_test.cpp
  writer/async_writer_test.cpp writer/layouts/ge_tree_test.cpp writer/layouts/native_run_test.cpp
  capture/atb/probe_test.cpp capture/atb/session_test.cpp capture/intake/buffer_pool_test.cpp capture/intake/take_test.cpp
  remote/block_cache_test.cpp
  measure/metrics_test.cpp measure/metrics_reference_test.cpp  # which has the plain loops
  reference/blas_test.cpp reference/products/matmul_test.cpp reference/aten/arithmetic_calls_test.cpp
  reference/aten/magnitudes_test.cpp
  run/native_test.cpp run/atb_tree_test.cpp
  pair/by_value_test.cpp
  compare/compare_test.cpp compare/pictures_test.cpp compare/gguf_weights_test.cpp
  opcheck/parts_test.cpp
  locate/replay/walk_test.cpp locate/noise/floors_test.cpp locate/noise/record_distance_test.cpp
  locate/judge/leaf_modules_test.cpp locate/judge/own_error_test.cpp locate/judge/weight_difference_test.cpp
  locate/verdict/nan_origin_test.cpp)
list(TRANSFORM ASSAY_TESTS_OF_THREADS PREPEND ${PROJECT_SOURCE_DIR}/src/)
# assay_keep_tests_of_threads(name): of the files in the list with that name all but tests that this build has not.
function(assay_keep_tests_of_threads name)
  if(NOT ASSAY_SANITIZE STREQUAL "thread")
    return()
  endif()
  set(kept)
  foreach(file ${${name}})
    if(file IN_LIST ASSAY_TESTS_OF_THREADS OR NOT file MATCHES "_test\\.cpp$")
      list(APPEND kept ${file})
    endif()
  endforeach()
  set(${name} ${kept} PARENT_SCOPE)
endfunction()

# assay_register_tests(program): its tests as entries of ctest.
function(assay_register_tests program)
  if(ASSAY_SANITIZE OR CMAKE_CROSSCOMPILING)  # to start such a process takes longer than most tests
    add_test(NAME ${program} COMMAND ${program} --gtest_brief=1)
  else()
    gtest_discover_tests(${program} DISCOVERY_TIMEOUT 60 DISCOVERY_MODE PRE_TEST)
  endif()
endfunction()

# assay_add_unit_test(module UNIT foo_test.cpp bar_test.cpp ... [DEPENDS formats ...])
# One GoogleTest program `<module>_test` a module; every TEST is one ctest entry, or all of them with a sanitizer or an emulator. Units as in cmake/add_module.cmake; tests are
# compiled without optimisation, which takes half of the time, and run on the optimised modules.
function(assay_add_unit_test module)
  if(NOT ASSAY_BUILD_TESTS OR (ASSAY_SANITIZE STREQUAL "thread" AND NOT "${ASSAY_TESTS_OF_THREADS}" MATCHES "/src/${module}/"))
    return()
  endif()
  cmake_parse_arguments(arg "" "" "DEPENDS" ${ARGN})
  add_executable(${module}_test)
  assay_add_sources(${module}_test ${arg_UNPARSED_ARGUMENTS})
  set_property(GLOBAL APPEND PROPERTY ASSAY_UNIT_TESTS ${module}_test)
  target_link_libraries(${module}_test PRIVATE assay_options assay::${module} GTest::gtest_main GTest::gmock
                                               rapidcheck rapidcheck_gtest)
  target_compile_options(${module}_test PRIVATE -Wno-conversion $<$<CONFIG:Release>:-O0>)
  target_compile_definitions(${module}_test PRIVATE ASSAY_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  foreach(dependency ${arg_DEPENDS})
    target_link_libraries(${module}_test PRIVATE assay::${dependency})
  endforeach()
  if(NOT TARGET unit_tests)
    add_custom_target(unit_tests)
  endif()
  add_dependencies(unit_tests ${module}_test)
  assay_register_tests(${module}_test)
endfunction()
