"""Write memories as plain files in a folder of the user's, and read the user's changes back."""
