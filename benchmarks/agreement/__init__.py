"""How far a judge agrees with people, on public conversations with labels."""
