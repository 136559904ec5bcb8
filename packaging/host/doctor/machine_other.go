//go:build !linux

package doctor

// Kernel judges nothing on this system.
func Kernel() Finding { return Finding{} }

// NoExec judges nothing on this system.
func NoExec(string) Finding { return Finding{} }

// Synchronised judges nothing on this system.
func Synchronised() Finding { return Finding{} }
