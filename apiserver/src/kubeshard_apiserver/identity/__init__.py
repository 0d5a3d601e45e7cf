"""How it is found out who asks, and what roles let them do."""
