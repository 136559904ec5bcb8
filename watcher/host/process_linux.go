package host

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// homeOf returns the home of the program that a process runs. A process that has ended and
// was not reaped yet has a process id but no program.
func homeOf(top string, pid int) (string, finding) {
	program, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	if errors.Is(err, fs.ErrNotExist) {
		return "", ended
	}
	if err != nil {
		return "", cannotTell
	}
	home, ok := homeIn(top, strings.TrimSuffix(program, " (deleted)"))
	if !ok {
		return "", cannotTell
	}
	return home, runs
}
