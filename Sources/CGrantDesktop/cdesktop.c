#include "cdesktop.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

// Loaded on use, so that other commands do not need libsystemd.
#define FUNCTIONS(F)                                                                                                                    \
    F(sd_bus_open_user)                                                                                                                 \
    F(sd_bus_flush_close_unref)                                                                                                         \
    F(sd_bus_get_unique_name)                                                                                                           \
    F(sd_bus_get_property_trivial)                                                                                                      \
    F(sd_bus_match_signal)                                                                                                              \
    F(sd_bus_message_new_method_call)                                                                                                   \
    F(sd_bus_message_append)                                                                                                            \
    F(sd_bus_message_append_array)                                                                                                      \
    F(sd_bus_message_open_container)                                                                                                    \
    F(sd_bus_message_close_container)                                                                                                   \
    F(sd_bus_message_enter_container)                                                                                                   \
    F(sd_bus_message_exit_container)                                                                                                    \
    F(sd_bus_message_read)                                                                                                              \
    F(sd_bus_message_skip)                                                                                                              \
    F(sd_bus_message_get_sender)                                                                                                        \
    F(sd_bus_message_unref)                                                                                                             \
    F(sd_bus_call)                                                                                                                      \
    F(sd_bus_process)                                                                                                                   \
    F(sd_bus_wait)                                                                                                                      \
    F(sd_bus_error_free)                                                                                                                \
    F(sd_bus_error_has_name)

struct library {
#define MEMBER(name) __typeof__(name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
};

#define SERVICE "org.freedesktop.portal.Desktop"
#define OBJECT "/org/freedesktop/portal/desktop"
#define CHOOSER "org.freedesktop.portal.FileChooser"

struct request {
    struct library bus;
    /// The unique name of the service that was asked. No other sender can answer.
    char owner[256];
    bool is_over;
    enum cdesktop_outcome outcome;
    void (*each)(void *context, const char *uri);
    void *context;
};

