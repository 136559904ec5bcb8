package host

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// homeOf returns the home of the program that a process runs. Windows may show the link through
// which it was started, which leads to another version by now: then it cannot tell.
func homeOf(top string, pid int) (string, finding) {
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION|windows.SYNCHRONIZE, false, uint32(pid)) //nolint:gosec // a process id
	if errors.Is(err, windows.ERROR_INVALID_PARAMETER) {
		return "", ended
	}
	if err != nil {
		return "", cannotTell
	}
	defer windows.CloseHandle(process) //nolint:errcheck // the handle was only read
	// A process that has ended can be opened as long as another program has a handle of it.
	if event, err := windows.WaitForSingleObject(process, 0); err == nil && event == windows.WAIT_OBJECT_0 {
		return "", ended
	}
	name := make([]uint16, windows.MAX_LONG_PATH)
	size := uint32(len(name))
	if err := windows.QueryFullProcessImageName(process, 0, &name[0], &size); err != nil {
		return "", cannotTell
	}
	program := windows.UTF16ToString(name[:size])
	// One way to write the folder, since names that differ in case are equal. The last name stays,
	// which is the link that may lead elsewhere by now.
	folder, err := filepath.EvalSymlinks(filepath.Dir(program))
	if err != nil {
		return "", cannotTell
	}
	home, ok := homeIn(top, filepath.Join(folder, filepath.Base(program)))
	if !ok {
		return "", cannotTell
	}
	return home, runs
}
