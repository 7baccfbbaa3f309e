"""What the server keeps: an interface, which `sqlite` and `postgresql` implement."""
