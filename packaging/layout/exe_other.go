//go:build !windows

package layout

// exe is the suffix of program names.
const exe = ""
