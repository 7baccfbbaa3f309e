"use strict";
// The live page of a fleet's server. It asks for /status.json every two seconds and shows it.
// Names come from files and from gateways, so they are only ever set as text.

const EVERY = 2000; // milliseconds between two requests
const PATIENCE = 8000; // milliseconds for an answer

const GATEWAY_STATES = { // a sign and whether it needs attention: never a colour alone
  "answered": ["✓", false],
  "waiting": ["…", false],
  "silent": ["!", true],
  "not connected": ["×", true],
  "revoked": ["–", false],
};
const JOB_STATES = {
  "not begun": "The job has not begun.",
  "waiting": "Waiting for gateways to connect.",
  "asking": "Asking vehicles.",
  "done": "The job is done.",
  "failed": "The job has failed.",
};

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const place = (id) => document.getElementById(id);

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null) continue;
    if (name === "text") made.textContent = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function drawing(tag, properties) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) made.setAttribute(name, value);
  return made;
}

// What is unchanged is left alone: screen readers, selections and scroll positions stay.
const shown = new Map();
function fill(id, ...nodes) {
  const holder = element("div", {}, ...nodes);
  if (shown.get(id) === holder.innerHTML) return;
  shown.set(id, holder.innerHTML);
  place(id).replaceChildren(...holder.childNodes);
}

function say(id, text) {
  if (place(id).textContent !== text) place(id).textContent = text;
}

function number(value) {
  return Number.isFinite(value) ? whole.format(value) : "unknown";
}

function duration(seconds) {
  if (!Number.isFinite(seconds)) return "unknown";
  const steps = [[2 * 86400, 86400, "days"], [5400, 3600, "h"], [90, 60, "min"], [0, 1, "s"]];
  const [, length, unit] = steps.find(([least]) => seconds >= least) || steps[3];
  return `${Math.round(seconds / length)} ${unit}`;
}

function sentence(text) {
  const ended = /[.!?]$/.test(text) ? text : `${text}.`;
  return ended.charAt(0).toUpperCase() + ended.slice(1);
}

function ago(time, now) {
  if (!time) return "never";
  const seconds = Math.max(0, (now - Date.parse(time)) / 1000);
  return seconds < 5 ? "just now" : `${duration(seconds)} ago`;
}

function clock(time) {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return String(time);
  const sameDay = date.toDateString() === new Date().toDateString();
  return sameDay ? date.toLocaleTimeString() : date.toLocaleString();
}

