"""Reports of audit logs."""
