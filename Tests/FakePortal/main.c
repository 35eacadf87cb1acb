// A desktop portal's file chooser for tests: FakePortal VERSION REPLY [URI...], on the session bus. REPLY is the number that it answers
// with, or “leave” to end instead of answering, or “forge” to have another connection answer first.
// It prints “ready”, and the options and the title that it is asked with.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

static int argument_count;
static char **arguments;
static uint32_t version;

static void check(int result, const char *what) {
    if (result >= 0)
        return;
    fprintf(stderr, "FakePortal: %s: %s\n", what, strerror(-result));
    exit(1);
}

static void respond(sd_bus *bus, const char *destination, const char *path, uint32_t code, int first, int count, char **uris) {
    sd_bus_message *signal = NULL;
    check(sd_bus_message_new_signal(bus, &signal, path, "org.freedesktop.portal.Request", "Response"), "signal");
    check(sd_bus_message_set_destination(signal, destination), "destination");
    check(sd_bus_message_append(signal, "u", code), "code");
    check(sd_bus_message_open_container(signal, 'a', "{sv}"), "results");
    check(sd_bus_message_append(signal, "{sv}", "writable", "b", 1), "another result");
    check(sd_bus_message_open_container(signal, 'e', "sv"), "entry");
    check(sd_bus_message_append(signal, "s", "uris"), "key");
    check(sd_bus_message_open_container(signal, 'v', "as"), "value");
    check(sd_bus_message_open_container(signal, 'a', "s"), "list");
    for (int index = first; index < count; index++)
        check(sd_bus_message_append(signal, "s", uris[index]), "uri");
    for (int depth = 0; depth < 4; depth++)
        check(sd_bus_message_close_container(signal), "end");
    check(sd_bus_send(bus, signal, NULL), "send");
    check(sd_bus_flush(bus), "flush");
    sd_bus_message_unref(signal);
}

static int open_file(sd_bus_message *call, void *userdata, sd_bus_error *error) {
    (void)userdata;
    (void)error;
    const char *parent, *title, *key, *token = "";
    char path[512], sender[256];
    check(sd_bus_message_read(call, "ss", &parent, &title), "title");
    check(sd_bus_message_enter_container(call, 'a', "{sv}"), "options");
    while (sd_bus_message_enter_container(call, 'e', "sv") > 0) {
        const char *type = NULL, *text = NULL;
        const void *bytes = NULL;
        size_t size = 0;
        int flag = 0;
        check(sd_bus_message_read(call, "s", &key), "key");
        check(sd_bus_message_peek_type(call, NULL, &type), "type");
        if (strcmp(type, "s") == 0) {
            check(sd_bus_message_read(call, "v", "s", &text), "text");
            if (strcmp(key, "handle_token") == 0)
                token = text;
        } else if (strcmp(type, "b") == 0) {
            check(sd_bus_message_read(call, "v", "b", &flag), "flag");
            printf("%s=%d\n", key, flag);
        } else {
            check(sd_bus_message_enter_container(call, 'v', "ay"), "bytes");
            check(sd_bus_message_read_array(call, 'y', &bytes, &size), "bytes");
            check(sd_bus_message_exit_container(call), "bytes");
            // With the NUL that has to be there as a sign that can be read.
            int is_ended = size > 0 && ((const char *)bytes)[size - 1] == 0;
            printf("%s=%.*s%s\n", key, (int)size - is_ended, (const char *)bytes, is_ended ? "$" : "");
        }
        check(sd_bus_message_exit_container(call), "entry");
    }
    printf("title=%s\n", title);
    fflush(stdout);
    snprintf(sender, sizeof sender, "%s", sd_bus_message_get_sender(call) + 1);
    for (char *point = strchr(sender, '.'); point != NULL; point = strchr(point, '.'))
        *point = '_';
    snprintf(path, sizeof path, "/org/freedesktop/portal/desktop/request/%s/%s", sender, token);
    check(sd_bus_reply_method_return(call, "o", path), "reply");
    check(sd_bus_flush(sd_bus_message_get_bus(call)), "flush");
    if (strcmp(arguments[2], "leave") == 0)
        exit(0);
    if (strcmp(arguments[2], "forge") == 0) {
        sd_bus *other = NULL;
        char *forged[] = {"file:///forged"};
        check(sd_bus_open_user(&other), "another connection");
        respond(other, sd_bus_message_get_sender(call), path, 0, 0, 1, forged);
        sd_bus_flush_close_unref(other);
        respond(sd_bus_message_get_bus(call), sd_bus_message_get_sender(call), path, 1, 0, 0, NULL);
        return 1;
    }
    respond(
        sd_bus_message_get_bus(call), sd_bus_message_get_sender(call), path, (uint32_t)atoi(arguments[2]), 3, argument_count, arguments);
    return 1;
}

static int get_version(
    sd_bus *bus, const char *path, const char *interface, const char *property, sd_bus_message *reply, void *userdata, sd_bus_error *error) {
    (void)bus, (void)path, (void)interface, (void)property, (void)userdata, (void)error;
    return sd_bus_message_append(reply, "u", version);
}

static const sd_bus_vtable chooser[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_PROPERTY("version", "u", get_version, 0, 0),
    SD_BUS_METHOD("OpenFile", "ssa{sv}", "o", open_file, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_VTABLE_END,
};

int main(int count, char **words) {
    sd_bus *bus = NULL;
    if (count < 3)
        return 2;
    (argument_count = count, arguments = words, version = (uint32_t)atoi(words[1]));
    check(sd_bus_open_user(&bus), "bus");
    check(
        sd_bus_add_object_vtable(
            bus, NULL, "/org/freedesktop/portal/desktop", "org.freedesktop.portal.FileChooser", chooser, NULL), "object");
    // The one before it may not have ended yet.
    uint64_t takes_over = SD_BUS_NAME_ALLOW_REPLACEMENT | SD_BUS_NAME_REPLACE_EXISTING;
    check(sd_bus_request_name(bus, "org.freedesktop.portal.Desktop", takes_over), "name");
    puts("ready");
    fflush(stdout);
    for (;;) {
        int result = sd_bus_process(bus, NULL);
        if (result == 0)
            result = sd_bus_wait(bus, UINT64_MAX);
        if (result < 0)
            return 0;
    }
}
