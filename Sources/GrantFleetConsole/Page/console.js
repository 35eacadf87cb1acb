'use strict';
// Everything that comes from the server is set as text and never as markup; the page's policy (Content-Security-Policy, Trusted Types) would refuse anything else.

const element = id => document.getElementById(id);
const keyName = 'grantfs-key';
const shownAtMost = 200;

let key = sessionStorage.getItem(keyName);
let state = null;
let fleet = { hosts: [], grants: [], flaws: [] };
let changes = [];
let offset = 0;          // How much the server's clock is ahead of this one's.
let heard = 0;           // When the server answered last.
let open = null;         // The grant whose details are shown.
let standings = null;
let question = null;     // What is asked for now.
let announced = new Map();
let timer = 0;
let turns = 0;           // Counts looks: the answer of one that was overtaken is dropped.
let notice = null;       // What somebody has to be told for a while.

// MARK: asking the server

class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

async function call(path, body) {
  const options = { headers: { 'Grantfs-Key': key ?? '' }, credentials: 'same-origin', cache: 'no-store', redirect: 'error', signal: AbortSignal.timeout(8000) };
  if (body !== undefined) {
    options.method = 'POST';
    options.headers['Content-Type'] = 'application/json';
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(path, options);
  if (answer.status === 204) return null;
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, value.error ?? `it answers ${answer.status}`);
  return value;
}

async function logIn(token) {
  const answer = await call('/api/login', { token });
  key = answer.key;
  sessionStorage.setItem(keyName, key);
}

function logOut() {
  key = null;
  sessionStorage.removeItem(keyName);
  clearTimeout(timer);
  turns++;
  for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close();
  element('inside').hidden = element('leave').hidden = true;
  element('outside').hidden = false;
  health('', 'not logged in');
  element('token').focus();
}

async function begin() {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (token !== null) {
    // It stays neither in the address line nor in the history.
    history.replaceState(null, '', location.pathname);
    key = null;
  }
  try {
    if (!key) await logIn(token ?? '');
  } catch (error) {
    logOut();
    if (token !== null) element('login-error').textContent = error.message;
    return;
  }
  comeIn();
}

function comeIn() {
  state = null;
  element('outside').hidden = true;
  element('inside').hidden = element('leave').hidden = false;
  look();
}

async function look() {
  clearTimeout(timer);
  const turn = ++turns;
  try {
    const answer = await call('/api/state' + (state ? `?since=${encodeURIComponent(state.version)}` : ''));
    if (turn !== turns) return;
    heard = Date.now();
    if (answer) {
      state = answer;
      offset = answer.now - Date.now();
      fleet = answer.fleet ?? { hosts: [], grants: [], flaws: [] };
      changes = answer.changes;
    }
    if (open) await lookAtOpen();
    if (turn !== turns) return;
    show();
  } catch (error) {
    if (turn !== turns) return;
    if (error.status === 401 || error.status === 403) return logOut();
    health('bad', `the console does not answer: ${error.message}`);
  }
  const isMoving = changes.some(change => !change.over);
  timer = setTimeout(look, isMoving ? 120 : document.hidden ? 5000 : state && !state.fleet ? 200 : 1000);
}

async function lookAtOpen() {
  try {
    standings = await call(`/api/grant?id=${encodeURIComponent(open)}`);
  } catch (error) {
    if (error.status !== 404) throw error;
    standings = { id: open, hosts: [], isGone: true };
  }
}

// MARK: showing

function put(node, text) { if (node.textContent !== text) node.textContent = text; }

function health(kind, text) {
  document.querySelector('.dot').className = `dot ${kind}`;
  put(element('health-text'), text);
}

function show() {
  const { hosts, grants } = fleet;
  const live = hosts.filter(host => host.live).length;
  const lagging = hosts.filter(host => host.lags).length;
  const active = grants.filter(grant => grant.state === 'active').length;
  put(element('count-live'), `${live} of ${hosts.length}`);
  put(element('count-lagging'), String(lagging));
  element('count-lagging').className = lagging > 0 ? 'wait' : '';
  put(element('count-active'), String(active));
  put(element('count-withdrawn'), String(grants.length - active));
  if (notice && Date.now() > notice.until) notice = null;
  const failure = notice?.text ?? state.failure ?? (fleet.flaws?.length ? `etcd has something that is no grant: ${fleet.flaws[0]}` : null);
  element('failure').hidden = !failure;
  put(element('failure'), failure ? (state.failure && state.seen && !notice ? `${failure} What is shown is from ${clock(state.seen)}.` : failure) : '');
  if (!state.fleet) health('', state.failure ? 'the fleet is not heard' : 'looking…');
  else health(state.failure ? 'bad' : 'good', state.failure ? 'the fleet is not heard' : 'live');
  showGrants();
  showHosts();
  if (open) showDetail();
  announce();
}

