"""A small broker, written from the protocol alone: it never imports the controller."""
