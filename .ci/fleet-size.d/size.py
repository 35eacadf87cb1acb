"""How long a revocation takes in fleets of more and more hosts. Run by `.ci/fleet-size`."""
import argparse, base64, json, os, statistics, subprocess, sys, time, urllib.request

PORTS = [2379, 2389, 2399]
BASE = '/run/grantfs-size'


class Etcd:
    """Three members, and their JSON gateway as the administrator uses it."""

    def __init__(self):
        cluster = ','.join(f'm{port}=http://127.0.0.1:{port + 1}' for port in PORTS)
        log = open(f'{BASE}/etcd.log', 'ab')
        self.members = [subprocess.Popen([
            'etcd', '--name', f'm{port}', '--data-dir', f'{BASE}/m{port}', '--listen-client-urls', f'http://127.0.0.1:{port}', '--advertise-client-urls', f'http://127.0.0.1:{port}',
            '--listen-peer-urls', f'http://127.0.0.1:{port + 1}', '--initial-advertise-peer-urls', f'http://127.0.0.1:{port + 1}', '--initial-cluster', cluster,
            '--log-level', 'error', '--heartbeat-interval', '300', '--election-timeout', '5000', '--bcrypt-cost', '4', '--auto-compaction-retention', '1000',
            '--auto-compaction-mode', 'revision'], stdout=log, stderr=log) for port in PORTS]
        self.token = None

    def call(self, path, body):
        request = urllib.request.Request(f'http://127.0.0.1:{PORTS[0]}{path}', json.dumps(body).encode(), {'Authorization': self.token} if self.token else {})
        return json.load(urllib.request.urlopen(request, timeout=30))

    def log_in(self, file):
        with open(file) as credentials:
            known = json.load(credentials)
        self.token = None
        self.token = self.call('/v3/auth/authenticate', {'name': known['user'], 'password': known['password']})['token']
        return self.token

    def seconds(self):
        """How long the processors have worked for the members so far."""
        return sum(sum(map(int, open(f'/proc/{one.pid}/stat').read().rsplit(')', 1)[1].split()[11:13])) for one in self.members) / os.sysconf('SC_CLK_TCK')


def text(value):
    return base64.b64encode(value.encode()).decode()