static bool load(struct library *library) {
    void *handle = dlopen("libsystemd.so.0", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return false;
#define LOAD(name)                                                                                                                      \
    library->name = (__typeof__(library->name))dlsym(handle, #name);                                                                    \
    if (library->name == NULL)                                                                                                          \
        return false;
    FUNCTIONS(LOAD)
#undef LOAD
    return true;
}

static int read_uris(struct request *request, sd_bus_message *message) {
    struct library *bus = &request->bus;
    int result = bus->sd_bus_message_enter_container(message, SD_BUS_TYPE_ARRAY, "{sv}");
    while (result >= 0 && (result = bus->sd_bus_message_enter_container(message, SD_BUS_TYPE_DICT_ENTRY, "sv")) > 0) {
        const char *key = NULL, *uri = NULL;
        result = bus->sd_bus_message_read(message, "s", &key);
        if (result < 0)
            return result;
        if (strcmp(key, "uris") == 0) {
            result = bus->sd_bus_message_enter_container(message, SD_BUS_TYPE_VARIANT, "as");
            if (result >= 0)
                result = bus->sd_bus_message_enter_container(message, SD_BUS_TYPE_ARRAY, "s");
            while (result >= 0 && (result = bus->sd_bus_message_read(message, "s", &uri)) > 0)
                request->each(request->context, uri);
            if (result >= 0)
                result = bus->sd_bus_message_exit_container(message);
            if (result >= 0)
                result = bus->sd_bus_message_exit_container(message);
        } else {
            result = bus->sd_bus_message_skip(message, "v");
        }
        if (result >= 0)
            result = bus->sd_bus_message_exit_container(message);
    }
    return result;
}

static int on_response(sd_bus_message *message, void *userdata, sd_bus_error *error) {
    (void)error;
    struct request *request = userdata;
    const char *sender = request->bus.sd_bus_message_get_sender(message);
    uint32_t response = 2;
    if (request->is_over || sender == NULL || strcmp(sender, request->owner) != 0)
        return 0;
    request->is_over = true;
    request->outcome = CDESKTOP_FAILED;
    if (request->bus.sd_bus_message_read(message, "u", &response) < 0)
        return 0;
    if (response == 0 && read_uris(request, message) >= 0)
        request->outcome = CDESKTOP_CHOSEN;
    else if (response != 0)
        request->outcome = response == 1 ? CDESKTOP_CANCELLED : CDESKTOP_ENDED;
    return 0;
}

static int on_owner(sd_bus_message *message, void *userdata, sd_bus_error *error) {
    (void)error;
    struct request *request = userdata;
    const char *name = NULL, *before = NULL, *after = NULL;
    if (request->is_over || request->bus.sd_bus_message_read(message, "sss", &name, &before, &after) < 0)
        return 0;
    // The service that was asked has left the bus, and will not answer.
    if (strcmp(name, request->owner) == 0 && after[0] == 0) {
        request->is_over = true;
        request->outcome = CDESKTOP_ENDED;
    }
    return 0;
}

static int append_options(struct library *bus, sd_bus_message *call, const char *token, const char *accept, const char *folder, bool files) {
    int result = bus->sd_bus_message_open_container(call, SD_BUS_TYPE_ARRAY, "{sv}");
    if (result >= 0)
        result = bus->sd_bus_message_append(
            call, "{sv}{sv}{sv}{sv}", "handle_token", "s", token, "accept_label", "s", accept, "directory", "b", (int)!files, "multiple", "b", 1);
    if (result >= 0 && folder != NULL) {
        // A path is bytes with the NUL that ends them.
        result = bus->sd_bus_message_open_container(call, SD_BUS_TYPE_DICT_ENTRY, "sv");
        if (result >= 0)
            result = bus->sd_bus_message_append(call, "s", "current_folder");
        if (result >= 0)
            result = bus->sd_bus_message_open_container(call, SD_BUS_TYPE_VARIANT, "ay");
        if (result >= 0)
            result = bus->sd_bus_message_append_array(call, SD_BUS_TYPE_BYTE, folder, strlen(folder) + 1);
        if (result >= 0)
            result = bus->sd_bus_message_close_container(call);
        if (result >= 0)
            result = bus->sd_bus_message_close_container(call);
    }
    return result < 0 ? result : bus->sd_bus_message_close_container(call);
}

static int match_response(struct request *request, sd_bus *connection, const char *path) {
    return request->bus.sd_bus_match_signal(
        connection, NULL, NULL, path, "org.freedesktop.portal.Request", "Response", on_response, request);
}

/// Sends the question. The answer is listened for before that, because it may come at once.
static int ask(
    struct request *request, sd_bus *connection, const char *title, const char *accept, const char *folder, bool files,
    sd_bus_error *error) {
    struct library *bus = &request->bus;
    const char *unique = NULL, *handle = NULL, *sender;
    char token[64], path[512];
    sd_bus_message *call = NULL, *reply = NULL;

    snprintf(token, sizeof token, "grantfs%ld", (long)getpid());
    int result = bus->sd_bus_get_unique_name(connection, &unique);
    if (result < 0)
        return result;
    // The specification of org.freedesktop.portal.Request: the name without its colon, with underscores for points.
    size_t length = (size_t)snprintf(path, sizeof path, OBJECT "/request/");
    for (const char *letter = unique + 1; *letter != 0 && length < sizeof path - 80; letter++)
        path[length++] = *letter == '.' ? '_' : *letter;
    snprintf(path + length, sizeof path - length, "/%s", token);

    result = match_response(request, connection, path);
    if (result >= 0)
        result = bus->sd_bus_match_signal(
            connection, NULL, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "NameOwnerChanged", on_owner, request);
    if (result >= 0)
        result = bus->sd_bus_message_new_method_call(connection, &call, SERVICE, OBJECT, CHOOSER, "OpenFile");
    if (result >= 0)
        result = bus->sd_bus_message_append(call, "ss", "", title);
    if (result >= 0)
        result = append_options(bus, call, token, accept, folder, files);
    if (result >= 0)
        result = bus->sd_bus_call(connection, call, 0, error, &reply);
    if (result >= 0)
        result = bus->sd_bus_message_read(reply, "o", &handle);
    // Portals before version 0.9 choose the path of the answer themselves.
    if (result >= 0 && strcmp(handle, path) != 0)
        result = match_response(request, connection, handle);
    if (result >= 0) {
        sender = bus->sd_bus_message_get_sender(reply);
        snprintf(request->owner, sizeof request->owner, "%s", sender == NULL ? "" : sender);
    }
    bus->sd_bus_message_unref(call);
    bus->sd_bus_message_unref(reply);
    return result;
}

static enum cdesktop_outcome refusal(struct library *bus, int result, sd_bus_error *error, char *reason, size_t size) {
    static const char *const absent[] = {
        SD_BUS_ERROR_SERVICE_UNKNOWN, SD_BUS_ERROR_NAME_HAS_NO_OWNER, SD_BUS_ERROR_UNKNOWN_METHOD, SD_BUS_ERROR_UNKNOWN_INTERFACE,
        SD_BUS_ERROR_UNKNOWN_OBJECT, SD_BUS_ERROR_UNKNOWN_PROPERTY,
    };
    enum cdesktop_outcome outcome = CDESKTOP_FAILED;
    for (size_t index = 0; index < sizeof absent / sizeof *absent; index++) {
        if (bus->sd_bus_error_has_name(error, absent[index]))
            outcome = CDESKTOP_NO_PORTAL;
    }
    snprintf(reason, size, "%s", error->message != NULL ? error->message : strerror(-result));
    bus->sd_bus_error_free(error);
    return outcome;
}

enum cdesktop_outcome cdesktop_choose(
    const char *title, const char *accept, const char *folder, bool files, void (*each)(void *context, const char *uri), void *context, char *reason,
    size_t size) {
    struct request request = {.each = each, .context = context, .outcome = CDESKTOP_FAILED};
    struct library *bus = &request.bus;
    sd_bus *connection = NULL;
    sd_bus_error error = SD_BUS_ERROR_NULL;
    uint32_t version = 0;

    reason[0] = 0;
    if (!load(bus))
        return CDESKTOP_NO_LIBRARY;
    int result = bus->sd_bus_open_user(&connection);
    if (result < 0) {
        snprintf(reason, size, "%s", strerror(-result));
        return CDESKTOP_NO_BUS;
    }
    result = bus->sd_bus_get_property_trivial(connection, SERVICE, OBJECT, CHOOSER, "version", &error, 'u', &version);
    // Directories come with the third version.
    const bool is_able = files || version >= 3;
    if (result >= 0 && is_able)
        result = ask(&request, connection, title, accept, folder, files, &error);
    if (result < 0) {
        request.outcome = refusal(bus, result, &error, reason, size);
        request.is_over = true;
    } else if (!is_able) {
        request.outcome = CDESKTOP_TOO_OLD;
        request.is_over = true;
    }
    while (!request.is_over) {
        result = bus->sd_bus_process(connection, NULL);
        if (result == 0)
            result = bus->sd_bus_wait(connection, UINT64_MAX);
        if (result < 0 && result != -EINTR) {
            snprintf(reason, size, "%s", strerror(-result));
            break;
        }
    }
    bus->sd_bus_flush_close_unref(connection);
    return request.outcome;
}
