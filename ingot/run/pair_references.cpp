#include "ingot/run/pair_references.h"

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/formats/safetensors.h"
#include "ingot/run/run_setup.h"

namespace ingot {
namespace {

struct NamedSource {
  const char* name;
  const TokenSource& source;
  uint64_t hash;
};

// Returns the run's sources of pairs.
std::vector<NamedSource> sources_of(const RunSetup& setup) {
  std::vector<NamedSource> sources;
  if (setup.data.train.references()) sources.push_back({"train", setup.data.train, setup.text.train});
  if (setup.data.val.references()) sources.push_back({"val", setup.data.val, setup.text.val.value_or(0)});
  return sources;
}

std::filesystem::path reference_path(const RunSetup& setup) { return setup.folder.path() / kReferenceName; }

std::string hash_text(const NamedSource& one) { return fmt::format("{:016x}", one.hash); }

}  // namespace

void compute_references(const RunData& data, Trainer& trainer, const EvalProgress& should_continue) {
  for (const TokenSource* source : {&data.train, &data.val}) {
    if (!source->references()) continue;
    const std::vector<double> log_p = trainer.score_documents(*source, should_continue);
    source->references()->assign(log_p.begin(), log_p.end());
  }
}

void write_references(const RunSetup& setup) {
  const std::vector<NamedSource> sources = sources_of(setup);
  if (sources.empty() || !setup.is_lead()) return;
  std::vector<SafetensorsSource> tensors;
  std::map<std::string, std::string> metadata;
  for (const NamedSource& one : sources) {
    const std::span<const float> log_p = *one.source.references();
    tensors.push_back({.name = one.name, .shape = {std::ssize(log_p)}, .bytes = std::as_bytes(log_p)});
    metadata[one.name] = hash_text(one);
  }
  write_safetensors(reference_path(setup), tensors, metadata);
}

void read_references(const RunSetup& setup) {
  const std::vector<NamedSource> sources = sources_of(setup);
  if (sources.empty()) return;
  const std::string path = reference_path(setup).string();
  std::string bytes;
  if (setup.is_lead()) {
    if (!path_exists(path))
      fail(ErrorKind::kData,
           "{}: is not there; it holds the reference of dpo.beta, which is computed when a run starts: start "
           "a "
           "new run with --init",
           path);
    bytes = read_file(path);
  }
  setup.world.broadcast_text(bytes, 0);
  const SafetensorsFile file(std::as_bytes(std::span(bytes)), path);
  for (const NamedSource& one : sources) {
    const SafetensorsEntry& entry = file.get(one.name);
    std::vector<float>& log_p = *one.source.references();
    const auto hash = file.metadata().find(one.name);
    if (hash == file.metadata().end() || hash->second != hash_text(one) || entry.dtype != DType::f32 ||
        entry.bytes.size() != log_p.size() * sizeof(float))
      fail(ErrorKind::kData,
           "{}: {} is not the reference of this run's pairs; give the data that the run began with, or start "
           "a "
           "new run with --init",
           path, one.name);
    std::memcpy(log_p.data(), entry.bytes.data(), entry.bytes.size());
  }
}

}  // namespace ingot
