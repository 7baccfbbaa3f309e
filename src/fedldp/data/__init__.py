"""Reading rows from dicts, arrays, data frames and files, and counting what is wrong in them."""
