package app_test

import (
	"math/rand/v2"
)

// noise is text that does not compress.
func noise(size int) string {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b) // never fails
	return string(b)
}
