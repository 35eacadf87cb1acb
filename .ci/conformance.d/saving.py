"""Real programs save a document, and are killed at each system call by which they change names or data: saving.py GRANTFS VIEW MOUNT ROOM FORM PROGRAM...

VIEW is mounted at MOUNT; ROOM is a directory of the host for the documents. FORM is `directory` (the document in a directory of its own) or `file` (the document itself, beside which nothing can be made), or
`native`, where nobody is killed, as with GRANTFS_SAVING=whole; GRANTFS_SAVING=exclusive for a mount with cache=exclusive. For each program it prints a line: how many steps it has, what was left on the host, and how it ended where nobody killed it. Exits with 1 when the document was neither the old nor the new one,
77 when a program cannot be run here. GRANTFS_STORE says where the grants are.
"""
import itertools, os, re, shutil, subprocess, sys, tempfile, time, zipfile, zlib

HERE = os.path.dirname(os.path.abspath(__file__))
OLD, NEW = ('o' * 69 + '\n') * 2000, ('n' * 69 + '\n') * 2000
# What changes names or data, and where a new document may take the old one's place.
CALLS = ('open openat creat write pwrite64 writev pwritev copy_file_range sendfile ftruncate truncate fallocate fsync fdatasync close rename renameat renameat2 link linkat symlink symlinkat unlink '
         'unlinkat chmod fchmod fchmodat chown fchown lchown fchownat utimensat setxattr fsetxattr').split()
PYTHON = '/usr/bin/python3'
EMACS = '(progn (setq backup-enable-predicate (lambda (n) t) make-backup-files t vc-handled-backends nil %s) (find-file (getenv "D")) (while (search-forward "o" nil t) (replace-match "n" t t)) (save-buffer))'


def python(module, body):
    return [PYTHON, '-c', f'import os, sys\n{module}\nD, NEW = os.environ["D"], {NEW[:70]!r} * 2000\n{body}']


def vim(how):
    # Where no swap file can be beside the document it is in a directory of this document's own: in a common one vim takes what a killed vim has left for its own document's, by the
    # inode's number, which is used again, and saves nothing.
    return ['vim', '-Nu', 'NONE', '-i', 'NONE', '-es', '--cmd', 'let &directory = ".," . $SWAP', '-c', f'set backupskip= backupcopy={how}', '-c', '%s/o/n/g', '-c', 'wq']


GIO, QT = 'from gi.repository import Gio, GLib', 'from PyQt5.QtCore import QSaveFile, QIODevice'
REPLACE = 'Gio.File.new_for_path(D).replace_contents(NEW.encode(), None, %s, Gio.FileCreateFlags.NONE, None)'
QSAVE = 'f = QSaveFile(D)\nf.setDirectWriteFallback(%s)\nsys.exit(0 if f.open(QIODevice.WriteOnly) and f.write(NEW.encode()) == len(NEW) and f.commit() else f.errorString())'
# The command that saves the document $D. For vim and sed it is the last argument.
PROGRAMS = {
    'g_file_set_contents': python(GIO, 'GLib.file_set_contents(D, NEW.encode())'),
    'g_file_replace': python(GIO, REPLACE % 'False'),
    'g_file_replace, with a backup': python(GIO, REPLACE % 'True'),
    'QSaveFile': python(QT, QSAVE % 'False'),
    'QSaveFile, that may write in place': python(QT, QSAVE % 'True'),
    'vim backupcopy=auto': vim('auto'),
    'vim backupcopy=yes': vim('yes'),
    'vim backupcopy=no': vim('no'),
    'emacs': ['emacs', '-Q', '--batch', '--eval', EMACS % ''],
    'emacs backup-by-copying': ['emacs', '-Q', '--batch', '--eval', EMACS % 'backup-by-copying t'],
    'emacs file-precious-flag': ['emacs', '-Q', '--batch', '--eval', EMACS % 'file-precious-flag t'],
    'sed -i': ['sed', '-i', 's/o/n/g'],
    'soffice': [PYTHON, os.path.join(HERE, 'saving-office.py')],
}
# Programs that write the document itself and keep a copy beside it. A kill leaves a part, and the copy goes with the document's directory. The part must equal the native one.
IN_PLACE = ('vim backupcopy=yes', 'emacs backup-by-copying')
# Programs that move the old file away and write a new one. With cache=exclusive there is no close, so the new file takes its place when it is made, as it does natively.
MOVING = ('vim backupcopy=auto', 'vim backupcopy=no', 'emacs')


