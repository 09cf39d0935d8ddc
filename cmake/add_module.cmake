set(ASSAY_INCLUDE_ROOT ${PROJECT_SOURCE_DIR}/src)

# assay_add_module(name [HOT|COLD] [UNIT [HOT|COLD] a.cpp b.cpp ...]... [DEPENDS base ...] [LIBRARIES ZLIB::ZLIB ...])
# One static library `assay_<name>` a folder. DEPENDS names our own modules, so every edge of the
# module graph stands on a link line; tools/check_includes.py holds the includes against the same graph.
#
# UNIT  files compiled together as one translation unit, because most of the time of a small file goes into headers and
#       templates: related files, some 2500 lines (a developer waits for the unit after an edit). What two of them name
#       in an anonymous namespace must differ. With ASSAY_UNITY=OFF every file is compiled by itself.
# HOT   loops over elements, or runs inside a host: a release compiles it with -O3.
# COLD  loops over neither elements nor records (names, sentences, reports, commands): with -O1, which takes three quarters
#       of the time of -O2, what all else has.
function(assay_add_module name)
  cmake_parse_arguments(arg "" "" "DEPENDS;LIBRARIES" ${ARGN})
  add_library(assay_${name} STATIC)
  target_compile_options(assay_${name} PRIVATE -fno-semantic-interposition $<$<CONFIG:Release>:-O2>)
  assay_add_sources(assay_${name} ${arg_UNPARSED_ARGUMENTS})
  set_property(GLOBAL APPEND PROPERTY ASSAY_MODULES assay_${name})
  add_library(assay::${name} ALIAS assay_${name})
  target_link_libraries(assay_${name} PUBLIC assay_options)
  foreach(dependency ${arg_DEPENDS})
    target_link_libraries(assay_${name} PUBLIC assay::${dependency})
  endforeach()
  target_link_libraries(assay_${name} PRIVATE ${arg_LIBRARIES})
  # For libassay.so (cmake/offline_library.cmake), whose functions call each other as directly as hidden ones. What is linked into
  # a host says in its exports.map what it shows.
  set_target_properties(assay_${name} PROPERTIES CXX_VISIBILITY_PRESET default)
endfunction()

# assay_add_sources(target [HOT|COLD] [UNIT [HOT|COLD] a.cpp b.cpp ...]...)
# The same lists for any target, also from the CMakeLists.txt of a folder below the target's.
function(assay_add_sources target)
  set(heat)  # of the list at hand
  set(files)
  set(heat_of_all)
  set(began_unit OFF)
  foreach(word ${ARGN} UNIT)  # the last one ends the last list
    if(word STREQUAL "UNIT")
      assay_add_unit("${target}" "${heat}" ${files})
      set(files)
      set(heat ${heat_of_all})
      set(began_unit ON)
    elseif(word MATCHES "^(HOT|COLD)$")
      set(heat ${word})
      if(NOT began_unit)
        set(heat_of_all ${word})
      endif()
    else()
      list(APPEND files ${word})
    endif()
  endforeach()
endfunction()

# assay_add_unit(target heat file ...): adds the file that includes them all, or each of them.
function(assay_add_unit target heat)
  if(NOT ARGN)
    return()
  endif()
  set(sources)
  foreach(source ${ARGN})
    cmake_path(ABSOLUTE_PATH source)
    list(APPEND sources ${source})
  endforeach()
  assay_keep_tests_of_threads(sources)
  if(NOT sources)
    return()
  endif()
  list(LENGTH sources count)
  if(ASSAY_UNITY AND count GREATER 1)
    # Included without the clone's path, so that clones share the compiler's cache: in src/ by the names that headers have,
    # elsewhere from the unit's own folder.
    set(text)
    foreach(source ${sources})
      cmake_path(IS_PREFIX ASSAY_INCLUDE_ROOT ${source} NORMALIZE is_in_src)
      if(is_in_src)
        file(RELATIVE_PATH name ${ASSAY_INCLUDE_ROOT} ${source})
      else()
        file(RELATIVE_PATH name ${CMAKE_CURRENT_BINARY_DIR}/${target}_units ${source})
      endif()
      string(APPEND text "#include \"${name}\"\n")
    endforeach()
    list(GET ARGN 0 first)
    string(REGEX REPLACE "\\.cpp$" "" first ${first})
    string(MAKE_C_IDENTIFIER ${first} first)
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/${target}_units/${first}.cpp)
    file(CONFIGURE OUTPUT ${sources} CONTENT "${text}" @ONLY)
  endif()
  target_sources(${target} PRIVATE ${sources})
  if(heat)
    set(level -O1)
    if(heat STREQUAL "HOT")
      set(level -O3)
    endif()
    set_source_files_properties(${sources} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:${level}>)
  endif()
endfunction()
