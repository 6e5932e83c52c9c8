"""The contracts both sides share: gRPC messages (generated), and the state-change log (`state_log`)."""
