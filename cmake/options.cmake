# Compiler settings shared by every target, and one function per kind of target.

include(GNUInstallDirs)

set(tensorgrad_warnings -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla)
if(TENSORGRAD_WERROR)
  list(APPEND tensorgrad_warnings -Werror)
endif()

# -std=c11, warnings, no errno from libm, no contraction of a * b + c by the compiler, sanitizers when asked for.
function(tensorgrad_settings target)
  set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  if(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
    target_compile_options(${target} PRIVATE ${tensorgrad_warnings} -fno-math-errno -ffp-contract=off)
    if(TENSORGRAD_SANITIZE)
      target_compile_options(${target} PRIVATE -fsanitize=${TENSORGRAD_SANITIZE} -fno-sanitize-recover=all
                             -fno-omit-frame-pointer -g)
      target_link_options(${target} PRIVATE -fsanitize=${TENSORGRAD_SANITIZE})
    endif()
  endif()
endfunction()

# Usage requirements of a library made from the objects.
function(tensorgrad_library target)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PUBLIC Threads::Threads ${CMAKE_DL_LIBS} $<$<NOT:$<PLATFORM_ID:Windows>>:m>)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
  if(TENSORGRAD_SANITIZE)
    target_link_options(${target} PUBLIC -fsanitize=${TENSORGRAD_SANITIZE})
  endif()
endfunction()

# examples/NAME.c as a program of its own.
function(tensorgrad_example source)
  file(STRINGS ${source} has_main REGEX "int main\\(")
  if(has_main)
    get_filename_component(name ${source} NAME_WE)
    add_executable(example_${name} ${source} examples/data.c)
    tensorgrad_settings(example_${name})
    target_compile_definitions(example_${name} PRIVATE TG_EXAMPLE_MAIN)
    target_link_libraries(example_${name} PRIVATE tensorgrad m)
    set_target_properties(example_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
  endif()
endfunction()

# bench/NAME.c; a CBLAS is linked for comparison when the machine has one.
function(tensorgrad_bench source)
  get_filename_component(name ${source} NAME_WE)
  add_executable(bench_${name} ${source})
  tensorgrad_settings(bench_${name})
  if(example_sources)
    target_link_libraries(bench_${name} PRIVATE tensorgrad_examples)
  endif()
  target_link_libraries(bench_${name} PRIVATE tensorgrad_internal m)
  find_library(OPENBLAS_LIBRARY NAMES openblas libopenblas.so.0)
  if(OPENBLAS_LIBRARY)
    target_compile_definitions(bench_${name} PRIVATE TG_BENCH_OPENBLAS)
    target_link_libraries(bench_${name} PRIVATE ${OPENBLAS_LIBRARY})
  endif()
  set_target_properties(bench_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
endfunction()
