//go:build !windows

package marker

// exe ends the names of programs where a system wants that.
const exe = ""
