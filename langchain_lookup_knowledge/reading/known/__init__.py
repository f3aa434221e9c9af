"""What is known of the files of a folder, so that unchanged files are not read again."""
