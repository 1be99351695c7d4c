"""Tests of the pictures of runs."""
