//go:build !unix

package limit

// descriptors returns 0, since there is no limit.
func descriptors() int { return 0 }
