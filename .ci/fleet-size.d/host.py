"""Simulated hosts of a fleet: towards etcd each does what `grantfs agent` does, and it has neither a store nor mounts.

A connection for its requests and one for its watch, a lease, a renewal each fifth of it (two requests), and after each change that concerns it one request that reads its
grants and one that says how far it is. As in the agent, but for: one user of etcd for all hosts, and nothing is written down.
"""
import asyncio, base64, json, random, sys, time


def text(value):
    return base64.b64encode(value.encode()).decode()


def after(prefix):
    return text(prefix[:-1] + chr(ord(prefix[-1]) + 1))


class Refused(Exception):
    """etcd has too much to do, says so, and an agent asks again five seconds later."""


class Connection:
    """HTTP/1.1 to one member, one request at a time."""

    def __init__(self, port, token):
        self.port, self.token, self.reader = port, token, None
        self.lock = asyncio.Lock()
        self.sent = 0

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection('127.0.0.1', self.port, limit=1 << 22)

    def send(self, path, body):
        body = json.dumps(body).encode()
        self.sent += 1
        self.writer.write(f'POST {path} HTTP/1.1\r\nHost: e\r\nAuthorization: {self.token}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n'.encode() + body)

    async def head(self):
        head = (await self.reader.readuntil(b'\r\n\r\n')).lower()
        line, *rest = head.split(b'\r\n')
        for field in rest:
            if field.startswith(b'content-length:'):
                return line, int(field[15:])
        return line, None

    async def chunk(self):
        size = int(await self.reader.readline(), 16)
        data = await self.reader.readexactly(size + 2)
        return data[:-2]

    async def call(self, path, body):
        async with self.lock:
            if self.reader is None:
                await self.open()
            self.send(path, body)
            line, length = await self.head()
            if length is not None:
                data = await self.reader.readexactly(length)
            else:
                data = b''
                while part := await self.chunk():
                    data += part
            if line.startswith((b'http/1.1 503', b'http/1.1 429')):
                raise Refused(data.decode())
            if not line.startswith(b'http/1.1 200'):
                raise OSError(f'{line.decode()}: {data.decode()}')
            return json.loads(data)


class Host:
    def __init__(self, name, port, token, lease, audiences):
        self.name, self.lease, self.audiences = name, lease, audiences
        self.requests, self.watch = Connection(port, token), Connection(port, token)
        self.agent, self.state, self.registry, self.none = (text(f'grantfs/{kind}') for kind in (f'hosts/{name}/agent', f'hosts/{name}/state', f'registry/{name}', f'hosts/{name}/none'))
        self.instance = text(f'{random.getrandbits(64):016x}')
        self.id = random.getrandbits(62)
        self.stored = self.wanted = self.refused = 0
        self.changed = asyncio.Event()

    async def start(self):
        await self.requests.call('/v3/lease/grant', {'ID': str(self.id), 'TTL': str(self.lease)})
        await self.requests.call('/v3/kv/txn', {'success': [{'request_put': {'key': self.agent, 'value': self.instance, 'lease': str(self.id)}}]})
        found = await self.requests.call('/v3/kv/txn', {'success': [{'request_range': {'key': self.registry}}]})
        self.registered = found['responses'][0]['response_range']['kvs'][0]['mod_revision']
        await self.apply()
        await self.watch.open()
        self.watch.send('/v3/watch', {'create_request': {'key': text('grantfs/bell'), 'start_revision': str(self.stored + 1)}})
        line, _ = await self.watch.head()
        if not line.startswith(b'http/1.1 200'):
            raise OSError(line.decode())
        self.tasks = [asyncio.create_task(one()) for one in (self.renewing, self.listening, self.applying)]

    async def until_taken(self, action):
        while True:
            try:
                return await action()
            except Refused:
                self.refused += 1
                await asyncio.sleep(5)

    async def renewing(self):
        # Not all at once.
        await asyncio.sleep(random.random() * self.lease / 5)
        while True:
            due = time.monotonic() + self.lease / 5
            await self.until_taken(self.renew)
            await asyncio.sleep(max(0, due - time.monotonic()))

    async def renew(self):
        await self.requests.call('/v3/lease/keepalive', {'ID': str(self.id)})
        await self.requests.call('/v3/kv/txn', {
            'compare': [{'key': self.agent, 'target': 'VALUE', 'result': 'EQUAL', 'value': self.instance}],
            'success': [{'request_range': {'key': key}} for key in (text('grantfs/format'), text('grantfs/bell'), self.registry, self.state)] + [{'request_delete_range': {'key': self.none}}],
            'failure': [{'request_range': {'key': self.agent}}]})

    async def listening(self):
        while line := await self.watch.chunk():
            result = json.loads(line).get('result', {})
            if result.get('events'):
                self.wanted = max(self.wanted, *(int(one['kv']['mod_revision']) for one in result['events']))
                self.changed.set()

    async def applying(self):
        while True:
            await self.changed.wait()
            self.changed.clear()
            if self.stored < self.wanted:
                await self.until_taken(self.apply)

    async def apply(self):
        answer = await self.requests.call('/v3/kv/txn', {
            'compare': [{'key': self.registry, 'target': 'MOD', 'result': 'EQUAL', 'mod_revision': self.registered}],
            'success': [{'request_range': {'key': text(one), 'range_end': after(one)}} for one in self.audiences],
            'failure': [{'request_range': {'key': self.registry}}]})
        if not answer.get('succeeded'):
            raise OSError(f'{self.name} is not what it was registered as')
        self.stored = int(answer['header']['revision'])
        state = json.dumps({'clock': 0, 'problems': {}, 'revision': self.stored, 'version': 'simulated'})
        await self.requests.call('/v3/kv/txn', {
            'compare': [{'key': self.agent, 'target': 'VALUE', 'result': 'EQUAL', 'value': self.instance}],
            'success': [{'request_put': {'key': self.state, 'value': text(state), 'lease': str(self.id)}}]})


async def run(plan):
    hosts = [Host(name, plan['ports'][number % len(plan['ports'])], plan['token'], plan['lease'], plan['audiences']) for number, name in enumerate(plan['hosts'])]
    limit = asyncio.Semaphore(20)

    async def start(host):
        async with limit:
            await host.until_taken(host.start)

    await asyncio.gather(*(start(host) for host in hosts))
    print('ready', flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        # The number of requests, and the failed hosts: a command would wait for a silent host.
        failed = [str(task.exception()) for host in hosts for task in host.tasks if task.done()]
        print(json.dumps({'requests': sum(host.requests.sent + host.watch.sent for host in hosts), 'refused': sum(host.refused for host in hosts), 'failed': failed[:3]}), flush=True)


def main():
    asyncio.run(run(json.loads(sys.stdin.readline())))
