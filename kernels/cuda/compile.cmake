# Compiles the device kernels to one fatbin and keeps what ptxas says of them. Run with cmake -P; NVCC, CXX, SOURCE,
# INCLUDES, ARCHS, OUT and REPORT are given. ARCHS: "75;90a" = machine code for each, and PTX of the first for all that are
# not named.
set(targets)
foreach(arch IN LISTS ARCHS)
  list(APPEND targets -gencode arch=compute_${arch},code=sm_${arch})
endforeach()
list(GET ARCHS 0 oldest)
list(APPEND targets -gencode arch=compute_${oldest},code=compute_${oldest})
list(TRANSFORM INCLUDES PREPEND -I)
execute_process(
  COMMAND ${NVCC} -fatbin -std=c++20 -O3 --expt-relaxed-constexpr -Werror all-warnings -Xptxas -v --threads 2 -ccbin ${CXX}
    ${INCLUDES} ${targets} ${SOURCE} -o ${OUT}
  OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE failed)
file(WRITE ${REPORT} "${said}")
if(failed)
  message(FATAL_ERROR "nvcc could not compile the device kernels (-DKVCTS_CUDA=OFF builds without them):\n${said}")
endif()
