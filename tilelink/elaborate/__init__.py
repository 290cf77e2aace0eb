"""What the nodes of a schedule mean, as steps: a schedule of `tilelink.ir` in the language of `tilelink.schedule`."""
