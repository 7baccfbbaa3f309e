"use strict";

/* A fleet whose vehicles send the bin of a number by randomized response, and what is estimated. */
const fleet = (() => {
  const PROBABLY = 1.96; // deviations, on either side, for 95%
  const WORD = 64n; // bits that draw a code, as in vehicle.py

  const get = (id) => document.getElementById(id);
  let asked; // the fleet, the odds, and how many vehicles have sent each bin

  /* Forget all reports, and take other odds. */
  function begin({ edges, vehicles }, { epsilon, response }) {
    const [same, other] = [BigInt(response.same), BigInt(response.other)];
    const total = same + other * BigInt(vehicles.length - 1);
    asked = { edges, vehicles, same, other, total, counts: vehicles.map(() => 0), count: 0 };
    const limit = tables.expBelow(epsilon);
    const isPrivate = other > 0n && same * limit[1] <= other * limit[0];
    get("fleet-odds").textContent = `${tables.decimals(same, other, 4)} to 1`;
    get("fleet-verdict").textContent = isPrivate
      ? "The exact ratio of the two integers is at most exp(ε)."
      : "THESE ODDS MUST NOT BE USED: their ratio exceeds exp(ε).";
    get("fleet-verdict").className = isPrivate ? "" : "note";
    for (const id of ["ask", "ask-many"]) get(id).disabled = !isPrivate;
    show();
  }

  /* Let vehicles answer: of every thousand, as many hold a bin as the fleet says. */
  function ask(number) {
    const { vehicles, same, other, total, counts } = asked;
    const thousand = vehicles.flatMap((count, bin) => Array(count).fill(bin));
    for (let n = 0; n < number; n += 1) {
      const own = thousand[(asked.count + n) % thousand.length];
      const [high, low] = crypto.getRandomValues(new Uint32Array(2));
      const place = (((BigInt(high) << 32n) | BigInt(low)) * total) >> WORD;
      counts[place < same - other ? own : Number((place - (same - other)) / other)] += 1;
    }
    asked.count += number;
    show();
  }

  /* Return the estimated shares, and how far their 95% intervals reach. */
  function estimated() {
    const { same, other, total, counts, count } = asked;
    const [p, q] = [Number(same) / Number(total), Number(other) / Number(total)];
    const seen = counts.map((each) => each / count);
    return {
      shares: seen.map((share) => (share - q) / (p - q)),
      around: seen.map((share) => (PROBABLY * Math.sqrt((share * (1 - share)) / count)) / (p - q)),
    };
  }

  function show() {
    const { edges, vehicles, count } = asked;
    const whole = vehicles.reduce((sum, each) => sum + each);
    const real = vehicles.map((each) => each / whole);
    const bits = (vehicles.length - 1).toString(2).length;
    get("forget").disabled = count === 0;
    if (count === 0) {
      get("fleet-said").textContent = "Nobody has been asked yet. Dashed: the true shares.";
      charts.intervals(get("fleet"), edges, null, null, real, "speed (km/h)", "The true shares of the speeds.");
      return;
    }
    const { shares, around } = estimated();
    const inside = real.filter((share, j) => Math.abs(share - shares[j]) <= around[j]).length;
    const widest = 100 * Math.max(...around);
    get("fleet-said").textContent =
      `${count.toLocaleString("en")} vehicles with ${bits} bits each: every share is known to ` +
      `±${tables.number(widest, 2)}% or better. ${inside} of ${real.length} intervals (95%) contain the true share.`;
    charts.intervals(
      get("fleet"), edges, shares, around, real, "speed (km/h)",
      `Estimated shares of ${real.length} bins of speed with 95% intervals, beside the true shares.`,
    );
  }

  return { begin, ask, show };
})();
