#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Sockets in the filesystem. `directory` is an open directory.
//
// The address is built as /proc/self/fd/N/name, so the path of the directory may have any length.
// Every descriptor made here is close-on-exec.

// A listening stream socket of mode 0600.
int clinux_socket_listen(int directory, const char *name, int backlog);
// One try, without waiting: -EAGAIN if the server's queue is full.
int clinux_socket_connect(int directory, const char *name);
int clinux_socket_accept(int fd);
int clinux_socket_pair(int ends[2]);
// The process that made the other end (SO_PEERCRED).
int clinux_socket_peer(int fd, pid_t *pid, uid_t *uid, gid_t *gid);
// One send or receive without waiting, -EAGAIN if it would wait. SIGPIPE is never raised.
ssize_t clinux_socket_send(int fd, const void *data, size_t size);
ssize_t clinux_socket_receive(int fd, void *data, size_t size);
// Sends copies of `count` descriptors with one byte (unix(7), SCM_RIGHTS).
//
// At most CLINUX_DESCRIPTORS_AT_ONCE. Returns 1 or -errno, -EAGAIN if it would wait.
enum { CLINUX_DESCRIPTORS_AT_ONCE = 250 };
int clinux_socket_send_descriptors(int fd, const int *descriptors, int count);
// Receives the descriptors of one such call. Returns the count, or -errno.
//
// All are close-on-exec. Returns -EAGAIN if nothing has arrived, -ECONNRESET if the peer is gone,
// -EBADMSG for anything else.
int clinux_socket_receive_descriptors(int fd, int *descriptors, int most);
// Waits until `fd` or `other` (or -1) is readable, or `fd` writable.
//
// Returns 1 if `fd` is ready, 2 if `other` is, 0 on timeout.
int clinux_wait(int fd, bool writing, int other, int milliseconds);
int clinux_pipe(int ends[2]);
// A file in memory without a name that holds `data`, positioned at its start.
int clinux_memory_file(const void *data, size_t size);

// Opens closed standard descriptors, at /dev/null in the wrong direction.
//
// Their use still fails with EBADF, and no file gets their numbers. Inherited by children.
int clinux_open_standard_descriptors(void);

// posix_spawn, no signals blocked or ignored. Returns the child's pid.
//
// `manner` is 0 or one of these:
// - DETACHED: stdin and stdout from /dev/null, a new session, nothing else inherited but stderr.
// - GROUP: a process group of its own, nothing inherited but stdin, stdout and stderr.
// - SILENT: all three from and to /dev/null, nothing else inherited.
//
// Without a `path` the program is the descriptor `program`, which the child does not inherit.
// `descriptors` become the numbers from 3 on of the child. `environment` (or NULL for this
// process's) becomes its variables. `errors` becomes its standard error, unless it is -1.
enum { clinux_SPAWN_DETACHED = 1, clinux_SPAWN_GROUP = 2, clinux_SPAWN_SILENT = 4 };
pid_t clinux_spawn(const char *path, int program, char *const arguments[], char *const environment[], int manner,
                   int errors, const int descriptors[], int count);
// A pseudo-terminal: master and slave.
int clinux_terminal_make(int ends[2]);
// Gives the terminal `to` the size that `from` has.
int clinux_terminal_copy_size(int from, int to);
// Starts a session of the process, with this as its controlling terminal.
int clinux_terminal_control(int fd);
// Returns 1 if the child has ended and was not reaped yet, 0 while it runs.
int clinux_child_has_ended(pid_t pid);
// Waits until the child has ended, without reaping it.
void clinux_await_end_of_child(pid_t pid);
// Reaps the child: its exit status, or 128 + the signal that ended it.
int clinux_wait_for_child(pid_t pid);

// Whether two threads share a descriptor table, a memory, or their directories (kcmp(2)).
//
// The directories are the working and the root directory. False if the kernel does not tell.
enum { clinux_SHARED_FILES, clinux_SHARED_MEMORY, clinux_SHARED_DIRECTORIES };
bool clinux_threads_share(pid_t one, pid_t other, int what);
// Whether a system call lists the directory of the descriptor in its first argument, by its number
// and third argument in /proc/PID/syscall.
//
// Numbers of 32-bit programs are included. There another call of a 64-bit program may have the same
// number.
bool clinux_is_listing(long number, unsigned long size);

// pidfd_open(2), pidfd_send_signal(2): a handle on a process, immune to reuse of its number.
//
// Readable by poll(2) once the process has ended.
int clinux_process_open(pid_t pid);
int clinux_process_signal(int fd, int signal);

// Makes the C library return freed memory to the kernel early.
//
// Call it before there are threads.
void clinux_keep_memory_small(void);
// Returns free memory of malloc(3) to the kernel, see malloc_trim(3).
//
// Does nothing if the C library has no such call.
void clinux_trim_memory(void);
