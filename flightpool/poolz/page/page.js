// The page asks for state.json once a second while it is seen, and changes in place what has
// changed: the focus, the selection and a reader's place stay. It keeps nothing of its own but
// the latest state.

const numbers = new Intl.NumberFormat("en"); // made for each number it would take longer than all the rest of a state
function whole(n) { return numbers.format(Math.round(n)); }
function milliseconds(ms) {
  if (ms < 1) return (ms * 1000).toFixed(0) + " µs";
  if (ms < 10) return ms.toFixed(1) + " ms";
  if (ms < 1000) return ms.toFixed(0) + " ms";
  return duration(ms / 1000);
}
function duration(s) {
  if (s < 1) return milliseconds(s * 1000);
  if (s < 60) return s.toFixed(s < 10 ? 1 : 0) + " s";
  const part = (n, big, m, small) => Math.floor(n / m) + " " + big + (Math.floor(n % m) ? " " + Math.floor(n % m) + " " + small : "");
  if (s < 3600) return part(s, "min", 60, "s");
  if (s < 86400) return part(s / 60, "h", 60, "min");
  return part(s / 3600, "d", 24, "h");
}
function clock(text) { return new Date(text).toLocaleTimeString("en-GB"); }
function seconds(later, earlier) { return Math.max(0, (Date.parse(later) - Date.parse(earlier)) / 1000); }

const byId = id => document.getElementById(id);

function setText(node, text) { if (node.textContent !== text) node.textContent = text; }
function setClass(node, name) { if (node.className !== name) node.className = name; }

// fill makes the rows of a table those of items: a cell is a text, or {text, class, title, make,
// draw}. Rows are kept by key, so that they stay the same ones while their texts change. Items
// of one key, such as names that differ in what is no Unicode, have a row each.
function fill(table, items, key, cells, empty) {
  const body = table.tBodies[0], rows = new Map(), seen = new Map();
  for (const row of body.rows) rows.set(row.dataset.key, row);
  items.forEach((item, i) => {
    const own = String(key(item, i)), times = (seen.get(own) || 0) + 1;
    seen.set(own, times);
    const name = times + " " + own;
    let row = rows.get(name);
    rows.delete(name);
    const wanted = cells(item);
    if (!row) {
      row = document.createElement("tr");
      row.dataset.key = name;
      for (const cell of wanted) {
        const node = document.createElement(cell && cell.head ? "th" : "td");
        if (cell && cell.head) node.scope = "row";
        if (cell && cell.make) node.append(cell.make());
        row.append(node);
      }
    }
    wanted.forEach((cell, c) => {
      const node = row.cells[c], is = typeof cell === "object" ? cell : { text: cell };
      const align = table.tHead.rows[0].cells[c].className;
      setClass(node, (is.class || "") + (align ? " " + align : ""));
      if (is.draw) is.draw(node.firstChild); else setText(node, is.text);
      if (is.title !== undefined && node.title !== is.title) node.title = is.title;
    });
    if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] || null);
  });
  for (const row of rows.values()) row.remove();
  if (!items.length) {
    const row = body.insertRow();
    row.dataset.key = "";
    const cell = row.insertCell();
    cell.colSpan = table.tHead.rows[0].cells.length;
    cell.className = "none";
    cell.textContent = empty;
  }
}

// facts shows numbers with their names.
function facts(list, pairs) {
  while (list.children.length > pairs.length) list.lastChild.remove();
  pairs.forEach(([label, value, key], i) => {
    let row = list.children[i];
    if (!row) {
      row = document.createElement("div");
      row.append(document.createElement("dt"), document.createElement("dd"));
      list.append(row);
    }
    setText(row.children[0], label);
    setText(row.children[1], whole(value));
    row.children[1].dataset.count = key;
  });
}

const COUNTS = [
  ["calls", "Calls"], ["failures", "Calls that failed"], ["retries", "Repetitions"], ["sessions", "Sessions and transactions"],
  ["acquired", "Loans"], ["waited", "Loans after a wait"], ["timeouts", "Waits timed out"], ["canceled", "Waits given up"],
  ["failed_waits", "Waits that failed"], ["rejected", "Callers refused"], ["opens", "Opens"], ["open_failures", "Opens that failed"],
  ["cancels_confirmed", "Cancels confirmed"], ["cancels_unconfirmed", "Cancels unconfirmed"], ["checks", "Health checks"],
  ["check_failures", "Checks that failed"], ["resets", "Sessions cleaned"], ["reset_failures", "Sessions not cleaned"],
  ["rolled_back", "Rolled back on return"], ["leaks", "Leaks"], ["hook_failures", "Hooks that panicked"],
];
const TIMES = [["wait", "Wait for a connection"], ["hold", "Loan"], ["open", "Open"], ["first_batch", "First rows"], ["call", "Call"]];

