//! The runtime with a counter as its state machine.
