"""Reads the granted files of one host without pause, and writes down what each read began and ended with: `reader.py MOUNT FILE GRANT...`.

Three ways: opened anew for each read, by a descriptor that is held, by a mapping. Held ones that were refused are kept, and tried now and then: they must stay so. The records are for `judge.py`.
"""
import mmap, os, struct, sys, threading, time, traceback

# Start, end, and the time of the open (CLOCK_BOOTTIME), the grant, the way, and the result: 0, an errno, or WRONG for unexpected bytes.
RECORD = struct.Struct('<qqqBBh')
ANEW, HELD, MAPPED = range(3)
WRONG = -1
# How many that were refused are kept of each grant.
KEPT = 3


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Held:
    """A descriptor, or a mapping, of a granted file."""

    def __init__(self, path, way):
        self.file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.map = mmap.mmap(self.file, 4096, mmap.MAP_SHARED, mmap.PROT_READ) if way == MAPPED else None
        except OSError:
            os.close(self.file)
            raise
        self.opened = now()

    def read(self, copy):
        if self.map is None:
            return os.pread(self.file, 8, 0)
        # The kernel copies out of the mapping: a page that is refused is EFAULT here, where a look would be SIGBUS.
        with memoryview(self.map) as view, view[:8] as part:
            os.pwrite(copy, part, 0)
        return os.pread(copy, 8, 0)

    def close(self):
        if self.map is not None:
            self.map.close()
        try:
            os.close(self.file)
        except OSError:
            # It is closed in every case: its daemon was killed, or refuses it.
            pass


class Reader:
    def __init__(self, mount, file, grants):
        self.paths = [f'{mount}/{grant}/file' for grant in grants]
        self.expected = [grant.encode().ljust(8, b'.') for grant in grants]
        self.out = open(file, 'ab', buffering=0)

    def note(self, begun, opened, grant, way, result):
        self.out.write(RECORD.pack(begun, now(), opened, grant, way, result))

    def attempt(self, grant, way, opened, body):
        """Returns the error's number."""
        begun = now()
        try:
            result = 0 if body() == self.expected[grant] else WRONG
        except OSError as error:
            result = error.errno
        self.note(begun, opened if opened else begun, grant, way, result)
        return result

    def anew(self):
        def read(path):
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.pread(file, 8, 0)
            finally:
                os.close(file)

        while True:
            for grant, path in enumerate(self.paths):
                self.attempt(grant, ANEW, 0, lambda: read(path))
            time.sleep(0.004)

    def held(self, way):
        current, refused = [None] * len(self.paths), [[] for _ in self.paths]
        copy = os.memfd_create('copy')
        turn = 0
        while True:
            turn += 1
            for grant, path in enumerate(self.paths):
                if current[grant] is None and turn % 4 == 0:
                    try:
                        current[grant] = Held(path, way)
                    except OSError:
                        pass
                if current[grant] is not None:
                    one = current[grant]
                    if self.attempt(grant, way, one.opened, lambda: one.read(copy)):
                        current[grant] = None
                        refused[grant].append(one)
                        if len(refused[grant]) > KEPT:
                            refused[grant].pop(0).close()
                if refused[grant] and turn % 8 == 0:
                    one = refused[grant][turn // 8 % len(refused[grant])]
                    self.attempt(grant, way, one.opened, lambda: one.read(copy))
            time.sleep(0.004)


def main():
    reader = Reader(sys.argv[1], sys.argv[2], sys.argv[3:])

    def go_on(body, *words):
        try:
            body(*words)
        finally:
            # A reader that reads too little proves nothing. Its parent sees its end.
            traceback.print_exc()
            os._exit(1)

    for words in ((reader.anew,), (reader.held, HELD), (reader.held, MAPPED)):
        threading.Thread(target=go_on, args=words, daemon=True).start()
    # Its parent ends it.
    sys.stdin.read()
    os._exit(0)


if __name__ == '__main__':
    main()
