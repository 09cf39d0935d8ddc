// SPDX-License-Identifier: Apache-2.0
// What the words of the column `verdict` mean.   docs/localisation.md, "Columns of the table"

/** One sentence for each word. The words that accuse first. */
export const JUDGEMENT_MEANING = {
  own_error: "It is wrong by itself: the inputs that it had should have given another result.",
  weight: "The weight is not golden's.",
  attribute: "It was called with other settings than in golden.",
  constant: "It computes with another constant than golden.",
  topology: "Other operators run here than in golden.",
  edge: "It reads another tensor than in golden.",
  gap: "What lies between two captured tensors is wrong; the operators in between were not captured.",
  measured_floor: "It differs by more than healthy runs of this model were measured to differ.",
  nan_origin: "NaN or infinities come up here: its inputs have none.",
  structural: "It has another shape than golden, or other integers.",
  rank_divergence: "Ranks that should hold the same values do not.",
  equal: "Not a bit of it differs.",
  noise: "The difference is no more than rounding explains.",
  inherited: "The difference came in with its inputs: it adds nothing of its own that stands out.",
  nan_inherited: "NaN or infinities came in with its inputs.",
  amplified: "The difference came in with its inputs and grew here, as it does in an ill-conditioned operator.",
  drift: "The difference is more than one rounding, and nothing says whether it arose here or before.",
};

/** The same of results that should be equal bit for bit.   docs/commands/repeat.md, docs/invariance.md */
export const EQUALITY_MEANING = {
  operator: "Its inputs are equal bit for bit, its output is not.",
  random: "It draws random numbers, and no seed makes them the same.",
  uninitialised: "It read memory that nobody had written.",
  weight: "It read a parameter or a buffer that was another one from the start.",
  input: "It read another value, which no captured operator made.",
  "other operators": "One of the runs has no such operator.",
  leak: "The row's inputs are equal bit for bit, and its output is another one beside other neighbours: always a bug.",
  "not invariant": "The row's inputs are equal bit for bit, and another shape makes another output.",
  inherited: "The difference came in with its inputs.",
  same: "Equal bit for bit.",
  missing: "The other run has no such operator.",
  unseen: "It was captured without a digest, or nobody had written the memory that it gives.",
  "not judged": "Nobody can tell which of its elements belong to the row.",
};

/** How a run was judged: `level` of a verdict.   docs/commands/locate.md */
export const LEVEL_WORDS = {
  O: "each operator, computed again",
  L: "each of the innermost modules",
  M: "outputs of modules",
  B: "outputs of layers",
  N: "against what healthy runs differ by",
  S: "statistics, against what healthy runs differ by",
};

/** Where what is allowed comes from: `floor` of a verdict. */
export const FLOOR_WORDS = {
  model: "what rounding explains, by a model of it",
  measured: "what healthy runs differ by, as measured",
  exact: "nothing: every bit must be equal",
};

/** What rounding explains of a row: of its own error, where that is known; else one rounding to its type. */
export function explainedOf(noiseFloor, rounding) {
  return noiseFloor > 0 ? noiseFloor : (rounding ?? null);
}
