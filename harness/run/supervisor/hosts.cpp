// Producer and consumer on two hosts: meets them, and what a case needs there.
#include <algorithm>

#include "run/supervisor/case_executor.hpp"

namespace kvcts::supervisor {

using nlohmann::json;

namespace {

constexpr int starts_allowed = 3;  // in a row
constexpr std::int64_t look_ms = 50;

}  // namespace

void meet_hosts(Run& run) {
  for (const Host& host : run.options.hosts)
    run.hosts.push_back(
        host.start.empty() ? nullptr : std::make_unique<Link>(run.loop, run.programs + "/kvcts-host", run.link.run(), host));
  for (const auto& host : run.hosts) {
    while (host && host->facts().is_null() && !host->lost()) run.loop.step(now_ns() + 50 * ns_per_ms);
    if (!host) continue;
    if (host->lost()) throw std::runtime_error(host->why_lost());
    if (const std::string there = host->facts().value("isolation", ""), here = process::isolation_text();
        there.starts_with("none") != here.starts_with("none"))
      throw std::runtime_error("host " + host->facts().value("name", "") + ": its sandbox is " + there + ", here it is " +
                               here + "; set KVCTS_SANDBOX=off on both to run without");
  }
}

void add_addresses(const json& hosts, const std::string& role, json& environment) {
  const json& own = hosts.at(role);
  environment["KVCTS_ADDRESS"] = own.at("address");
  environment["KVCTS_PEER_ADDRESS"] = hosts.at(role == "producer" ? "consumer" : "producer").at("address");
  environment["UCX_NET_DEVICES"] = own.at("interface");
}

json Run::hosts_facts() const {
  json out;
  for (std::size_t side = 0; side < hosts.size(); ++side) {
    const bool here = !hosts[side];
    const json& met = hosts[here ? 1 - side : side]->facts();
    const auto text = [&](const char* key) { return met.value(here ? std::string("near_") + key : key, ""); };
    json one = {{"host", here ? text("name") : options.hosts[side].name},
                {"address", text("address")},
                {"interface", text("interface")}};
    out[side == 0 ? "producer" : "consumer"] = std::move(one);
  }
  return out;
}

std::string Run::fit_to_hosts(ResolvedCase& c) const {
  if (is_ours(c)) return "its steps are the suite's own: they run on one host";
  if (is_program(c) ? !c.connector.between_hosts : !c.engine.between_hosts)
    return (is_program(c) ? "connector " + c.connector.name : "engine " + c.engine.name) +
           " does not work between two hosts (between_hosts in its entry)";
  if (std::ranges::find(c.grants, "network") == c.grants.end()) c.grants.emplace_back("network");
  const std::string initiator = c.op == Direction::read ? "consumer" : "producer";
  if (c.engine.path.value("transport", "") == "tcp/lo")
    c.engine.path["transport"] = "tcp/" + hosts_facts().at(initiator).value("interface", "");
  return "";
}

/// Both hosts are there, or why not. One that was lost is started again; what this executor had there goes.
Task<std::string> CaseExecutor::reach_hosts() {
  for (std::size_t side = 0; side < run_.hosts.size(); ++side) {
    if (!run_.hosts[side]) continue;
    Link& host = *run_.hosts[side];
    if (host.lost() && run_.unreached[side] < starts_allowed) host.restart();
    if (met_[side] != 0 && met_[side] != host.starts()) {
      co_await kill_workers();
      for (const auto& kept : kept_) co_await end(*kept);
      kept_.clear();
      lose_checker(host.facts().is_null() ? "a host was lost" : host.why_lost());
    }
    met_[side] = host.starts();
    while (host.facts().is_null() && !host.lost()) {
      check_running();
      co_await wake_.wait(now_ns() + look_ms * ns_per_ms);
    }
    if (!host.lost()) {
      run_.unreached[side] = 0;
      continue;
    }
    ++run_.unreached[side];
    co_return host.why_lost();
  }
  co_return "";
}

Link& CaseExecutor::link(std::size_t side) const {
  const auto& links = workers_->links;
  return links.empty() ? run_.host_link(side) : *links[std::min(side, links.size() - 1)];
}

std::unique_ptr<Link> CaseExecutor::new_link(const Attempt& a, std::size_t side) const {
  process::Sandbox sandbox = sandbox_of(a.resolved, run_.options);
  if (Link& host_link = run_.host_link(side); host_link.far())
    return std::make_unique<Link>(run_.loop, host_link, std::move(sandbox));
  return std::make_unique<Link>(run_.loop, run_.programs + "/kvcts-launcher", run_.link.run(), std::move(sandbox));
}

}  // namespace kvcts::supervisor
