# Helpers of this build: one way to declare a library, a program, a test and a benchmark.
find_package(Threads REQUIRED)

add_library(kvcts_flags INTERFACE)
target_compile_options(kvcts_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor)
# GCC 12 sees overlapping copies in std::string where there are none (its bug 105651).
target_compile_options(kvcts_flags INTERFACE -Wno-restrict)
if(KVCTS_WERROR)
  target_compile_options(kvcts_flags INTERFACE -Werror)
endif()
if(KVCTS_SANITIZE)
  target_compile_options(kvcts_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined
      -fno-omit-frame-pointer)
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

# kvcts_link(FOLDER NAME): <build>/share/kvcts/NAME is a link to FOLDER; relative where the build folder lies in the
# checkout, so that both can be moved together.
function(kvcts_link folder name)
  file(REAL_PATH ${CMAKE_BINARY_DIR} build)
  file(REAL_PATH ${CMAKE_SOURCE_DIR} source)
  set(target ${folder})
  cmake_path(IS_PREFIX source ${build} inside)
  if(inside)
    file(REAL_PATH ${folder} real)
    file(RELATIVE_PATH target ${build}/share/kvcts ${real})
  endif()
  file(CREATE_LINK ${target} ${CMAKE_BINARY_DIR}/share/kvcts/${name} SYMBOLIC)
endfunction()

# The part of its room that the current folder belongs to: harness/run/store -> run/store, harness/scene/reader/flashinfer
# -> scene/reader.
function(kvcts_part out)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "^harness/" "" folder "${folder}")
  string(REGEX MATCH "^[^/]+(/[^/]+)?" folder "${folder}")
  set(${out} ${folder} PARENT_SCOPE)
endfunction()

# kvcts_sees(OUT): the include folder of the current room, where that room is alone under its own name.
function(kvcts_sees out)
  kvcts_part(room)
  string(REGEX REPLACE "/.*" "" room "${room}")
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX MATCH "^(harness/)?${room}" folder "${folder}")
  set(seen ${CMAKE_BINARY_DIR}/include/${room})
  file(MAKE_DIRECTORY ${seen})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${folder} ${seen}/${room} SYMBOLIC)
  set(${out} ${seen} PARENT_SCOPE)
endfunction()

# kvcts_target(name PUBLIC|PRIVATE LIB...): what every target of ours is. It sees its own room and those of the libraries
# that it links, and these must be declared before it: an include of a room above does not compile, a link to one does not
# configure.
function(kvcts_target name scope)
  foreach(lib IN LISTS ARGN)
    if(lib MATCHES "^kvcts_" AND NOT TARGET ${lib})
      message(FATAL_ERROR "${name} links ${lib}, which no room below declares (their order is that of CMakeLists.txt)")
    endif()
  endforeach()
  kvcts_sees(seen)
  target_include_directories(${name} ${scope} ${seen})
  target_link_libraries(${name} ${scope} kvcts_flags ${ARGN})
endfunction()

# kvcts_batches(OUT NAME SOURCE...): sources that include up to five of those each, written beside the build of target NAME.
# Most of what a source costs is its headers. Their paths are relative, unlike in CMake's own unity builds, so that another
# clone compiles the same text.
function(kvcts_batches out name)
  set(generated ${ARGN})
  list(FILTER generated INCLUDE REGEX "^/")
  list(FILTER ARGN EXCLUDE REGEX "^/")
  list(LENGTH ARGN count)
  math(EXPR batches "(${count} + 4) / 5")
  set(files ${generated})
  file(RELATIVE_PATH room ${CMAKE_CURRENT_BINARY_DIR}/batches ${CMAKE_CURRENT_SOURCE_DIR})
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
# What is built a second time with sanitizers: every test program.
add_custom_target(kvcts_sanitized_tests)

