"use strict";

/* The vehicle in C, as WebAssembly: it checks its plan against a cap, and draws a report. */
(() => {
  const UNITS = 10n ** 19n; // an epsilon is a whole number of these, in three limbs of 32 bits
  const STATUS = [
    "The exact ratios of all integers are at most exp(ε), and the cap allows it.",
    "REFUSED: the plan leaks.",
    "REFUSED: a report costs more than the cap.",
    "REFUSED: the plan is too large for this build.",
    "No report: the browser's random generator has failed.",
  ];

  const get = (id) => document.getElementById(id);
  const { wasm, cities } = window.FEDLDP_VEHICLE;
  let randomBytes = 0;

  /* The random source of the vehicle: 0 if all bytes are random. */
  function random(at, count) {
    try {
      crypto.getRandomValues(new Uint8Array(vehicle.memory.buffer, at, count));
    } catch {
      return 1;
    }
    randomBytes += count;
    return 0;
  }

  const code = Uint8Array.from(atob(wasm), (letter) => letter.charCodeAt(0));
  let vehicle;

  function bytes(at, count) {
    const found = new Uint8Array(vehicle.memory.buffer, at, count);
    return [...found].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  /* Return a number of units as it is written. */
  function decimal(units) {
    const fraction = String(units % UNITS).padStart(19, "0").replace(/0+$/, "");
    return fraction ? `${units / UNITS}.${fraction}` : String(units / UNITS);
  }

  /* Return the units of a number that was typed, or null: without floating-point numbers. */
  function units(text) {
    const found = /^(\d{1,4})(?:\.(\d{0,19}))?$/.exec(text.trim());
    return found ? BigInt(found[1] + (found[2] ?? "").padEnd(19, "0")) : null;
  }

  function limbs(number) {
    return [0n, 32n, 64n].map((shift) => Number((number >> shift) & 0xffffffffn));
  }

  function drawReport(event) {
    event.preventDefault();
    const cap = units(get("vehicle-cap").value);
    get("vehicle-cap").setAttribute("aria-invalid", cap === null);
    get("vehicle-report").textContent = "";
    get("vehicle-random").textContent = "";
    if (cap === null) {
      get("vehicle-status").textContent = "The cap is a number such as 2 or 2.5.";
      return;
    }
    randomBytes = 0;
    let status = vehicle.check(...limbs(cap));
    const speed = get("vehicle-speed").value;
    if (status === 0) {
      status = vehicle.draw(speed === "" ? NaN : Number(speed), Number(get("vehicle-city").value));
    }
    get("vehicle-status").textContent = STATUS[status];
    if (status !== 0) return;
    get("vehicle-random").textContent = String(randomBytes);
    get("vehicle-report").textContent = bytes(vehicle.report(), vehicle.report_bytes());
  }

  for (const [number, city] of cities.entries()) {
    get("vehicle-city").append(new Option(city, number));
  }
  WebAssembly.instantiate(code, { browser: { random } }).then(({ instance }) => {
    vehicle = instance.exports;
    vehicle._initialize?.();
    const found = new Uint32Array(vehicle.memory.buffer, vehicle.epsilon(), 3);
    const epsilon = found.reduceRight((sum, limb) => (sum << 32n) | BigInt(limb), 0n);
    get("vehicle-epsilon").textContent = decimal(epsilon);
    get("vehicle-fingerprint").textContent = bytes(vehicle.fingerprint(), 32);
    get("vehicle-draw").disabled = false;
  });
  get("vehicle-form").addEventListener("submit", drawReport);
})();
