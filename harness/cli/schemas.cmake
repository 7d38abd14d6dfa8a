# cmake -DKVCTS=program -DOUT=folder -P schemas.cmake: OUT/KIND.schema.json for every kind of file that the program knows.
cmake_minimum_required(VERSION 3.25)
file(MAKE_DIRECTORY ${OUT})
execute_process(COMMAND ${KVCTS} explain --schema --json OUTPUT_VARIABLE kinds COMMAND_ERROR_IS_FATAL ANY)
string(JSON last LENGTH "${kinds}")
math(EXPR last "${last} - 1")
foreach(i RANGE ${last})
  string(JSON kind GET "${kinds}" ${i})
  execute_process(COMMAND ${KVCTS} explain --schema ${kind} OUTPUT_FILE ${OUT}/${kind}.schema.json
      COMMAND_ERROR_IS_FATAL ANY)
endforeach()
