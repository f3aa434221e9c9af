"""Opening a folder: from the files, and from what an earlier opening kept of them."""
