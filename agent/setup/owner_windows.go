package setup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// checkOwners refuses a folder that is not below the folder of programs: other users may rename the
// folders above it, or write to new folders on the drive, and so replace the agent, which
// runs as LocalSystem.
func checkOwners(flag, folder string) error {
	programs, err := windows.KnownFolderPath(windows.FOLDERID_ProgramFiles, windows.KF_FLAG_DEFAULT)
	if err != nil {
		return fmt.Errorf("find the folder of programs: %w", err)
	}
	if !strings.HasPrefix(strings.ToLower(filepath.Clean(folder)), strings.ToLower(programs)+`\`) {
		return fmt.Errorf("%s: other users may be able to replace the agent in %s, which LocalSystem runs: choose a folder in %s", flag, folder, programs)
	}
	return nil
}

// runsAsRoot reports whether the agent may run with all rights: an administrator installs it.
func runsAsRoot() bool { return windows.GetCurrentProcessToken().IsElevated() }

// ownersOnly is an access list that does not inherit from the folder above: all rights for
// LocalSystem (SY) and the administrators (BA), also on what is created below, and none for others.
const ownersOnly = "D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)"

// keepPrivate keeps other users from reading the identity, which is a secret: modes of files mean
// nothing here.
func keepPrivate(top string) error {
	if !runsAsRoot() {
		return nil // whoever installs it runs it
	}
	sd, err := windows.SecurityDescriptorFromString(ownersOnly)
	if err != nil {
		return err
	}
	list, _, err := sd.DACL()
	if err != nil {
		return err
	}
	err = windows.SetNamedSecurityInfo(top, windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION|windows.PROTECTED_DACL_SECURITY_INFORMATION, nil, nil, list, nil)
	if err != nil {
		return fmt.Errorf("set the access list of %s: %w", top, err)
	}
	return nil
}

// leaveHome moves this program out of the folder that is to be removed, since a program that runs
// can be renamed, but not removed. Windows removes it at the next boot.
func leaveHome(top string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return err
	}
	if inTop, err := filepath.Rel(top, exe); err != nil || !filepath.IsLocal(inTop) {
		return nil //nolint:nilerr // on another drive, so elsewhere
	}
	// Beside the top folder, since a rename does not leave the drive.
	away := fmt.Sprintf("%s-removed-%d.exe", top, os.Getpid())
	if err := os.Rename(exe, away); err != nil {
		return fmt.Errorf("move the running program out of the way: %w", err)
	}
	name, err := windows.UTF16PtrFromString(away)
	if err != nil {
		return err
	}
	return windows.MoveFileEx(name, nil, windows.MOVEFILE_DELAY_UNTIL_REBOOT)
}