function bytes(count) {
  if (!Number.isFinite(count)) return "unknown";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${short.format(count)} ${units[unit]}`;
}

function fact(name, value) {
  return element("div", {}, element("dt", { text: name }), element("dd", { text: value }));
}

function meter(label, value, most, text) {
  const bar = element("progress", { max: Math.max(most, 1), value, "aria-label": `${label}: ${text}` });
  const line = element("p", {}, element("strong", { text: label }), element("span", { text }));
  return element("div", { class: "meter" }, line, bar);
}

function table(headings, rows) {
  const head = element("tr", {}, ...headings.map(
    ([text, kind]) => element("th", { scope: "col", class: kind || null, text })));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}

function cell(heading, text) {
  return element("td", { class: "number", "data-heading": heading, text });
}

function showProgress(job) {
  const received = job.reports || 0;
  const expected = job.expected || 0;
  const share = expected ? ` (${Math.floor((100 * received) / expected)}%)` : "";
  const parts = [meter(
    "Reports", Math.min(received, expected), expected,
    `${number(received)} of ${number(expected)} expected${share}`)];
  if (job.rounds > 1) {
    const done = job.rounds_done || 0;
    parts.push(meter("Rounds", done, job.rounds, `${number(done)} of ${number(job.rounds)} done`));
  }
  const open = job.open;
  if (open && open.gateways) {
    parts.push(meter(
      "Open round", open.received, open.gateways,
      `${number(open.received)} of ${number(open.gateways)} gateways have answered`));
  }
  fill("progress", ...parts);
  const facts = [];
  if (job.state === "asking" || job.state === "waiting") {
    if (Number.isFinite(job.rate)) {
      facts.push(fact("Rate", `${short.format(job.rate)} reports a second`));
    }
    facts.push(fact("Time left", Number.isFinite(job.seconds_left)
      ? `about ${duration(job.seconds_left)}` : "not known yet"));
    if (open && open.deadline) facts.push(fact("Deadline of the round", clock(open.deadline)));
  }
  facts.push(
    fact("Vehicles asked", number(job.asked)),
    fact("Answered", number(received)),
    fact("Silent", number(job.silent)),
    fact("Refused or absent", number(job.refused_or_absent)));
  fill("facts", ...facts);
}

function showGateways(gateways, now) {
  if (!gateways.length) {
    fill("gateways", element("p", { class: "soft", text: "No gateway is registered yet." }));
    return;
  }
  const rows = gateways.map((each) => {
    const [sign, bad] = GATEWAY_STATES[each.state] || ["?", true];
    const state = element(
      "td", { class: bad ? "state bad" : "state" },
      element("span", { class: "sign", "aria-hidden": "true", text: sign }),
      String(each.state));
    return element(
      "tr", {}, element("th", { scope: "row", text: each.name }), state,
      cell("Heard", ago(each.heard, now)), cell("Reports", number(each.reports)),
      cell("Received", bytes(each.bytes)), cell("Version", each.version || "unknown"));
  });
  fill("gateways", table(
    [["Name"], ["State"], ["Heard", "number"], ["Reports", "number"], ["Received", "number"],
      ["Version", "number"]], rows));
}

function interval(row) {
  const [low, high] = row.scale;
  const at = (value) => 100 * Math.min(1, Math.max(0, (value - low) / (high - low)));
  const [from, to] = [at(row.low), at(row.high)];
  const picture = drawing("svg", {
    viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img",
    "aria-label": `from ${short.format(row.low)} to ${short.format(row.high)}, `
      + `on a scale from ${short.format(low)} to ${short.format(high)}`,
  });
  picture.append(
    drawing("line", { class: "axis", x1: 0, x2: 100, y1: 5, y2: 5, "vector-effect": "non-scaling-stroke" }),
    drawing("rect", { class: "band", x: from, y: 1.5, width: Math.max(0.6, to - from), height: 7 }),
    drawing("rect", { class: "dot", x: Math.min(99, at(row.value)) - 0.4, y: 0, width: 0.8, height: 10 }));
  return picture;
}

function showResult(result, job) {
  if (!result) {
    fill("result", element("p", { class: "soft", text: "No report has come yet." }));
    return;
  }
  say("result-title", job.state === "done" ? "Result" : "Result so far");
  const drawn = result.rows.some((row) => row.scale && Number.isFinite(row.low));
  const rows = result.rows.map((row) => {
    const graph = element("td", { class: "graph" });
    if (row.scale && Number.isFinite(row.low) && Number.isFinite(row.value)) graph.append(interval(row));
    return element(
      "tr", {}, element("th", { scope: "row", text: row.name }), element("td", { class: "number", text: row.shown }),
      drawn ? graph : null);
  });
  const headings = [["What"], ["Estimate", "number"]].concat(drawn ? [["On its scale", "graph"]] : []);
  let title = result.title;
  if (result.rounds && job.rounds > 1) {
    const [first, last] = [result.rounds[0], result.rounds[result.rounds.length - 1]];
    title += first === last ? `, round ${first}` : `, rounds ${first} to ${last}`;
  }
  fill(
    "result", element("p", { text: title }), rows.length ? table(headings, rows) : null,
    result.more ? element("p", { text: `${number(result.more)} more are not shown.` }) : null,
    ...result.notes.map((text) => element("p", { text })));
}

function showBudget(job, spent) {
  const cost = short.format(Number(job.epsilon));
  const rows = spent.map((each) => element(
    "tr", {}, element("th", { scope: "row", text: each.job }), cell("State", each.state),
    cell("ε per answer", each.epsilon === null ? "unknown" : each.epsilon),
    cell("Answers", number(each.answers))));
  fill(
    "budget",
    element("p", {
      text: `Each answer to ${job.name} costs its vehicle ε = ${cost} of its lifetime cap. `
        + "A vehicle that does not answer spends nothing, unless its answer was lost on the way.",
    }),
    rows.length ? table(
      [["Job"], ["State", "number"], ["ε per answer", "number"], ["Answers", "number"]], rows) : null);
}

function showWarnings(part, problems) {
  const texts = new Set([...problems, ...part.attention, ...part.warnings]);
  const lines = [
    ...[...texts].map((text) => element("li", { text })),
    ...[...part.errors].reverse().map((each) => element(
      "li", {}, element("time", { datetime: each.time, text: clock(each.time) }),
      ` ${each.text}`)),
  ];
  fill("warnings", lines.length ? element("ul", {}, ...lines)
    : element("p", { class: "soft", text: "None." }));
}

function showMachine(part, now) {
  const { free, size } = part.disk;
  const facts = [
    fact("Server", part.running ? `running since ${clock(part.since)}` : "not running"),
    fact("Version", part.version),
    fact("Free disk", `${bytes(free)} of ${bytes(size)}`),
    ...Object.entries(part.certificates).map(([name, expires]) => {
      const left = (Date.parse(expires) - now) / 1000;
      return fact(`Certificate ${name}`, left > 0 ? `expires in ${duration(left)}` : "has expired");
    }),
  ];
  fill("machine", ...facts);
}

function show(found) {
  const part = found.parts.find((each) => each.part === "server");
  if (!part) {
    say("state", found.problems.join(". ") || "There is no server in this folder.");
    return;
  }
  const now = Date.parse(found.time);
  const job = part.job;
  const gateways = part.gateways || [];
  say("fleet", `fedldp · ${part.name}`);
  if (!job) {
    say("job", "No job");
    say("state", "The job of this server cannot be read.");
  } else {
    say("job", job.name);
    document.title = `${job.name} · fedldp`;
    const words = [JOB_STATES[job.state] || String(job.state)];
    if (job.state === "asking" && job.rounds > 1) {
      words.push(`Round ${job.round} of ${job.rounds}${job.stage ? ` (${job.stage})` : ""}.`);
    }
    if (job.why) words.push(sentence(job.why));
    if (!part.running && job.state !== "done" && job.state !== "failed") {
      words.push("The server is not running.");
    }
    const missing = gateways.filter((each) => (GATEWAY_STATES[each.state] || ["", true])[1]);
    if (missing.length) {
      words.push(missing.length === 1 ? `${missing[0].name} is ${missing[0].state}.`
        : `${number(missing.length)} gateways are silent or not connected.`);
    }
    say("state", words.join(" "));
    showProgress(job);
    showResult(part.result, job);
    showBudget(job, part.spent);
  }
  say("next", part.next ? `Next: ${part.next}` : "");
  showGateways(gateways, now);
  showWarnings(part, found.problems);
  showMachine(part, now);
  document.querySelector("main").hidden = false;
  for (const id of ["progress", "result", "budget"]) place(id).closest("section").hidden = !job;
}

let since = null; // when the connection was lost
function connected(text) {
  const note = place("connection");
  if (text === null) {
    since = null;
    note.hidden = true;
    note.textContent = "";
  } else {
    since = since || new Date();
    say("connection", `${text} since ${since.toLocaleTimeString()}. The values below are from that time.`);
    note.hidden = false;
  }
  document.body.classList.toggle("stale", text !== null);
}

async function fetched() {
  const ending = new AbortController();
  const patience = setTimeout(() => ending.abort(), PATIENCE);
  try {
    const answer = await fetch("status.json", { cache: "no-store", signal: ending.signal });
    if (answer.status === 401) {
      return "The token is not accepted: open this page with ?token=… again. No data";
    }
    return answer.ok ? await answer.json() : `The monitor answers with error ${answer.status}. No data`;
  } catch {
    return "No connection";
  } finally {
    clearTimeout(patience);
  }
}

let timer = null;
async function refresh() {
  const found = await fetched();
  clearTimeout(timer);
  timer = setTimeout(refresh, EVERY);
  if (typeof found === "string") {
    connected(found);
  } else {
    show(found);
    connected(null);
  }
}

refresh();
