"""The generated pages and the glossary."""
