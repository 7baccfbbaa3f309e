"use strict";

/* Pictures in SVG. Colours are classes of the style sheet, so that they follow the theme. */
const charts = (() => {
  const MARGIN = { left: 46, right: 14, top: 12, bottom: 34 };

  function element(tag, attributes = {}, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  /* Begin a picture as wide as its place; return what is needed to draw into it. */
  function begin(place, height, description) {
    const width = Math.max(260, place.clientWidth);
    const root = element("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
    if (description) {
      root.setAttribute("role", "img");
      root.setAttribute("aria-label", description);
    } else {
      root.setAttribute("aria-hidden", "true");
    }
    place.replaceChildren(root);
    const inner = {
      left: MARGIN.left,
      right: width - MARGIN.right,
      top: MARGIN.top,
      bottom: height - MARGIN.bottom,
    };
    return { root, ...inner };
  }

  function add(chart, tag, attributes, ...children) {
    const node = element(tag, attributes, ...children);
    chart.root.append(node);
    return node;
  }

  function label(chart, text, x, y, anchor = "middle", kind = "tick") {
    return add(chart, "text", { x, y, "text-anchor": anchor, class: kind }, text);
  }

  const scale = (from, to, low, high) => (value) =>
    low + ((value - from) / (to - from)) * (high - low);

  const short = (value) => tables.number(value, 3);

  /* The table: a strip for each run of equal cells in a row. Returns which cell is at a point.
     The strongest colour is e^epsilon times the least of a column, in whatever table. */
  function heatmap(place, table, epsilon, used, cursor) {
    const rows = table.letters.length;
    const columns = table.values.length;
    const chart = begin(place, Math.max(200, Math.min(330, 60 * rows)), "");
    const toX = scale(0, columns, chart.left, chart.right);
    const toY = scale(0, rows, chart.top, chart.bottom);
    const strength = (i, j) =>
      Math.min(1, Math.log(Number(table.counts[i][j]) / Number(table.least[j])) / epsilon);
    add(chart, "rect", {
      x: chart.left, y: chart.top, class: "field",
      width: chart.right - chart.left, height: chart.bottom - chart.top,
    });
    for (let i = 0; i < rows; i += 1) {
      for (let j = 0, end; j < columns; j = end) {
        const opacity = strength(i, j).toFixed(3);
        for (end = j + 1; end < columns && strength(i, end).toFixed(3) === opacity; ) end += 1;
        if (opacity <= 0) continue;
        add(chart, "rect", {
          x: toX(j), y: toY(i), width: toX(end) - toX(j), height: toY(i + 1) - toY(i),
          class: "heat", "fill-opacity": opacity,
        });
      }
    }
    if (columns <= 40) {
      for (let j = 1; j < columns; j += 1) {
        add(chart, "line", { x1: toX(j), x2: toX(j), y1: chart.top, y2: chart.bottom, class: "grid" });
      }
    }
    const ends = [0, rows - 1, ...(rows % 2 ? [(rows - 1) / 2] : [])];
    for (const i of ends) label(chart, short(table.letters[i]), chart.left - 14, toY(i + 0.5) + 4, "end");
    const [first, last] = [used[0], used[used.length - 1]];
    add(chart, "rect", {
      x: chart.left - 1.5, y: toY(first) - 1.5, class: "used",
      width: chart.right - chart.left + 3, height: toY(last + 1) - toY(first) + 3,
    });
    const middle = (toY(first) + toY(last + 1)) / 2;
    add(chart, "path", { d: `M${chart.left - 3} ${middle}l-8 -5v10z`, class: "mark" });
    for (const j of [0, columns - 1, ...(columns % 2 && columns > 2 ? [(columns - 1) / 2] : [])]) {
      const [at, anchor] =
        columns <= 8 ? [toX(j + 0.5), "middle"]
        : j === 0 ? [chart.left, "start"]
        : j === columns - 1 ? [chart.right, "end"]
        : [toX(j + 0.5), "middle"];
      label(chart, short(table.values[j]), at, chart.bottom + 15, anchor);
    }
    label(chart, "output", (chart.left + chart.right) / 2, chart.bottom + 30, "middle", "axis");
    const turned = label(chart, "letter", 0, 0, "middle", "axis");
    turned.setAttribute("transform", `translate(11 ${(chart.top + chart.bottom) / 2}) rotate(-90)`);
    if (cursor) {
      add(chart, "rect", {
        x: toX(cursor.column), y: toY(cursor.row) - 1, class: "cursor",
        width: toX(1) - toX(0), height: Math.max(4, toY(1) - toY(0) + 2),
      });
    }
    return (x, y) => {
      const column = Math.floor(((x - chart.left) / (chart.right - chart.left)) * columns);
      const row = Math.floor(((y - chart.top) / (chart.bottom - chart.top)) * rows);
      const inside = column >= 0 && column < columns && row >= 0 && row < rows;
      return inside ? { row, column } : null;
    };
  }

  /* Shares of the outputs as bars; `expected`, if given, as ticks across them. */
  function bars(place, values, shares, x, description, expected) {
    const chart = begin(place, 200, description);
    const bound = values[values.length - 1];
    const gaps = values.slice(1).map((value, j) => value - values[j]);
    const gap = Math.min(...gaps, bound / 4);
    const toX = scale(-bound - gap / 2, bound + gap / 2, chart.left, chart.right);
    const top = Math.max(...shares, ...(expected ?? []));
    const toY = scale(0, top, chart.bottom, chart.top + 8);
    const wide = Math.max(1.5, 0.78 * (toX(gap) - toX(0)));
    axis(chart, [-bound, -1, 0, 1, bound], toX, "output");
    for (const share of [0, top]) label(chart, short(share), chart.left - 6, toY(share) + 4, "end");
    shares.forEach((share, j) => {
      add(chart, "rect", {
        x: toX(values[j]) - wide / 2, y: toY(share), width: wide,
        height: chart.bottom - toY(share), class: "bar",
      });
    });
    (expected ?? []).forEach((share, j) => {
      const at = toX(values[j]);
      add(chart, "line", {
        x1: at - wide / 2 - 1, x2: at + wide / 2 + 1, y1: toY(share), y2: toY(share), class: "expected",
      });
    });
    truth(chart, toX(x));
  }

  /* Estimated shares of some bins as bars, each with its interval, and the true shares as ticks. */
  function intervals(place, edges, shares, around, real, title, description) {
    const chart = begin(place, 230, description);
    const top = Math.max(...real, ...(shares ?? []).map((share, j) => share + around[j])) * 1.05;
    const least = Math.min(0, ...(shares ?? []).map((share, j) => share - around[j]));
    const toX = scale(edges[0], edges[edges.length - 1], chart.left, chart.right);
    const toY = scale(least, top, chart.bottom, chart.top);
    axis(chart, edges, toX, title);
    for (const share of [0, top]) label(chart, `${short(100 * share)}%`, chart.left - 6, toY(share) + 4, "end");
    add(chart, "line", { x1: chart.left, x2: chart.right, y1: toY(0), y2: toY(0), class: "line" });
    real.forEach((share, j) => {
      const [from, to] = [toX(edges[j]) + 2, toX(edges[j + 1]) - 2];
      const middle = (from + to) / 2;
      if (shares) {
        const height = toY(0) - toY(Math.max(shares[j], 0)); // a share below 0 has no bar
        add(chart, "rect", { x: from, y: toY(0) - height, width: to - from, height, class: "bar" });
      }
      add(chart, "line", { x1: from, x2: to, y1: toY(share), y2: toY(share), class: "truth" });
      if (shares) {
        const [low, high] = [toY(shares[j] - around[j]), toY(shares[j] + around[j])];
        add(chart, "line", { x1: middle, x2: middle, y1: low, y2: high, class: "interval" });
        for (const y of [low, high]) {
          add(chart, "line", { x1: middle - 4, x2: middle + 4, y1: y, y2: y, class: "interval" });
        }
      }
    });
  }

  /* The x-axis, with those of the ticks that do not touch. */
  function axis(chart, ticks, toX, title) {
    add(chart, "line", {
      x1: chart.left, x2: chart.right, y1: chart.bottom, y2: chart.bottom, class: "line",
    });
    const taken = [];
    for (const tick of [ticks[0], ticks[ticks.length - 1], ...ticks]) {
      if (taken.some((other) => Math.abs(other - toX(tick)) < 34)) continue;
      taken.push(toX(tick));
      label(chart, short(tick), toX(tick), chart.bottom + 15);
    }
    label(chart, title, (chart.left + chart.right) / 2, chart.bottom + 30, "middle", "axis");
  }

  function truth(chart, at) {
    add(chart, "line", { x1: at, x2: at, y1: chart.top, y2: chart.bottom, class: "truth" });
    label(chart, "x", at + 5, chart.top + 8, "start", "truth-label");
  }

  /* The estimate over the number of reports, within a band: of one, x is this far around it. */
  function path(place, points, x, around, description) {
    const chart = begin(place, 210, description);
    const last = Math.max(10, points[points.length - 1][0]);
    const reach = 1.2 * around;
    const toX = scale(0, Math.log10(last), chart.left, chart.right);
    const toY = scale(x - reach, x + reach, chart.bottom, chart.top);
    const steps = Array.from({ length: 41 }, (_, i) => last ** (i / 40));
    const edge = (n, sign) => `${toX(Math.log10(n))},${toY(x + (sign * around) / Math.sqrt(n))}`;
    const band = [...steps.map((n) => edge(n, 1)), ...steps.reverse().map((n) => edge(n, -1))];
    add(chart, "polygon", { points: band.join(" "), class: "band" });
    const powers = [];
    for (let power = 1; power <= last; power *= 10) powers.push(power);
    axis(chart, powers, (n) => toX(Math.log10(n)), "reports");
    for (const y of [x - reach, x, x + reach]) {
      label(chart, short(Math.round(y * 100) / 100), chart.left - 6, toY(y) + 4, "end");
    }
    add(chart, "line", { x1: chart.left, x2: chart.right, y1: toY(x), y2: toY(x), class: "truth" });
    const inside = (y) => Math.min(chart.bottom, Math.max(chart.top, toY(y)));
    const line = points.map(([n, mean]) => `${toX(Math.log10(n))},${inside(mean)}`).join(" ");
    add(chart, "polyline", { points: line, class: "estimate" });
    const [n, mean] = points[points.length - 1];
    add(chart, "circle", { cx: toX(Math.log10(n)), cy: inside(mean), r: 4, class: "mark" });
  }

  /* One bar of the comparison, with the limit as a line, and the table's own error as a dot. */
  function errorBar(share, limit, own) {
    const root = element("svg", { class: "error", "aria-hidden": "true" });
    const percent = (part) => `${(100 * part).toFixed(2)}%`;
    root.append(element("rect", { width: percent(share), height: "100%", class: "bar" }));
    root.append(element("line", { x1: percent(limit), x2: percent(limit), y1: 0, y2: "100%", class: "bound" }));
    if (own !== null) root.append(element("circle", { cx: percent(own), cy: "50%", r: 4, class: "mark" }));
    return root;
  }

  return { heatmap, bars, intervals, path, errorBar };
})();
