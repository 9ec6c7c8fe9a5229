"""The storage engine for Azure Storage: tables over HTTP, queues and blobs by the SDK."""
