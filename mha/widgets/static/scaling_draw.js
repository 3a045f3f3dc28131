// The same standard normal numbers as scaling_explorer.py draws, and their sums at each width. No DOM.
// A row has one query and N_KEYS keys: q_i = m + u_i, k_i = m + ρ u_i + √(1 − ρ²) w_i, with u and w from here.

export const N_ROWS = 64;
export const N_KEYS = 32;
export const WIDTHS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
const LONGEST = 1024; // numbers of a vector
const STEP = 0x9e3779b9; // odd: 2³² different places

/** A whole number of 32 bits, well mixed. */
function mixed(x) {
  x ^= x >>> 16;
  x = Math.imul(x, 0x21f0aaad);
  x ^= x >>> 15;
  x = Math.imul(x, 0x735a2d97);
  return (x ^ (x >>> 15)) >>> 0;
}

/** Put the numbers start … stop − 1 of a vector into `out`, in pairs by Box and Muller. */
export function fillNormals(out, seed, vector, start, stop) {
  const origin = mixed(seed + STEP);
  const uniform = (place) => (mixed(Math.imul(place, STEP) + origin) + 0.5) / 2 ** 32; // never 0 or 1
  for (let i = start - (start % 2); i < stop; i += 2) {
    const place = vector * LONGEST + i;
    const radius = Math.sqrt(-2 * Math.log(uniform(place)));
    const angle = 2 * Math.PI * uniform(place + 1);
    if (i >= start) out[i - start] = radius * Math.cos(angle);
    if (i + 1 < stop) out[i + 1 - start] = radius * Math.sin(angle);
  }
}

/** The sums over i < d that a width needs: Σu, Σu² a row, Σw, Σuw a key, Σw_a w_b a pair of keys. */
function emptySums() {
  const many = (length) => new Float64Array(length);
  const keys = N_ROWS * N_KEYS;
  return { u: many(N_ROWS), uu: many(N_ROWS), w: many(keys), uw: many(keys), ww: many(keys * N_KEYS) };
}

/** All rows of a seed. `step` sums one row up to the next width; `at` takes the steps that a width still needs. */
export function sampleOf(seed) {
  const levels = []; // the finished widths
  const u = new Float64Array(LONGEST / 2);
  const w = Array.from({ length: N_KEYS }, () => new Float64Array(LONGEST / 2));
  let sums = emptySums();
  let row = 0; // of the width that comes next

  const addRow = (r, start, stop) => {
    const count = stop - start;
    fillNormals(u, seed, r * (N_KEYS + 1), start, stop);
    for (let i = 0; i < count; i++) {
      sums.u[r] += u[i];
      sums.uu[r] += u[i] * u[i];
    }
    for (let j = 0; j < N_KEYS; j++) {
      const key = w[j];
      fillNormals(key, seed, r * (N_KEYS + 1) + 1 + j, start, stop);
      const at = r * N_KEYS + j;
      for (let i = 0; i < count; i++) {
        sums.w[at] += key[i];
        sums.uw[at] += u[i] * key[i];
      }
      for (let other = 0; other <= j; other++) {
        const second = w[other];
        let sum = 0;
        for (let i = 0; i < count; i++) sum += key[i] * second[i];
        const mirrored = (r * N_KEYS + other) * N_KEYS + j;
        sums.ww[at * N_KEYS + other] += sum;
        if (other < j) sums.ww[mirrored] += sum;
      }
    }
  };
  const step = () => {
    if (levels.length === WIDTHS.length) return false;
    addRow(row, WIDTHS[levels.length - 1] ?? 0, WIDTHS[levels.length]);
    row += 1;
    if (row === N_ROWS) {
      levels.push(sums);
      row = 0;
      sums = Object.fromEntries(Object.entries(sums).map(([name, values]) => [name, values.slice()]));
    }
    return true;
  };
  return {
    seed,
    step,
    at(width) {
      const level = WIDTHS.indexOf(width);
      while (levels.length <= level) step();
      return levels[level];
    },
  };
}
