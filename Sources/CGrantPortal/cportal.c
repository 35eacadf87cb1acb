#include "cportal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-bus.h>

static sd_bus *bus_of(struct cportal_bus *bus) { return (sd_bus *)bus; }
static sd_bus_message *message_of(struct cportal_message *message) { return (sd_bus_message *)message; }

int cportal_open_session(struct cportal_bus **bus) {
    return sd_bus_open_user((sd_bus **)bus);
}

void cportal_close(struct cportal_bus *bus) { sd_bus_flush_close_unref(bus_of(bus)); }

const char *cportal_name(struct cportal_bus *bus) {
    const char *name = NULL;
    return sd_bus_get_unique_name(bus_of(bus), &name) < 0 ? NULL : name;
}

int cportal_descriptor(struct cportal_bus *bus) { return sd_bus_get_fd(bus_of(bus)); }
int cportal_events(struct cportal_bus *bus) { return sd_bus_get_events(bus_of(bus)); }
int cportal_process(struct cportal_bus *bus) { return sd_bus_process(bus_of(bus), NULL); }

int cportal_process_received(struct cportal_bus *bus) {
    uint64_t count = 0;
    int result;
    while ((result = sd_bus_get_n_queued_read(bus_of(bus), &count)) >= 0 && count > 0) {
        // With messages in the queue it reads no further ones.
        result = sd_bus_process(bus_of(bus), NULL);
        if (result < 0)
            break;
    }
    return result;
}

/// What sd-bus calls, and what that calls. One of each kind is enough, also for the connections that follow the first one.
struct receiver {
    cportal_handler handler;
    void *context;
};

static struct receiver receivers[16];
static size_t receiver_count;
static pthread_mutex_t receiver_lock = PTHREAD_MUTEX_INITIALIZER;

static struct receiver *receiver(cportal_handler handler, void *context) {
    struct receiver *found = NULL;
    pthread_mutex_lock(&receiver_lock);
    for (size_t index = 0; index < receiver_count && found == NULL; index++) {
        if (receivers[index].handler == handler && receivers[index].context == context)
            found = &receivers[index];
    }
    if (found == NULL && receiver_count < sizeof receivers / sizeof *receivers) {
        receivers[receiver_count] = (struct receiver){handler, context};
        found = &receivers[receiver_count++];
    }
    pthread_mutex_unlock(&receiver_lock);
    return found;
}

static int on_message(sd_bus_message *message, void *userdata, sd_bus_error *error) {
    struct receiver *receiver = userdata;
    (void)error;
    return receiver->handler((struct cportal_message *)message, receiver->context);
}

static int version(
    sd_bus *bus, const char *path, const char *interface, const char *property, sd_bus_message *reply, void *userdata, sd_bus_error *error) {
    (void)bus, (void)path, (void)property, (void)userdata, (void)error;
    const uint32_t number = strcmp(interface, "org.freedesktop.portal.Documents") == 0 ? 5 : 1;
    return sd_bus_message_append_basic(reply, SD_BUS_TYPE_UINT32, &number);
}

#define OPEN SD_BUS_VTABLE_UNPRIVILEGED

