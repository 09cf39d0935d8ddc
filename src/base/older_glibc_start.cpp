// SPDX-License-Identifier: Apache-2.0
// The start of a program on a glibc before 2.34. Until then a program brought the function that
// runs its own constructors and handed it to the C library; what a younger compiler links in front
// of main() hands over none. Linked into programs alone, beside older_glibc.cpp.
#include <cstddef>

extern "C" {

using Constructor = void (*)(int, char**, char**);
using Main = int (*)(int, char**, char**);
using Handler = void (*)();

// The linker's: where the program's constructors begin and end.
[[gnu::visibility("hidden")]] extern Constructor __preinit_array_start[];
[[gnu::visibility("hidden")]] extern Constructor __preinit_array_end[];
[[gnu::visibility("hidden")]] extern Constructor __init_array_start[];
[[gnu::visibility("hidden")]] extern Constructor __init_array_end[];
void _init();

// The C library's own under the name of before 2.34: one that is given constructors leaves it at
// these, on a younger glibc, too.
#if defined(__x86_64__)
asm(".symver glibc_start_main, __libc_start_main@GLIBC_2.2.5");
#elif defined(__aarch64__)
asm(".symver glibc_start_main, __libc_start_main@GLIBC_2.17");
#endif
int glibc_start_main(Main main, int argc, char** argv, Constructor init, Handler fini,
                     Handler loader_fini, void* stack_end);

[[gnu::visibility("hidden")]] int __libc_start_main(Main main, int argc, char** argv, Constructor,
                                                    Handler fini, Handler loader_fini,
                                                    void* stack_end) {
  const Constructor run_constructors = [](int count, char** words, char** environment) {
    for (Constructor* one = __preinit_array_start; one != __preinit_array_end; ++one)
      (*one)(count, words, environment);
    _init();
    for (Constructor* one = __init_array_start; one != __init_array_end; ++one)
      (*one)(count, words, environment);
  };
  return glibc_start_main(main, argc, argv, run_constructors, fini, loader_fini, stack_end);
}

}  // extern "C"
