# Says all that a build lacks at once, with the names of Debian's packages; docs/install.md has the same list. What lies in a place
# of its own is found by -DCMAKE_PREFIX_PATH=FOLDER, the parts of d3 by -DASSAY_D3_DIR=FOLDER.
set(ASSAY_D3_DIR "" CACHE PATH "Folder with d3-array.min.js and the other parts of d3, where Debian's packages are not")
set(ASSAY_D3 array collection path color interpolate format time time-format scale shape selection axis)  # in this order in a page

# assay_find_d3(part variable)
function(assay_find_d3 part variable)
  unset(${variable})  # else that of the part before would do
  find_file(${variable} d3-${part}.min.js NO_CACHE
    PATHS "${ASSAY_D3_DIR}" /usr/share/nodejs/d3-${part}/dist /usr/share/javascript/d3-${part} NO_DEFAULT_PATH)
  set(${variable} "${${variable}}" PARENT_SCOPE)
endfunction()

# Adds a line to `missing` unless the header or library is found.
macro(assay_check name package)
  unset(found_header)
  unset(found_library)
  set(places PATH_SUFFIXES openblas-serial openblas-pthread openblas-openmp)
  find_path(found_header ${name} NO_CACHE ${places})
  find_library(found_library ${name} NO_CACHE ${places})
  if(NOT found_header AND NOT found_library)
    string(APPEND missing "  ${name}: ${package}\n")
  endif()
endmacro()

function(assay_check_requirements)
  set(missing)
  assay_check(cblas.h libopenblas-serial-dev)
  assay_check(libopenblas.a libopenblas-serial-dev)
  assay_check(zlib.h zlib1g-dev)
  assay_check(libz.a zlib1g-dev)
  assay_check(nlohmann/json.hpp nlohmann-json3-dev)
  assay_check(xxhash.h libxxhash-dev)
  assay_check(protozero/pbf_reader.hpp libprotozero-dev)
  assay_check(tl/expected.hpp libexpected-dev)
  foreach(part ${ASSAY_D3})
    assay_find_d3(${part} file)
    if(NOT file)
      string(APPEND missing "  d3-${part}.min.js: node-d3-${part}\n")
    endif()
  endforeach()
  if(missing)
    message(FATAL_ERROR "This build needs what is not here; behind each is the package that Debian and Ubuntu have it in.\n"
      "${missing}docs/install.md says more (From source).")
  endif()
endfunction()
assay_check_requirements()
