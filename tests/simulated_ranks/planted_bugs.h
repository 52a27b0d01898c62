// Bugs that the simulation plants to show that it would find them. Each is a small change at a seam: in what
// a communicator does, in what the file system does, in what the supervisor's job reports, or around a
// function of the trainer (planted_bugs.cpp).
#pragma once

#include <array>
#include <string_view>

namespace ingot::simulated {

enum class Bug {
  kNone,
  kAgreementIsSkipped,
  kOthersDoNotFlush,
  kNoFlushReachesTheDisk,
  kFolderIsNotFlushed,
  kManifestIsNotFlushed,
  kOlderView,
  kLastRankIsNotSummed,
  kMessagesAreSwapped,
  kWaitIsSkipped,
  kOwnSignalCounts,
  kDamageIsAccepted,
  kLoaderIsOneOff,
  kStateOfOneShardIsLost,
  kNewestIsPruned,
  kHelperBeats,
  kStaleLayout,
};

struct BugText {
  Bug bug;
  std::string_view name, what;
};

inline constexpr std::array kBugs = {
    BugText{Bug::kAgreementIsSkipped, "agreement_is_skipped",
            "the last rank leaves out an agreement of a save"},
    BugText{Bug::kOthersDoNotFlush, "others_do_not_flush",
            "rank 0 commits although the others have flushed nothing"},
    BugText{Bug::kNoFlushReachesTheDisk, "no_flush_reaches_the_disk", "fsync of a file does nothing"},
    BugText{Bug::kFolderIsNotFlushed, "folder_is_not_flushed", "fsync of a folder does nothing"},
    BugText{Bug::kManifestIsNotFlushed, "manifest_is_not_flushed",
            "a checkpoint is renamed before its manifest is flushed"},
    BugText{Bug::kOlderView, "older_view", "one rank resumes from the checkpoint before the newest"},
    BugText{Bug::kLastRankIsNotSummed, "last_rank_is_not_summed", "a sum leaves out the last rank"},
    BugText{Bug::kMessagesAreSwapped, "messages_are_swapped", "two messages between two ranks change places"},
    BugText{Bug::kWaitIsSkipped, "wait_is_skipped", "one rank does not wait for gathers and scatters"},
    BugText{Bug::kOwnSignalCounts, "own_signal_counts",
            "a rank ends by its own signal, without an agreement"},
    BugText{Bug::kDamageIsAccepted, "damage_is_accepted", "no checkpoint is found damaged"},
    BugText{Bug::kLoaderIsOneOff, "loader_is_one_off", "a resumed run reads on one batch too late"},
    BugText{Bug::kStateOfOneShardIsLost, "state_of_one_shard_is_lost",
            "the last rank's optimizer state is zero after a resume"},
    BugText{Bug::kNewestIsPruned, "newest_is_pruned", "pruning removes the newest checkpoint"},
    BugText{Bug::kHelperBeats, "helper_beats", "a helper thread beats while the training thread hangs"},
    BugText{Bug::kStaleLayout, "stale_layout",
            "the supervisor starts as many ranks as before a host was lost"},
};

}  // namespace ingot::simulated