// Local time in the form of ISO 8601, as the commands show it.
function isoDate(time) {
  const date = new Date(time);
  const two = number => String(number).padStart(2, '0');
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(time)}`;
}
function clock(time) {
  const date = new Date(time);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(number => String(number).padStart(2, '0')).join(':');
}
function secondsLeft(until) { return Math.max(0, Math.ceil((until - Date.now() - offset) / 1000)); }

// Rows are kept by what they are: what is read or has the focus stays where it is.
function rows(table, items, make, fill) {
  const body = table.tBodies[0];
  const known = new Map([...body.rows].map(row => [row.dataset.id, row]));
  let next = body.firstElementChild;
  for (const item of items) {
    let row = known.get(item.id);
    known.delete(item.id);
    if (!row) {
      row = document.createElement('tr');
      row.setAttribute('role', 'row');
      row.dataset.id = item.id;
      make(row);
    }
    if (row === next) next = next.nextElementSibling;
    else body.insertBefore(row, next);
    fill(row, item);
  }
  for (const row of known.values()) row.remove();
}

function cell(row, label, kind) {
  const made = document.createElement('td');
  made.setAttribute('role', 'cell');
  if (label) made.dataset.label = label;
  if (kind) made.className = kind;
  row.append(made);
  return made;
}

function child(parent, name, kind) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  parent.append(made);
  return made;
}

function mark(node, kind, text) {
  const name = `mark ${kind}`;
  if (node.className !== name) node.className = name;
  put(node, text);
}

const words = { revoke: 'Revoke', restore: 'Restore' };
const wanted = grant => grant.state === 'active' ? 'revoke' : 'restore';
const stateKind = grant => grant.state === 'active' ? 'good' : grant.state === 'expired' ? '' : 'bad';

function has(item, parts) {
  const text = element('filter').value.trim().toLowerCase();
  return text === '' || parts.some(part => part.toLowerCase().includes(text));
}

function limited(all, shown, note, none) {
  const part = shown.slice(0, shownAtMost);
  put(note, all.length === 0 ? none : shown.length === 0 ? `None of ${all.length} is shown.`
    : part.length < shown.length ? `${part.length} of ${shown.length} are shown: filter them.` : shown.length < all.length ? `${shown.length} of ${all.length} are shown.` : '');
  return part;
}

function showGrants() {
  const only = element('states').value;
  const kinds = { all: () => true, active: grant => grant.state === 'active', withdrawn: grant => grant.state !== 'active', open: grant => grant.waiting > 0 };
  const shown = fleet.grants.filter(grant => kinds[only](grant) && has(grant, [grant.name, grant.view, grant.path, grant.for, grant.state, grant.id]));
  const part = limited(fleet.grants, shown, element('grants-note'), state.fleet ? 'The fleet has no grants.' : 'Looking…');
  rows(element('grants'), part, row => {
    const name = cell(row);
    child(name, 'button', 'link').type = 'button';
    child(name, 'span', 'path');
    cell(row, 'View');
    cell(row, 'Access');
    child(cell(row), 'span');
    cell(row, 'For');
    child(cell(row, 'Hosts', 'number'), 'span');
    child(cell(row, null, 'end'), 'button').type = 'button';
    row.querySelector('.link').addEventListener('click', () => openDetail(row.dataset.id));
    row.querySelector('.end button').addEventListener('click', () => ask(row.dataset.id));
  }, (row, grant) => {
    const cells = row.cells;
    put(cells[0].firstElementChild, grant.name);
    put(cells[0].lastElementChild, grant.path);
    put(cells[1], grant.view);
    put(cells[2], grant.access);
    mark(cells[3].firstElementChild, stateKind(grant), grant.state);
    put(cells[4], grant.for);
    const all = grant.confirmed + grant.waiting + grant.gone;
    if (grant.waiting > 0) mark(cells[5].firstElementChild, 'wait', `${grant.waiting} of ${all} not yet`);
    else if (grant.problems > 0) mark(cells[5].firstElementChild, 'bad', `${grant.problems} of ${all} cannot`);
    else if (grant.state === 'active' && grant.gone > 0) mark(cells[5].firstElementChild, 'bad', `${grant.gone} of ${all} fenced`);
    else mark(cells[5].firstElementChild, all > 0 ? 'good' : '', all > 0 ? `all ${all}` : 'none');
    const button = cells[6].firstElementChild;
    put(button, words[wanted(grant)]);
    button.setAttribute('aria-label', `${words[wanted(grant)]} ${grant.name} in view ${grant.view}`);
  });
}

function hostWords(host) {
  if (!host.registered) return ['bad', host.live ? 'taken out, its lease lasts' : 'taken out'];
  if (!host.live) return ['bad', 'not heard of'];
  if (host.lags) return ['wait', 'behind'];
  if (host.problems > 0) return ['wait', `cannot do ${host.problems}`];
  return ['good', 'up to date'];
}

function showHosts() {
  const shown = fleet.hosts.filter(host => has(host, [host.id, host.labels, hostWords(host)[1]]));
  const part = limited(fleet.hosts, shown, element('hosts-note'), state.fleet ? 'The fleet has no hosts.' : 'Looking…');
  rows(element('hosts'), part, row => {
    cell(row);
    child(cell(row), 'span');
    cell(row, 'Lease', 'time');
    cell(row);
  }, (row, host) => {
    put(row.cells[0], host.id);
    mark(row.cells[1].firstElementChild, ...hostWords(host));
    put(row.cells[2], host.until ? `${secondsLeft(host.until)} s` : host.live ? 'lasts' : '–');
    put(row.cells[3], host.labels);
  });
}

// MARK: one grant on every host

function openDetail(id) {
  open = id;
  standings = null;
  showDetail();
  element('detail').showModal();
  element('detail-title').focus();
  look();
}

function standingWords(grant, row) {
  const isActive = grant.state === 'active';
  switch (row.standing) {
    case 'gone': return [isActive ? 'bad' : '', isActive ? 'fenced: shows nothing until its agent reaches etcd' : 'fenced: its lease is gone'];
    case 'waiting': {
      const until = row.until ? `, until ${clock(row.until)} at the most unless it renews its lease` : '';
      return ['wait', isActive ? `not yet: ${row.behind} behind` : `may still serve${until}`];
    }
    default: return row.problem ? ['bad', row.problem] : ['good', isActive ? 'serves it' : 'withdrawn'];
  }
}

function showDetail() {
  const grant = fleet.grants.find(grant => grant.id === open);
  const change = [...changes].reverse().find(change => change.id === open);
  if (!grant) {
    put(element('detail-note'), standings?.isGone ? 'The fleet has this grant no more.' : 'Looking…');
    element('detail-change').disabled = true;
    return;
  }
  element('detail-change').disabled = Boolean(change && !change.over);
  put(element('detail-title'), grant.name);
  element('detail-title').tabIndex = -1;
  const facts = [['State', grant.state], ['View', grant.view], ['Path', grant.path], ['Access', grant.access], ['For', grant.for],
    ['Rules', grant.rules || '–'], ['Expires', grant.expires ? isoDate(grant.expires) : 'never'], ['Changed', grant.by ? `by ${grant.by}` : '–'], ['Id', grant.id]];
  const list = element('detail-facts');
  while (list.children.length < facts.length * 2) list.append(document.createElement('dt'), document.createElement('dd'));
  facts.forEach(([name, text], index) => {
    put(list.children[2 * index], name);
    put(list.children[2 * index + 1], text);
  });
  const all = grant.confirmed + grant.waiting + grant.gone;
  put(element('detail-spread'), spreadWords(grant, change, all));
  element('detail-progress').max = Math.max(1, all);
  element('detail-progress').value = grant.confirmed + (grant.state === 'active' ? 0 : grant.gone);
  const button = element('detail-change');
  put(button, `${words[wanted(grant)]}…`);
  button.classList.toggle('danger', grant.state === 'active');
  const hosts = standings?.id === open ? standings.hosts.map(row => ({ ...row, id: row.host })) : [];
  const part = limited(hosts, hosts, element('detail-note'), standings ? 'It is for no host that is there.' : 'Looking…');
  rows(element('standings'), part, row => {
    cell(row);
    child(cell(row), 'span');
    cell(row, 'Took', 'time');
  }, (row, host) => {
    put(row.cells[0], host.host);
    mark(row.cells[1].firstElementChild, ...standingWords(grant, host));
    const told = change?.hosts.find(told => told.host === host.host);
    put(row.cells[2], told && told.state !== 'waiting' ? duration(told.milliseconds) : told ? 'waiting' : '');
  });
}

function duration(milliseconds) { return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`; }

