"""Tests of audits: good logs give no finding, and what is wrong in a bad one is named with its line."""