class Fleet:
    def __init__(self, program, lease):
        self.program, self.lease = program, lease
        self.etcd = Etcd()
        self.environment = dict(os.environ, GRANTFS_STORE=f'{BASE}/administrator')
        self.parts, self.names, self.refused = [], [], 0
        os.makedirs(f'{BASE}/directory')
        ends = time.monotonic() + 60
        while (done := self.run('fleet', 'init', '--endpoints', ','.join(f'http://127.0.0.1:{port}' for port in PORTS), '--lease', f'{lease}s')).returncode:
            if time.monotonic() > ends:
                raise SystemExit(f'etcd does not start: {done.stderr}')
            time.sleep(0.5)
        self.must('fleet', 'invite', 'h0', '--output', f'{BASE}/invitation')
        self.must('grant', '--fleet', f'{BASE}/directory', '--view', 'v', '--name', 'x', '--timeout', '0')
        self.etcd.log_in(f'{BASE}/administrator/fleet/administrator.json')
        # One user for all simulated hosts: what the real ones may do with their own, it may do with each.
        role = 'grantfs-host-h0'
        for key, kind in (('grantfs/hosts/', 'READWRITE'), ('grantfs/registry/', 'READ')):
            end = key[:-1] + chr(ord(key[-1]) + 1)
            self.etcd.call('/v3/auth/role/grant', {'name': role, 'perm': {'permType': kind, 'key': text(key), 'range_end': text(end)}})
        grants = self.etcd.call('/v3/kv/range', {'key': text('grantfs/grants/'), 'range_end': text('grantfs/grants0')})['kvs']
        self.audiences = sorted({base64.b64decode(one['key']).decode().rsplit('/', 1)[0] + '/' for one in grants})

    def run(self, *words):
        return subprocess.run([self.program, *words], env=self.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)

    def must(self, *words, allowed=(0, 3)):
        done = self.run(*words)
        if done.returncode not in allowed:
            raise SystemExit(f'{words}: {done.returncode}: {done.stderr}')
        return done

    def grow(self, number):
        """Adds hosts until there are so many. h0, whose user they share, has no agent, so nobody waits for it."""
        fresh = [f's{index}' for index in range(len(self.names), number)]
        self.etcd.log_in(f'{BASE}/administrator/fleet/administrator.json')
        value = text(json.dumps({'labels': {}}))
        for start in range(0, len(fresh), 100):
            self.etcd.call('/v3/kv/txn', {'success': [{'request_put': {'key': text(f'grantfs/registry/{name}'), 'value': value}} for name in fresh[start:start + 100]]})
        token = self.etcd.log_in(f'{BASE}/invitation')
        for start in range(0, len(fresh), 2500):
            part = subprocess.Popen(['python3', '-IB', '-c', f'import sys; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r}); import host; host.main()'],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            plan = {'hosts': fresh[start:start + 2500], 'ports': PORTS, 'token': token, 'lease': self.lease, 'audiences': self.audiences}
            part.stdin.write(json.dumps(plan) + '\n')
            part.stdin.flush()
            if part.stdout.readline() != 'ready\n':
                raise SystemExit('simulated hosts do not start')
            self.parts.append(part)
        self.names += fresh

    def requests(self):
        count = self.refused = 0
        for part in self.parts:
            part.stdin.write('\n')
            part.stdin.flush()
            told = json.loads(part.stdout.readline())
            if told['failed']:
                raise SystemExit(f'a simulated host has failed: {told["failed"]}')
            count += told['requests']
            self.refused += told['refused']
        return count

    def commit(self):
        self.etcd.log_in(f'{BASE}/administrator/fleet/administrator.json')
        times = []
        for number in range(40):
            before = time.monotonic()
            self.etcd.call('/v3/kv/put', {'key': text('grantfs/size'), 'value': text(str(number))})
            times.append(time.monotonic() - before)
        return 1000 * statistics.median(times)

    def revoke(self):
        """Milliseconds of the whole command, and from the record to the last host's word."""
        before = time.monotonic()
        done = self.must('revoke', '--fleet', 'x', '--json', '--timeout', '120', allowed=(0,))
        taken = time.monotonic() - before
        document = json.loads(done.stdout)
        hosts = (document[0] if isinstance(document, list) else document)['hosts']
        confirmed = {one['host']: one['milliseconds'] for one in hosts if one['state'] == 'confirmed'}
        others = {one['host']: one['state'] for one in hosts if one['state'] != 'confirmed'}
        missing = [name for name in self.names if name not in confirmed]
        if missing:
            raise SystemExit(f'{len(missing)} of {len(self.names)} hosts have not confirmed, such as {missing[0]}: {others.get(missing[0], "not waited for")}')
        return 1000 * taken, max(confirmed[name] for name in self.names)


def main():
    parser = argparse.ArgumentParser(prog='.ci/fleet-size', description='Measures how a revocation in a fleet spreads to many simulated hosts.')
    parser.add_argument('program', help=argparse.SUPPRESS)
    parser.add_argument('--hosts', default='100,250,500,1000', metavar='N,N…', help='how many, one after the other (100,250,500,1000)')
    parser.add_argument('--rounds', type=int, default=7, help='revocations for each (7); one more goes before them')
    parser.add_argument('--lease', type=int, default=15, metavar='SECONDS', help='of each host (15, as fleet init makes it)')
    parser.add_argument('--rest', type=int, default=10, metavar='SECONDS', help='how long the traffic at rest is counted (10)')
    parser.add_argument('--json', metavar='FILE', help='write what came of it')
    arguments = parser.parse_args()
    os.makedirs(BASE)
    fleet = Fleet(arguments.program, arguments.lease)
    rows = []
    print('| hosts | commit, ms | revocation, ms | highest | the hosts\' word, ms | requests at rest, a host and second | etcd at rest, processors |')
    print('| --- | --- | --- | --- | --- | --- | --- |')
    for number in sorted(int(one) for one in arguments.hosts.split(',')):
        fleet.grow(number)
        time.sleep(2)
        commit = fleet.commit()
        before, worked, begun = fleet.requests(), fleet.etcd.seconds(), time.monotonic()
        time.sleep(arguments.rest)
        traffic, busy = ((after - before) / (time.monotonic() - begun) for after, before in ((fleet.requests(), before), (fleet.etcd.seconds(), worked)))
        times = []
        for turn in range(arguments.rounds + 1):
            fleet.must('restore', '--fleet', 'x', '--timeout', '120', allowed=(0,))
            taken = fleet.revoke()
            if turn:
                times.append(taken)
        whole, word = [sorted(one) for one in zip(*times)]
        row = {'hosts': number, 'commit': commit, 'revocation': statistics.median(whole), 'highest': whole[-1], 'word': statistics.median(word), 'traffic': traffic / number, 'etcd': busy}
        rows.append(row)
        fleet.requests()
        if fleet.refused:
            print(f'etcd has refused {fleet.refused} requests so far, because it had too much to do', file=sys.stderr)
        print(f"| {number:,} | {commit:.1f} | {row['revocation']:.0f} | {row['highest']:.0f} | {row['word']:.0f} | {row['traffic']:.2f} | {busy:.2f} |", flush=True)
    if len(rows) > 1:
        first, last = rows[0], rows[-1]
        print(f"{(last['revocation'] - first['revocation']) / (last['hosts'] - first['hosts']):.2f} ms for each host more")
    if arguments.json:
        with open(arguments.json, 'w') as file:
            json.dump(rows, file, indent=1)
