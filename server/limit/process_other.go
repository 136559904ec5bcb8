//go:build !unix

package limit

import "time"

// descriptors is 0: there is no such limit.
func descriptors() int { return 0 }

// processorTime is not known.
func processorTime() time.Duration { return 0 }
