#pragma once
#include <stdbool.h>
#include <stddef.h>

/// What came of asking.
enum cportal_outcome {
    CPORTAL_CHOSEN,
    CPORTAL_CANCELLED,
    /// libsystemd is not there, or lacks a function.
    CPORTAL_NO_LIBRARY,
    CPORTAL_NO_BUS,
    CPORTAL_NO_PORTAL,
    /// It chooses files alone.
    CPORTAL_TOO_OLD,
    /// The dialog or the portal ended without an answer.
    CPORTAL_ENDED,
    CPORTAL_FAILED,
};

/// Asks the file chooser of the desktop portal (org.freedesktop.portal.FileChooser, on the session
/// bus) for directories, or for `files`, and waits until the person has chosen. `folder`, where it
/// begins, may be NULL. `each` is called for every URI that was chosen, before it returns. `reason`
/// gets a text for failures that the outcome alone does not explain, cut at `size`.
enum cportal_outcome cportal_choose(
    const char *title, const char *accept, const char *folder, bool files, void (*each)(void *context, const char *uri), void *context, char *reason,
    size_t size);
