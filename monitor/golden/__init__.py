"""Golden sets: hand-graded conversations that a prompt and a judge are measured on before they are used."""
