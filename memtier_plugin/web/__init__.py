"""The local web view: pages over the same services and view models as the terminal's."""
