"""Answer many clients at once with one loaded model: admission, batches of many requests, and the routes of HTTP."""
