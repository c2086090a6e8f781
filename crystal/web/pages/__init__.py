"""The pages: each function takes the memory and the values of a request, and returns what its template shows."""
