"""``adapter-lifecycle bench``: what each strategy holds, copies and takes, side by side in one run."""
