// The fixture of tests that start the program on several ranks: scripts, a short run, and its losses.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "ingot/core/file.h"
#include "ingot/formats/metrics_log.h"
#include "tests/reference/temporary_folder.h"
#include "tests/regress/run_script.h"

namespace ingot {

class LaunchTest : public FolderTest {
 protected:
  LaunchTest() {
    std::string text;
    for (int i = 0; i < 2000; ++i) text += i % 7 < 3 ? "the cat sat on the mat. " : "a dog ran. ";
    write_file(folder_ / "text.txt", text);
  }

  void SetUp() override {
    if (std::string(INGOT_MPIRUN).empty()) GTEST_SKIP() << "built without MPI";
  }

  // Runs a bash script with the functions
  //   run N ARGUMENTS   becomes `mpirun -n N ingot ARGUMENTS`
  //   rank_of PROCESS   prints the rank of a process, 0 without MPI
  //   process_of JOB N  prints the process of rank N below the mpirun JOB; the numbers of processes do not
  //                     tell the ranks, because they start again at 1 after the greatest one
  Outcome bash(const std::string& script) const {
    return run_script(
        folder_,
        // Two jobs that start and end at the same time fight over the folder that they would share otherwise.
        "export OMPI_MCA_orte_tmpdir_base=" + folder_.string() +
            " PRTE_MCA_prte_tmpdir_base=" + folder_.string() +
            "\nexport " INGOT_MPI_ENVIRONMENT
            "\n"
            "rank_of() { n=$(tr '\\0' '\\n' 2>/dev/null </proc/$1/environ | sed -n "
            "'s/^OMPI_COMM_WORLD_RANK=//p')\n"
            "  echo ${n:-0}; }\n"
            "process_of() { for p in $(pgrep -P $1); do [ $(rank_of $p) = $2 ] && echo $p; done; }\n"
            "program=$ingot\nrun() { n=$1; shift; exec " INGOT_MPIRUN " -n $n $program \"$@\"; }\n" +
            script);
  }
  // The arguments of a short run that writes to folder `out`.
  std::string train(const std::string& out, const std::string& more) const {
    return "train tiny-llama --data " + path("text.txt") + " --out " + path(out) +
           " --set data.tokenizer=byte --set train.batch_size=4 --set train.grad_accum=2"
           " --set model.context=32 --set sample.count=0 " +
           more;
  }
  std::vector<double> losses(const std::string& out) const {
    std::vector<double> all;
    for (const MetricsRow& row : read_metrics(folder_ / out / "metrics.jsonl"))
      if (const auto loss = row.number("loss")) all.push_back(*loss);
    return all;
  }
};

// A script that starts a run on two ranks, waits for its first checkpoint, executes `disturbance` ($job is
// the process of mpirun, $rank that of the second rank) and ends with the exit code of the run.
inline std::string disturbed(const std::string& command, const std::string& out,
                             const std::string& disturbance) {
  return "(run 2 " + command + ") & job=$!\nfor i in $(seq 600); do ls -d " + out +
         "/checkpoints/step-* >/dev/null 2>&1 && break; sleep 0.1; done\n"
         "rank=$(process_of $job 1)\n" +
         disturbance + "\nstart=$SECONDS\nwait $job\ncode=$?\necho took $((SECONDS - start)) s\nexit $code\n";
}

}  // namespace ingot