static const sd_bus_vtable documents[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_PROPERTY("version", "u", version, 0, SD_BUS_VTABLE_PROPERTY_CONST),
    SD_BUS_METHOD_WITH_ARGS("GetMountPoint", SD_BUS_NO_ARGS, SD_BUS_RESULT("ay", path), on_message, OPEN),
    SD_BUS_METHOD_WITH_ARGS("Add", SD_BUS_ARGS("h", o_path_fd, "b", reuse_existing, "b", persistent), SD_BUS_RESULT("s", doc_id), on_message, OPEN),
    SD_BUS_METHOD_WITH_ARGS("AddNamed", SD_BUS_ARGS("h", o_path_parent_fd, "ay", filename, "b", reuse_existing, "b", persistent), SD_BUS_RESULT("s", doc_id), on_message, OPEN),
    SD_BUS_METHOD_WITH_ARGS(
        "AddFull", SD_BUS_ARGS("ah", o_path_fds, "u", flags, "s", app_id, "as", permissions),
        SD_BUS_RESULT("as", doc_ids, "a{sv}", extra_out), on_message, OPEN),
    SD_BUS_METHOD_WITH_ARGS(
        "AddNamedFull", SD_BUS_ARGS("h", o_path_fd, "ay", filename, "u", flags, "s", app_id, "as", permissions),
        SD_BUS_RESULT("s", doc_id, "a{sv}", extra_out), on_message, OPEN),
    SD_BUS_METHOD_WITH_ARGS("GrantPermissions", SD_BUS_ARGS("s", doc_id, "s", app_id, "as", permissions), SD_BUS_NO_RESULT, on_message, OPEN),
    SD_BUS_METHOD_WITH_ARGS("RevokePermissions", SD_BUS_ARGS("s", doc_id, "s", app_id, "as", permissions), SD_BUS_NO_RESULT, on_message, OPEN),
    SD_BUS_METHOD_WITH_ARGS("Delete", SD_BUS_ARGS("s", doc_id), SD_BUS_NO_RESULT, on_message, OPEN),
    SD_BUS_METHOD_WITH_ARGS("Lookup", SD_BUS_ARGS("ay", filename), SD_BUS_RESULT("s", doc_id), on_message, OPEN),
    SD_BUS_METHOD_WITH_ARGS("Info", SD_BUS_ARGS("s", doc_id), SD_BUS_RESULT("ay", path, "a{sas}", apps), on_message, OPEN),
    SD_BUS_METHOD_WITH_ARGS("List", SD_BUS_ARGS("s", app_id), SD_BUS_RESULT("a{say}", docs), on_message, OPEN),
    SD_BUS_METHOD_WITH_ARGS("GetHostPaths", SD_BUS_ARGS("as", doc_ids), SD_BUS_RESULT("a{say}", paths), on_message, OPEN),
    SD_BUS_VTABLE_END,
};

static const sd_bus_vtable transfers[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_PROPERTY("version", "u", version, 0, SD_BUS_VTABLE_PROPERTY_CONST),
    SD_BUS_METHOD_WITH_ARGS("StartTransfer", SD_BUS_ARGS("a{sv}", options), SD_BUS_RESULT("s", key), on_message, OPEN),
    SD_BUS_METHOD_WITH_ARGS("AddFiles", SD_BUS_ARGS("s", key, "ah", fds, "a{sv}", options), SD_BUS_NO_RESULT, on_message, OPEN),
    SD_BUS_METHOD_WITH_ARGS("RetrieveFiles", SD_BUS_ARGS("s", key, "a{sv}", options), SD_BUS_RESULT("as", files), on_message, OPEN),
    SD_BUS_METHOD_WITH_ARGS("StopTransfer", SD_BUS_ARGS("s", key), SD_BUS_NO_RESULT, on_message, OPEN),
    SD_BUS_SIGNAL_WITH_ARGS("TransferClosed", SD_BUS_ARGS("s", key), 0),
    SD_BUS_VTABLE_END,
};

int cportal_serve_documents(struct cportal_bus *bus, const char *path, cportal_handler handler, void *context) {
    struct receiver *kept = receiver(handler, context);
    if (kept == NULL)
        return -ENOSPC;
    int result = sd_bus_add_object_vtable(bus_of(bus), NULL, path, "org.freedesktop.portal.Documents", documents, kept);
    if (result >= 0)
        result = sd_bus_add_object_vtable(bus_of(bus), NULL, path, "org.freedesktop.portal.FileTransfer", transfers, kept);
    return result;
}

int cportal_request_name(struct cportal_bus *bus, const char *name, bool replaces) {
    return sd_bus_request_name(bus_of(bus), name, SD_BUS_NAME_ALLOW_REPLACEMENT | (replaces ? SD_BUS_NAME_REPLACE_EXISTING : 0));
}

int cportal_match(
    struct cportal_bus *bus, const char *sender, const char *path, const char *interface, const char *member, const char *argument,
    cportal_handler handler, void *context) {
    const char *const keys[] = {"sender", "path", "interface", "member", "arg0"};
    const char *const values[] = {sender, path, interface, member, argument};
    char match[1024] = "type='signal'";
    size_t length = strlen(match);
    for (size_t index = 0; index < sizeof keys / sizeof *keys; index++) {
        if (values[index] == NULL)
            continue;
        const int count = snprintf(match + length, sizeof match - length, ",%s='%s'", keys[index], values[index]);
        if (count < 0 || (size_t)count >= sizeof match - length)
            return -ENAMETOOLONG;
        length += (size_t)count;
    }
    struct receiver *kept = receiver(handler, context);
    return kept == NULL ? -ENOSPC : sd_bus_add_match(bus_of(bus), NULL, match, on_message, kept);
}

