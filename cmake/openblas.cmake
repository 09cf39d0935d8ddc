# OpenBLAS::OpenBLAS: the static library without threads of its own, so that nothing shared is shipped and our own threads
# are the only ones. Debian: libopenblas-serial-dev; a threaded one serves, too (we ask it for one thread), but starts
# them with the process: 20 ms of CPU time. What the wrapped functions are for: src/reference/blas.cpp.
find_library(OPENBLAS_LIBRARY NAMES libopenblas.a PATH_SUFFIXES openblas-serial openblas-pthread openblas-openmp REQUIRED)
find_path(OPENBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-serial openblas-pthread openblas-openmp REQUIRED)
find_package(Threads REQUIRED)
add_library(OpenBLAS::OpenBLAS STATIC IMPORTED GLOBAL)
set_target_properties(OpenBLAS::OpenBLAS PROPERTIES
  IMPORTED_LOCATION ${OPENBLAS_LIBRARY}
  INTERFACE_INCLUDE_DIRECTORIES ${OPENBLAS_INCLUDE}
  INTERFACE_LINK_LIBRARIES
    "Threads::Threads;-Wl,--wrap=blas_memory_alloc,--wrap=blas_memory_free")

# Debian's library has kernels for 20 kinds of x86 processors, 30 MB. Those of old kinds are left out: its table of kinds
# (dynamic.o) names the kernels of an older processor with the same instructions instead. Answers stay right there, and slower.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" AND CMAKE_OBJCOPY)
  set(folder ${PROJECT_BINARY_DIR}/openblas)
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND ${CMAKE_AR} x ${OPENBLAS_LIBRARY} dynamic.o WORKING_DIRECTORY ${folder} RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    set(renamed)
    foreach(kind CORE2 PENRYN DUNNINGTON ATOM NANO OPTERON_SSE3 BARCELONA BOBCAT)
      list(APPEND renamed gotoblas_${kind}=gotoblas_PRESCOTT)  # SSE3
    endforeach()
    foreach(kind BULLDOZER PILEDRIVER STEAMROLLER EXCAVATOR)
      list(APPEND renamed gotoblas_${kind}=gotoblas_SANDYBRIDGE)  # AVX
    endforeach()
    foreach(names ${renamed})  # objcopy takes a name as target only once a call
      execute_process(COMMAND ${CMAKE_OBJCOPY} --redefine-sym ${names} dynamic.o WORKING_DIRECTORY ${folder} COMMAND_ERROR_IS_FATAL ANY)
    endforeach()
    # In front of the archive, which is then not asked for its own.
    set_property(TARGET OpenBLAS::OpenBLAS APPEND PROPERTY INTERFACE_LINK_OPTIONS ${folder}/dynamic.o)
  endif()
endif()
