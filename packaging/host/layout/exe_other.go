//go:build !windows

package layout

// exe is the suffix of program names.
const exe = ""

// lockPID is the suffix of the file with the process id of a lock's holder: the lock file itself.
const lockPID = ""

// DefaultTop is the default top folder.
const DefaultTop = "/opt/muster"
