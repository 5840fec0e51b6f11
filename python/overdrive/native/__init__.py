"""The C++ side as Python sees it: finding and loading the library, calling it, the recording under way, and what stands around captured code."""
