#include "parity.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

struct worker self;
static char *answer;
static size_t answered;
enum { ANSWER_LIMIT = 4 << 20, PLACE_LIMIT = 8192 };

void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (answered > 0 && answered < ANSWER_LIMIT) answer[answered++] = ' ';
    int count = vsnprintf(answer + answered, ANSWER_LIMIT - answered, format, arguments);
    va_end(arguments);
    answered += (size_t)count;
    if (answered >= ANSWER_LIMIT) exit(5);
}

void say_result(long result) {
    if (result == -1) say("%s", strerrorname_np(errno)); else say("%ld", result);
}

long number(const char *text) { return strtol(text, NULL, 0); }

static int *slot_place(const char *text) { return &self.slots[(unsigned)(text[0] - '0') % SLOTS]; }
int slot(const char *text) { return *slot_place(text); }

void fill_slot(const char *text, int fd) {
    int error = errno;
    int *kept = slot_place(text);
    if (fd >= 0) {
        if (*kept >= 0) close(*kept);
        *kept = fd;
    }
    errno = error;
    say_result(fd < 0 ? -1 : 0);
}

// `f3:name` starts from slot 3, any other path from the working directory. `@` is the empty path. A
// leading `/` is the run's directory, the only absolute path of scripts.
// `%255` is a name of 255 letters. `%p4095` is a path of 4,095 bytes that stays in its directory.
const char *place(const char *text, int *directory) {
    static char buffers[4][PLACE_LIMIT];
    static unsigned next;
    char *out = buffers[next++ % 4], *end = out + PLACE_LIMIT - 300;
    *directory = AT_FDCWD;
    if (text[0] == 'f' && text[1] >= '0' && text[1] <= '9' && text[2] == ':') {
        *directory = slot(text + 1);
        text += 3;
    }
    char *to = out;
    if (*text == '/') to += snprintf(to, PLACE_LIMIT / 2, "%s", self.directory);
    for (; *text != 0 && to < end; text++) {
        if (*text == '@') continue;
        if (*text != '%') {
            *to++ = *text;
            continue;
        }
        bool is_path = text[1] == 'p';
        char *after;
        long count = strtol(text + 1 + is_path, &after, 10);
        if (count > (is_path ? 4200 : 300)) count = is_path ? 4200 : 300;
        for (long i = 0; i < count; i++) *to++ = !is_path ? 'n' : i % 2 == 0 ? '.' : '/';
        text = after - 1;
    }
    *to = 0;
    return out;
}

void fill_data(size_t count, unsigned seed) {
    for (size_t i = 0; i < count; i++) self.data[i] = (char)(seed * 37 + i * 7 + (i >> 8) * 3 + 1);
}

long aligned(int fd, long value) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && flags & O_DIRECT && value > 0 ? value / 4096 * 4096 : value;
}

unsigned hash(const void *bytes, size_t count, unsigned start) {
    for (size_t i = 0; i < count; i++) start = (start ^ ((const unsigned char *)bytes)[i]) * 16777619u;
    return start;
}

static sigjmp_buf after_fault;
static void faulted(int signal) { siglongjmp(after_fault, signal); }
bool survives(void (*body)(void *), void *data) {
    if (sigsetjmp(after_fault, 1) != 0) return false;
    body(data);
    return true;
}

static void answer_call(char *line) {
    static const struct call *const families[] = {calls_files, calls_data, calls_names, calls_attributes, calls_xattrs,
                                                  calls_locks, calls_maps, calls_directories, calls_whole};
    char *words[12] = {0};
    int count = 0;
    for (char *rest = line, *word; count < 12 && (word = strsep(&rest, " ")) != NULL;) words[count++] = word;
    for (size_t family = 0; family < sizeof families / sizeof families[0]; family++) {
        for (const struct call *call = families[family]; call->name != NULL; call++) {
            if (strcmp(call->name, words[0]) != 0 || call->arguments != count - 1) continue;
            int contract = self.contract ? contract_says(words[0], words + 1) : 0;
            if (contract != 0) say("%s", strerrorname_np(contract)); else call->make(words + 1);
            return;
        }
    }
    say("no such call");
}

// Becomes the user permanently: DIRECTORY HOST UID GID GROUPS UMASK contract|real
int main_worker(char **arguments) {
    self = (struct worker){.directory = arguments[0], .host = arguments[1], .contract = strcmp(arguments[6], "contract") == 0};
    for (int i = 0; i < SLOTS; i++) self.slots[i] = -1;
    answer = malloc(ANSWER_LIMIT);
    self.data = mmap(NULL, DATA_LIMIT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    gid_t groups[8];
    size_t count = 0;
    for (char *word; count < 8 && (word = strsep(&arguments[4], ",")) != NULL;) groups[count++] = (gid_t)number(word);
    gid_t gid = (gid_t)number(arguments[3]);
    uid_t uid = (uid_t)number(arguments[2]);
    if (setgroups(count, groups) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0) return 3;
    // Keeps the process's own /proc/self/fd accessible.
    prctl(PR_SET_DUMPABLE, 1);
    umask((mode_t)strtol(arguments[5], NULL, 8));
    if (chdir(self.directory) < 0) return 3;
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    // SA_NODEFER delivers the signal again, also after a jump out of the handler.
    struct sigaction action = {.sa_handler = faulted, .sa_flags = SA_NODEFER};
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, stdin) >= 0) {
        line[strcspn(line, "\n")] = 0;
        answered = 0;
        alarm(30);
        answer_call(line);
        alarm(0);
        fwrite(answer, 1, answered, stdout);
        putchar('\n');
        fflush(stdout);
    }
    return 0;
}
