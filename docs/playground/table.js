"use strict";

/* Tables of integers, exactly: what a vehicle draws from, and the proof that it is private. */
const tables = {
  /* Return a table as it is written in data.js, with all its counts as BigInt. */
  unpack(packed) {
    const least = packed.least.map(BigInt);
    const most = packed.most.map(BigInt);
    const others = packed.others.values();
    const above = packed.rows.map((row) =>
      [...row].map((kind, j) =>
        kind === "-" ? least[j] : kind === "+" ? most[j] : BigInt(others.next().value),
      ),
    );
    const mirrored = above.slice(0, packed.letters.length - above.length).reverse();
    const counts = [...above, ...mirrored.map((row) => [...row].reverse())];
    const total = counts[0].reduce((sum, count) => sum + count);
    const bits = (packed.values.length - 1).toString(2).length;
    return { ...packed, least, most, counts, total, bits };
  },

  /* Return the column whose largest and least count differ most, and whether the limit holds. */
  largestRatio(table, limit) {
    const [numerator, denominator] = limit.map(BigInt);
    let column = 0;
    table.least.forEach((least, j) => {
      if (table.most[j] * table.least[column] > table.most[column] * least) column = j;
    });
    const [largest, least] = [table.most[column], table.least[column]];
    return { column, largest, least, holds: largest * denominator <= least * numerator };
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
