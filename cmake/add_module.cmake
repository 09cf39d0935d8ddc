# assay_add_module(name SOURCES a.cpp ... [DEPENDS base ...] [LIBRARIES ZLIB::ZLIB ...])
# One static library `assay_<name>` a folder. DEPENDS names our own modules, so every edge of the
# module graph stands on a link line; tools/check_includes.py holds the includes against the same graph.
function(assay_add_module name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  add_library(assay_${name} STATIC ${arg_SOURCES})
  add_library(assay::${name} ALIAS assay_${name})
  target_link_libraries(assay_${name} PUBLIC assay_options)
  foreach(dependency ${arg_DEPENDS})
    target_link_libraries(assay_${name} PUBLIC assay::${dependency})
  endforeach()
  target_link_libraries(assay_${name} PRIVATE ${arg_LIBRARIES})
endfunction()
