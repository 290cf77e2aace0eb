"""Numbers of a machine's descriptor, measured on the machine: `tilelink topo detect --calibrate`."""
