# libassay.so: the offline half (readers, comparison, opcheck, verdict, reports, commands) and the modules below it, linked once.
# The command and the Python modules are small programs on it; each of them with a copy of its own was 44 MB.
#
# Exceptions (there is no memory, no thread can be started) pass from the library into programs on it, which therefore have
# the property ASSAY_ON_LIBRARY (cmake/compile_options.cmake) and take the C++ run time of exceptions from the library.
#
# Wheels put it into the package, beside the modules. The command looks for it from <prefix>/bin in the places that pip has for
# packages, the last one that of `pip install --target`.
function(assay_add_offline_library)
  set(modules base tensor stats remote measure formats topology run pair reference compare opcheck locate repeat engines report vendor cli)
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

# Sets `variable` to the ways from <prefix>/bin to the package, as RPATH.
function(assay_library_rpaths variable)
  find_package(Python 3.9 COMPONENTS Interpreter REQUIRED)
  set(python python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR})
  set(${variable} "$ORIGIN/../lib/${python}/site-packages/assay;$ORIGIN/../lib64/${python}/site-packages/assay;\
$ORIGIN/../lib/${python}/dist-packages/assay;$ORIGIN/../assay" PARENT_SCOPE)
endfunction()
