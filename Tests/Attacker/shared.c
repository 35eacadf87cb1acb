// Channels that programs share without any file: abstract sockets, shared memory and queues.
#include "attacker.h"
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static socklen_t address_of(struct sockaddr_un *address, const char *name) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    // A leading NUL makes the name abstract.
    snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "%s", name + 1);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
}

/// shared serve NAME KEY: makes one of each until its input ends. NAME begins with a slash.
static int serve(const char *name, key_t key) {
    struct sockaddr_un address;
    socklen_t length = address_of(&address, name);
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server == -1 || bind(server, (struct sockaddr *)&address, length) == -1 || listen(server, 8) == -1) attack_failed("a socket");
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
    int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    int memory = shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0600);
    printf("queue %d file %d memory %d\n", queue != (mqd_t)-1, file != -1, memory != -1);
    attack_ready();
    attack_wait();
    if (queue != (mqd_t)-1) mq_unlink(name);
    if (file != -1) shm_unlink(name);
    if (memory != -1) shmctl(memory, IPC_RMID, NULL);
    return 0;
}

/// shared look NAME KEY: prints which of them it has reached.
static int look(const char *name, key_t key) {
    struct sockaddr_un address;
    socklen_t length = address_of(&address, name);
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    printf("socket: %s\n", connect(client, (struct sockaddr *)&address, length) == -1 ? "no" : "yes");
    printf("queue: %s\n", mq_open(name, O_RDWR) == (mqd_t)-1 ? "no" : "yes");
    printf("file: %s\n", shm_open(name, O_RDWR, 0) == -1 ? "no" : "yes");
    printf("memory: %s\n", shmget(key, 1, 0) == -1 ? "no" : "yes");
    // Names of its own succeed.
    char own[64];
    snprintf(own, sizeof own, "/own%d", getpid());
    length = address_of(&address, own);
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int peer = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int is_own = bind(server, (struct sockaddr *)&address, length) == 0 && listen(server, 1) == 0 &&
                 connect(peer, (struct sockaddr *)&address, length) == 0;
    printf("own socket: %s\n", is_own ? "yes" : "no");
    return 0;
}

int attack_shared(int count, char **arguments) {
    if (count != 3) return 2;
    key_t key = (key_t)strtol(arguments[2], NULL, 10);
    if (!strcmp(arguments[0], "serve")) return serve(arguments[1], key);
    if (!strcmp(arguments[0], "look")) return look(arguments[1], key);
    return 2;
}