function spreadWords(grant, change, all) {
  const isActive = grant.state === 'active';
  if (change?.failure) return change.failure;
  if (change && !change.recorded) return 'Being recorded…';
  if (grant.waiting === 0) {
    if (all === 0) return 'It is for no host.';
    const gone = grant.gone > 0 ? `, ${grant.gone} not heard of` : '';
    return (isActive ? `Confirmed by ${grant.confirmed} of ${all} hosts` : `Nobody serves it: confirmed by ${grant.confirmed} of ${all} hosts`) + gone + '.';
  }
  return isActive ? `${grant.waiting} of ${all} hosts have not opened it yet.` : `${grant.waiting} of ${all} hosts may still serve it.`;
}

// For whoever does not see the rows change.
function announce() {
  for (const change of changes) {
    const done = change.hosts.filter(host => host.state !== 'waiting').length;
    const text = change.failure ? change.failure
      : !change.over ? `${words[change.kind]} ${change.name}: ${done} of ${change.hosts.length} hosts`
        : done === change.hosts.length ? `${change.name}: all ${done} hosts have done it` : `${change.name}: ${change.hosts.length - done} hosts have not confirmed`;
    if (announced.get(change.number) === text) continue;
    const isNew = announced.has(change.number) || !change.over;
    announced.set(change.number, text);
    if (isNew) put(element('news'), text);
  }
}