# Two precompiled headers: of libraries, and of test programs. Targets with the same flags share one; those with others
# (BULK) have none.
file(WRITE ${CMAKE_BINARY_DIR}/pch/main.cpp.in "int main() {}\n")
configure_file(${CMAKE_BINARY_DIR}/pch/main.cpp.in ${CMAKE_BINARY_DIR}/pch/main.cpp COPYONLY)
set(KVCTS_PCH_HEADERS <algorithm> <array> <cstdint> <cstring> <filesystem> <fstream> <functional> <map> <memory> <optional>
    <set> <span> <sstream>
  <stdexcept> <string> <string_view> <unordered_map> <utility> <variant> <vector> <fmt/format.h> <fmt/ranges.h>
  <nlohmann/json.hpp>)
# A precompiled header is used where the same macros are defined, so that all sources define what fmt asks of its users.
find_package(fmt REQUIRED)
target_compile_definitions(kvcts_flags INTERFACE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
add_library(kvcts_pch STATIC ${CMAKE_BINARY_DIR}/pch/main.cpp)
target_link_libraries(kvcts_pch PRIVATE kvcts_flags)
target_precompile_headers(kvcts_pch PRIVATE ${KVCTS_PCH_HEADERS})

# kvcts_library(name [APART] [BULK] SOURCES ... LIBS ...): compiled in batches, or each source APART (where sources have
# flags of their own). BULK: touches bytes or addresses in bulk, so it is optimised also where the others are not (preset
# default).
function(kvcts_library name)
  cmake_parse_arguments(ARG "APART;BULK" "" "SOURCES;LIBS" ${ARGN})
  if(NOT ARG_APART)
    kvcts_batches(ARG_SOURCES ${name} ${ARG_SOURCES})
  endif()
  add_library(${name} STATIC ${ARG_SOURCES})
  kvcts_target(${name} PUBLIC ${ARG_LIBS})
  if(ARG_BULK)
    target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O2>)
  else()
    target_precompile_headers(${name} REUSE_FROM kvcts_pch)
  endif()
endfunction()

