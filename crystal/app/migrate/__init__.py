"""Import the stores of other memory programs: find them, preview the import, run it, count the rows."""
