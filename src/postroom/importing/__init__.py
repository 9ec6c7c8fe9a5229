"""Imports of people from CSV files: the upload, the job, the reading, the worker that runs it."""