let range = "5m", paused = false, charts = null;
const wantedSource = () => { try { return decodeURIComponent(location.hash.slice(1)); } catch { return ""; } };

function showSources(state) {
  const current = state.details ? state.details.source : "";
  fill(byId("sources"), state.sources, s => s.name, s => [
    { head: true, make: () => { const a = document.createElement("a"); a.href = "#" + encodeURIComponent(s.name); return a; },
      draw: a => {
        setText(a, s.name);
        if (s.name === current) a.setAttribute("aria-current", "true"); else a.removeAttribute("aria-current");
      }, title: s.target ? s.kind + " " + s.target : s.kind },
    s.healthy ? { text: "healthy", class: "good" } :
      { text: "unhealthy for " + duration(seconds(state.now, s.unhealthy_since)) + (s.unhealthy_reason ? ": " + s.unhealthy_reason : ""), class: "bad" },
    { make: makeSpark, draw: svg => drawSpark(svg, s.trend, s.now.max) },
    whole(s.now.in_use), whole(s.now.idle), whole(s.now.opening), whole(s.now.max),
    { text: whole(s.now.waiting), class: s.now.waiting ? "bad" : "" }, whole(s.counts.calls), whole(s.counts.failures),
  ], "No pool was added. Page.Add shows one.");
  state.sources.forEach((s, i) => setClass(byId("sources").tBodies[0].rows[i], s.name === current ? "current" : ""));
}

function showDetails(state) {
  byId("details").hidden = !state.details;
  if (!state.details) return;
  const d = state.details, source = state.sources.find(s => s.name === d.source);
  setText(byId("details-title"), d.source);
  setText(byId("details-note"), [source.kind === "pool" ? "pool" : "server, " + source.kind, source.target].filter(Boolean).join(" of ") +
    (source.last_open_error ? "; the latest open failed: " + source.last_open_error : ""));
  charts = charts || makeCharts(byId("charts"));
  for (const view of charts) {
    view.figure.hidden = !d.samples;
    drawChart(view, d, range);
  }
  facts(byId("totals"), COUNTS.filter(([key]) => key in source.counts).map(([key, label]) => [label, source.counts[key], key]));
  facts(byId("closed"), Object.entries(source.closed).sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).map(([reason, n]) => [reason, n, "closed_" + reason]));
  byId("times-part").hidden = !d.times;
  if (d.times) {
    fill(byId("times"), TIMES, ([key]) => key, ([key, label]) => {
      const t = d.times[key], show = s => t.count ? duration(s) : "–";
      return [{ head: true, text: label }, whole(t.count), show(t.mean), show(t.p50), show(t.p99), show(t.max)];
    }, "");
  }
  byId("users-part").hidden = !d.users;
  if (d.users) {
    fill(byId("users"), d.users, u => u.user, u => [{ head: true, text: u.user }, whole(u.now.in_use), whole(u.now.idle), whole(u.now.waiting), whole(u.counts.acquired),
      whole(u.counts.timeouts), whole(u.counts.rejected), whole(u.counts.calls), whole(u.counts.failures), duration(u.wait_p99)], "Nobody has a pool here yet.");
  }
  showConnections(state, d, source);
}

// drawBorrower shows who has a connection, and on demand where it was borrowed.
function drawBorrower(node, text, stack) {
  if (!stack) { setText(node, text); return; }
  let box = node.firstElementChild;
  if (!box) {
    box = document.createElement("details");
    box.append(document.createElement("summary"), document.createElement("ol"));
    node.replaceChildren(box);
  }
  const [summary, list] = box.children;
  setText(summary, text || "unknown");
  while (list.children.length > stack.length) list.lastChild.remove();
  stack.forEach((frame, i) => {
    if (!list.children[i]) list.append(document.createElement("li"));
    setText(list.children[i], frame);
  });
}

