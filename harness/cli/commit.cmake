# cmake -DSOURCE=checkout -DOUT=commit.cpp -P commit.cmake: writes OUT where it would differ, so that nothing is built anew
# otherwise.
cmake_minimum_required(VERSION 3.25)
set(commit unknown)
find_program(git git)
if(git)
  execute_process(COMMAND ${git} -C ${SOURCE} rev-parse --short HEAD OUTPUT_VARIABLE found ERROR_QUIET
      OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
  if(status EQUAL 0)
    execute_process(COMMAND ${git} -C ${SOURCE} diff --quiet HEAD -- RESULT_VARIABLE changed ERROR_QUIET)
    set(commit ${found})
    if(NOT changed EQUAL 0)
      string(APPEND commit "+")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT
    "#include \"cli/commit.hpp\"\n\nconst char* kvcts::cli::built_from() { return \"@commit@\"; }\n" @ONLY)
