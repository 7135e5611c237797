"""The recorder: topics into a segment log, and back copies out of it."""