// MARK: changing

function ask(id) {
  const grant = fleet.grants.find(grant => grant.id === id);
  if (!grant) return;
  const kind = wanted(grant);
  const all = grant.confirmed + grant.waiting + grant.gone;
  question = { id, kind, revision: grant.revision };
  put(element('confirm-title'), `${words[kind]} ${grant.name}?`);
  put(element('confirm-text'), kind === 'revoke'
    ? `Programs on ${all} ${all === 1 ? 'host' : 'hosts'} lose ${grant.path} in the view ${grant.view} at once, whatever they have open.`
    : `${grant.path} is shown again in the view ${grant.view}, ${grant.access}, to hosts: ${grant.for}.` + (grant.state === 'expired' ? ' It will not expire.' : ''));
  put(element('confirm-yes'), words[kind]);
  element('confirm-yes').classList.toggle('danger', kind === 'revoke');
  element('confirm').showModal();
  element('confirm-no').focus();
}

async function answer() {
  const { id, kind, revision } = question;
  element('confirm').close();
  try {
    await call(`/api/${kind}`, { id, revision });
    if (open !== id) openDetail(id);
    else look();
  } catch (error) {
    if (error.status === 401) return logOut();
    notice = { text: `Nothing was changed: ${error.message}.`, until: Date.now() + 15000 };
    show();
  }
}

element('login').addEventListener('submit', async event => {
  event.preventDefault();
  put(element('login-error'), '');
  try {
    await logIn(element('token').value.trim());
    element('token').value = '';
    comeIn();
  } catch (error) {
    put(element('login-error'), error.message);
    element('token').focus();
  }
});
element('leave').addEventListener('click', async () => {
  await call('/api/logout', {}).catch(() => {});
  logOut();
});
for (const id of ['filter', 'states']) element(id).addEventListener('input', () => state && show());
element('detail-close').addEventListener('click', () => element('detail').close());
element('detail').addEventListener('close', () => { open = null; standings = null; });
element('detail-change').addEventListener('click', () => ask(open));
element('confirm-no').addEventListener('click', () => element('confirm').close());
element('confirm-yes').addEventListener('click', answer);
setInterval(() => { if (key && state && Date.now() - heard > 5000 && !document.hidden) health('bad', `not heard since ${clock(heard)}`); }, 1000);
document.addEventListener('visibilitychange', () => { if (!document.hidden && key && state) look(); });
begin();
