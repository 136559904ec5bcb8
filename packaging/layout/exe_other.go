//go:build !windows

package layout

// exe ends the names of programs where a system wants that.
const exe = ""
