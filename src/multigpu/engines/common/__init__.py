"""Parts shared by both frameworks' engines."""
