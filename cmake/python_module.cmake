# assay_add_python_module(name source.cpp ...): an extension module of the package. It holds to the stable ABI of CPython 3.9, so that one
# file serves every later version; tools/smoke_test.py holds it to that.
function(assay_add_python_module name)
  # The stable ABI is the same for every processor: the headers of the Python that runs here serve all.
  find_package(Python 3.9 COMPONENTS Interpreter REQUIRED)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_path('include'))"
                  OUTPUT_VARIABLE headers OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  if(NOT EXISTS ${headers}/Python.h)
    message(FATAL_ERROR "${headers}/Python.h is missing; Debian's package is python3-dev")
  endif()
  add_library(${name} MODULE ${ARGN})
  # Named as system headers, Python's own warnings stay out of ours.
  target_include_directories(${name} SYSTEM PRIVATE ${headers})
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
