# Flags every target of ours is compiled with; carried by the interface target assay_options.
add_library(assay_options INTERFACE)
target_include_directories(assay_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
# A section a function, so that the linker leaves out what a probe does not call.
target_compile_options(assay_options INTERFACE -Wall -Wextra -Wshadow -Wconversion -fno-math-errno
                                               -ffp-contract=off -ffunction-sections -fdata-sections)
if(ASSAY_WERROR)
  target_compile_options(assay_options INTERFACE -Werror)
endif()
if(ASSAY_SANITIZE)
  target_compile_options(assay_options INTERFACE -fsanitize=${ASSAY_SANITIZE} -fno-omit-frame-pointer
                                                 -fno-sanitize-recover=all)
  target_compile_definitions(assay_options INTERFACE ASSAY_SANITIZED=1)
  target_link_options(assay_options INTERFACE -fsanitize=${ASSAY_SANITIZE})
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # What we ship must load where only libc is at hand. Programs on libassay.so have the property ASSAY_ON_LIBRARY: an exception
  # that leaves the library must meet one unwinder, so these share libgcc_s.so.1, which comes with every glibc.
  target_link_options(assay_options INTERFACE -static-libstdc++
                                              $<$<NOT:$<BOOL:$<TARGET_PROPERTY:ASSAY_ON_LIBRARY>>>:-static-libgcc>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports these for correct code inside libstdc++ when it inlines string and vector growth.
  # The last one it reports for what a std::optional holds, with -O1 and for ARM.
  set(ASSAY_FALSE_ALARMS -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds -Wno-maybe-uninitialized)
  # A unit includes the files that it consists of (cmake/add_module.cmake): what such a file keeps to itself looks like a header's.
  list(APPEND ASSAY_FALSE_ALARMS -Wno-subobject-linkage)
  target_compile_options(assay_options INTERFACE ${ASSAY_FALSE_ALARMS})
  # The compiler's own garbage collector: without it 8 % less time, and at most 0.7 GB a unit.
  target_compile_options(assay_options INTERFACE "SHELL:--param ggc-min-heapsize=1048576")
  # Only documents that wide vectors change the calling convention between our own object files.
  target_compile_options(assay_options INTERFACE -Wno-psabi)
endif()
