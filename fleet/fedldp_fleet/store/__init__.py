"""What the server keeps: an interface, which `sqlite` implements."""
