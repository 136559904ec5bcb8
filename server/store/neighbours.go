package store

// Neighbours is a store whose servers run on one machine, and so take its processors
// from each other.
type Neighbours interface {
	// HandOut says that this process hands something out to a fleet, or does so no
	// longer. It is no more than a hint, and is over when the process ends.
	HandOut(on bool)
	// HandOutElsewhere says whether another process does. It costs a system call.
	HandOutElsewhere() bool
}
