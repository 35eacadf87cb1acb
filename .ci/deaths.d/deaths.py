"""Programs at work in a mount whose daemon is killed at random moments (`mount -o recover`), or replaced by an upgrade each second.

Each workload keeps its own account of what was acknowledged. What it may see of a death is EIO, for a change that may have been done and must not be done twice; anything else that a directory would not give, and
anything acknowledged that is not there at the end, is a failure. Upgrades have not even that. Run by `.ci/deaths`.
"""
import argparse, fcntl, json, mmap, os, random, re, shutil, signal, sqlite3, struct, subprocess, sys, tempfile, threading, time, traceback

EIO = 5
NOBODY = 65534


class Workload:
    """One thread of work in a directory of its own in the mount."""

    name = ''

    def __init__(self, run, place, beside):
        # place: through the mount. beside: the same directory on the host.
        self.run, self.place, self.beside = run, place, beside
        self.turns = self.interrupted = 0
        os.makedirs(place)

    def prepare(self):
        pass

    def turn(self, number):
        raise NotImplementedError

    def check(self):
        """At the end, on the host, with the view unmounted."""

    def again(self, body):
        """Does what may be done twice until it is not EIO."""
        while True:
            try:
                return body()
            except OSError as error:
                if error.errno != EIO:
                    raise
                self.interrupted += 1

    def program(self, *words, **options):
        """Runs a program. True when it has succeeded; false when it said EIO, and nothing that EIO does not explain."""
        done = subprocess.run(words, capture_output=True, text=True, errors='replace', **options)
        if done.returncode == 0:
            return True
        said = done.stdout + done.stderr
        if 'nput/output error' not in said:
            raise RuntimeError(f'{words[0]}: {done.returncode}: {said[-500:]}')
        self.interrupted += 1
        return False


class Files(Workload):
    name = 'files: create, write, read, rename, list, remove'

    def turn(self, number):
        directory = f'{self.place}/d{number % 20}'
        try:
            os.makedirs(directory, exist_ok=True)
            path, data = f'{directory}/f{number}', os.urandom(random.randrange(1, 20000))
            with open(path, 'wb') as file:
                file.write(data)
            with open(path, 'rb') as file:
                assert file.read() == data, 'what was written is not what is read'
            os.rename(path, path + 'x')
            assert os.stat(path + 'x').st_size == len(data)
            assert f'f{number}x' in os.listdir(directory)
            os.unlink(path + 'x')
        except OSError as error:
            if error.errno != EIO:
                raise
            self.interrupted += 1


class Model(Workload):
    """As fsx: one file, against what it has to be."""

    name = 'one file: write, map, truncate, allocate, punch, read'

    def prepare(self):
        self.file = os.open(self.place + '/file', os.O_RDWR | os.O_CREAT)
        self.limit = 1 << 20
        self.model = bytearray()
        self.map_size = 1 << 16
        self.again(lambda: os.ftruncate(self.file, self.map_size))
        self.model = bytearray(self.map_size)
        self.map = mmap.mmap(self.file, self.map_size)

    def turn(self, number):
        start = random.randrange(0, self.limit - 70000)
        size = random.randrange(1, 65536)
        kind = random.randrange(7)
        if kind <= 2:
            data = os.urandom(size)
            assert self.again(lambda: os.pwrite(self.file, data, start)) == size
            if len(self.model) < start + size:
                self.model.extend(bytes(start + size - len(self.model)))
            self.model[start:start + size] = data
        elif kind == 3:
            length = max(self.map_size, start)
            self.again(lambda: os.ftruncate(self.file, length))
            if length < len(self.model):
                del self.model[length:]
            else:
                self.model.extend(bytes(length - len(self.model)))
        elif kind == 4:
            place = random.randrange(0, self.map_size)
            self.map[place] = number & 255
            self.model[place] = number & 255
        elif kind == 5:
            self.again(lambda: os.posix_fallocate(self.file, start, size))
            if len(self.model) < start + size:
                self.model.extend(bytes(start + size - len(self.model)))
        else:
            got = self.again(lambda: os.pread(self.file, size, start))
            assert got == bytes(self.model[start:start + size]), f'{size} bytes at {start} differ'
        assert self.again(lambda: os.fstat(self.file)).st_size == len(self.model)

    def finish(self):
        # Data that fsync(2) reports as unwritten is written again.
        while True:
            try:
                self.map.flush()
                os.fsync(self.file)
                return
            except OSError as error:
                if error.errno != EIO:
                    raise
            self.interrupted += 1
            for start in range(0, len(self.model), 1 << 16):
                os.pwrite(self.file, self.model[start:start + (1 << 16)], start)

    def check(self):
        self.map.close()
        os.close(self.file)
        with open(self.beside + '/file', 'rb') as file:
            assert file.read() == bytes(self.model), 'the file is not what was written'


