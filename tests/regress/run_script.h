// Runs shell scripts for tests that use the program as its users do.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include "ingot/core/file.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {

struct Outcome {
  int exit_code = -1;  // 128 + the signal's number if a signal ended the script
  std::string output;  // stdout and stderr
};

// Writes `script` to script.sh in `folder`, where it runs with $ingot as the program.
inline std::filesystem::path write_script(const std::filesystem::path& folder, const std::string& script) {
  std::filesystem::path file = folder / "script.sh";
  write_file(file, "export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive\ningot='" INGOT_PROGRAM "'\ncd '" +
                       folder.string() + "'\n" + script + "\n");
  return file;
}

inline int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Runs a command of the shell.
inline Outcome run_command(const std::string& command) {
  Outcome outcome;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return outcome;
  std::array<char, 4096> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
    outcome.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  outcome.exit_code = exit_code_of(status);
  return outcome;
}

// Runs `script` with bash in `folder` and leaves no file of its own there.
inline Outcome run_script(const std::filesystem::path& folder, const std::string& script) {
  const std::filesystem::path file = write_script(folder, script);
  Outcome outcome = run_command("bash '" + file.string() + "'");
  std::filesystem::remove(file);
  return outcome;
}

// The fixture of tests that run scripts in a folder.
class ScriptTest : public FolderTest {
 protected:
  // Runs a script in the folder; $ingot in it is the program.
  Outcome bash(const std::string& script) const { return run_script(folder_, script); }
  // Runs `ingot ARGUMENTS` in the folder and returns the exit code; its output goes to said_.
  int ingot(const std::string& arguments) {
    const Outcome outcome = bash("$ingot " + arguments);
    said_ = outcome.output;
    return outcome.exit_code;
  }
  std::string said_;
};

}  // namespace ingot
