# What is shipped must load on every glibc since this one; the wheels' platform tag says so (tools/build.py).
set(ASSAY_GLIBC "2.28" CACHE STRING "Oldest glibc on which what is shipped loads; empty: that of this machine")

if(ASSAY_GLIBC AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT ASSAY_SANITIZE)
  find_package(Python 3.9 COMPONENTS Interpreter REQUIRED)
  set(ASSAY_GLIBC_STUBS ${PROJECT_BINARY_DIR}/glibc-${ASSAY_GLIBC})
  set(ASSAY_GLIBC_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/glibc_stubs.py)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ASSAY_GLIBC_SCRIPT})
  execute_process(COMMAND ${Python_EXECUTABLE} ${ASSAY_GLIBC_SCRIPT} ${ASSAY_GLIBC} ${ASSAY_GLIBC_STUBS} ${CMAKE_CXX_COMPILER}
                  COMMAND_ERROR_IS_FATAL ANY)
  add_library(older_glibc OBJECT ${PROJECT_SOURCE_DIR}/src/base/older_glibc.cpp)
  target_link_libraries(older_glibc PRIVATE assay_options)
  add_library(older_glibc_start OBJECT ${PROJECT_SOURCE_DIR}/src/base/older_glibc_start.cpp)
  target_link_libraries(older_glibc_start PRIVATE assay_options)
else()
  set(ASSAY_GLIBC "")  # of this configuration
endif()

# assay_ship(target): links a program or library the way that all of them are shipped.
function(assay_ship target)
  target_link_options(${target} PRIVATE LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack
                                        LINKER:--gc-sections $<$<CONFIG:Release>:LINKER:-s>)
  get_target_property(kind ${target} TYPE)
  if(NOT kind STREQUAL "MODULE_LIBRARY")  # Python's functions are those of the process
    target_link_options(${target} PRIVATE LINKER:--no-undefined)
  endif()
  if(TARGET older_glibc)
    # A program: what the libraries that it is linked with ask this machine's glibc for is no matter of ours.
    target_link_options(${target} PRIVATE -L${ASSAY_GLIBC_STUBS} LINKER:--allow-shlib-undefined)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:older_glibc>)
    if(kind STREQUAL "EXECUTABLE")
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:older_glibc_start>)
    endif()
  endif()
endfunction()
