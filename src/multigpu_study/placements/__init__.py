"""The report's page of placements: pictures and cost formulas, drawn from each row of data."""
