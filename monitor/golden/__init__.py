"""Golden sets: hand-graded conversations that a prompt version and a judge are measured on before they are used."""
