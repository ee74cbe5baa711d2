"""The transactional streaming core: dataflows of stored procedures over embedded state.

Owns the model (what a user declares), the core (where it runs) and its ledger.
May import the kernel, nothing else of Headrace.
"""
