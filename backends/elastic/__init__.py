"""Training that goes on through failures: from the newest checkpoint, at whatever layout fits who is left."""