# kvcts_program(name SOURCES ... LIBS ...): an executable that is installed into bin/.
function(kvcts_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  kvcts_batches(ARG_SOURCES ${name} ${ARG_SOURCES})
  add_executable(${name} ${ARG_SOURCES})
  kvcts_target(${name} PRIVATE ${ARG_LIBS})
  add_dependencies(kvcts_programs ${name})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# kvcts_test(PROGRAM SOURCES ... LIBS ... LABELS unit|property|process|suite|slow|nightly [NEEDS target...] [TIMEOUT s]
# [APART]): tests of a room, as part of the test program kvcts_test_PROGRAM: one per floor, so that a change is linked once.
# Each gtest is a CTest entry "<room>.<Suite>.<Test>" with these labels and room:<room> or room:<room>/<part>; what is
# instantiated under the name Nightly is for the night only. NEEDS: programs and plug-ins that the tests start.
function(kvcts_test program)
  cmake_parse_arguments(ARG "APART" "TIMEOUT" "SOURCES;LIBS;LABELS;NEEDS" ${ARGN})
  if(NOT KVCTS_TESTS)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  kvcts_part(room)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REPLACE ";" "," labels "${ARG_LABELS};room:${room}")
  kvcts_sees(seen)
  set_property(GLOBAL APPEND PROPERTY KVCTS_ROOMS_OF_${program} ${seen})
  foreach(source IN LISTS ARG_SOURCES)
    set_property(GLOBAL APPEND PROPERTY KVCTS_TESTS_OF_${program} "${folder}/${source} ${room} ${ARG_TIMEOUT} ${labels}")
  endforeach()
  list(GET ARG_SOURCES 0 first)
  get_filename_component(first ${first} NAME_WE)
  if(ARG_APART)
    list(TRANSFORM ARG_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  else()
    kvcts_batches(ARG_SOURCES ${first} ${ARG_SOURCES})
  endif()
  set_property(GLOBAL APPEND PROPERTY KVCTS_TEST_PROGRAMS ${program})
  set_property(GLOBAL APPEND PROPERTY KVCTS_SOURCES_OF_${program} ${ARG_SOURCES})
  set_property(GLOBAL APPEND PROPERTY KVCTS_LIBS_OF_${program} ${ARG_LIBS})
  set_property(GLOBAL APPEND PROPERTY KVCTS_NEEDS_OF_${program} ${ARG_NEEDS})
endfunction()

# Declares the test programs, when all rooms have said what is in them. A program lists its own tests when it is linked.
function(kvcts_test_programs)
  get_property(programs GLOBAL PROPERTY KVCTS_TEST_PROGRAMS)
  if(NOT programs)
    return()
  endif()
  list(REMOVE_DUPLICATES programs)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
  add_executable(kvcts_pch_tests EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/pch/main.cpp)
  target_link_libraries(kvcts_pch_tests PRIVATE kvcts_flags GTest::gmock)
  target_precompile_headers(kvcts_pch_tests PRIVATE ${KVCTS_PCH_HEADERS} <gmock/gmock.h> <gtest/gtest.h>)
  foreach(program IN LISTS programs)
    foreach(what SOURCES LIBS NEEDS ROOMS)
      get_property(${what} GLOBAL PROPERTY KVCTS_${what}_OF_${program})
      list(REMOVE_DUPLICATES ${what})
    endforeach()
    get_property(table GLOBAL PROPERTY KVCTS_TESTS_OF_${program})
    list(JOIN table "\n" table)
    set(target kvcts_test_${program})
    set(files ${CMAKE_BINARY_DIR}/tests/${program})
    file(CONFIGURE OUTPUT ${files}.txt CONTENT "${table}\n" @ONLY)
    add_executable(${target} ${SOURCES})
    target_include_directories(${target} PRIVATE ${ROOMS})
    target_link_libraries(${target} PRIVATE kvcts_flags kvcts_checkout ${LIBS} GTest::gmock GTest::gtest_main)
    target_precompile_headers(${target} REUSE_FROM kvcts_pch_tests)
    set_target_properties(${target} PROPERTIES LINK_DEPENDS ${files}.txt)
    if(NEEDS)
      add_dependencies(${target} ${NEEDS})
    endif()
    add_custom_command(TARGET ${target} POST_BUILD VERBATIM
      COMMAND python3 ${CMAKE_SOURCE_DIR}/harness/cmake/list_tests.py $<TARGET_FILE:${target}> ${files}.txt ${files}.cmake)
    if(NOT EXISTS ${files}.cmake)  # until it is linked, asking for all tests fails
      file(WRITE ${files}.cmake "add_test(${target}_NOT_BUILT ${target}_NOT_BUILT)\n")
    endif()
    set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY TEST_INCLUDE_FILES ${files}.cmake)
    add_dependencies(kvcts_sanitized_tests ${target})
  endforeach()
endfunction()

# kvcts_script_test(name COMMAND script args... [NIGHTLY script args...] [LABELS ...] [TIMEOUT s] [ALONE]): a Python script
# or pytest ("-m pytest ..."), run by the checkout's pinned interpreter where there is one. KVCTS_SOURCE_DIR and
# KVCTS_BINARY_DIR are in its environment. Exit status 77: skipped. ALONE: nothing beside it, because deadlines of a second
# are part of its cases. NIGHTLY: the long version, an entry nightly.<name> that only the night runs. Always labelled python
# as well: what it runs is not there in a sanitized build.
function(kvcts_script_test name)
  cmake_parse_arguments(ARG "ALONE" "TIMEOUT" "COMMAND;NIGHTLY;LABELS" ${ARGN})
  if(NOT KVCTS_TESTS)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  kvcts_part(room)
  kvcts_script_entry(${name} ${ARG_TIMEOUT} "${ARG_LABELS};python;room:${room}" ${ARG_COMMAND})
  set_tests_properties(${name} PROPERTIES RUN_SERIAL ${ARG_ALONE})
  if(ARG_NIGHTLY)
    kvcts_script_entry(nightly.${name} 7200 "nightly;python;room:${room}" ${ARG_NIGHTLY})
  endif()
endfunction()

function(kvcts_script_entry name timeout labels)
  add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/harness/python/python ${ARGN}
      WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout} SKIP_RETURN_CODE 77
    ENVIRONMENT "KVCTS_SOURCE_DIR=${CMAKE_SOURCE_DIR};KVCTS_BINARY_DIR=${CMAKE_BINARY_DIR};PYTHONDONTWRITEBYTECODE=1")
endfunction()
