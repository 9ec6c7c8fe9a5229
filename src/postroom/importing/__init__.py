"""Imports of people from CSV files: upload, job, parsing, and the worker that runs the job."""
