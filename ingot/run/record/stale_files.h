// A start that ends before its first step leaves stale files in the run folder: a lock, config.toml,
// run.json, logs without a step, empty folders. A later start may remove them.
#pragma once

#include <filesystem>

namespace ingot {

// Returns true if an Ingot process has locked the folder before (.lock) and it holds only what a start
// makes before its first step: no logged step, no checkpoint, no sample, no file that Ingot does not write,
// and no config.toml that differs from what Ingot writes. Returns false if the folder cannot be read.
bool has_only_stale_files(const std::filesystem::path& run);

// Removes the stale files, and after them the lock if `lock` is kGoes. Does nothing if has_only_stale_files()
// is false. Never throws.
enum class LockFile { kStays, kGoes };
void remove_stale_files(const std::filesystem::path& run, LockFile lock) noexcept;

}  // namespace ingot
