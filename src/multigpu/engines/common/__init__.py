"""What both frameworks' engines share."""
