package detach

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Attributes starts a program without a console, in a new process group, and outside of the job of
// this process, with which it would be killed.
func Attributes() *syscall.SysProcAttr {
	flags := uint32(windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS)
	if mayLeaveJob() {
		flags |= windows.CREATE_BREAKAWAY_FROM_JOB
	}
	return &syscall.SysProcAttr{CreationFlags: flags}
}

// mayLeaveJob reports whether this process is in a job whose processes may start others outside of
// it. Without that right Windows refuses to start a program that is to leave the job.
func mayLeaveJob() bool {
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	// No handle means the job of this process; without a job the query fails.
	err := windows.QueryInformationJobObject(0, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
	return err == nil && info.BasicLimitInformation.LimitFlags&windows.JOB_OBJECT_LIMIT_BREAKAWAY_OK != 0
}
