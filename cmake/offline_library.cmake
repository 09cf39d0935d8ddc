# libassay.so: the offline half (readers, comparison, opcheck, verdict, reports, commands) and the modules below it, linked once.
# The Python modules are small programs on it, and the command loads it; each of them with a copy of its own was 44 MB.
#
# Exceptions (there is no memory, no thread can be started) pass from the library into programs on it, which therefore have
# the property ASSAY_ON_LIBRARY (cmake/compile_options.cmake) and take the C++ run time of exceptions from the library.
#
# Wheels put it into the package, beside the modules, for pip leaves no other folder alone in all its ways. src/cli/main.cpp finds it
# there from <prefix>/bin.
function(assay_add_offline_library)
  set(modules base tensor stats remote measure formats topology run pair reference compare opcheck locate repeat engines report vendor app cli)
  list(TRANSFORM modules PREPEND assay_)
  set(exports ${PROJECT_SOURCE_DIR}/cmake/offline_library.map)
  list(JOIN modules "," joined)
  # A shared library has a source file of its own; this one has nothing to add.
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/offline_library.cpp CONTENT "")
  add_library(assay_offline SHARED ${PROJECT_BINARY_DIR}/offline_library.cpp)
  add_library(assay::offline ALIAS assay_offline)
  target_include_directories(assay_offline INTERFACE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(assay_offline PRIVATE assay_options "$<LINK_LIBRARY:WHOLE_ARCHIVE,${joined}>")
  target_link_options(assay_offline PRIVATE
    LINKER:--version-script=${exports} LINKER:-Bsymbolic-functions)
  assay_ship(assay_offline)
  set_target_properties(assay_offline PROPERTIES
    ASSAY_ON_LIBRARY ON OUTPUT_NAME assay LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/assay LINK_DEPENDS ${exports})
  if(SKBUILD)
    install(TARGETS assay_offline LIBRARY DESTINATION assay)
  endif()
endfunction()
