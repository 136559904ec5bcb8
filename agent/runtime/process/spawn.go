//go:build linux || darwin

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/agent/foreign"
	"github.com/muster-fleet/muster/agent/runtime"
)

// searchPath is the PATH of components, which does not depend on how the agent was started.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// spawn starts the program of the version that the link leads to, in a session and if
// possible in a control group of its own. It removes the group from the record if the agent
// may not create one.
//
// The kernel is not asked to end the program with the agent: it is to run on while the
// agent is upgraded. Its output is a file and no pipe, since a pipe breaks with the agent.
func (a *Adapter) spawn(r *runtime.Release, s settings, rec *record) (identity, error) {
	owner, err := s.account()
	if err != nil {
		return identity{}, err
	}
	tmp, err := a.temporary(r, owner)
	if err != nil {
		return identity{}, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return identity{}, err
	}
	defer null.Close()
	output, err := os.OpenFile(filepath.Join(r.Dir, outputFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return identity{}, err
	}
	defer output.Close()
	program := filepath.Join(r.Current(), filepath.FromSlash(s.Program))
	p, err := os.StartProcess(program, append([]string{program}, s.Args...), &os.ProcAttr{
		Dir: s.workingDir(r.Current()), Env: s.environment(owner, tmp, rec.Run), Files: []*os.File{null, output, output},
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: owner.credential},
	})
	if err != nil {
		for _, transient := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.ETXTBSY} {
			if errors.Is(err, transient) {
				return identity{}, fmt.Errorf("%w: %w", runtime.ErrTransient, err)
			}
		}
		return identity{}, err
	}
	defer p.Release() //nolint:errcheck // frees memory only
	if rec.Group != "" {
		if err := joinGroup(rec.Group, p.Pid); err != nil {
			a.o.Log.Debug("a component has no control group of its own", "component", r.Name, "error", err)
			_ = removeGroup(rec.Group) // it is empty, or was not created
			rec.Group = ""
		}
	}
	// It is there even if it has ended, since nobody has collected it.
	info, err := find(p.Pid)
	return info.identity, err
}

// temporary creates the folder for the component's temporary files. A component cannot use
// the one of the agent: systemd removes that of a unit when the agent ends, and the
// component runs on.
func (a *Adapter) temporary(r *runtime.Release, owner account) (string, error) {
	path := filepath.Join(r.Dir, temporaryDir)
	dir, name, err := foreign.Parent(a.o.Disk, "temporary files", path)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	tmp, err := dir.OpenFolder(name)
	if errors.Is(err, fs.ErrNotExist) {
		tmp, err = dir.MakeFolder(name)
	}
	if err != nil {
		return "", err
	}
	if owner.credential != nil {
		err = tmp.Chown(int(owner.credential.Uid), int(owner.credential.Gid))
	}
	return path, errors.Join(err, tmp.Close())
}

