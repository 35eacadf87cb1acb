import Foundation
import TestSupport
import Testing

extension MountTests {
    /// An editor on the host while a build and git work on the same files through a mount.
    @Suite(
        .enabled(
            if: Identity.isRoot && Command.exists("python3") && Command.exists("git"),
            Comment(rawValue: Machine.needs("root, python3 and git"))))
    struct BothSides {
        /// `sys.argv`: the granted directory, the same through the mount, seconds.
        private static let script = """
            import hashlib, os, random, subprocess, sys, threading, time
            host, mount, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
            end = time.monotonic() + seconds
            faults, counts, late = [], dict.fromkeys(('edits', 'builds', 'commits'), 0), []
            def until(condition, limit=20):
                start = time.monotonic()
                while True:
                    try:
                        if condition(): return time.monotonic() - start
                    except OSError: pass
                    if time.monotonic() - start > limit: return None
                    time.sleep(0.001)
            def read(path):
                with open(path, 'rb') as file: return file.read()
            def edit():
                dice = random.Random(1)
                while time.monotonic() < end:
                    name = f'src/{dice.randrange(30)}.c'
                    path, way = f'{host}/{name}', dice.choice(('place', 'rename', 'append', 'backup', 'remove'))
                    text = b'%d\\n' % counts['edits'] * dice.randrange(1, 2700)
                    # git maps files above 32 KiB, and ends by SIGBUS when one is truncated meanwhile: in the directory itself as well.
                    if way == 'append' and os.path.exists(path) and os.path.getsize(path) > 16384: way = 'place'
                    if way == 'place': open(path, 'wb').write(text)
                    elif way == 'append':
                        with open(path, 'ab') as file: file.write(text)
                    elif way == 'remove':
                        if os.path.exists(path): os.unlink(path)
                    else:
                        with open(path + '~', 'wb') as file: file.write(text)
                        if way == 'backup' and os.path.exists(path): os.rename(path, path + '.bak')
                        os.rename(path + '~', path)
                    def shows():
                        if way == 'remove': return not os.path.exists(f'{mount}/{name}') and os.path.basename(name) not in os.listdir(f'{mount}/src')
                        here, there = os.stat(path), os.stat(f'{mount}/{name}')
                        return read(f'{mount}/{name}') == read(path) and (here.st_size, here.st_mtime_ns) == (there.st_size, there.st_mtime_ns)
                    passed = until(shows)
                    if passed is None: faults.append(f'an edit ({way}) of {name} does not show')
                    else: late.append(passed)
                    counts['edits'] += 1
            def build():
                while time.monotonic() < end:
                    for name in os.listdir(f'{mount}/src'):
                        try: text = read(f'{mount}/src/{name}')
                        except FileNotFoundError: continue
                        made = hashlib.sha256(text).hexdigest().encode() * 100
                        with open(f'{mount}/out/{name}.o', 'wb') as file: file.write(made)
                        if read(f'{host}/out/{name}.o') != made: faults.append(f'{name}.o is not on the host what was written')
                    counts['builds'] += 1
            def commit():
                def git(*words):
                    for attempt in range(5):
                        done = subprocess.run(['git', '-C', mount, '-c', 'user.name=a', '-c', 'user.email=a@b', *words], capture_output=True, text=True)
                        # Other tests change more on this filesystem than the kernel's queue holds (docs/semantics.md).
                        if 'current working directory' not in done.stderr: break
                    return done
                while time.monotonic() < end:
                    git('add', 'src')
                    done = git('commit', '-qm', 'work')
                    if done.returncode not in (0, 1) or 'fatal' in done.stderr: faults.append('git: ' + done.stderr[:200])
                    counts['commits'] += done.returncode == 0
            for name in 'src', 'out': os.mkdir(f'{host}/{name}')
            subprocess.run(['git', '-C', mount, 'init', '-q'], check=True)
            threads = [threading.Thread(target=work) for work in (edit, build, commit)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            def tree(place):
                found = {}
                for directory, _, names in os.walk(place):
                    for name in names:
                        path = os.path.join(directory, name)
                        status = os.stat(path)
                        found[os.path.relpath(path, place)] = (status.st_size, status.st_mtime_ns, read(path))
                return found
            if until(lambda: tree(host) == tree(mount)) is None:
                here, there = tree(host), tree(mount)
                different = [name for name in sorted(here.keys() | there.keys()) if here.get(name) != there.get(name)]
                faults.append('different in the end: ' + ', '.join(f'{n} {here.get(n, "-")[:2]} {there.get(n, "-")[:2]}' for n in different[:5]))
            checked = subprocess.run(['git', '-C', host, 'fsck', '--full'], capture_output=True, text=True)
            if checked.returncode: faults.append('git fsck on the host: ' + checked.stderr[:200])
            late.sort()
            print(counts, f'shown after {late[len(late) // 2] * 1000:.1f} ms (median), {late[-1] * 1000:.0f} ms at the most', flush=True)
            print('faults:', faults[:5], flush=True)
            """

        @Test(
            "Mount and host see each other's files, sizes and times", arguments: ["shared", "exclusive"])
        func bothSides(cache: String) throws {
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try fixture.grant(source)
            let mount = try fixture.mount(options: "cache=\(cache)") + "/a"
            let seconds = ProcessInfo.processInfo.environment["GRANTFS_LONG_TESTS"] == nil ? "8" : "180"
            let said = try Command.run(["python3", "-I", "-c", Self.script, source, mount, seconds], within: 600).orThrow().lines
            print("cache=\(cache): \(said.first ?? "")")
            #expect(said.last == "faults: []")
        }
    }
}
