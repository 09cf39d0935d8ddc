# assay_add_python_module(name source.cpp ...): an extension module of the package. It holds to the stable ABI of CPython 3.9, so that one
# file serves every later version; tools/smoke_test.py holds it to that.
function(assay_add_python_module name)
  find_package(Python 3.9 COMPONENTS Interpreter Development.Module REQUIRED)
  add_library(${name} MODULE ${ARGN})
  # Named as system headers, Python's own warnings stay out of ours.
  target_include_directories(${name} SYSTEM PRIVATE ${Python_INCLUDE_DIRS})
  target_compile_definitions(${name} PRIVATE Py_LIMITED_API=0x03090000)
  target_link_libraries(${name} PRIVATE assay_options)
  assay_ship(${name})
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX .abi3.so CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python/assay INSTALL_RPATH "$ORIGIN")
  install(TARGETS ${name} LIBRARY DESTINATION assay)
  # Python takes a module for its own version first: one of an earlier build would hide this one.
  file(GLOB stale ${PROJECT_BINARY_DIR}/python/assay/${name}.cpython-*)
  if(stale)
    file(REMOVE ${stale})
  endif()
endfunction()
