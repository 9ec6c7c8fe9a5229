"""The parts of a sender: its lease, its lanes, a claimed batch, the journal and the recovery."""
