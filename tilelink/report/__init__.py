"""The report page of a plan: one file of HTML, drawn by Python, that needs neither network nor framework."""
