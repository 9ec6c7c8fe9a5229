"""`./dev soak`: a whole Postroom under steady load and every kind of trouble, for minutes."""
