"""Writing: from what people write (blocks, MJML, Markdown, HTML) to the HTML of an email."""
