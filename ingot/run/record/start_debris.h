// A start that ends before its first step leaves debris in the run folder: a lock, config.toml, run.json,
// logs without a step, empty folders. A later start may remove it.
#pragma once

#include <filesystem>

namespace ingot {

// Returns true if an Ingot process has locked the folder before (.lock) and it holds only what a start
// makes before its first step: no logged step, no checkpoint, no sample, no file that Ingot does not write,
// and no config.toml that differs from what Ingot writes. Returns false if the folder cannot be read.
bool is_start_debris(const std::filesystem::path& run);

// Removes the debris, and after it the lock if `lock` is kGoes. Does nothing if is_start_debris() is false.
// Never throws.
enum class LockFile { kStays, kGoes };
void remove_start_debris(const std::filesystem::path& run, LockFile lock) noexcept;

}  // namespace ingot
