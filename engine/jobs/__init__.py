"""Jobs over files: rows in, results out, in parts that are whole or absent, so that a stopped job goes on."""
