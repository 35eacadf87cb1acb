"""A fleet on one machine: members of etcd, hosts and an administrator, each in a network namespace, joined by a bridge that can be cut.

Everything lives in the namespaces that `.ci/fleet-faults` makes (network, processes, mounts), and ends with them.
"""
import json, os, signal, subprocess, time, urllib.request
from reader import now

NOWHERE = '02:00:00:00:00:01'


def run(*words, check=True, **options):
    return subprocess.run(words, check=check, capture_output=True, text=True, **options)


class Node:
    """A machine of its own on the network."""

    def __init__(self, name, number):
        self.name, self.address, self.link = name, f'10.99.0.{number}', f'v{number}'
        self.holder = subprocess.Popen(['unshare', '--net', 'sleep', 'infinity'])
        own = os.readlink('/proc/self/ns/net')
        while os.readlink(f'/proc/{self.holder.pid}/ns/net') == own:
            time.sleep(0.005)
        self.inside = ['nsenter', f'--net=/proc/{self.holder.pid}/ns/net']
        run('ip', 'link', 'add', self.link, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', str(self.holder.pid))
        run('ip', 'link', 'set', self.link, 'master', 'br0', 'up')
        run(*self.inside, 'sh', '-ec', f'ip addr add {self.address}/24 dev eth0; ip link set eth0 up; ip link set lo up')

    def unplug(self, isCut=True):
        run('ip', 'link', 'set', self.link, 'down' if isCut else 'up')

    def mute(self, other, isCut=True):
        """What it sends to the other one gets lost; what that one sends arrives."""
        if isCut:
            run(*self.inside, 'ip', 'neigh', 'replace', other.address, 'lladdr', NOWHERE, 'dev', 'eth0', 'nud', 'permanent')
        else:
            run(*self.inside, 'ip', 'neigh', 'del', other.address, 'dev', 'eth0', check=False)


class Member(Node):
    """One of etcd."""

    def start(self, all, base):
        url = f'http://{self.address}'
        self.log = open(f'{base}/{self.name}.log', 'ab')
        self.process = subprocess.Popen(
            self.inside + [
                'etcd', '--name', self.name, '--data-dir', f'{base}/{self.name}', '--listen-client-urls', f'{url}:2379',
                '--advertise-client-urls', f'{url}:2379', '--listen-peer-urls', f'{url}:2380', '--initial-advertise-peer-urls', f'{url}:2380',
                '--initial-cluster', ','.join(f'{one.name}=http://{one.address}:2380' for one in all), '--logger', 'zap', '--log-level', 'warn',
                '--heartbeat-interval', '100', '--election-timeout', '1000', '--bcrypt-cost', '4',
            ], stdout=self.log, stderr=self.log)

    def leads(self):
        try:
            answer = json.load(urllib.request.urlopen(urllib.request.Request(f'http://{self.address}:2379/v3/maintenance/status', b'{}'), timeout=0.3))
            return answer['leader'] == answer['header']['member_id']
        except (OSError, KeyError, ValueError):
            return False


class Host(Node):
    """One with a store, an agent, a mount and a reader."""

    def __init__(self, name, number, fleet, options):
        super().__init__(name, number)
        self.fleet, self.options = fleet, options
        self.store, self.mount, self.reads = (f'{fleet.base}/{name}{end}' for end in ('', '-view', '-reads'))
        self.environment = dict(fleet.environment, GRANTFS_STORE=self.store)
        self.agent = self.reader = None
        # What it went through by itself, which nothing here did to it.
        self.failures = []
        os.makedirs(self.mount)

    def command(self, *words, timeout=120):
        return run(*self.inside, self.fleet.program, *words, check=False, env=self.environment, timeout=timeout)

    def start_agent(self):
        self.log = open(f'{self.store}.log', 'ab')
        self.agent = subprocess.Popen(self.inside + [self.fleet.program, 'agent'], env=self.environment, stdout=self.log, stderr=self.log)

    def kill_agent(self):
        if self.agent.poll() is not None:
            self.failures.append(f'the agent of {self.name} ended by itself, with {self.agent.returncode}')
        self.agent.kill()
        self.agent.wait()

    def daemon(self):
        """The process number of who serves the mount."""
        try:
            mounts = json.loads(self.command('status', '--json').stdout)['mounts']
            return mounts[0]['pid'] if mounts and mounts[0].get('state') != 'dead' else None
        except (ValueError, KeyError):
            return None

    def mount_again(self):
        """Where nobody starts another daemon."""
        run('umount', '-l', self.mount, check=False)
        return self.command('mount', 'v', self.mount, '-o', self.options, timeout=30)

    def start_reader(self):
        place = os.path.dirname(os.path.abspath(__file__))
        self.reader = subprocess.Popen(['python3', '-IB', '-c', f'import sys; sys.path.insert(0, {place!r}); import reader; reader.main()', self.mount, self.reads, *self.fleet.grants],
                                       stdin=subprocess.PIPE)


class Fleet:
    def __init__(self, program, base, plant):
        self.program, self.base = program, base
        self.grants = ['alpha', 'beta', 'gamma', 'delta']
        # For which hosts each of them is.
        self.selectors = {'alpha': 'all', 'beta': 'role=build', 'gamma': 'all', 'delta': 'role=build,zone!=h3'}
        self.environment = dict(os.environ, GRANTFS_TEST_CRASHES='1000000', **plant)
        run('ip', 'link', 'add', 'br0', 'type', 'bridge')
        run('ip', 'addr', 'add', '10.99.0.254/24', 'dev', 'br0')
        run('ip', 'link', 'set', 'br0', 'up')
        for grant in self.grants:
            os.makedirs(f'{base}/{grant}')
            with open(f'{base}/{grant}/file', 'wb') as file:
                file.write(grant.encode().ljust(4096, b'.'))
        self.members = [Member(f'm{index}', 11 + index) for index in range(3)]
        self.administrator = Node('administrator', 31)
        options = ('recover', 'recover,cache=exclusive', 'cache=shared')
        self.hosts = [Host(f'h{1 + index}', 21 + index, self, options[index]) for index in range(3)]

    def start(self, lease):
        for member in self.members:
            member.start(self.members, self.base)
        endpoints = ','.join(f'http://{member.address}:2379' for member in self.members)
        ends = time.monotonic() + 60
        while True:
            done = self.administer('fleet', 'init', '--endpoints', endpoints, '--lease', f'{lease}s')
            if done.returncode == 0:
                break
            if time.monotonic() > ends:
                raise SystemExit(f'etcd does not start: {done.stderr}')
            time.sleep(0.3)
        for host in self.hosts:
            invitation = f'{self.base}/{host.name}.invitation'
            self.must(self.administer('fleet', 'invite', host.name, '--label', 'role=build', '--label', f'zone={host.name}', '--output', invitation))
            self.must(host.command('fleet', 'join', invitation))
            host.start_agent()
            self.must(host.command('mount', '--new', 'v', host.mount, '-o', host.options))
        for grant in self.grants:
            self.must(self.administer(*self.granting(grant)))
        for host in self.hosts:
            host.start_reader()

    @staticmethod
    def must(done):
        if done.returncode:
            raise SystemExit(f'{done.args}: {done.returncode}\n{done.stderr}')

    def administer(self, *words, timeout=120):
        return run(*self.administering(*words), check=False, env=self.administration, timeout=timeout)

    @property
    def administration(self):
        return dict(self.environment, GRANTFS_STORE=f'{self.base}/administrator')

    def administering(self, *words):
        return self.administrator.inside + [self.program, *words]

    def granting(self, grant):
        return 'grant', '--fleet', f'{self.base}/{grant}', '--view', 'v', '--hosts', self.selectors[grant]

    def serves(self, host, grant):
        """Whether the grant is for that host."""
        return grant != 'delta' or host.name != 'h3'

    def signal(self, pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def heal(self):
        """Everything runs, and reaches everything."""
        nodes = [*self.members, *self.hosts, self.administrator]
        for node in nodes:
            node.unplug(False)
            for other in nodes:
                if other is not node:
                    node.mute(other, False)
        for member in self.members:
            if member.process.poll() is None:
                self.signal(member.process.pid, signal.SIGCONT)
            else:
                member.start(self.members, self.base)
        for host in self.hosts:
            if host.agent.poll() is None:
                self.signal(host.agent.pid, signal.SIGCONT)
            else:
                host.start_agent()
