#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// sd-bus, as a service needs it. libsystemd is loaded at the first use. Results are 0 or more, or a
// negative error number. Only one thread at a time may use a bus and all of its messages. A caller
// with several threads serialises them.

struct cportal_bus;
struct cportal_message;

/// Handles a message. Returns 0, or more if no other handler may get it. Called by
/// `cportal_process`. The message is invalid when it returns.
typedef int (*cportal_handler)(struct cportal_message *message, void *context);

/// -ELIBACC when libsystemd is not there, or lacks a function.
int cportal_open_session(struct cportal_bus **bus);
/// Sends what waits to be sent, and closes.
void cportal_close(struct cportal_bus *bus);
/// The unique name of the connection, valid as long as the connection, or NULL if it has none.
const char *cportal_name(struct cportal_bus *bus);
int cportal_descriptor(struct cportal_bus *bus);
/// What poll(2) is to wait for.
int cportal_events(struct cportal_bus *bus);
/// Handles one message. 0 when there was nothing to do. `-ENOTCONN`, `-ECONNRESET`: the bus has gone.
int cportal_process(struct cportal_bus *bus);
/// Handles only messages that were read during a wait for an answer and came before that answer.
int cportal_process_received(struct cportal_bus *bus);

/// Has every call of the document portal's interfaces at `path` answered by `handler`, which replies when it likes.
int cportal_serve_documents(struct cportal_bus *bus, const char *path, cportal_handler handler, void *context);
/// Takes a name. Returns -EEXIST if another owner of the name does not give it up, or must not be
/// replaced.
int cportal_request_name(struct cportal_bus *bus, const char *name, bool replaces);
/// Handles signals that come from `sender` and match the other names. NULL matches any. `argument`
/// is their first value, a text. No name may contain a quotation mark.
int cportal_match(
    struct cportal_bus *bus, const char *sender, const char *path, const char *interface, const char *member, const char *argument,
    cportal_handler handler, void *context);

/// A reference by which a call can be answered later. It holds none of the call's bytes and
/// descriptors.
int cportal_receipt(struct cportal_bus *bus, struct cportal_message *call, struct cportal_message **receipt);
void cportal_drop(struct cportal_message *message);
const char *cportal_sender(struct cportal_message *message);
const char *cportal_interface(struct cportal_message *message);
const char *cportal_member(struct cportal_message *message);

/// The type of the next value, or 0 at the end of a container or the message. `contents` gets the
/// types in a container, or NULL for other values.
int cportal_peek(struct cportal_message *message, char *type, const char **contents);
/// sd_bus_message_read_basic(3). The value belongs to the message.
int cportal_read(struct cportal_message *message, char type, void *value);
int cportal_read_bytes(struct cportal_message *message, const void **bytes, size_t *count);
int cportal_enter(struct cportal_message *message, char type, const char *contents);
int cportal_leave(struct cportal_message *message);

int cportal_new_call(
    struct cportal_bus *bus, struct cportal_message **message, const char *service, const char *path, const char *interface, const char *member);
int cportal_new_reply(struct cportal_message *call, struct cportal_message **message);
int cportal_new_signal(
    struct cportal_bus *bus, struct cportal_message **message, const char *receiver, const char *path, const char *interface, const char *member);
/// sd_bus_message_append_basic(3).
int cportal_append(struct cportal_message *message, char type, const void *value);
int cportal_append_bytes(struct cportal_message *message, const void *bytes, size_t count);
int cportal_begin(struct cportal_message *message, char type, const char *contents);
int cportal_end(struct cportal_message *message);

int cportal_send(struct cportal_bus *bus, struct cportal_message *message);
int cportal_refuse(struct cportal_message *call, const char *name, const char *text);
/// Waits for the answer, so many microseconds at the most. When it is an error, `name` and `text` get what it says, cut at their sizes.
int cportal_call(
    struct cportal_bus *bus, struct cportal_message *message, uint64_t microseconds, struct cportal_message **reply, char *name,
    size_t name_size, char *text, size_t text_size);
