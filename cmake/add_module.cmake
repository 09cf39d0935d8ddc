# assay_add_module(name [COLD] [UNIT a.cpp b.cpp ...]... [DEPENDS base ...] [LIBRARIES ZLIB::ZLIB ...])
# One static library `assay_<name>` a folder. DEPENDS names our own modules, so every edge of the
# module graph stands on a link line; tools/check_includes.py holds the includes against the same graph.
#
# UNIT  files compiled together as one translation unit, because most of the time of a small file goes into headers and
#       templates: related files, some 2000 lines (a developer waits for the unit after an edit). What two of them name
#       in an anonymous namespace must differ. With ASSAY_UNITY=OFF every file is compiled by itself.
# COLD  nothing in this module loops over elements or records: compiled with -O1, which takes two thirds of the time.
function(assay_add_module name)
  cmake_parse_arguments(arg "COLD" "" "DEPENDS;LIBRARIES" ${ARGN})
  add_library(assay_${name} STATIC)
  assay_add_sources(assay_${name} ${arg_UNPARSED_ARGUMENTS})
  add_library(assay::${name} ALIAS assay_${name})
  target_link_libraries(assay_${name} PUBLIC assay_options)
  foreach(dependency ${arg_DEPENDS})
    target_link_libraries(assay_${name} PUBLIC assay::${dependency})
  endforeach()
  target_link_libraries(assay_${name} PRIVATE ${arg_LIBRARIES})
  # For libassay.so (cmake/offline_library.cmake), whose functions call each other as directly as hidden ones. What is linked into
  # a host says in its exports.map what it shows.
  set_target_properties(assay_${name} PROPERTIES CXX_VISIBILITY_PRESET default)
  target_compile_options(assay_${name} PRIVATE -fno-semantic-interposition)
  if(arg_COLD)
    target_compile_options(assay_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

# assay_add_sources(target [UNIT a.cpp b.cpp ...]...)
# The same lists for any target, also from the CMakeLists.txt of a folder below the target's.
function(assay_add_sources target)
  # Relocatable (CMake 4): a unit names its files without the clone's path, so that clones share the compiler's cache.
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${ASSAY_UNITY} UNITY_BUILD_MODE GROUP UNITY_BUILD_RELOCATABLE ON)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(MAKE_C_IDENTIFIER ${folder} unit)
  set(count 0)
  foreach(word ${ARGN})
    if(word STREQUAL "UNIT")
      math(EXPR count "${count} + 1")
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH word OUTPUT_VARIABLE source)
    target_sources(${target} PRIVATE ${source})
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${unit}_${count})
  endforeach()
endfunction()
