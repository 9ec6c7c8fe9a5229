"""Rate limits that all senders share, behind one class: `pacer.Pacer`."""