class Document:
    """One in a directory of its own on the host; through the mount, unless it is native."""
    numbers = itertools.count()

    def __init__(self, setting, program, form=None):
        self.setting, self.number, self.form = setting, next(Document.numbers), form or setting.form
        self.is_office, self.is_alone = program == 'soffice', False
        self.name = 'report.odt' if self.is_office else 'report.txt'
        self.directory = f'{setting.room}/{self.number}'
        os.mkdir(self.directory)
        self.swap = f'{setting.scratch}/swap{self.number}'
        os.mkdir(self.swap)
        self.host = f'{self.directory}/{self.name}'
        if self.is_office:
            shutil.copy(office_document(setting), self.host)
        else:
            with open(self.host, 'w') as file:
                file.write(OLD)
        with open(self.host, 'rb') as file:
            self.old = file.read()
        self.grant = f'{setting.form}{self.number}'
        self.path = self.host
        if self.form != 'native':
            setting.grantfs('grant', self.host, '--view', setting.view, '--name', self.grant, *(['--as-directory'] if setting.form == 'directory' else []))
            self.path = f'{setting.mount}/{self.grant}' + (f'/{self.name}' if setting.form == 'directory' else '')
            until(lambda: os.path.exists(self.path), f'{self.path} is shown')

    def left(self):
        """What is on the host: `old`, `new`, or what is neither."""
        try:
            with open(self.host, 'rb') as file:
                there = file.read()
        except OSError as error:
            return f'NEITHER: {error.strerror}'
        if there == self.old:
            return 'old'
        if self.is_office:
            try:
                with zipfile.ZipFile(self.host) as archive:
                    return 'new' if archive.testzip() is None and b'and more' in archive.read('content.xml') else 'NEITHER: another text'
            except (zipfile.BadZipFile, KeyError) as error:
                return f'NEITHER: {error}'
        return 'new' if there == NEW.encode() else f'NEITHER: {len(there)} bytes (CRC {zlib.crc32(there):08x})'

    def stand_alone(self):
        """Natively as in the form of a file: nothing can be made beside it."""
        self.is_alone = True
        os.chmod(self.directory, 0o555)

    def withdraw(self):
        if self.form != 'native':
            self.setting.grantfs('remove', self.grant, '--view', self.setting.view)

    def end(self):
        """What is on the host when it was withdrawn, and what else has been left there."""
        until(lambda: all(not name.startswith('.grantfs-') for name in os.listdir(self.directory)), 'the workplace is gone')
        found, beside = self.left(), sorted(set(os.listdir(self.directory)) - {self.name})
        os.chmod(self.directory, 0o755)
        shutil.rmtree(self.directory)
        return found, beside


