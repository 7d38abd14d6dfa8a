// kvcts run --hosts: producer and consumer of each case on two hosts.
#pragma once

#include <string>
#include <vector>

#include "run/supervisor/child.hpp"

namespace kvcts::cli::hosts {

/// Two hosts by their words, "NAME" or "NAME=ADDRESS" (the rail that engines use): the producer's and the consumer's. In a
/// Slurm allocation a name is a node of it; elsewhere, or with user@, it is reached by ssh ($KVCTS_SSH). This machine's own
/// name, or "localhost", needs neither. Throws UsageError.
std::vector<supervisor::Host> parse(const std::vector<std::string>& words);

}  // namespace kvcts::cli::hosts
