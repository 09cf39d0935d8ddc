# assay_use_python(target): compiled with Python's headers, for the stable ABI of CPython 3.9.
function(assay_use_python target)
  # The stable ABI is the same for every processor: the headers of the Python that runs here serve all.
  find_package(Python 3.9 COMPONENTS Interpreter REQUIRED)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_path('include'))"
                  OUTPUT_VARIABLE headers OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  if(NOT EXISTS ${headers}/Python.h)
    message(FATAL_ERROR "${headers}/Python.h is missing; Debian's package is python3-dev")
  endif()
  # Named as system headers, Python's own warnings stay out of ours.
  target_include_directories(${target} SYSTEM PRIVATE ${headers})
  target_compile_definitions(${target} PRIVATE Py_LIMITED_API=0x03090000)
  target_link_libraries(${target} PRIVATE assay_options)
endfunction()

# assay_add_python_module(name UNIT a.cpp b.cpp ...): an extension module of the package, its files as in cmake/add_module.cmake.
# One file serves every later version of CPython; tools/smoke_test.py holds it to that.
function(assay_add_python_module name)
  add_library(${name} MODULE)
  assay_use_python(${name})
  assay_add_sources(${name} ${ARGN})
  assay_ship(${name})
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX .abi3.so
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python/assay INSTALL_RPATH "$ORIGIN")
  install(TARGETS ${name} LIBRARY DESTINATION assay)
  # Python takes a module for its own version first: one of an earlier build would hide this one.
  file(GLOB stale ${PROJECT_BINARY_DIR}/python/assay/${name}.cpython-*)
  if(stale)
    file(REMOVE ${stale})
  endif()
endfunction()
