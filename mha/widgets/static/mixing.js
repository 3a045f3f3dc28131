// What W_O does, in doubles. No DOM, no imports.
// `z` holds the H·d numbers of one token, head after head; `wO` the shown columns of W_O, [in, out], row by
// row; `bias` one number for each of these columns; `off` lists the heads that are switched off.

/** The concatenation with zeros in the blocks of the heads that are off. */
export function withoutHeads(z, nHeads, off) {
  const width = z.length / nHeads;
  return z.map((value, i) => (off.includes(Math.floor(i / width)) ? 0 : value));
}

/** The first way: the whole concatenation times each column of W_O, plus the bias. */
export function concatProduct(z, wO, bias) {
  return bias.map((start, j) => {
    let sum = 0;
    for (let i = 0; i < z.length; i++) sum += z[i] * wO[i * bias.length + j];
    return sum + start;
  });
}

/** The second way, its products: head h times its own d rows of W_O is at [h * nFeatures + j]. */
export function headContributions(z, wO, nHeads, nFeatures) {
  const width = z.length / nHeads;
  const contributions = new Float64Array(nHeads * nFeatures);
  for (let i = 0; i < z.length; i++) {
    const start = Math.floor(i / width) * nFeatures;
    for (let j = 0; j < nFeatures; j++) contributions[start + j] += z[i] * wO[i * nFeatures + j];
  }
  return contributions;
}

/** The second way, its sum: the contributions of the heads that are on, plus the bias. */
export function addContributions(contributions, bias, off) {
  const sums = Float64Array.from(bias);
  for (let h = 0; h * bias.length < contributions.length; h++) {
    if (off.includes(h)) continue;
    for (let j = 0; j < bias.length; j++) sums[j] += contributions[h * bias.length + j];
  }
  return sums;
}

/**
 * One feature as a stack: the ends [from, to] of each head's piece, the bias last in the list but first on the
 * stack, where no head moves it. Positive pieces pile up from 0, negative ones down; a head that is off has none.
 */
export function stackPieces(contributions, bias, off, feature) {
  const ends = { up: 0, down: 0 };
  const place = (value) => {
    const way = value < 0 ? "down" : "up";
    const from = ends[way];
    return [from, (ends[way] += value)];
  };
  const first = place(bias[feature]);
  const pieces = [];
  for (let h = 0; h * bias.length < contributions.length; h++) {
    pieces.push(place(off.includes(h) ? 0 : contributions[h * bias.length + feature]));
  }
  return [...pieces, first];
}

/** The lowest and the highest end of the stacks with all heads on: no choice of heads leaves them. */
export function stackRange(contributions, bias) {
  let [low, high] = [0, 0];
  for (let j = 0; j < bias.length; j++) {
    for (const [, to] of stackPieces(contributions, bias, [], j)) {
      low = Math.min(low, to);
      high = Math.max(high, to);
    }
  }
  return low === high ? [-1, 1] : [low, high];
}

/** The inner product of two sums, each of the heads that are on and the bias, from those of the parts. */
function innerProduct(gram, nHeads, off, otherOff) {
  const size = nHeads + 1;
  let sum = 0;
  for (let h = 0; h < size; h++) {
    if (off.includes(h)) continue;
    for (let g = 0; g < size; g++) if (!otherOff.includes(g)) sum += gram[h * size + g];
  }
  return sum;
}

/** The length of y over all features, from the Gram matrix of the H contributions and the bias. */
export function subsetLength(gram, nHeads, off) {
  return Math.sqrt(Math.max(0, innerProduct(gram, nHeads, off, off))); // rounding may fall below 0
}

/** The cosine of y with y when all heads are on; NaN where one of the two is zero. */
export function subsetCosine(gram, nHeads, off) {
  const lengths = subsetLength(gram, nHeads, off) * subsetLength(gram, nHeads, []);
  return lengths ? innerProduct(gram, nHeads, off, []) / lengths : NaN;
}

/** The length of one head's contribution. */
export function headLength(gram, nHeads, head) {
  return Math.sqrt(gram[head * (nHeads + 1) + head]);
}
