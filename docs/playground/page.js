"use strict";

/* What is chosen, what was sent, and how both are shown. */
(() => {
  const data = window.FEDLDP;
  const PROBABLY = 1.96; // deviations, on either side, for 95%
  const raised = (exponent) => [...String(exponent)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");
  const DIGITS = 18; // of a ratio of counts: enough to tell it from e^epsilon

  const get = (id) => document.getElementById(id);
  const node = (tag, text, attributes = {}) => {
    const made = document.createElement(tag);
    made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const { number } = tables;
  const signed = (value, digits) => (value > 0 ? "+" : "") + number(value, digits);
  const exactly = (value) => value.toPrecision(4); // with its zeros, for columns
  const many = (count) => count.toLocaleString("en");

  const chosen = { budget: 1, outputs: data.outputs.length - 1, mechanism: "optimal", x: 0.3 };
  let table; // the chosen one
  let sent; // the reports since something was last changed
  let cursor = null; // the cell that is looked at
  let cellAt = () => null;
  let remembering;

  const budget = () => data.budgets[chosen.budget];
  const tablesOf = (name) => budget().mechanisms.find((each) => each.name === name).tables;

  /* Return the table with the chosen number of outputs, or that which the mechanism has. */
  function choose() {
    const found = tablesOf(chosen.mechanism);
    const asked = data.outputs[chosen.outputs];
    const fitting = found.filter((each) => each.asked <= asked);
    return tables.unpack(fitting.length ? fitting[fitting.length - 1] : found[0]);
  }

  /* Show everything anew. */
  function change() {
    table = choose();
    sent = { count: 0, sum: 0, codes: table.values.map(() => 0), last: null, path: [] };
    cursor = null;
    showControls();
    showTable();
    showLaw();
    showErrors();
    showSent();
    fleet.begin(data.fleet, budget());
    remember();
  }

  function showControls() {
    const { epsilon } = budget();
    get("epsilon").value = chosen.budget;
    get("epsilon").setAttribute("aria-valuetext", `epsilon ${epsilon}`);
    for (const each of document.querySelectorAll("#epsilon-shown, .epsilon-shown")) {
      each.textContent = epsilon;
    }
    get("outputs").value = chosen.outputs;
    get("outputs").setAttribute("aria-valuetext", `${data.outputs[chosen.outputs]} outputs`);
    get("outputs-shown").textContent = data.outputs[chosen.outputs];
    const used = table.values.length;
    get("outputs-hint").textContent =
      `at most; ${used} used: ${table.bits} ${table.bits === 1 ? "bit" : "bits"}`;
    get("mechanism").value = chosen.mechanism;
    const fixed = tablesOf(chosen.mechanism).length === 1;
    get("outputs").disabled = fixed;
    get("mechanism-hint").textContent = fixed
      ? "with a number of outputs of its own"
      : used === 2
        ? "here it is Duchi's: two outputs"
        : "with as many outputs as you choose";
    get("x").value = chosen.x;
    if (document.activeElement !== get("x-typed")) get("x-typed").value = chosen.x;
    for (const each of document.querySelectorAll(".x-shown")) {
      each.textContent = `x\u00a0=\u00a0${number(chosen.x)}`;
    }
  }

  function showTable() {
    const limit = tables.expBelow(budget().epsilon);
    const used = tables.rowsUsed(table, chosen.x);
    const names = used.map((row) => number(table.letters[row])).join(" or ");
    get("rows-used").textContent = `Framed: x is rounded to ${names}.`;
    get("scale-end").textContent = number(Number(limit[0]) / Number(limit[1]));
    drawTable();
    const widest = tables.widest(table);
    const [largest, least] = [table.most[widest], table.least[widest]];
    get("ratio").textContent = least > 0n ? tables.decimals(largest, least, DIGITS) : "none";
    get("limit").textContent = tables.decimals(...limit, DIGITS);
    const fault = tables.fault(table, limit);
    get("verdict").className = fault ? "note" : "";
    get("verdict").textContent = fault
      ? `Computed in integers, by your browser: THIS TABLE MUST NOT BE USED, for ${fault}.`
      : "Computed in integers, by your browser: the table is private. The largest ratio is that of " +
        `output ${number(table.values[widest])}: ${largest} to ${least}, in a table of ` +
        `${table.letters.length} rows that each add up to 2${raised(table.total.toString(2).length - 1)}.`;
    for (const id of ["send", "send-many"]) get(id).disabled = fault !== null;
    showIntegers(used);
  }

  function drawTable() {
    const used = tables.rowsUsed(table, chosen.x);
    cellAt = charts.heatmap(get("table"), table, budget().epsilon, used, cursor);
    get("cell").textContent = cursor
      ? `Letter ${number(table.letters[cursor.row])}, output ${number(table.values[cursor.column])} ` +
        `(code ${cursor.column}): ${table.counts[cursor.row][cursor.column]}, ` +
        `${number(Number(table.counts[cursor.row][cursor.column]) / Number(table.least[cursor.column]))} ` +
        "times the least in its column."
      : "Point at a cell to read its integer.";
  }

  /* Write the whole table, if it is open: it can have thousands of cells. */
  function showIntegers(used) {
    const place = get("integers").querySelector("div");
    place.replaceChildren();
    if (!get("integers").open) return;
    const whole = node("table", "");
    whole.append(node("caption", "rows: letters; columns: outputs", { class: "unseen" }));
    const head = whole.createTHead().insertRow();
    head.append(node("th", "letter", { scope: "col" }));
    head.append(...table.values.map((value) => node("th", number(value), { scope: "col" })));
    const body = whole.createTBody();
    table.counts.forEach((counts, i) => {
      const row = body.insertRow();
      row.className = used.includes(i) ? "used" : "";
      row.append(node("th", number(table.letters[i]), { scope: "row" }));
      row.append(...counts.map((count) => node("td", count)));
    });
    place.append(whole);
    place.scrollTop = body.rows[used[0]].offsetTop - place.clientHeight / 2;
  }

  function showLaw() {
    const law = tables.law(table, chosen.x);
    const likeliest = law.indexOf(Math.max(...law));
    charts.bars(
      get("law"), table.values, law, chosen.x,
      `Probabilities of ${law.length} outputs from ${number(table.values[0])} to ` +
      `${number(table.values[law.length - 1])}; the likeliest is ${number(table.values[likeliest])}, ` +
      `with ${number(law[likeliest], 3)}.`,
    );
    get("spread").textContent =
      `One report is off by ${number(tables.deviation(table, chosen.x))} (standard deviation).`;
  }

  function showErrors() {
    const ranked = [...budget().mechanisms].sort((a, b) => a.worstCase - b.worstCase);
    const { lowerBound } = budget();
    const full = Math.max(...ranked.map((each) => each.worstCase), table.worstCase) * 1.03;
    get("bound").textContent = exactly(lowerBound);
    get("errors").tBodies[0].replaceChildren(...ranked.map((each) => {
      const row = node("tr", "", { role: "row" });
      const name = node("th", "", { scope: "row", role: "rowheader" });
      const own = each.name === chosen.mechanism;
      if (each.tables.length) {
        const button = node("button", each.name, { type: "button", "aria-pressed": own });
        button.addEventListener("click", () => select(each.name));
        name.append(button);
      } else {
        name.append(node("span", each.name, { title: "unbounded: it has no finite table" }));
      }
      const drawn = node("td", "", { role: "cell", class: "drawn" });
      drawn.append(charts.errorBar(
        each.worstCase / full, lowerBound / full, own ? table.worstCase / full : null,
      ));
      row.className = own ? "used" : "";
      row.append(name, drawn, node("td", exactly(each.worstCase), { role: "cell" }));
      row.append(node("td", (each.worstCase / lowerBound).toFixed(3), { role: "cell" }));
      return row;
    }));
    get("own").textContent =
      `The chosen table, an exact form of ${chosen.mechanism} with ${table.values.length} outputs ` +
      `(the dot): ${exactly(table.worstCase)}, ${(table.worstCase / lowerBound).toFixed(3)} times the ` +
      "limit. Laplace noise has no bound, and so no table.";
  }

  function select(name) {
    chosen.mechanism = name;
    change();
    // The list was written anew: stay where the keyboard was.
    get("errors").querySelector('[aria-pressed="true"]').focus();
  }

  function send(count) {
    for (const code of tables.draw(table, chosen.x, count)) {
      sent.count += 1;
      sent.sum += table.values[code];
      sent.codes[code] += 1;
      sent.last = code;
      const noted = sent.path.length ? sent.path[sent.path.length - 1][0] : 0;
      if (sent.count > 1.01 * noted) sent.path.push([sent.count, sent.sum / sent.count]);
    }
    const [noted] = sent.path[sent.path.length - 1];
    if (noted < sent.count) sent.path.push([sent.count, sent.sum / sent.count]);
    showSent();
  }

  function showSent() {
    const { count, sum, last } = sent;
    get("clear").disabled = count === 0;
    get("received").hidden = count < 2;
    if (count === 0) {
      get("report").textContent = "Nothing has been sent yet.";
      get("estimate").textContent = "";
      return;
    }
    const bits = last.toString(2).padStart(table.bits, "0");
    const boxes = node("span", "", { class: "bits", "aria-hidden": "true" });
    boxes.append(...[...bits].map((bit) => node("span", bit)));
    get("report").replaceChildren(
      boxes,
      node("span", `${count > 1 ? "The last one: code" : "Code"} ${last}, `),
      node("span", `sent as ${bits}, `, { class: "unseen" }),
      node("span", `stands for ${signed(table.values[last])}.`),
    );
    const deviation = tables.deviation(table, chosen.x);
    const estimate = sum / count;
    const around = (PROBABLY * deviation) / Math.sqrt(count);
    const places = Math.max(0, 1 - Math.floor(Math.log10(around)));
    get("estimate").textContent =
      `${many(count)} ${count === 1 ? "report" : "reports"}: x is about ` +
      `${estimate.toFixed(places).replace("-", "−")} ± ${around.toFixed(places)} (95%).`;
    if (count < 2) return;
    charts.bars(
      get("histogram"), table.values, sent.codes.map((each) => each / count), chosen.x,
      `Shares of the outputs among ${many(count)} reports, beside their probabilities.`,
      tables.law(table, chosen.x),
    );
    charts.path(
      get("path"), sent.path, chosen.x, PROBABLY * deviation,
      `The estimate after 1 to ${many(count)} reports; now ${number(estimate)}, the truth is ` +
      `${number(chosen.x)}. The band holds 95% of estimates.`,
    );
  }

  /* Keep what is chosen in the address, so that it can be linked to. */
  function remember() {
    clearTimeout(remembering);
    remembering = setTimeout(writeAddress, 300); // browsers refuse to do so at every step of a slider
  }

  function writeAddress() {
    const address = new URLSearchParams({
      epsilon: budget().epsilon,
      mechanism: chosen.mechanism,
      outputs: data.outputs[chosen.outputs],
      x: chosen.x,
    });
    history.replaceState(null, "", `#${address}`);
  }

  function recall() {
    const address = new URLSearchParams(location.hash.slice(1));
    const at = data.budgets.findIndex((each) => each.epsilon === Number(address.get("epsilon")));
    if (at >= 0) chosen.budget = at;
    const outputs = data.outputs.indexOf(Number(address.get("outputs")));
    if (outputs >= 0) chosen.outputs = outputs;
    const names = budget().mechanisms.filter((each) => each.tables.length).map((each) => each.name);
    if (names.includes(address.get("mechanism"))) chosen.mechanism = address.get("mechanism");
    if (address.has("x")) setX(address.get("x"));
  }

  /* Take a value that was typed, unless it is invalid. */
  function setX(text) {
    const value = Number(text);
    if (text === "" || !(value >= -1 && value <= 1)) return false;
    chosen.x = value;
    return true;
  }

  function moveCursor(event) {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const at = cursor ?? { row: tables.rowsUsed(table, chosen.x)[0] - step[0], column: -step[1] };
    const inside = (place, size) => Math.min(size - 1, Math.max(0, place));
    cursor = {
      row: inside(at.row + step[0], table.letters.length),
      column: inside(at.column + step[1], table.values.length),
    };
    drawTable();
  }

  function pointAt(event) {
    const box = get("table").getBoundingClientRect();
    const found = cellAt(event.clientX - box.left, event.clientY - box.top);
    if (found?.row === cursor?.row && found?.column === cursor?.column) return;
    cursor = found;
    drawTable();
  }

  function redraw() {
    drawTable();
    showLaw();
    showSent();
    fleet.show();
  }

  get("epsilon").max = data.budgets.length - 1;
  get("outputs").max = data.outputs.length - 1;
  for (const each of budget().mechanisms) {
    if (each.tables.length) get("mechanism").append(node("option", each.name));
  }
  get("version").textContent = data.version;
  // Above docs/ lie the pages' sources; above any other place of this page, the built site.
  get("home").hidden = location.pathname.includes("/docs/playground/");
  get("controls").addEventListener("submit", (event) => event.preventDefault());
  get("epsilon").addEventListener("input", (event) => {
    chosen.budget = Number(event.target.value);
    change();
  });
  get("outputs").addEventListener("input", (event) => {
    chosen.outputs = Number(event.target.value);
    change();
  });
  get("mechanism").addEventListener("change", (event) => {
    chosen.mechanism = event.target.value;
    change();
  });
  for (const id of ["x", "x-typed"]) {
    get(id).addEventListener("input", (event) => {
      const good = setX(event.target.value);
      get("x-typed").setAttribute("aria-invalid", !good);
      if (good) change();
    });
  }
  get("x-typed").addEventListener("blur", () => {
    get("x-typed").value = chosen.x;
    get("x-typed").setAttribute("aria-invalid", false);
  });
  get("send").addEventListener("click", () => send(1));
  get("send-many").addEventListener("click", () => send(1000));
  get("clear").addEventListener("click", change);
  get("ask").addEventListener("click", () => fleet.ask(1000));
  get("ask-many").addEventListener("click", () => fleet.ask(20_000));
  get("forget").addEventListener("click", () => fleet.begin(data.fleet, budget()));
  get("integers").addEventListener("toggle", () => showIntegers(tables.rowsUsed(table, chosen.x)));
  get("table").addEventListener("keydown", moveCursor);
  get("table").addEventListener("pointermove", pointAt);
  get("table").addEventListener("pointerdown", pointAt);
  window.addEventListener("resize", redraw);
  window.addEventListener("hashchange", () => {
    recall();
    change();
  });
  recall();
  change();
})();
