# assets.cpp: what every page has in it, as text in the program.
#   style.css and the modules of this folder, joined in the order that they need each other
#   d3        scales, axes and shapes: Debian's packages node-d3-*, or the folder ASSAY_D3_DIR with their `dist` files
#   dagre     layered layout of graphs, as netron maintains it: inside netron's package
# Sets ASSAY_PAGE_ASSETS to the path of assets.cpp.
set(page_modules
  data
  format
  dom
  state
  verdict
  sides
  operations
  quantisation
  about
  charts
  cells
  heat
  picture
  judgement
  tensor
  graph
  columns
  find
  export
  grid
  table
  places
  tip
  plots
  map
  tree
  main)

function(read_asset path variable)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
  file(READ "${path}" text)
  if(text MATCHES "</[sS][cC][rR][iI][pP][tT]")
    message(FATAL_ERROR "${path} would end the script that it stands in")
  endif()
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

# One script of several modules: their imports name what stands above them.
function(join_modules variable)
  set(joined "")
  foreach(path ${ARGN})
    read_asset("${path}" text)
    string(REGEX REPLACE "(^|\n)import [^;]*;" "\\1" text "${text}")
    string(REGEX REPLACE "(^|\n)export (async function|function|const|let|class) " "\\1\\2 " text "${text}")
    string(REGEX REPLACE "(^|\n)export [^;]*;" "\\1" text "${text}")
    string(APPEND joined "${text}\n")
  endforeach()
  set(${variable} "${joined}" PARENT_SCOPE)
endfunction()

function(find_page_libraries)
  foreach(part ${ASSAY_D3})
    assay_find_d3(${part} file)
    list(APPEND files "${file}")
  endforeach()
  set(page_d3_files ${files} PARENT_SCOPE)
  # Beside the interpreter that builds, or in the environment that tools/setup.sh makes.
  find_package(Python 3.9 COMPONENTS Interpreter REQUIRED)
  execute_process(COMMAND ${Python_EXECUTABLE} -c
    "import importlib.util as u; print(u.find_spec('netron').submodule_search_locations[0], end='')"
    OUTPUT_VARIABLE beside ERROR_QUIET)
  file(GLOB made "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/netron")
  find_file(ASSAY_DAGRE dagre.js NO_CACHE PATHS ${beside} ${made} NO_DEFAULT_PATH)
  if(NOT ASSAY_DAGRE)
    message(FATAL_ERROR "${Python_EXECUTABLE} has no netron, whose layout of graphs the pages use: "
      "pip install -r requirements-build.txt")
  endif()
  set(page_dagre "${ASSAY_DAGRE}" PARENT_SCOPE)
endfunction()

find_page_libraries()
set_property(GLOBAL PROPERTY ASSAY_PAGE_D3_FILES ${page_d3_files})  # for cmake/build_facts.cmake
list(TRANSFORM page_modules PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/html/" OUTPUT_VARIABLE page_module_files)
list(TRANSFORM page_module_files APPEND ".js")
join_modules(ASSAY_PAGE_MODULES ${page_dagre} ${page_module_files})
read_asset("${CMAKE_CURRENT_SOURCE_DIR}/html/style.css" ASSAY_PAGE_STYLE)
read_asset("${CMAKE_CURRENT_SOURCE_DIR}/html/licences.txt" ASSAY_PAGE_LICENCES)
set(ASSAY_PAGE_LIBRARIES "")
foreach(path ${page_d3_files})
  read_asset("${path}" text)
  string(REGEX REPLACE "\n//# sourceMappingURL[^\n]*" "" text "${text}")
  string(APPEND ASSAY_PAGE_LIBRARIES "    R\"page_asset(${text})page_asset\",\n")
endforeach()
list(LENGTH page_d3_files ASSAY_PAGE_LIBRARY_COUNT)
set(ASSAY_PAGE_ASSETS "${CMAKE_CURRENT_BINARY_DIR}/html/assets.cpp")
configure_file("${CMAKE_CURRENT_SOURCE_DIR}/html/assets.cpp.in" "${ASSAY_PAGE_ASSETS}" @ONLY)
