#include "cli/environment.hpp"

namespace kvcts::cli {

const std::vector<EnvironmentVariable>& environment_variables() {
  static const std::vector<EnvironmentVariable> table{
      {"KVCTS_CASES", "Folder of the catalogue, like --cases. Default: cases/ beside the program."},
      {"KVCTS_ENGINE_PATH",
       "Folders with your own transport plug-ins, separated by colons; searched before the built-in ones."},
      {"KVCTS_ENGINE_PACKAGES", "Folder of the installed engine packages. Default: .venv/engines of the checkout."},
      {"KVCTS_CONNECTOR_PATH",
       "Folders with your own connector programs, separated by colons; searched before the built-in ones."},
      {"KVCTS_CONNECTOR", "The connector class under test, as --connector."},
      {"KVCTS_CONNECTOR_EXTRA",
       "JSON: keys of its kv_connector_extra_config. {folder} in it: a folder of the case's, for both sides."},
      {"KVCTS_STORE", "The class of a store of pages under test, as --store."},
      {"KVCTS_PRODUCT",
       "A product file (kvcts explain --schema product) whose engine and waivers join the catalogue, or a plug-in, as "
       "--engine."},
      {"KVCTS_PYTHON",
       "Python that runs connector programs and makes golden content. Default: .venv of the checkout, else python3."},
      {"KVCTS_PYTHON_<NAME>", "Python of an environment such as VLLM, VLLM_0_27_1 or LMCACHE. Default: .venv/with/<name>."},
      {"KVCTS_SANDBOX", "'off' runs code under test without a sandbox; the headline then says 'not isolated'."},
      {"KVCTS_PASS", "Further variables that code under test gets in its sandbox, separated by commas."},
      {"KVCTS_SSH", "The command that reaches a host of --hosts, before its name. Default: ssh, without questions."},
      {"KVCTS_CUDA_DRIVER", "The CUDA driver library to load. Default: libcuda.so.1. Tests name a stand-in."},
      {"KVCTS_NO_CUDA", "'1' builds no device kernels, like ./run_suite.sh --no-cuda."},
      {"KVCTS_BROWSER", "Chromium for the self-test of the HTML report. Default: the first one on PATH."},
      {"NO_COLOR", "Anything but empty: no colours on a terminal (no-color.org)."},
      {"CI", "Anything but empty, 0 or false: no progress line that rewrites itself."},
      {"GITHUB_STEP_SUMMARY", "File that `kvcts report RUN --for github` appends its summary to; GitHub sets it."},
  };
  return table;
}

}  // namespace kvcts::cli
