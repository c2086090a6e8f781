"""Take over what other memory programs have stored: find their stores, say what would come, import it, count it."""
