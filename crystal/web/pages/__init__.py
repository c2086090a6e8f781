"""Answer requests: each page takes the memory and the values of a request, and returns what its template shows."""
