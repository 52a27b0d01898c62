// What a start leaves in a run folder when it ends before its first step: a lock, config.toml, run.json, logs
// without a step, empty folders. Nothing of it is worth keeping, so a later start may take its place.
#pragma once

#include <filesystem>

namespace ingot {

// True if the folder, which an Ingot process has locked before (.lock), holds nothing but what a start makes
// before its first step: no logged step, no checkpoint, no sample, no file that is not Ingot's, and no
// config.toml but as Ingot writes it. False if it cannot be read.
bool is_start_debris(const std::filesystem::path& run);

// Removes it, the lock last if it is to go too. Does nothing if is_start_debris() is false. Never throws.
enum class LockFile { kStays, kGoes };
void remove_start_debris(const std::filesystem::path& run, LockFile lock) noexcept;

}  // namespace ingot
