#include "cli/app.hpp"

int main(int argc, char** argv) { return kvcts::cli::run_program(argc, argv); }
