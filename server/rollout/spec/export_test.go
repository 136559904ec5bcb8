package spec

// Triggers is the table of the fields that start rollouts, for tests.
var Triggers = triggers
