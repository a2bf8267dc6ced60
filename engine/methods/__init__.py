"""What models with an encoder do for users: one file a method, and the one loop that runs all of them."""
