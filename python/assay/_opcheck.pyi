"""
Native half of assay.reference and assay.opcheck: operators recomputed in fp64.
"""
