"""The answers: tables, figures, the page. Built from the database alone."""
