# cmake -DIN=file -DOUT=source.cpp -DFUNCTION=namespace::name -P embed_text.cmake: a C++ function that returns the text.
file(READ ${IN} text)
get_filename_component(name ${IN} NAME)
string(REGEX MATCH "^(.*)::([^:]+)$" unused ${FUNCTION})
file(WRITE ${OUT} "// Generated from ${name}.\n#include <string_view>\n\nnamespace ${CMAKE_MATCH_1} {\n"
    "std::string_view ${CMAKE_MATCH_2}();\n"
    "std::string_view ${CMAKE_MATCH_2}() {\n  return R\"__text__(${text})__text__\";\n}\n}  // namespace ${CMAKE_MATCH_1}\n")
