"""Judging: prompts, the flow of one judgement, the models behind the seam, and what drives them."""
