"""What a mail is: header lines, merge fields, text from HTML, and MIME compiled once a message."""