class Setting:
    def __init__(self, program, view, mount, room, form):
        self.program, self.view, self.mount, self.room, self.form = program, view, mount, room, form
        self.scratch = tempfile.mkdtemp(prefix='grantfs-saving.')
        self.environment = dict(os.environ, HOME=self.scratch, LC_ALL='C.UTF-8', TERM='dumb', XDG_CACHE_HOME=self.scratch)

    def grantfs(self, *words):
        subprocess.run([self.program, *words], check=True, stdout=subprocess.DEVNULL)

    def run(self, program, document, strace):
        words = PROGRAMS[program] + ([document.path] if program.startswith(('vim', 'sed')) else [])
        # For root a directory's mode counts for nothing without this.
        drop = ['setpriv', '--bounding-set=-dac_override,-dac_read_search'] if document.is_alone and os.geteuid() == 0 else []
        environment = dict(self.environment, D=document.path, SWAP=document.swap)
        # With its own process group, so that nothing of it is left.
        child = subprocess.Popen([*drop, 'strace', '-f', '-qq', '-y', '-s', '0', *strace, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
        try:
            said = child.communicate(timeout=120)[0]
        finally:
            try:
                os.killpg(child.pid, 9)
            except ProcessLookupError:
                pass
        return child.returncode, said.decode(errors='replace')[-300:]


def until(condition, what):
    end = time.monotonic() + 20
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f'not within 20 s: {what}')
        time.sleep(0.005)


def office_document(setting):
    path = f'{setting.scratch}/first.odt'
    if not os.path.exists(path):
        with open(f'{setting.scratch}/first.txt', 'w') as file:
            file.write('A document.\n' * 50)
        subprocess.run(['soffice', '--headless', f'-env:UserInstallation=file://{setting.scratch}/office', '--convert-to', 'odt', '--outdir', setting.scratch, f'{setting.scratch}/first.txt'],
                       check=True, env=setting.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


def steps(trace, document):
    """The calls of a run that touch the document's directory and change something: (name, how many of that name its thread had made by then)."""
    place = os.path.dirname(document.path) if document.form != 'file' and not document.is_alone else document.path
    found, counts = [], {}
    for line in trace:
        match = re.match(r'(\d+) +(\w+)\((.*)', line)
        if not match or match[2] not in CALLS:
            continue
        thread, call, rest = match.groups()
        number = counts[thread, call] = counts.get((thread, call), 0) + 1
        # An opening counts as it may make or shorten something.
        if place not in rest or (call.startswith('open') and not re.search('O_(CREAT|TRUNC|WRONLY|RDWR)', rest)):
            continue
        if (call, number) not in found:
            found.append((call, number))
    # Of many writes in a row the first ones and the last one.
    runs = [list(run) for _, run in itertools.groupby(found, key=lambda step: step[0])]
    return [step for run in runs for step in (run if len(run) <= 3 else run[:2] + run[-1:])]


def traced(setting, program, document):
    """Saves it, and nobody is killed: the status, what was said, and the steps."""
    with tempfile.NamedTemporaryFile('r', dir=setting.scratch) as trace:
        status, said = setting.run(program, document, ['-o', trace.name, '-e', f'trace={",".join("?" + call for call in CALLS)}'])
        return status, said, steps(trace.read().splitlines(), document)


def kill(setting, program, document, call, number):
    return setting.run(program, document, ['-o', '/dev/null', '-e', f'trace={call}', '-e', f'inject={call}:signal=KILL:when={number}'])


def natively(setting, program):
    """What there can be on the host when the program is killed as it saves in the directory itself: of each call, everything that was found. In the form of a file it is one where nothing can be made."""
    def document():
        made = Document(setting, program, 'native')
        if setting.form == 'file':
            made.stand_alone()
        return made

    first = document()
    calls = traced(setting, program, first)[2]
    first.end()
    found = {}
    for call, number in calls:
        killed = document()
        kill(setting, program, killed, call, number)
        found.setdefault(call, set()).add(killed.end()[0])
    return found


def watch(setting, program):
    document = Document(setting, program)
    status, said, calls = traced(setting, program, document)
    found = document.left()
    document.withdraw()
    after, beside = document.end()
    # Without a way to save, a program reports that and leaves the old file.
    ended = f'{found}, status {status}' + (f', {beside} beside it' if beside else '')
    is_right = found == after and (found == 'new') == (status == 0) and not found.startswith('NEITHER')
    if not is_right:
        print(f'  {program}: {found}, then {after}; status {status}: {said}')
    mode = os.environ.get('GRANTFS_SAVING')
    writes_in_place = program in IN_PLACE or (mode == 'exclusive' and program in MOVING) or (setting.form == 'file' and any(call in ('write', 'pwrite64', 'ftruncate', 'truncate') for call, _ in calls))
    killed = []
    for call, number in [] if setting.form == 'native' or mode == 'whole' else calls:
        document = Document(setting, program)
        status, said = kill(setting, program, document, call, number)
        killed.append((call, f'killed at {call} {number}', document, document.left(), f'status {status}: {said}'))
        document.withdraw()
    results, native = {}, None
    # The workplaces go within a second, all of them meanwhile.
    for call, when, document, found, said in killed:
        after, beside = document.end()
        results[found] = results.get(found, 0) + 1
        is_wrong = after != found
        if found.startswith('NEITHER') and not is_wrong:
            # A file that is written in place is incomplete meanwhile. It must equal the native result of the same kill, byte by byte.
            if native is None:
                native = natively(setting, program) if writes_in_place else {}
            is_wrong = found not in native.get(call, ())
        if is_wrong:
            is_right = False
            print(f'  {program}, {when}: {found}, then {after}; {beside} beside it; natively {sorted((native or {}).get(call, ()))}; {said}')
    print(f'{program}: {ended}; {len(calls)} steps: ' + (', '.join(f'{count} × {what}' for what, count in sorted(results.items())) or 'nobody was killed') + (' (written in place, as natively)' if native else ''), flush=True)
    return is_right


def missing(program):
    words = PROGRAMS[program]
    tools = ['strace', words[0]] + (['soffice'] if program == 'soffice' else [])
    for tool in tools:
        if not shutil.which(tool):
            return f'{tool} is not installed'
    module = next((line for line in ([words[2].splitlines()[1]] if words[1:2] == ['-c'] else ['import uno'] if program == 'soffice' else [])), None)
    if module and subprocess.run([PYTHON, '-c', module], stderr=subprocess.DEVNULL).returncode:
        return f'what python3 takes for “{module}” is not installed'
    return None


def main():
    setting = Setting(*sys.argv[1:6])
    status = 0
    try:
        for program in [name for wanted in sys.argv[6:] for name in PROGRAMS if name.startswith(wanted)]:
            why = missing(program)
            if why:
                print(why)
                status = status or 77
            elif not watch(setting, program):
                status = 1
    finally:
        shutil.rmtree(setting.scratch, ignore_errors=True)
    return status


sys.exit(main())
