#include "casemate/transfer/sink.h"

namespace casemate {

std::vector<LandedArtifact> OutputSink::deliver_all(std::span<const Artifact> artifacts) {
  std::vector<LandedArtifact> landed;
  landed.reserve(artifacts.size());
  for (const Artifact& artifact : artifacts) {
    landed.push_back(deliver(artifact));
  }
  return landed;
}

}  // namespace casemate
