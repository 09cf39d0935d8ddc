# ASSAY_BUILD_FACTS: a folder with build_facts.hpp, for `assay --version --verbose`, and with the SBOM and the licences that a wheel
# carries. Written when CMake runs: tools/build.py runs it each time.
set(ASSAY_BUILD_FACTS ${PROJECT_BINARY_DIR}/facts)

# d3_files   what of d3 is in the pages
function(assay_write_build_facts d3_files)
  find_package(Python 3.9 COMPONENTS Interpreter REQUIRED)
  execute_process(
    COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/build_facts.py --out ${ASSAY_BUILD_FACTS} --version ${PROJECT_VERSION}
            --compiler ${CMAKE_CXX_COMPILER} --include ${OPENBLAS_INCLUDE} --d3 ${d3_files}
    COMMAND_ERROR_IS_FATAL ANY)
  if(SKBUILD)
    install(FILES ${ASSAY_BUILD_FACTS}/sboms/assay.cdx.json DESTINATION ${SKBUILD_METADATA_DIR}/sboms)
    install(DIRECTORY ${ASSAY_BUILD_FACTS}/licenses/third-party DESTINATION ${SKBUILD_METADATA_DIR}/licenses)
  endif()
endfunction()