class Appends(Workload):
    name = 'appends: each once, each there'

    def prepare(self):
        self.file = os.open(self.place + '/log', os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self.acknowledged = []

    def turn(self, number):
        try:
            assert os.write(self.file, b'%08d\n' % number) == 9
            self.acknowledged.append(b'%08d' % number)
        except OSError as error:
            if error.errno != EIO:
                raise
            self.interrupted += 1

    def check(self):
        os.close(self.file)
        with open(self.beside + '/log', 'rb') as file:
            lines = file.read().split()
        assert len(lines) == len(set(lines)), 'something was appended twice'
        assert set(self.acknowledged) <= set(lines), 'something that was appended is not there'


class Listings(Workload):
    name = 'listings of 3,000 names'

    def prepare(self):
        for number in range(3000):
            self.again(lambda: open(f'{self.place}/file{number:05}', 'w').close())

    def turn(self, number):
        names = [entry.name for entry in self.again(lambda: list(os.scandir(self.place)))]
        assert len(names) == len(set(names)) == 3000, f'{len(names)} names, {len(set(names))} of them different'


class Removed(Workload):
    name = 'a removed file that is open'

    def prepare(self):
        self.file = os.open(self.place + '/gone', os.O_CREAT | os.O_RDWR)
        os.unlink(self.place + '/gone')

    def turn(self, number):
        place = number % 5000 * 10
        self.again(lambda: os.pwrite(self.file, b'%010d' % number, place))
        assert self.again(lambda: os.pread(self.file, 10, place)) == b'%010d' % number
        assert os.fstat(self.file).st_nlink == 0

    def check(self):
        os.close(self.file)


class Locks(Workload):
    """Three threads that wait for each other, by both kinds of locks."""

    name = 'waiting locks: one at a time'

    def prepare(self):
        self.files = [os.open(self.place + '/lock', os.O_CREAT | os.O_RDWR) for _ in range(3)]
        self.holder, self.errors, self.counts = None, [], [0, 0, 0]
        self.others = [threading.Thread(target=self.loop, args=(number,)) for number in (1, 2)]
        for thread in self.others:
            thread.start()

    def once(self, number):
        if number % 2:
            self.again(lambda: fcntl.flock(self.files[number], fcntl.LOCK_EX))
            self.again(lambda: fcntl.flock(self.files[number], fcntl.LOCK_UN))
        wish = lambda kind: struct.pack('hhqqi4x', kind, 0, 0, 0, 0)
        # F_OFD_SETLKW, F_OFD_SETLK
        self.again(lambda: fcntl.fcntl(self.files[number], 38, wish(fcntl.F_WRLCK)))
        assert self.holder is None, f'{number} has the lock, and so has {self.holder}'
        self.holder = number
        time.sleep(0.0005)
        self.holder = None
        self.again(lambda: fcntl.fcntl(self.files[number], 37, wish(fcntl.F_UNLCK)))
        self.counts[number] += 1

    def loop(self, number):
        try:
            while self.run.goes_on():
                self.once(number)
        except BaseException:
            self.errors.append(traceback.format_exc()[-600:])

    def turn(self, number):
        self.once(0)
        assert not self.errors, self.errors[0]

    def check(self):
        for thread in self.others:
            thread.join(60)
            assert not thread.is_alive(), 'a thread still waits for a lock'
        assert not self.errors, self.errors[0]
        assert min(self.counts) > 0, f'somebody never had it: {self.counts}'
        for file in self.files:
            os.close(file)


class SQLite(Workload):
    journal = 'wal'

    @property
    def name(self):
        return f'SQLite, journal {self.journal}: each row that was committed'

    def prepare(self):
        self.rows = []
        self.connect()
        self.base.execute(f'pragma journal_mode={self.journal}')
        self.base.execute('create table if not exists t(x integer primary key, y)')
        self.base.commit()

    def connect(self):
        self.base = sqlite3.connect(self.place + '/base', check_same_thread=False, timeout=30)

    def turn(self, number):
        try:
            self.base.execute('insert into t values(?, randomblob(200))', (number,))
            self.base.commit()
            self.rows.append(number)
        except sqlite3.OperationalError as error:
            if 'disk I/O' not in str(error) and 'unable to open' not in str(error):
                raise
            self.interrupted += 1
            try:
                self.base.rollback()
            except sqlite3.OperationalError:
                pass
        except sqlite3.IntegrityError:
            pass

    def check(self):
        self.base.close()
        base = sqlite3.connect(self.beside + '/base')
        assert base.execute('pragma integrity_check').fetchall() == [('ok',)]
        kept = {row[0] for row in base.execute('select x from t')}
        assert set(self.rows) <= kept, f'{len(set(self.rows) - kept)} committed rows are lost'


class RollbackSQLite(SQLite):
    journal = 'delete'


class Tree(Workload):
    name = 'cp -a, diff -r, rm -rf of a tree'

    def turn(self, number):
        tree = f'{self.place}/t{number}'
        if self.program('cp', '-a', '/usr/include/linux', tree):
            self.program('diff', '-r', '/usr/include/linux', tree)
        while not self.program('rm', '-rf', tree):
            pass


class Git(Workload):
    name = 'git: commit, fsck; each commit that was made'

    def git(self, *words):
        return self.program('git', '-c', 'user.name=a', '-c', 'user.email=a@b', '-c', 'gc.auto=0', *words, cwd=self.place)

    def prepare(self):
        while not self.git('init', '-q', '-b', 'main'):
            pass
        self.commits = []

    def turn(self, number):
        try:
            with open(f'{self.place}/f{number % 50}', 'w') as file:
                file.write(f'{number}\n' * random.randrange(1, 200))
        except OSError as error:
            if error.errno != EIO:
                raise
        if self.git('add', '-A') and self.git('commit', '-q', '--allow-empty', '-m', str(number)):
            self.commits.append(str(number))
            return
        # What it leaves when it fails, as it says.
        for directory, _, names in os.walk(self.place + '/.git'):
            for name in names:
                if name.endswith('.lock'):
                    try:
                        os.unlink(f'{directory}/{name}')
                    except OSError:
                        pass

    def check(self):
        assert self.commits, 'nothing was committed'
        self.place = self.beside
        assert self.git('fsck', '--full', '--strict'), 'git fsck'
        kept = subprocess.run(['git', 'log', '--format=%s'], cwd=self.beside, capture_output=True, text=True).stdout.split('\n')
        assert set(self.commits) <= set(kept), 'a commit is lost'


class Build(Workload):
    name = 'make -j2 of forty C files'

    def prepare(self):
        self.again(lambda: self.sources())

    def sources(self):
        for number in range(40):
            with open(f'{self.place}/s{number}.c', 'w') as file:
                file.write(f'int f{number}(void) {{ return {number}; }}\n')
        with open(self.place + '/main.c', 'w') as file:
            calls = ' + '.join(f'f{number}()' for number in range(40))
            file.write(''.join(f'int f{number}(void);\n' for number in range(40)))
            file.write(f'#include <stdio.h>\nint main(void) {{ printf("%d\\n", {calls}); return 0; }}\n')
        with open(self.place + '/Makefile', 'w') as file:
            objects = 'main.o ' + ' '.join(f's{number}.o' for number in range(40))
            file.write(f'all: program\n.DELETE_ON_ERROR:\nprogram: {objects}\n\t$(CC) -o $@ $^\nclean:\n\trm -f *.o program\n')

    def turn(self, number):
        while not self.program('make', '-s', '-j2', '-C', self.place):
            pass
        said = subprocess.run([self.place + '/program'], capture_output=True, text=True).stdout
        assert said == '780\n', f'the program says {said!r}'
        while not self.program('make', '-s', '-C', self.place, 'clean'):
            pass


class Claims(Workload):
    name = 'claims: one at a time, and no claim lost'

    def prepare(self):
        self.errors = []
        with open(self.place + '/claimed', 'w'):
            pass
        self.others = [threading.Thread(target=self.loop) for _ in range(2)]
        for thread in self.others:
            thread.start()

    def loop(self):
        try:
            while self.run.goes_on():
                self.once()
        except BaseException:
            self.errors.append(traceback.format_exc()[-600:])

    def once(self):
        mark = self.run.base + '/claim'
        done = subprocess.run(
            [self.run.grantfs, 'coordinate', 'write', self.beside + '/claimed', '--', 'sh', '-c', f'mkdir {mark} && rmdir {mark}'],
            env=self.run.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def turn(self, number):
        self.once()
        assert not self.errors, self.errors[0]

    def check(self):
        for thread in self.others:
            thread.join(60)
        assert not self.errors, self.errors[0]


class PostgreSQL(Workload):
    name = 'PostgreSQL: each row that was committed'
    programs = sorted(__import__('glob').glob('/usr/lib/postgresql/*/bin'))[-1:]

    def as_nobody(self, *words, **options):
        return subprocess.run(words, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True, cwd='/', **options)

    def prepare(self):
        self.sockets = tempfile.mkdtemp(prefix='grantfs-postgres.')
        os.chown(self.sockets, NOBODY, NOBODY)
        os.chown(self.place, NOBODY, NOBODY)
        self.bin, self.data, self.rows = self.programs[0], self.place + '/data', []
        while self.as_nobody(f'{self.bin}/initdb', '-k', '-D', self.data, '--auth=trust', '-U', 'postgres').returncode:
            shutil.rmtree(self.data, ignore_errors=True)
        with open(self.data + '/postgresql.conf', 'a') as file:
            file.write(f"listen_addresses=''\nunix_socket_directories='{self.sockets}'\nport=61235\nshared_buffers=16MB\n"
                       "max_wal_size=64MB\ncheckpoint_timeout=30s\nrestart_after_crash=on\n")
        self.start()
        while not self.sql('create table if not exists t(x bigint primary key)'):
            pass

    def start(self):
        self.as_nobody(f'{self.bin}/pg_ctl', '-w', '-t', '60', '-D', self.data, '-l', self.sockets + '/server.log', 'start')

    def sql(self, text):
        done = self.as_nobody(
            f'{self.bin}/psql', '-h', self.sockets, '-p', '61235', '-U', 'postgres', '-d', 'postgres', '-v', 'ON_ERROR_STOP=1', '-Atqc', text)
        return done.returncode == 0

    def turn(self, number):
        first = number * 20
        if self.sql(';'.join(f'insert into t values({row})' for row in range(first, first + 20))):
            self.rows += range(first, first + 20)
        else:
            # It takes EIO for the end of the disk, and recovers, or has to be started again.
            self.interrupted += 1
            if self.as_nobody(f'{self.bin}/pg_ctl', '-D', self.data, 'status').returncode:
                self.start()

    def finish(self):
        """Before the view is unmounted."""
        self.as_nobody(f'{self.bin}/pg_ctl', '-w', '-m', 'fast', '-D', self.data, 'stop')

    def check(self):
        self.data = self.beside + '/data'
        checked = self.as_nobody(f'{self.bin}/pg_checksums', '-c', '-D', self.data)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        self.start()
        done = self.as_nobody(f'{self.bin}/psql', '-h', self.sockets, '-p', '61235', '-U', 'postgres', '-d', 'postgres', '-Atqc', 'select x from t')
        self.as_nobody(f'{self.bin}/pg_ctl', '-w', '-m', 'fast', '-D', self.data, 'stop')
        shutil.rmtree(self.sockets, ignore_errors=True)
        kept = {int(row) for row in done.stdout.split()}
        assert self.rows and set(self.rows) <= kept, f'{len(set(self.rows) - kept)} of {len(self.rows)} committed rows are lost: {done.stderr}'


class StressNG(Workload):
    name = 'stress-ng: file systems'
    # Those that verify what they do and take errors of single calls for failures, which they report with the errno.
    stressors = ['chmod', 'dentry', 'dir', 'fallocate', 'fcntl', 'file-ioctl', 'filename', 'flock', 'hdd', 'lease', 'link', 'locka', 'lockf',
                 'lockofd', 'open', 'rename', 'seek', 'symlink', 'utime', 'xattr']

    def turn(self, number):
        stressor = self.stressors[number % len(self.stressors)]
        done = subprocess.run(
            ['stress-ng', '--verify', f'--{stressor}', '2', '--timeout', '3', '--temp-path', self.place, '--oomable'],
            capture_output=True, text=True, timeout=120)
        said = done.stdout + done.stderr
        for line in said.split('\n'):
            # Of a stressor that has met EIO the parent says no more than this.
            if 'terminated with an error' in line and re.search(r'errno=5\b|Input/output error', said):
                continue
            if re.search(r'fail:|error:', line) and not re.search(r'errno=5\b|Input/output error|unsuccessful run|stressor terminated|metrics-check', line):
                # A creation or removal that returned EIO is met again.
                if re.search(r'errno=(2|17|39)\b', line):
                    continue
                raise RuntimeError(f'{stressor}: {line}\n{said}')
            if 'errno=5' in line:
                self.interrupted += 1
        for name in os.listdir(self.place):
            while not self.program('rm', '-rf', f'{self.place}/{name}'):
                pass


class Run:
    def __init__(self, arguments):
        self.grantfs, self.cache, self.seconds = arguments.program, arguments.cache, arguments.time
        self.base = tempfile.mkdtemp(prefix='grantfs-deaths.', dir='/var/tmp')
        os.chmod(self.base, 0o755)
        self.mount, self.source = self.base + '/mount', self.base + '/a'
        os.makedirs(self.mount)
        os.makedirs(self.source)
        self.environment = dict(os.environ, GRANTFS_STORE=self.base + '/store', GRANTFS_TEST_CRASHES='1000000')
        if arguments.old_kernel:
            self.environment['GRANTFS_TEST_NO_RESEND'] = '1'
        self.upgrades = arguments.upgrades
        self.failures, self.pauses, self.deaths = [], [], 0
        self.workloads = []
        self.ends = None

    def goes_on(self):
        return not self.failures and (self.ends is None or time.monotonic() < self.ends)

    def command(self, *words):
        return subprocess.run([self.grantfs, *words], env=self.environment, capture_output=True, text=True)

    def daemon(self):
        said = json.loads(self.command('status', '--json').stdout or '{"mounts": []}')['mounts']
        return said[0]['pid'] if said and said[0].get('state') != 'dead' else None

    def work(self, workload):
        try:
            while self.goes_on():
                workload.turn(workload.turns)
                workload.turns += 1
        except BaseException:
            self.failures.append((workload.name, traceback.format_exc()[-1500:]))

    def upgrade(self):
        while self.goes_on():
            time.sleep(1)
            done = self.command('upgrade', self.mount, '--json')
            if done.returncode:
                self.failures.append(('an upgrade', done.stdout + done.stderr))
                return
            self.deaths += 1
            self.pauses.append(json.loads(done.stdout)['mounts'][0]['pausedMilliseconds'] / 1000)

    def kill(self):
        while self.goes_on():
            time.sleep(0.2 + random.random())
            pid = self.daemon()
            if pid is None:
                self.failures.append(('the mount', self.command('status').stdout))
                return
            begun = time.monotonic()
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            self.deaths += 1
            try:
                os.stat(f'{self.mount}/a/nothing{self.deaths}')
            except FileNotFoundError:
                self.pauses.append(time.monotonic() - begun)

    def all(self, kinds):
        for words in (['grant', self.source], ['mount', 'default', self.mount, '-o', f'{"" if self.upgrades else "recover,"}allow_other,cache={self.cache}']):
            done = self.command(*words)
            if done.returncode:
                raise SystemExit(done.stderr)
        for kind in kinds:
            name = kind.__name__.lower()
            self.workloads.append(kind(self, f'{self.mount}/a/{name}', f'{self.source}/{name}'))
        for workload in self.workloads:
            workload.prepare()
        self.ends = time.monotonic() + self.seconds
        threads = [threading.Thread(target=self.work, args=(workload,)) for workload in self.workloads]
        for thread in threads:
            thread.start()
        (self.upgrade if self.upgrades else self.kill)()
        for workload, thread in zip(self.workloads, threads):
            thread.join(180)
            if thread.is_alive():
                self.failures.append((workload.name, 'it hangs'))
        if any(thread.is_alive() for thread in threads):
            return
        for workload in self.workloads:
            if hasattr(workload, 'finish'):
                workload.finish()
        for workload in self.workloads:
            try:
                workload.check()
            except BaseException:
                self.failures.append((workload.name, traceback.format_exc()[-1500:]))
            if self.upgrades and workload.interrupted:
                self.failures.append((workload.name, f'{workload.interrupted} times EIO, of which an upgrade is no reason'))
        done = self.command('unmount', self.mount)
        if done.returncode:
            self.failures.append(('unmount', done.stderr))

    def end(self):
        if os.path.ismount(self.mount):
            subprocess.run(['umount', '-l', self.mount])
        shutil.rmtree(self.base, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('program', help='the grantfs to test')
    parser.add_argument('--cache', default='shared', choices=['shared', 'exclusive', 'none'])
    parser.add_argument('--time', type=int, default=120, help='how long, in seconds')
    parser.add_argument('--old-kernel', action='store_true', help='as on a kernel that cannot be asked for requests again (before Linux 6.9)')
    parser.add_argument('--upgrades', action='store_true', help='the daemon is replaced by an upgrade each second, and not killed')
    parser.add_argument('--json', help='a file for the results')
    arguments = parser.parse_args()
    kinds = [Files, Model, Appends, Listings, Removed, Locks, SQLite, RollbackSQLite, Tree, Git, Build, Claims]
    if PostgreSQL.programs:
        kinds.append(PostgreSQL)
    if shutil.which('stress-ng'):
        kinds.append(StressNG)
    run = Run(arguments)
    try:
        run.all(kinds)
    finally:
        run.end()
    pauses = sorted(run.pauses)
    what = 'upgrades; programs waited for' if run.upgrades else 'deaths; the next answer after'
    print(f'cache={run.cache}{", as before Linux 6.9" if arguments.old_kernel else ""}: {run.deaths} {what} '
          f'{pauses[len(pauses) // 2] * 1000:.0f} ms (median), {pauses[-1] * 1000:.0f} ms (worst)' if pauses else 'no deaths')
    failed = {name for name, _ in run.failures}
    for workload in run.workloads:
        print(f'  {"FAIL" if workload.name in failed else "ok  "}  {workload.name}: {workload.turns} turns, {workload.interrupted} EIO')
    for name, text in run.failures:
        print(f'== {name}\n{text}', file=sys.stderr)
    if arguments.json:
        with open(arguments.json, 'w') as file:
            json.dump({'cache': run.cache, 'deaths': run.deaths, 'pauses': pauses, 'failures': run.failures,
                       'workloads': [[workload.name, workload.turns, workload.interrupted] for workload in run.workloads]}, file)
    sys.exit(1 if run.failures else 0)


main()
