"""A grant, a host that is cut off, a revocation, and the fence, step by step. Run by `.ci/fleet-demo`; a step that does not do what it says ends it with 1."""
import errno, os, sys, time
from fleet import Fleet

BASE = '/run/grantfs-demo'
LEASE = 5


def say(text):
    print(f'\n# {text}', flush=True)


class Demonstration:
    def __init__(self, program):
        self.fleet = Fleet(program, BASE, {})

    def command(self, *words, status=0):
        print('$ grantfs ' + ' '.join(words), flush=True)
        done = self.fleet.administer(*words)
        print(done.stdout + done.stderr, end='')
        if done.returncode:
            print(f'(exit status {done.returncode})', flush=True)
        if done.returncode != status:
            sys.exit(f'that should have ended with {status}')

    def read(self, host):
        """What opening the file gives a program on that host: 0 or an errno."""
        try:
            with open(f'{host.mount}/papers/file', 'rb') as file:
                file.read()
            return 0
        except OSError as error:
            return error.errno

    def show(self, expected):
        """What a program sees on each of these hosts: 0 or an errno, within some seconds."""
        for host in self.fleet.hosts:
            if host.name not in expected:
                continue
            wanted = expected[host.name]
            ends = time.monotonic() + 3 * LEASE
            while (got := self.read(host)) != wanted and time.monotonic() < ends:
                time.sleep(0.02)
            print(f'  {host.name}: cat {host.mount}/papers/file: {errno.errorcode[got] if got else "reads it"}', flush=True)
            if got != wanted:
                sys.exit('that is not what was to be seen')

    def run(self):
        three = self.fleet.hosts[2]
        say(f'Three members of etcd, three hosts with an agent and a mount each, a lease of {LEASE} seconds')
        self.fleet.start(LEASE)
        self.command('fleet', 'hosts')
        say('A directory is granted once, for all hosts')
        os.makedirs(f'{BASE}/papers')
        with open(f'{BASE}/papers/file', 'w') as file:
            file.write('text\n')
        self.command('grant', '--fleet', f'{BASE}/papers', '--view', 'v', '--name', 'papers')
        self.show({'h1': 0, 'h2': 0, 'h3': 0})
        say('The network of h3 is cut, and the grant is taken back: h3 may serve it until its lease ends, and the command says so')
        three.unplug()
        cut = time.monotonic()
        self.command('revoke', '--fleet', 'papers', '--timeout', '1', status=3)
        self.show({'h1': errno.EACCES, 'h2': errno.EACCES})
        say('Nobody can tell h3; it serves the grant on, and shuts it by itself')
        while self.read(three) == 0:
            time.sleep(0.01)
        print(f'  h3: {errno.errorcode[self.read(three)]} {time.monotonic() - cut:.1f} s after the cut', flush=True)
        if time.monotonic() - cut > LEASE:
            sys.exit('that is later than a lease')
        self.command('revoke', '--fleet', 'papers', '--timeout', '20')
        say('The network is back, and the grant is given again')
        three.unplug(False)
        self.command('restore', '--fleet', 'papers', '--timeout', '20')
        self.show({'h1': 0, 'h2': 0, 'h3': 0})
        self.command('fleet', 'hosts')


def main(program):
    os.makedirs(BASE)
    Demonstration(program).run()
