// SPDX-License-Identifier: Apache-2.0
// The cells of a picture: errors of a tensor pooled into bins of its axes.   docs/formats/page.md, "Details"

const NOT_FINITE = 255;

/** Errors of the codes: 0 is none, 255 not finite, others are parts of octaves above 2^base. */
function decodedCells(text, { base, codes_per_octave: parts }) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return Float64Array.from(bytes, (code) => (code === 0 ? 0 : code === NOT_FINITE ? Infinity : 2 ** (base + code / parts)));
}

/** Numbers that JSON cannot write stand there as texts. */
export function jsonNumber(value) {
  return value === null || value === undefined ? NaN : Number(value);
}

/** A picture as the page holds it, with its cells as numbers in C order. */
export function openPicture(details) {
  const { axes, bins, shape, scale } = details;
  const widths = bins.map((count, i) => Math.ceil(shape[i] / count));
  return { axes, sizes: shape, bins, widths, max: decodedCells(details.max, scale), rms: decodedCells(details.rms, scale) };
}

/** Positions of bin `bin` of an axis. */
function binRange(axis, bin) {
  return [bin * axis.width, Math.min((bin + 1) * axis.width, axis.size)];
}

/** "7" or "16 to 31". */
export function rangeText(axis, bin) {
  const [first, end] = binRange(axis, bin);
  return end - first <= 1 ? String(first) : `${first} to ${end - 1}`;
}

export function axisName(axis) {
  return `axis ${axis.axis}`;
}

const NO_AXIS = { axis: -1, size: 1, width: 1, bins: 1 };

/** An axis of the picture whose bins are joined until there are at most `most`. */
function joinedAxis(picture, place, most) {
  if (place < 0) return NO_AXIS;
  const joined = Math.ceil(picture.bins[place] / most);
  const width = picture.widths[place] * joined;
  return { axis: picture.axes[place], size: picture.sizes[place], width, bins: Math.ceil(picture.sizes[place] / width), joined };
}

/** For each cell: its bin on every axis (filled into `at`), then how many values it holds. */
function eachCell(picture, call) {
  const { bins, widths, sizes } = picture;
  const at = bins.map(() => 0);
  const held = (k) => Math.min((at[k] + 1) * widths[k], sizes[k]) - at[k] * widths[k];
  for (let cell = 0; cell < picture.max.length; cell++) {
    call(cell, at, at.reduce((count, _, k) => count * held(k), 1));
    for (let k = at.length - 1; k >= 0 && ++at[k] === bins[k]; k--) at[k] = 0;
  }
}

/** The largest error, or the root of the mean square, over all other axes. rowAxis -1: one row. */
export function pooled(picture, rowAxis, columnAxis, measure, most) {
  const rows = joinedAxis(picture, rowAxis, most);
  const columns = joinedAxis(picture, columnAxis, most);
  const values = new Float64Array(rows.bins * columns.bins);
  const counts = new Float64Array(values.length);
  eachCell(picture, (cell, at, count) => {
    const row = rowAxis < 0 ? 0 : Math.floor(at[rowAxis] / rows.joined);
    const place = row * columns.bins + Math.floor(at[columnAxis] / columns.joined);
    if (measure === "max") values[place] = Math.max(values[place], picture.max[cell]);
    else values[place] += picture.rms[cell] ** 2 * count;
    counts[place] += count;
  });
  if (measure !== "max") values.forEach((sum, i) => (values[i] = Math.sqrt(sum / counts[i])));
  const binOf = (axis, index) => (axis.axis < 0 ? 0 : Math.floor((index[axis.axis] ?? 0) / axis.width));
  return { rows, columns, values, cellOf: (index) => [binOf(rows, index), binOf(columns, index)] };
}