// environment returns what the program gets: the settings' variables after a few that do
// not depend on how the agent was started.
func (s settings) environment(owner account, tmp, run string) []string {
	env := map[string]string{"PATH": searchPath, "TMPDIR": tmp}
	if owner.name != "" {
		env["USER"], env["LOGNAME"], env["HOME"] = owner.name, owner.name, owner.home
	}
	maps.Copy(env, s.Env)
	env[runVariable] = run
	var out []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// account is what a program runs as.
type account struct {
	name, home string
	credential *syscall.Credential // nil: the agent's
}

// account looks up the user and the group.
func (s settings) account() (account, error) {
	if s.User == "" && s.Group == "" {
		return account{}, nil
	}
	u, err := lookupUser(s.User)
	if err != nil {
		return account{}, fmt.Errorf("user %s: %w: create it, or choose another one", s.User, err)
	}
	group := u.Gid
	if s.Group != "" {
		g, err := lookupGroup(s.Group)
		if err != nil {
			return account{}, fmt.Errorf("group %s: %w: create it, or choose another one", s.Group, err)
		}
		group = g.Gid
	}
	uid, err := number(u.Uid)
	if err != nil {
		return account{}, err
	}
	gid, err := number(group)
	if err != nil {
		return account{}, err
	}
	a := account{name: u.Username, home: u.HomeDir}
	if own := os.Geteuid(); own != 0 {
		if int(uid) == own && (s.Group == "" || int(gid) == os.Getegid()) {
			return a, nil
		}
		return account{}, fmt.Errorf("%w: the agent runs as the user with id %d and may start programs only as that one, not as %s:%s: run the agent as root, or remove user and group",
			runtime.ErrUnavailable, own, u.Username, group)
	}
	a.credential = &syscall.Credential{Uid: uid, Gid: gid}
	if s.User != "" {
		more, err := u.GroupIds()
		if err != nil {
			return account{}, fmt.Errorf("groups of user %s: %w", s.User, err)
		}
		for _, id := range more {
			if n, err := number(id); err == nil && n != gid {
				a.credential.Groups = append(a.credential.Groups, n)
			}
		}
	}
	return a, nil
}

func lookupUser(name string) (*user.User, error) {
	if name == "" {
		return user.LookupId(strconv.Itoa(os.Geteuid()))
	}
	if _, err := number(name); err == nil {
		return user.LookupId(name)
	}
	return user.Lookup(name)
}

func lookupGroup(name string) (*user.Group, error) {
	if _, err := number(name); err == nil {
		return user.LookupGroupId(name)
	}
	return user.LookupGroup(name)
}

func number(id string) (uint32, error) {
	n, err := strconv.ParseUint(id, 10, 32)
	return uint32(n), err
}

// mayRun returns an error unless the account may execute the program, which takes the
// right to pass all folders above it. It goes by the modes alone, as those of a package.
func (a account) mayRun(program string) error {
	if a.credential == nil || a.credential.Uid == 0 {
		return nil
	}
	for path := program; ; path = filepath.Dir(path) {
		fi, err := os.Stat(path)
		if err != nil {
			return err
		}
		if !a.mayExecute(fi) {
			return fmt.Errorf("user %s may not run %s: %s has the mode %s and another owner: let others pass it, or remove user", a.name, program, path, fi.Mode())
		}
		if path == filepath.Dir(path) {
			return nil
		}
	}
}

func (a account) mayExecute(fi fs.FileInfo) bool {
	owner, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return true
	case owner.Uid == a.credential.Uid:
		return fi.Mode()&0o100 != 0
	case owner.Gid == a.credential.Gid || slices.Contains(a.credential.Groups, owner.Gid):
		return fi.Mode()&0o010 != 0
	}
	return fi.Mode()&0o001 != 0
}

// readOnly reports whether a folder is on a file system that this process cannot write to,
// whatever its rights: the sandbox of the agent's unit makes most of them so.
func readOnly(dir string) bool { return errors.Is(unix.Access(dir, unix.W_OK), syscall.EROFS) }

// send sends a signal to a process, unless it has ended. The handle is opened before the
// process is compared, so that the signal does not reach one that got the id since; where
// the system has no handles, that leaves an instant.
func send(id identity, signal string) error {
	p, err := os.FindProcess(id.PID)
	if err != nil {
		return err
	}
	defer p.Release() //nolint:errcheck // frees memory only
	if !runs(id) {
		return nil
	}
	if err := p.Signal(unix.SignalNum("SIG" + signal)); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// runs reports whether the process exists and has not ended.
func runs(id identity) bool {
	info, err := find(id.PID)
	return err == nil && info.identity == id && !info.ended
}

// reap collects a child that has ended, and returns its status. It is empty for a process
// that is not the agent's child, since another process collects that, and for one that was
// collected before: its id may be that of another child.
func reap(id identity) string {
	info, err := find(id.PID)
	if err != nil || info.identity != id {
		return ""
	}
	var status unix.WaitStatus
	got, err := unix.Wait4(id.PID, &status, unix.WNOHANG, nil)
	switch {
	case err != nil || got != id.PID:
		return ""
	case status.Signaled():
		return "signal " + unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}

// processInfo is what the system says of a process.
type processInfo struct {
	identity
	group, session int
	// ended means that it only waits to be collected.
	ended bool
}
