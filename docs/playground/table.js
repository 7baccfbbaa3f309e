"use strict";

/* Tables of integers, exactly: what a vehicle draws from, and the proof that it is private. */
const tables = {
  /* Return a table as it is written in data.js, with all its counts as BigInt. */
  unpack(packed) {
    const { letters, values } = packed;
    const others = packed.others.values();
    const above = packed.rows.map((row) =>
      [...row].map((kind, j) =>
        BigInt(kind === "-" ? packed.least[j] : kind === "+" ? packed.most[j] : others.next().value),
      ),
    );
    const mirrored = above.slice(0, letters.length - above.length).reverse();
    const counts = [...above, ...mirrored.map((row) => [...row].reverse())];
    // What is to be proved of the counts is computed from them, whatever the file says.
    const columns = values.map((_, j) => counts.map((row) => row[j]));
    const least = columns.map((column) => column.reduce((a, b) => (b < a ? b : a)));
    const most = columns.map((column) => column.reduce((a, b) => (b > a ? b : a)));
    const totals = counts.map((row) => row.reduce((a, b) => a + b));
    const bits = (values.length - 1).toString(2).length;
    return { ...packed, counts, least, most, totals, total: totals[0], bits };
  },

  /* Return a fraction just below e^epsilon: its power series, every term rounded down. */
  expBelow(epsilon, bits = 256n) {
    const [whole, decimals = ""] = String(epsilon).split(".");
    const [numerator, denominator] = [BigInt(whole + decimals), 10n ** BigInt(decimals.length)];
    let term = 1n << bits;
    let sum = term;
    for (let k = 1n; term > 0n; k += 1n) {
      term = (term * numerator) / (denominator * k);
      sum += term;
    }
    return [sum, 1n << bits];
  },

  /* Return what is wrong with a table, or null. Integers alone decide, as in vehicle.py. */
  fault(table, [numerator, denominator]) {
    const { letters, values, least, most, totals, total } = table;
    const row = (i) => `the row of letter ${tables.number(letters[i])} adds up to ${totals[i]}`;
    const output = (j) => `output ${tables.number(values[j])} (code ${j})`;
    if ((total & (total - 1n)) !== 0n) return `${row(0)}, which is not a power of two`;
    const uneven = totals.findIndex((each) => each !== total);
    if (uneven >= 0) return `${row(uneven)}, and that of letter ${tables.number(letters[0])} to ${total}`;
    const absent = least.findIndex((count) => count <= 0n);
    if (absent >= 0) return `${output(absent)} has a count of ${least[absent]}`;
    const leak = least.findIndex((count, j) => most[j] * denominator > count * numerator);
    if (leak < 0) return null;
    return `${output(leak)} has counts of ${most[leak]} and ${least[leak]}, whose ratio exceeds e^ε`;
  },

  /* Return the column whose largest and least count differ most. */
  widest({ least, most }) {
    return least.reduce((best, count, j) => (most[j] * least[best] > most[best] * count ? j : best), 0);
  },

  /* Return a number in a few digits. */
  number(value, digits = 4) {
    return String(Number(value.toPrecision(digits))).replace("-", "−");
  },

  /* Return a quotient of integers in decimals, cut off rather than rounded. */
  decimals(numerator, denominator, digits) {
    const scaled = ((numerator * 10n ** BigInt(digits)) / denominator).toString();
    const padded = scaled.padStart(digits + 1, "0");
    return `${padded.slice(0, -digits)}.${padded.slice(-digits)}`;
  },

  /* Return the letter to the left of x, and the odds to round x to the one on its right. */
  neighbours(table, x) {
    const { letters } = table;
    let left = 0;
    while (left < letters.length - 2 && letters[left + 1] <= x) left += 1;
    return { left, up: (x - letters[left]) / (letters[left + 1] - letters[left]) };
  },

  /* Return the numbers of the letters that x may be rounded to: one or two. */
  rowsUsed(table, x) {
    const { left, up } = tables.neighbours(table, x);
    return up === 0 ? [left] : up === 1 ? [left + 1] : [left, left + 1];
  },

  /* Return the probability of each output. */
  law(table, x) {
    const { left, up } = tables.neighbours(table, x);
    const [low, high] = [table.counts[left], table.counts[left + 1]];
    return low.map(
      (count, j) => ((1 - up) * Number(count) + up * Number(high[j])) / Number(table.total),
    );
  },

  /* Return the standard deviation of one report. */
  deviation(table, x) {
    const law = tables.law(table, x);
    return Math.sqrt(law.reduce((sum, p, j) => sum + p * (table.values[j] - x) ** 2, 0));
  },

  /* Draw codes for x. Each takes three random words: two for the table, one to round x. */
  draw(table, x, count) {
    const { left, up } = tables.neighbours(table, x);
    const unused = 64n - BigInt(table.total.toString(2).length - 1);
    const codes = [];
    for (let n = 0; n < count; n += 1) {
      const [high, low, rounding] = crypto.getRandomValues(new Uint32Array(3));
      const row = table.counts[rounding < up * 2 ** 32 ? left + 1 : left];
      let place = ((BigInt(high) << 32n) | BigInt(low)) >> unused;
      let code = 0;
      while (place >= row[code]) {
        place -= row[code];
        code += 1;
      }
      codes.push(code);
    }
    return codes;
  },
};
