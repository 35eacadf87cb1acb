// What User Mode Linux before 6.13 needs on a processor whose extended state is larger than the 2,696 bytes for which it has room (Intel's AMX: 11,008 bytes). .ci/kernels has it loaded before the C library.
// PTRACE_SETREGSET takes the whole state or fails with EFAULT (arch/x86/kernel/fpu/regset.c, xstateregs_set); UML gives its part, and panics. Here the rest is what the process has already:
// nothing, as tiles need a permission (arch_prctl(2), ARCH_REQ_XCOMP_PERM) for which UML's programs cannot ask the machine.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

typedef long (*ptrace_function)(int request, ...);
static ptrace_function original;

__attribute__((constructor)) static void find(void) {
    original = (ptrace_function)dlsym(RTLD_NEXT, "ptrace");
}

long ptrace(enum __ptrace_request request, ...) {
    va_list list;
    va_start(list, request);
    int pid = va_arg(list, int);
    void *address = va_arg(list, void *);
    void *data = va_arg(list, void *);
    va_end(list);

    long result = original(request, pid, address, data);
    if (result == 0 || errno != EFAULT || request != PTRACE_SETREGSET || (long)address != NT_X86_XSTATE) return result;

    static _Alignas(64) char whole[64 * 1024];
    const struct iovec *given = data;
    struct iovec state = {.iov_base = whole, .iov_len = sizeof whole};
    if (original(PTRACE_GETREGSET, pid, address, &state) != 0 || state.iov_len <= given->iov_len) {
        errno = EFAULT;
        return -1;
    }
    memcpy(whole, given->iov_base, given->iov_len);
    return original(PTRACE_SETREGSET, pid, address, &state);
}