int cportal_receipt(struct cportal_bus *bus, struct cportal_message *call, struct cportal_message **receipt) {
    sd_bus_message *copy = NULL;
    uint64_t cookie = 0;
    int result = sd_bus_message_get_cookie(message_of(call), &cookie);
    if (result >= 0)
        result = sd_bus_message_new_method_call(bus_of(bus), &copy, NULL, "/", NULL, "Receipt");
    if (result >= 0)
        result = sd_bus_message_set_sender(copy, cportal_sender(call));
    if (result >= 0)
        result = sd_bus_message_set_expect_reply(copy, sd_bus_message_get_expect_reply(message_of(call)) > 0);
    // A time limit other than 0: the library would otherwise put in its own.
    if (result >= 0)
        result = sd_bus_message_seal(copy, cookie, 1);
    if (result < 0)
        sd_bus_message_unref(copy);
    else
        *receipt = (struct cportal_message *)copy;
    return result;
}

void cportal_drop(struct cportal_message *message) { sd_bus_message_unref(message_of(message)); }
const char *cportal_sender(struct cportal_message *message) { return sd_bus_message_get_sender(message_of(message)); }
const char *cportal_interface(struct cportal_message *message) { return sd_bus_message_get_interface(message_of(message)); }
const char *cportal_member(struct cportal_message *message) { return sd_bus_message_get_member(message_of(message)); }

int cportal_peek(struct cportal_message *message, char *type, const char **contents) {
    return sd_bus_message_peek_type(message_of(message), type, contents);
}

int cportal_read(struct cportal_message *message, char type, void *value) {
    return sd_bus_message_read_basic(message_of(message), type, value);
}

int cportal_read_bytes(struct cportal_message *message, const void **bytes, size_t *count) {
    return sd_bus_message_read_array(message_of(message), SD_BUS_TYPE_BYTE, bytes, count);
}

int cportal_enter(struct cportal_message *message, char type, const char *contents) {
    return sd_bus_message_enter_container(message_of(message), type, contents);
}

int cportal_leave(struct cportal_message *message) { return sd_bus_message_exit_container(message_of(message)); }

int cportal_new_call(
    struct cportal_bus *bus, struct cportal_message **message, const char *service, const char *path, const char *interface, const char *member) {
    return sd_bus_message_new_method_call(bus_of(bus), (sd_bus_message **)message, service, path, interface, member);
}

int cportal_new_reply(struct cportal_message *call, struct cportal_message **message) {
    return sd_bus_message_new_method_return(message_of(call), (sd_bus_message **)message);
}

int cportal_new_signal(
    struct cportal_bus *bus, struct cportal_message **message, const char *receiver, const char *path, const char *interface, const char *member) {
    int result = sd_bus_message_new_signal(bus_of(bus), (sd_bus_message **)message, path, interface, member);
    return result < 0 ? result : sd_bus_message_set_destination(message_of(*message), receiver);
}

int cportal_append(struct cportal_message *message, char type, const void *value) {
    return sd_bus_message_append_basic(message_of(message), type, value);
}

int cportal_append_bytes(struct cportal_message *message, const void *bytes, size_t count) {
    return sd_bus_message_append_array(message_of(message), SD_BUS_TYPE_BYTE, bytes, count);
}

int cportal_begin(struct cportal_message *message, char type, const char *contents) {
    return sd_bus_message_open_container(message_of(message), type, contents);
}

int cportal_end(struct cportal_message *message) { return sd_bus_message_close_container(message_of(message)); }

int cportal_send(struct cportal_bus *bus, struct cportal_message *message) {
    return sd_bus_send(bus_of(bus), message_of(message), NULL);
}

int cportal_refuse(struct cportal_message *call, const char *name, const char *text) {
    return sd_bus_reply_method_errorf(message_of(call), name, "%s", text);
}

int cportal_call(
    struct cportal_bus *bus, struct cportal_message *message, uint64_t microseconds, struct cportal_message **reply, char *name,
    size_t name_size, char *text, size_t text_size) {
    sd_bus_error error = SD_BUS_ERROR_NULL;
    name[0] = text[0] = 0;
    int result = sd_bus_call(bus_of(bus), message_of(message), microseconds, &error, (sd_bus_message **)reply);
    if (result < 0) {
        snprintf(name, name_size, "%s", error.name == NULL ? "" : error.name);
        snprintf(text, text_size, "%s", error.message == NULL ? strerror(-result) : error.message);
        sd_bus_error_free(&error);
    }
    return result;
}
