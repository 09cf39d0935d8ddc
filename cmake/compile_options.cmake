# Flags every target of ours is compiled with; carried by the interface target assay_options.
add_library(assay_options INTERFACE)
target_include_directories(assay_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(assay_options INTERFACE -Wall -Wextra -Wshadow -Wconversion -fno-math-errno
                                               -ffp-contract=off)
if(ASSAY_WERROR)
  target_compile_options(assay_options INTERFACE -Werror)
endif()
if(ASSAY_SANITIZE)
  target_compile_options(assay_options INTERFACE -fsanitize=${ASSAY_SANITIZE} -fno-omit-frame-pointer
                                                 -fno-sanitize-recover=all)
  target_compile_definitions(assay_options INTERFACE ASSAY_SANITIZED=1)
  target_link_options(assay_options INTERFACE -fsanitize=${ASSAY_SANITIZE})
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # What we ship must load where only libc is at hand.
  target_link_options(assay_options INTERFACE -static-libstdc++ -static-libgcc)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports these for correct code inside libstdc++ when it inlines string and vector growth.
  set(ASSAY_FALSE_ALARMS -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
  target_compile_options(assay_options INTERFACE ${ASSAY_FALSE_ALARMS})
  # Only documents that wide vectors change the calling convention between our own object files.
  target_compile_options(assay_options INTERFACE -Wno-psabi)
endif()
