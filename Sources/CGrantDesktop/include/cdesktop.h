#pragma once
#include <stdbool.h>
#include <stddef.h>

/// What came of asking.
enum cdesktop_outcome {
    CDESKTOP_CHOSEN,
    CDESKTOP_CANCELLED,
    /// libsystemd is not there, or lacks a function.
    CDESKTOP_NO_LIBRARY,
    CDESKTOP_NO_BUS,
    CDESKTOP_NO_PORTAL,
    /// It chooses files alone.
    CDESKTOP_TOO_OLD,
    /// The dialog or the portal ended without an answer.
    CDESKTOP_ENDED,
    CDESKTOP_FAILED,
};

/// Asks the file chooser of the desktop portal (org.freedesktop.portal.FileChooser, on the session
/// bus) for directories, or for `files`, and waits until the person has chosen. `folder`, where it
/// begins, may be NULL. `each` is called for every URI that was chosen, before it returns. `reason`
/// gets a text for failures that the outcome alone does not explain, cut at `size`.
enum cdesktop_outcome cdesktop_choose(
    const char *title, const char *accept, const char *folder, bool files, void (*each)(void *context, const char *uri), void *context, char *reason,
    size_t size);
