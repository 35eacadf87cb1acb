"""Schedules of random faults in a fleet, with a history of what was said and read, which is judged afterwards. Run by `.ci/fleet-faults`."""
import argparse, json, os, random, shutil, signal, subprocess, sys, threading, time
from fleet import Fleet
from judge import history, judge
from reader import RECORD, now


class Administrator(threading.Thread):
    """Gives and takes back grants of its own, one after the other, and keeps what it was told."""

    def __init__(self, schedule, grants, seed):
        super().__init__()
        self.schedule, self.fleet, self.grants, self.random = schedule, schedule.fleet, grants, random.Random(seed)
        self.operations = []

    def run(self):
        try:
            while self.schedule.goes_on():
                self.turn(self.random.choice(self.grants))
                # Sometimes long enough that a disconnected host must have closed withdrawn grants.
                pause = self.random.choice((0, 0, 0.05, 0.3, 0.3, self.schedule.lease + 2))
                ends = time.monotonic() + pause
                while self.schedule.goes_on() and time.monotonic() < ends:
                    time.sleep(min(0.1, pause))
        except BaseException as error:
            self.schedule.failures.append(f'the administrator: {error!r}')

    def turn(self, grant):
        patience = self.random.choice((0.05, 0.3, 1, 3, 2 * self.schedule.lease))
        dies = self.random.random() < 0.15 and self.random.random() * 0.2
        name = self.fleet.grants[grant]
        if self.random.random() < 0.5:
            self.do('close', grant, dies, self.random.choice(('revoke', 'revoke', 'revoke', 'remove')), '--fleet', name, '--timeout', str(patience))
            return
        done = self.do('open', grant, dies, 'restore', '--fleet', name, '--timeout', str(patience))
        if done is not None and 'has no grant' in done:
            self.do('open', grant, dies, *self.fleet.granting(name), '--timeout', str(patience))

    def do(self, kind, grant, dies, *words):
        """Runs one command, with JSON; what it said on its standard error, or None where it was killed after that many seconds."""
        begin = now()
        process = subprocess.Popen(self.fleet.administering(*words, '--json'), env=self.fleet.administration, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        killed = False
        try:
            out, said = process.communicate(timeout=dies or 90)
        except subprocess.TimeoutExpired:
            killed = bool(dies)
            process.kill()
            out, said = process.communicate()
        end = now()
        if not killed and process.returncode not in (0, 1, 3):
            self.schedule.failures.append(f'{words}: {process.returncode}: {said}')
        status = None if killed or process.returncode not in (0, 1, 3) else process.returncode
        hosts = {}
        if status in (0, 3):
            document = json.loads(out)
            for one in document if isinstance(document, list) else [document]:
                hosts.update({host['host']: host['state'] for host in one['hosts']})
        self.operations.append({
            'kind': kind, 'grant': grant, 'begin': begin, 'end': end, 'status': status, 'hosts': hosts, 'command': ' '.join(words), 'said': said.strip().replace('\n', ' | '),
        })
        return None if killed else said


class Schedule:
    """Some seconds of faults, then a fleet that is whole again, then a judgement."""

    def __init__(self, fleet, seed, seconds, lease, plant=None):
        self.fleet, self.seed, self.seconds, self.lease, self.plant = fleet, seed, seconds, lease, plant
        self.random = random.Random(seed)
        self.events, self.failures, self.operations = [], [], []
        self.offsets = {host.name: os.path.getsize(host.reads) // RECORD.size * RECORD.size if os.path.exists(host.reads) else 0 for host in fleet.hosts}
        self.ends = time.monotonic() + seconds
        self.threads = []
        self.healing = 0

    def goes_on(self):
        return time.monotonic() < self.ends

    def note(self, text):
        self.events.append((now(), text))

    def later(self, seconds, body):
        """Undoes a fault after some time, or when the schedule is over."""
        def wait():
            time.sleep(max(0, min(seconds, self.ends - time.monotonic())))
            try:
                body()
            except Exception as error:
                self.failures.append(f'a fault that is undone: {error!r}')

        thread = threading.Thread(target=wait)
        thread.start()
        self.threads.append(thread)

    def run(self):
        administrators = [Administrator(self, [grant], f'{self.seed} {grant}') for grant in range(len(self.fleet.grants))]
        if self.plant:
            self.provoke(administrators[0])
        for one in administrators:
            one.start()
        faults = (
            (self.member_killed, 3), (self.member_stopped, 2), (self.member_alone, 2), (self.agent_killed, 3), (self.agent_stopped, 4), (self.daemon_killed, 3), (self.daemon_stopped, 4),
            (self.host_unplugged, 4), (self.host_muted, 3), (self.administrator_muted, 2))
        while self.goes_on():
            self.random.choices([fault for fault, _ in faults], [weight for _, weight in faults])[0]()
            time.sleep(self.random.choice((0.05, 0.3, 0.8, 1.5)))
        for thread in [*administrators, *self.threads]:
            thread.join()
        for one in administrators:
            self.operations += one.operations
        self.fleet.heal()
        self.note('everything is whole again')
        self.settle(administrators)
        return self.judge()

    def provoke(self, administrator):
        """Begins with a withdrawal in which the planted fault shows, so that finding it is no matter of luck."""
        grant = administrator.grants[0]
        name = self.fleet.grants[grant]
        done = administrator.do('open', grant, 0, 'restore', '--fleet', name, '--timeout', '5')
        if done is not None and 'has no grant' in done:
            administrator.do('open', grant, 0, *self.fleet.granting(name), '--timeout', '5')
        # Until readers have opened it.
        time.sleep(0.5)
        if self.plant == 'early-watermark':
            # Between a host's store and its mounts lie milliseconds, in which no reader may fall: here they are longer. What the kernel has of open files is read meanwhile.
            for host in self.fleet.hosts:
                self.daemon_stopped(host, self.lease / 6)
        else:
            self.host_unplugged(2 * self.lease + 2)
        administrator.do('close', grant, 0, 'revoke', '--fleet', name, '--timeout', '5')
        if self.plant == 'no-fence':
            time.sleep(self.lease + 1)

    # Faults. Each undoes itself. A second one of its kind in the same place does nothing.

    def begin(self, node, kind):
        """False when the node has such a fault already."""
        if kind in node.__dict__.setdefault('faults', set()):
            return False
        node.faults.add(kind)
        return True

    def member(self):
        leaders = [one for one in self.fleet.members if one.leads()] if self.random.random() < 0.5 else []
        return (leaders or [self.random.choice(self.fleet.members)])[0]

    def member_killed(self):
        member, pause = self.member(), self.random.uniform(0.2, 4)
        if not self.begin(member, 'process'):
            return
        self.note(f'{member.name} of etcd is killed, for {pause:.1f} s')
        member.process.kill()
        member.process.wait()

        def start():
            member.start(self.fleet.members, self.fleet.base)
            member.faults.discard('process')

        self.later(pause, start)

    def stop(self, node, pid, what, pause):
        self.note(f'{what} stands still for {pause:.1f} s')
        self.fleet.signal(pid, signal.SIGSTOP)

        def go_on():
            self.fleet.signal(pid, signal.SIGCONT)
            node.faults.discard('process')

        self.later(pause, go_on)

    def member_stopped(self):
        member = self.member()
        if self.begin(member, 'process'):
            self.stop(member, member.process.pid, f'{member.name} of etcd', self.random.uniform(0.2, 4))

    def member_alone(self):
        member, pause = self.member(), self.random.uniform(0.5, 4)
        if not self.begin(member, 'network'):
            return
        others = [one for one in self.fleet.members if one is not member and self.random.random() < 0.8]
        self.note(f'what {member.name} sends to {", ".join(one.name for one in others) or "nobody"} gets lost, for {pause:.1f} s')
        for other in others:
            member.mute(other)

        def heal():
            for other in others:
                member.mute(other, False)
            member.faults.discard('network')

        self.later(pause, heal)

    def agent_killed(self):
        host, pause = self.random.choice(self.fleet.hosts), self.random.choice((0, 0.1, 1, 3, 7))
        if not self.begin(host, 'process'):
            return
        self.note(f'the agent of {host.name} is killed, for {pause} s')
        host.kill_agent()

        def start():
            host.start_agent()
            host.faults.discard('process')

        self.later(pause, start)

    def agent_stopped(self):
        host = self.random.choice(self.fleet.hosts)
        if self.begin(host, 'process'):
            self.stop(host, host.agent.pid, f'the agent of {host.name}', self.random.choice((0.1, 0.5, 2, 4, 7)))

    def daemon_killed(self):
        host = self.random.choice(self.fleet.hosts)
        if not self.begin(host, 'daemon'):
            return
        pid = host.daemon()
        self.note(f'the daemon of {host.name}, {pid}, is killed')
        if pid:
            self.fleet.signal(pid, signal.SIGKILL)
        if 'recover' in host.options.split(','):
            host.faults.discard('daemon')
            return

        def mount():
            done = host.mount_again()
            self.note(f'the mount of {host.name} is made again: {done.returncode} {done.stderr.strip()}')
            if done.returncode:
                self.failures.append(f'no mount on {host.name}: {done.stderr}')
            host.faults.discard('daemon')

        self.later(self.random.choice((0, 0.5, 2)), mount)

    def daemon_stopped(self, host=None, pause=None):
        """Not for longer than a part of what is left of a lease when the fence shuts: what the kernel has of open files, a daemon that stands still cannot take away (docs/fleet.md)."""
        host = host or self.random.choice(self.fleet.hosts)
        if not self.begin(host, 'daemon'):
            return
        pid = host.daemon()
        if not pid:
            host.faults.discard('daemon')
            return
        pause = pause or self.random.uniform(0.1, self.lease / 6)
        self.note(f'the daemon of {host.name}, {pid}, stands still for {pause:.1f} s')
        self.fleet.signal(pid, signal.SIGSTOP)

        def go_on():
            self.fleet.signal(pid, signal.SIGCONT)
            host.faults.discard('daemon')

        self.later(pause, go_on)

    def host_unplugged(self, pause=None):
        host, pause = self.random.choice(self.fleet.hosts), pause or self.random.choice((0.5, 2, 4, 7, 10))
        if not self.begin(host, 'network'):
            return
        self.note(f'{host.name} is unplugged for {pause} s')
        host.unplug()

        def plug():
            host.unplug(False)
            host.faults.discard('network')

        self.later(pause, plug)

    def muted(self, node, pause):
        if not self.begin(node, 'network'):
            return
        members = self.random.sample(self.fleet.members, self.random.randrange(1, 4))
        away = [(node, one) if self.random.random() < 0.5 else (one, node) for one in members]
        self.note('lost is what is sent ' + ', '.join(f'by {one.name} to {other.name}' for one, other in away) + f', for {pause:.1f} s')
        for one, other in away:
            one.mute(other)

        def heal():
            for one, other in away:
                one.mute(other, False)
            node.faults.discard('network')

        self.later(pause, heal)

    def host_muted(self):
        self.muted(self.random.choice(self.fleet.hosts), self.random.uniform(0.5, 9))

    def administrator_muted(self):
        self.muted(self.fleet.administrator, self.random.uniform(0.3, 3))

    # Conditions at the end.

    def settle(self, administrators):
        """Once everything is whole again each grant is as the last command that is known to have been taken has left it, and each host shows it so in time."""
        begun = time.monotonic()
        limit = begun + 2 * self.lease + 20
        while True:
            done = self.fleet.administer('list', '--fleet', '--all', '--json')
            if done.returncode == 0:
                break
            if time.monotonic() > limit:
                self.failures.append(f'the fleet is not to be read: {done.stderr}')
                return
            time.sleep(0.3)
        states = {one['name']: one['state'] for one in json.loads(done.stdout)}
        for grant, name in enumerate(self.fleet.grants):
            mine = [one for one in self.operations if one['grant'] == grant]
            known = [index for index, one in enumerate(mine) if one['status'] in (0, 3)]
            if known and all(one['status'] in (0, 3) or one['kind'] == mine[known[-1]]['kind'] for one in mine[known[-1]:]):
                isOpen = mine[known[-1]]['kind'] == 'open'
                if isOpen != (states.get(name) == 'active'):
                    self.failures.append(f'{name} is {states.get(name)} in the end, after “{mine[known[-1]]["command"]}”')
        while True:
            wrong = self.differences(states)
            if not wrong:
                break
            if time.monotonic() > limit:
                self.failures += wrong
                break
            time.sleep(0.1)
        self.healing = time.monotonic() - begun
        for host in self.fleet.hosts:
            self.failures += host.failures
            host.failures = []

    def differences(self, states):
        """Where what is read now, each time anew, is not what the fleet says."""
        wrong = []
        for host in self.fleet.hosts:
            if host.reader.poll() is not None:
                wrong.append(f'the reader of {host.name} has ended')
                continue
            last = {}
            size = os.path.getsize(host.reads) // RECORD.size * RECORD.size
            with open(host.reads, 'rb') as file:
                file.seek(max(0, size - 400 * RECORD.size))
                for begun, _, _, grant, way, result in RECORD.iter_unpack(file.read(size - file.tell())):
                    if way == 0:
                        last[grant] = (begun, result)
            for grant, name in enumerate(self.fleet.grants):
                begun, result = last.get(grant, (0, 'nothing'))
                wanted = states.get(name) == 'active' and self.fleet.serves(host, name)
                if now() - begun > 2e9:
                    wrong.append(f'nothing of {name} is read on {host.name}: a read hangs')
                elif wanted != (result == 0):
                    wrong.append(f'{name} is {states.get(name)}, and reading it on {host.name} gives {result}')
        return wrong

    def judge(self):
        reads = {host.name: (host.reads, self.offsets[host.name]) for host in self.fleet.hosts}
        wrong, counts = judge(self.operations, reads, self.fleet.grants, self.lease)
        return wrong, counts, reads


def main():
    parser = argparse.ArgumentParser(prog='.ci/fleet-faults', description='Kills, stops and cuts off parts of a fleet, and judges what could be read meanwhile.')
    parser.add_argument('program', help=argparse.SUPPRESS)
    parser.add_argument('--schedules', type=int, default=10, help='how many (10)')
    parser.add_argument('--time', type=float, default=20, metavar='SECONDS', help='of faults in each (20)')
    parser.add_argument('--seed', type=int, help='of the first; those after it count up')
    parser.add_argument('--lease', type=int, default=5, metavar='SECONDS', help=argparse.SUPPRESS)
    parser.add_argument('--plant', choices=('no-fence', 'early-watermark'), help='put a fault into grantfs, which has to be found')
    parser.add_argument('--keep', metavar='DIRECTORY', help='where the histories of what failed are kept (a new one in /var/tmp)')
    parser.add_argument('--json', metavar='FILE', help='write what came of it')
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 31)
    plant = {'no-fence': {'GRANTFS_TEST_NO_FENCE': '1'}, 'early-watermark': {'GRANTFS_TEST_EARLY_WATERMARK': '1'}}.get(arguments.plant, {})
    # Gone with the namespaces, which is to say at the end.
    base = '/run/grantfs-faults'
    os.makedirs(base)
    fleet = Fleet(arguments.program, base, plant)
    fleet.start(arguments.lease)
    results = []
    for number in range(seed, seed + arguments.schedules):
        time.sleep(0.5)
        schedule = Schedule(fleet, number, arguments.time, arguments.lease, arguments.plant)
        wrong, counts, reads = schedule.run()
        told = [f'{one["host"]}: {one["grant"]} could be read {one["way"]}: {one["why"]}' for one in wrong] + schedule.failures
        commands = [sum(one['status'] == status for one in schedule.operations) for status in (0, 3, 1, None)]
        print(f'seed {number}: {"FAIL" if told else "ok"}: {len(schedule.events) - 1} faults; of {len(schedule.operations)} commands {commands[0]} confirmed, {commands[1]} waited for a host, '
              f'{commands[2]} failed, {commands[3]} killed; {counts[1]} of {counts[0]} reads succeeded; whole after {schedule.healing:.1f} s', flush=True)
        results.append({'seed': number, 'wrong': wrong, 'failures': schedule.failures, 'faults': len(schedule.events) - 1, 'commands': commands, 'reads': counts})
        for text in told:
            print(f'    {text}', flush=True)
        if told:
            keep = arguments.keep or f'/var/tmp/grantfs-faults.{seed}'
            os.makedirs(keep, exist_ok=True)
            with open(f'{keep}/{number}.history', 'w') as file:
                file.write(history(schedule.operations, schedule.events, reads, fleet.grants, wrong))
            for log in [name for name in os.listdir(base) if name.endswith('.log')]:
                shutil.copy(f'{base}/{log}', keep)
            print(f'    the history is {keep}/{number}.history', flush=True)
            break
        for host in fleet.hosts:
            # The reader adds at the end, wherever that is.
            os.truncate(host.reads, 0)
    failed = sum(bool(one['wrong'] or one['failures']) for one in results)
    print(f'{len(results)} schedules, {failed} failed')
    if arguments.json:
        with open(arguments.json, 'w') as file:
            json.dump(results, file)
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
