# Helpers of this build: one way to declare a library, a program, a test and a benchmark.
include(GoogleTest)
find_package(Threads REQUIRED)

add_library(kvcts_flags INTERFACE)
target_include_directories(kvcts_flags INTERFACE ${CMAKE_SOURCE_DIR}/harness ${CMAKE_SOURCE_DIR})
target_compile_options(kvcts_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor)
# GCC 12 sees overlapping copies in std::string where there are none (its bug 105651).
target_compile_options(kvcts_flags INTERFACE -Wno-restrict)
if(KVCTS_WERROR)
  target_compile_options(kvcts_flags INTERFACE -Werror)
endif()
if(KVCTS_SANITIZE)
  target_compile_options(kvcts_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(kvcts_flags INTERFACE -fsanitize=address,undefined)
  # GCC 12 warns falsely in <regex> when instrumented (GCC bug 105562).
  target_compile_options(kvcts_flags INTERFACE -Wno-maybe-uninitialized)
  target_compile_definitions(kvcts_flags INTERFACE XXH_NO_INLINE_HINTS=1)  # xxhash.h demands inlining that -Og does not do
endif()
# Clones and work trees share what was compiled: paths below the checkout count as relative ones, and objects name none.
target_compile_options(kvcts_flags INTERFACE "-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.")
# A batch includes sources, whose anonymous namespaces GCC then takes for those of headers.
target_compile_options(kvcts_flags INTERFACE -Wno-subobject-linkage)
find_program(KVCTS_CCACHE ccache)
if(KVCTS_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros ${KVCTS_CCACHE})
endif()

# kvcts_batches(OUT NAME SOURCE...): sources that include up to five of those each, written beside the build of target NAME. Most of what a
# source costs is its headers. Their paths are relative, unlike in CMake's own unity builds, so that another clone compiles the same text.
function(kvcts_batches out name)
  set(generated ${ARGN})
  list(FILTER generated INCLUDE REGEX "^/")
  list(FILTER ARGN EXCLUDE REGEX "^/")
  list(LENGTH ARGN count)
  math(EXPR batches "(${count} + 4) / 5")
  set(files ${generated})
  file(RELATIVE_PATH room ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(at 0)
  foreach(number RANGE 1 ${batches})
    math(EXPR end "${number} * ${count} / ${batches}")
    set(text "")
    while(at LESS end)
      list(GET ARGN ${at} source)
      string(APPEND text "#include \"${room}/${source}\"\n")
      math(EXPR at "${at} + 1")
    endwhile()
    set(file ${CMAKE_CURRENT_BINARY_DIR}/batches/${name}.${number}.cpp)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
    list(APPEND files ${file})
  endforeach()
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# What a run needs: every program and every plug-in (root CMakeLists.txt adds the plug-ins).
add_custom_target(kvcts_programs)
# What the self-test builds a second time with sanitizers: the tests with label unit or property of the rooms that do arithmetic on
# addresses, touch bytes, or read what others wrote. The other rooms only put these together.
add_custom_target(kvcts_sanitized_tests)
set(KVCTS_SANITIZED_ROOMS
  layout kernels convert relayout catalogue case probe oracle matrix connector reader diagnose checker store process transport worker cuda)

# kvcts_library(name [APART] [BULK] SOURCES ... LIBS ...): compiled in batches, or each source APART (where sources have flags of their own).
# BULK: touches bytes or addresses in bulk, so it is optimised also where the others are not (preset default).
function(kvcts_library name)
  cmake_parse_arguments(ARG "APART;BULK" "" "SOURCES;LIBS" ${ARGN})
  if(NOT ARG_APART)
    kvcts_batches(ARG_SOURCES ${name} ${ARG_SOURCES})
  endif()
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC kvcts_flags ${ARG_LIBS})
  if(ARG_BULK)
    target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O2>)
  endif()
endfunction()

# kvcts_program(name SOURCES ... LIBS ...): an executable that is installed into bin/.
function(kvcts_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE kvcts_flags ${ARG_LIBS})
  add_dependencies(kvcts_programs ${name})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# kvcts_test(name SOURCES ... LIBS ... LABELS unit|property|process|python|suite|slow [TIMEOUT s])
# Each gtest case becomes a CTest entry. KVCTS_SOURCE_DIR and KVCTS_BINARY_DIR are defined for tests that need data or programs.
function(kvcts_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT KVCTS_TESTS)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE kvcts_flags ${ARG_LIBS} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE KVCTS_SOURCE_DIR="${CMAKE_SOURCE_DIR}" KVCTS_BINARY_DIR="${CMAKE_BINARY_DIR}")
  gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60 TEST_LIST ${name}_list
    PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  # gtest_discover_tests() keeps only the first of several labels, so they are set when CTest has read its list.
  set(labels ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
  file(WRITE ${labels} "foreach(test IN LISTS ${name}_list)
  set_tests_properties(\"\${test}\" PROPERTIES LABELS \"${ARG_LABELS}\")
endforeach()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels})
  get_filename_component(room ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  if(room IN_LIST KVCTS_SANITIZED_ROOMS AND ARG_LABELS MATCHES "unit|property" AND NOT ARG_LABELS MATCHES "slow|process|suite")
    add_dependencies(kvcts_sanitized_tests ${name})
  endif()
endfunction()

# kvcts_script_test(name COMMAND script args... [LABELS ...] [TIMEOUT s]): a Python script or pytest ("-m pytest ..."), run by the
# checkout's pinned interpreter where there is one. KVCTS_SOURCE_DIR and KVCTS_BINARY_DIR are in its environment. Exit status 77: skipped.
# Always labelled python as well: what it runs is not there in a sanitized build.
function(kvcts_script_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "COMMAND;LABELS" ${ARGN})
  if(NOT KVCTS_TESTS)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/harness/python/python ${ARG_COMMAND} WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS};python" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "KVCTS_SOURCE_DIR=${CMAKE_SOURCE_DIR};KVCTS_BINARY_DIR=${CMAKE_BINARY_DIR};PYTHONDONTWRITEBYTECODE=1")
endfunction()

# kvcts_benchmark(name SOURCES ... LIBS ...): Google Benchmark; the self-test runs it briefly and checks no time.
function(kvcts_benchmark name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  if(NOT KVCTS_BENCH)
    return()
  endif()
  find_package(benchmark REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE kvcts_flags ${ARG_LIBS} benchmark::benchmark)
endfunction()
