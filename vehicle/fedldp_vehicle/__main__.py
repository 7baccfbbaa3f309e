"""`python -m fedldp_vehicle`."""

from fedldp_vehicle.command import main

if __name__ == "__main__":
    main()
