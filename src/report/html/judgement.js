// SPDX-License-Identifier: Apache-2.0
// What the words of the column `verdict` mean.   docs/localisation.md, "Columns of the table"

/** One sentence for each word. The words that accuse first. */
export const JUDGEMENT_MEANING = {
  own_error: "It is wrong by itself: the inputs that it had should have given another result.",
  weight: "Its weight is not golden's.",
  attribute: "It was called with other settings than in golden.",
  constant: "It computes with another constant than golden.",
  topology: "Other operators run here than in golden.",
  edge: "It reads another tensor than in golden.",
  gap: "What lies between two captured tensors is wrong; the operators in between were not captured.",
  measured_floor: "It differs by more than healthy runs of this model were measured to differ.",
  nan_origin: "NaN or infinities come up here: its inputs have none.",
  structural: "It has another shape than golden, or other integers.",
  rank_divergence: "Ranks that should hold the same values do not.",
  noise: "The difference is no more than rounding explains.",
  inherited: "The difference came in with its inputs: it adds nothing of its own that stands out.",
  nan_inherited: "NaN or infinities came in with its inputs.",
  amplified: "The difference came in with its inputs and grew here, as it does in an ill-conditioned operator.",
  drift: "The difference is more than one rounding, and nothing says whether it arose here or before.",
};
