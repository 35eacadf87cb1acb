#pragma once
// TOML, read and written by toml++ (Debian: libtomlplusplus-dev), as Swift can call it.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A parsed document. Its nodes live as long as it does.
typedef struct ctoml_document ctoml_document;
/// A value in it.
typedef struct ctoml_node ctoml_node;

enum ctoml_kind { ctoml_table, ctoml_array, ctoml_string, ctoml_integer, ctoml_boolean, ctoml_moment, ctoml_other };

/// The parts of a date with a time. A date alone is its midnight. Without an offset it is local
/// time.
struct ctoml_time {
    int64_t year;
    int64_t month, day, hour, minute, second, nanosecond;
    bool has_offset;
    int64_t offset_minutes;
};

/// Why a document could not be read: text for people, cut to fit, and the line, counted from 1, or 0 where that is not known.
struct ctoml_failure {
    char text[256];
    uint32_t line;
};

/// Parses a document. Returns NULL if it is invalid, with the reason in `failure`. The caller gives
/// the document to ctoml_end.
ctoml_document *ctoml_read(const char *bytes, size_t count, struct ctoml_failure *failure);
void ctoml_end(ctoml_document *document);
const ctoml_node *ctoml_root(const ctoml_document *document);

enum ctoml_kind ctoml_kind_of(const ctoml_node *node);
/// Its line, from 1, or 0 if that is unknown.
uint32_t ctoml_line(const ctoml_node *node);

/// Of a table or an array.
size_t ctoml_count(const ctoml_node *node);
const ctoml_node *ctoml_item(const ctoml_node *node, size_t index);
/// Returns the key of a table's item, which is not terminated.
const char *ctoml_key(const ctoml_node *node, size_t index, size_t *count);

/// Of a value of that kind. Strings are not terminated.
const char *ctoml_string_of(const ctoml_node *node, size_t *count);
bool ctoml_boolean_of(const ctoml_node *node);
/// Returns false for a time without a date.
bool ctoml_time_of(const ctoml_node *node, struct ctoml_time *time);

/// Writes UTF-8 text as a TOML string on one line. Returns the length of the whole. `out` gets as
/// much of it as fits.
size_t ctoml_quote(const char *bytes, size_t count, char *out, size_t room);

#ifdef __cplusplus
}
#endif