function showConnections(state, d, source) {
  const notes = [d.open > d.connections.length ? whole(d.connections.length) + " of " + whole(d.open) : whole(d.open) + " open"];
  if (!d.traced) notes.push(source.kind === "pool" ? "without Page.Tracer nobody knows borrowers and statements" : "without Page.RegistryTracer nobody knows borrowers and statements");
  setText(byId("connections-note"), notes.join("; "));
  const known = d.traced ? "" : "unknown";
  fill(byId("connections"), d.connections, c => c.id, c => [
    String(c.id),
    { text: c.state, class: c.state === "idle" ? "soft" : "" },
    duration(seconds(state.now, c.used)),
    { make: () => document.createElement("div"), draw: node => drawBorrower(node, [c.user, c.borrower].filter(Boolean).join(" · ") || (c.state === "idle" ? "" : known), c.stack) },
    { text: [c.op, c.statement].filter(Boolean).join(" · ") || known, class: "text", title: c.statement || "" },
    c.running ? { text: duration(c.took) + ", runs", class: "" } : c.op ? duration(c.took || 0) : "",
    duration(seconds(state.now, c.opened)),
    c.expires ? duration(seconds(c.expires, state.now)) : "never",
    whole(c.loans),
  ], "No connection is open.");
}

function showRest(state) {
  byId("budgets-part").hidden = !state.budgets.length;
  const number = n => n === undefined ? "" : whole(n);
  fill(byId("budgets"), state.budgets, b => b.kind + b.name, b => [
    { head: true, text: b.name }, b.kind === "leases" ? "connections" : "opens per second",
    b.degraded ? { text: "the keeper cannot be reached", class: "bad" } : { text: "well", class: "good" },
    number(b.now.limit), number(b.now.used), number(b.now.in_use), number(b.now.waiting), number(b.counts.granted), number(b.counts.denied), number(b.counts.fallbacks),
  ], "");
  setText(byId("slow-note"), state.slower_than < 0 ? "none are looked for" : "longer than " + duration(state.slower_than) + ", of pools and registries with the page’s tracer");
  fill(byId("slow"), state.slow, c => c.source + c.op + c.took + c.wait, c => [
    clock(c.at), [c.source, c.user].filter(Boolean).join(" · "), c.op, { text: c.statement, class: "text", title: c.statement }, duration(c.took), duration(c.wait), duration(c.first_batch), whole(c.rows), { text: c.error || "", class: "bad" },
  ], "None so far.");
  fill(byId("events"), state.events, e => e.source + e.text, e => [
    clock(e.last), e.source, { text: e.text, class: e.grave ? "bad wrap" : "wrap" }, whole(e.count),
  ], "None so far.");
}

function say(text, bad) {
  setText(byId("status"), text);
  setClass(byId("status"), bad ? "bad" : "");
}

let asking = null;

// ask asks once; an answer that a later question has overtaken is not shown.
async function ask() {
  if (asking) asking.abort();
  const mine = asking = new AbortController();
  const late = setTimeout(() => mine.abort(), 10000);
  try {
    const answer = await fetch("state.json?" + new URLSearchParams({ source: wantedSource(), range }), { signal: mine.signal, cache: "no-store" });
    if (!answer.ok) throw new Error("the program answers " + answer.status);
    const state = await answer.json();
    if (asking !== mine) return;
    showSources(state);
    showDetails(state);
    showRest(state);
    const sick = state.sources.filter(s => !s.healthy).map(s => s.name);
    say(sick.length ? "Unhealthy: " + sick.join(", ") : paused ? "Paused" : "Live", sick.length > 0);
    document.title = (sick.length ? "! " : "") + "Pools";
    document.documentElement.dataset.shown = state.now;
  } catch (failure) {
    if (asking === mine) say("No answer from the program; what is shown is old", true);
  } finally {
    clearTimeout(late);
    if (asking === mine) asking = null;
  }
}

setInterval(() => { if (!paused && !document.hidden && !asking) ask(); }, 1000);
document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) ask(); });
addEventListener("hashchange", () => { if (location.hash !== "#details") ask(); });
byId("skip").addEventListener("click", event => { event.preventDefault(); byId("details").focus(); });
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  if (paused) say("Paused"); else ask();
});
for (const input of document.getElementsByName("range")) input.addEventListener("change", () => { range = input.value; ask(); });
ask();
