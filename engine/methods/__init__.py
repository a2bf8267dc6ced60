"""The methods that models offer to users, one file each: their options, inputs and results; and what runs them."""
