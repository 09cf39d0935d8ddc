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
  if(NOT ASSAY_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "DEPENDS" ${ARGN})
  add_executable(${module}_test)
  assay_add_sources(${module}_test ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${module}_test PRIVATE assay_options assay::${module} GTest::gtest_main GTest::gmock
                                               rapidcheck rapidcheck_gtest)
  target_compile_options(${module}_test PRIVATE -Wno-conversion $<$<CONFIG:Release>:-O0>)
  target_compile_definitions(${module}_test PRIVATE ASSAY_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  foreach(dependency ${arg_DEPENDS})
    target_link_libraries(${module}_test PRIVATE assay::${dependency})
  endforeach()
  assay_register_tests(${module}_test)
endfunction()
