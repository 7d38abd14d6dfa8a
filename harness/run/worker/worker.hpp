// The worker: hosts a connector, an engine and a reader for one side of a case, or for both.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "case/case.hpp"
#include "connector/connector.hpp"
#include "connector/program/host.hpp"
#include "engines/transport/session.hpp"
#include "process/frames.hpp"
#include "process/memory_file.hpp"
#include "process/request.hpp"
#include "process/status.hpp"

namespace kvcts::worker {

/// An engine's JSON options ({plugin, options}) as the ABI's strings, without `memory_provider`, which is for the
/// worker.
transport::OpenOptions open_options(const nlohmann::json& engine);

/// Answers the worker requests of process/protocol.hpp. Whatever code under test throws becomes a reply:
///   a connector's Refusal, an engine's error code   -> {"refused": {text, at}}
///   anything else                                   -> {"raised": {type, text, at}}
///   an engine whose file is missing, or that cannot open anything here -> {"skipped": {text}}
///   a connector program that died or broke its protocol -> {"crash": {signal, text}}
///   std::bad_alloc                                  -> {"memory": {text}}
///   an invalid request                              -> {"error": {text}}
class Worker {
 public:
  using Announce = std::function<void(const std::string& freed)>;
  /// `role`: "producer", "consumer" or "both". `page` may be null. `interrupted`: whether another request has arrived
  /// while one is being answered; that ends the wait for a connector program. `announce` is called as soon as a transfer
  /// is reported complete, or a request's blocks free (StatusPage::freed), before code under test is called again.
  Worker(
      std::string role, process::StatusPage* page, std::function<bool()> interrupted = {},
      Announce announce = [](const std::string&) {});
  ~Worker();

  nlohmann::json handle(const nlohmann::json& request, std::vector<process::UniqueFd> fds);

  /// True if a peer may need this side's CPU: call progress() until a request arrives.
  bool needs_progress() const;
  /// One round; true: there was work.
  bool progress();

 private:
  struct File;
  struct CaseContext;
  struct Agent;

  nlohmann::json dispatch(process::WorkerRequest asked, const nlohmann::json& request, std::vector<process::UniqueFd>& fds);
  nlohmann::json hello(const nlohmann::json& request);
  nlohmann::json prepare(const nlohmann::json& request, std::vector<process::UniqueFd>& fds);
  void take_files(CaseContext& context, const nlohmann::json& files, std::vector<process::UniqueFd>& fds);
  void register_files(CaseContext& context);
  nlohmann::json open_program(CaseContext& context, const nlohmann::json& request);
  nlohmann::json transfer_by_program(CaseContext& context, const nlohmann::json& request);
  /// In requests of as many descriptors as the engine takes. Returns the bytes of each.
  std::vector<std::uint64_t> post(CaseContext& context, transport::Session& session,
                                  const std::vector<transport::Descriptor>& all, transport::Op op);
  nlohmann::json connect(const nlohmann::json& request);
  nlohmann::json upload(const nlohmann::json& request);
  nlohmann::json download(const nlohmann::json& request);
  nlohmann::json plan(const nlohmann::json& request);
  nlohmann::json transfer(const nlohmann::json& request);
  nlohmann::json read(const nlohmann::json& request);
  nlohmann::json end(const nlohmann::json& request);
  nlohmann::json close();
  void release(CaseContext& context);
  nlohmann::json hello_program(const nlohmann::json& request);
  CaseContext& context(const nlohmann::json& request);
  Agent* agent(Side side);

  std::string role_;
  process::StatusPage* page_;
  process::Progress progress_;
  std::function<bool()> interrupted_;
  Announce announce_;
  std::vector<std::unique_ptr<Agent>> agents_;
  std::unique_ptr<connector::program::ProgramHost> program_;  ///< instead of agents and connector
  std::map<std::uint64_t, std::unique_ptr<CaseContext>> cases_;
  std::size_t connected_{0};
};

}  // namespace kvcts::worker
