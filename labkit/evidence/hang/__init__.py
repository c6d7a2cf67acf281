"""Reads what a hanging job leaves behind, and says which operation it hangs on, who is absent, and why."""
