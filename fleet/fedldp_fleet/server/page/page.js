"use strict";
// The live page of a server. It asks for status.json every two seconds and shows it.
// Names come from files, so they are only ever set as text.

const REFRESH_MILLISECONDS = 2000;
const TIMEOUT_MILLISECONDS = 8000;

const JOB_STATES = { // a sign, and whether it needs attention: never a color alone
  "queued": ["…", false],
  "running": ["▸", false],
  "done": ["✓", false],
  "failed": ["!", true],
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
  const steps = [[2 * 86400, 86400, "days"], [5400, 3600, "h"], [90, 60, "min"], [0, 1, "s"]];
  const [, length, unit] = steps.find(([least]) => seconds >= least) || steps[3];
  return `${Math.max(0, Math.round(seconds / length))} ${unit}`;
}

function bytes(count) {
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

function showJobs(jobs, now) {
  if (!jobs.length) {
    fill("jobs", element("p", { class: "soft", text: "There is no job yet: fedldp server job." }));
    return;
  }
  fill("jobs", ...jobs.toReversed().map((job) => {
    const [sign, bad] = JOB_STATES[job.state] || ["?", true];
    const state = element(
      "p", { class: bad ? "state bad" : "state" },
      element("span", { class: "sign", "aria-hidden": "true", text: sign }),
      job.reason ? `${job.state}: ${job.reason}` : job.state);
    const share = job.wanted ? ` (${Math.floor((100 * job.answers) / job.wanted)}%)` : "";
    const parts = [meter(
      "Answers", Math.min(job.answers, job.wanted), job.wanted,
      `${number(job.answers)} of ${number(job.wanted)}${share}`)];
    if (job.rounds > 1) {
      parts.push(meter("Round", job.round, job.rounds, `${job.round} of ${job.rounds}, ${job.stage}`));
    }
    if (job.rounds > 1 && job.state === "running") {
      parts.push(meter(
        "Open round", job.open_answers, job.open_wanted,
        `${number(job.open_answers)} of ${number(job.open_wanted)} answers, ${number(job.placed)} on their way`));
    }
    const facts = [
      fact("ε of an answer", job.epsilon.map((each) => short.format(each)).join(" or ")),
      fact("Late", number(job.late)),
      fact("Refused", number(job.refused)),
    ];
    const left = (Date.parse(job.closes) - now) / 1000;
    if (job.state === "running") facts.push(fact("Closes", left > 0 ? `in ${duration(left)}` : "now"));
    return element(
      "article", { "data-job": job.name }, element("h3", { text: job.name }), state, ...parts,
      element("dl", { class: "facts" }, ...facts));
  }));
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

function resultOf(name, result) {
  const drawn = result.rows.some((row) => row.scale && Number.isFinite(row.low));
  const rows = result.rows.map((row) => {
    const graph = element("td", { class: "graph" });
    if (row.scale && Number.isFinite(row.low) && Number.isFinite(row.value)) graph.append(interval(row));
    return element(
      "tr", {}, element("th", { scope: "row", text: row.name }), element("td", { class: "number", text: row.shown }),
      drawn ? graph : null);
  });
  const headings = [["What"], ["Estimate", "number"]].concat(drawn ? [["On its scale", "graph"]] : []);
  return element(
    "article", { "data-job": name }, element("h3", { text: name }), element("p", { text: result.title }),
    rows.length ? table(headings, rows) : null,
    result.more ? element("p", { text: `${number(result.more)} more are not shown.` }) : null,
    ...result.notes.map((text) => element("p", { text })));
}

function show(found) {
  const now = Date.parse(found.time);
  const running = found.jobs.filter((job) => job.state === "running").map((job) => job.name);
  say("fleet", `fedldp ${found.version} · ${found.name}`);
  say("title", running.length ? running.join(", ") : "No job is running");
  document.title = `${running.length ? running.join(", ") : "idle"} · fedldp`;
  say("state", found.problems.length
    ? `${found.problems.length} ${found.problems.length === 1 ? "problem needs" : "problems need"} somebody.`
    : "Everything is in order.");
  showJobs(found.jobs, now);
  const results = Object.entries(found.results);
  fill("results", ...(results.length ? results.map(([name, each]) => resultOf(name, each))
    : [element("p", { class: "soft", text: "No answer has come yet." })]));
  fill("problems", found.problems.length
    ? element("ul", {}, ...found.problems.map((text) => element("li", { text })))
    : element("p", { class: "soft", text: "None." }));
  fill(
    "agents", fact("Joined", `${number(found.agents.joined)} of ${number(found.agents.enrolled)}`),
    fact("Heard in the last hour", number(found.agents.heard)),
    fact("Vehicles that may answer a job", number(found.agents.vehicles)),
    fact("Revoked", number(found.agents.revoked)));
  const expires = found.certificate_expires;
  fill(
    "machine", fact("Free disk", `${bytes(found.disk.free)} of ${bytes(found.disk.size)}`),
    fact("Certificate", expires ? `expires in ${duration((Date.parse(expires) - now) / 1000)}` : "of a proxy"));
  document.querySelector("main").hidden = false;
}

let since = null; // when the connection was lost
function connected(text) {
  const note = place("connection");
  since = text === null ? null : since || new Date();
  const lost = since && `${text} since ${since.toLocaleTimeString()}. The values below are from that time.`;
  say("connection", lost || "");
  note.hidden = text === null;
  document.body.classList.toggle("stale", text !== null);
}

async function fetched() {
  const ending = new AbortController();
  const timeout = setTimeout(() => ending.abort(), TIMEOUT_MILLISECONDS);
  try {
    const answer = await fetch("status.json", { cache: "no-store", signal: ending.signal });
    return answer.ok ? await answer.json() : `The server answers with error ${answer.status}. No data`;
  } catch {
    return "No connection";
  } finally {
    clearTimeout(timeout);
  }
}

async function refresh() {
  const found = await fetched();
  setTimeout(refresh, REFRESH_MILLISECONDS);
  if (typeof found === "string") {
    connected(found);
  } else {
    show(found);
    connected(null);
  }
}

refresh();
