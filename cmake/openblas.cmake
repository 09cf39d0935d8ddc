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
